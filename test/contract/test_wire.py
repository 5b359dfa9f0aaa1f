"""Only these ids ever leave, whoever in the process asks the SDK for others."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from reflex_ros.arm import wire
from reflex_ros.core.clock import Instant
from reflex_ros.sim.can_codec import CanFrame
from reflex_ros.sim.can_tap import CommandTap

ROOT = Path(__file__).parents[2]
ALLOWED = {0x150, 0x151, 0x155, 0x156, 0x157, 0x159, 0x471, 0x472, 0x475, 0x477, 0x4AF}
PERSISTENT = {0x422, 0x470, 0x474, 0x479, 0x47A, 0x47D, 0x191, 0x152, 0x153, 0x154, 0x158,
              *range(0x15A, 0x160), *range(0x160, 0x180)}
GOOD, BAD = wire.mode_frame(50), wire.Frame(0x474, bytes(8))


@pytest.fixture
def suite():
    """Return the module with the checks of every test and of the session."""
    spec = importlib.util.spec_from_file_location('suite_conftest', ROOT / 'test' / 'conftest.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def forbidden_frames(suite):
    """Return the check that runs at the end of every test session."""
    return suite.forbidden_frames


def test_what_an_arm_of_this_process_is_sent_is_searched_too(frames_on_sockets, suite):
    frames_on_sockets.clear()
    one = CommandTap(('can0',))
    for frame in (GOOD, *wire.joint_frames([0] * 6)):
        one.record('can0', CanFrame(*frame), 5)
    assert suite.forbidden_of(frames_on_sockets) == [] and len(frames_on_sockets) == 1


def test_what_an_arm_of_this_process_is_sent_can_fail(frames_on_sockets, suite):
    CommandTap(('can0',)).record('can0', CanFrame(*BAD), 5)
    assert suite.forbidden_of(frames_on_sockets) == ['0x474 ' + '00' * 8]


def tap(folder, *frames):
    folder.mkdir(parents=True)
    one = CommandTap(('can0',), path=folder / 'can_tap.bin', start=Instant(1, 2))
    for frame in frames:
        one.record('can0', CanFrame(*frame), 5)
    one.close()


def test_the_allow_list_is_this_one():
    assert set(wire.ALLOWED) == ALLOWED
    for can_id in range(0x800):
        frame = wire.Frame(can_id, bytes([0, wire.MOVE_JOINT, 0, 0, 0, 0, 0, 0]))
        if can_id not in ALLOWED:
            assert wire.is_forbidden(frame), hex(can_id)
    assert not ALLOWED & PERSISTENT


def test_the_suite_is_searched_for_other_frames(tmp_path, forbidden_frames):
    tap(tmp_path / 'a' / 'run', GOOD, *wire.joint_frames([0] * 6))
    assert forbidden_frames(tmp_path) == []


def test_the_suite_is_searched_for_other_frames_can_fail(tmp_path, forbidden_frames):
    folder = tmp_path / 'run'
    tap(folder, GOOD, BAD)
    assert [line.split(': ')[1] for line in forbidden_frames(tmp_path)] == [
        '0x474 ' + '00' * 8]
    (folder / 'can_tap.bin').unlink()  # the session's own search must not find it
