"""What the SDK is called with, and that it is whole numbers only."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from reflex_ros.arm import wire
from reflex_ros.arm.commands import Commands
from reflex_ros.arm.config import DriverConfig


class Recorder:
    """Stands for the SDK: notes every call, refuses anything that is not a plain int."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*args):
            assert all(type(a) is int for a in args), f'{name}{args}'
            self.calls.append((name, args))
        return call


class OpenGate:
    """Runs every call and keeps the frames it was promised."""

    def __init__(self):
        self.frames = []

    def command(self, frames, call):
        self.frames = list(frames)
        call()
        return True

    def each(self, frames, call):
        return (self.command(frames, call),) * len(frames)

    def query(self, frame, call):
        return self.command([frame], call)


@pytest.fixture
def sdk():
    return Recorder()


@pytest.fixture
def gate():
    return OpenGate()


@pytest.fixture
def commands(sdk, gate):
    return Commands(DriverConfig(), link=SimpleNamespace(sdk=sdk), gate=gate)


def test_no_float_reaches_the_sdk(commands):
    rng = np.random.default_rng(1)
    for dtype in (np.float64, np.float32):
        for _ in range(50):
            command = rng.uniform(-1, 1, 7).astype(dtype)
            assert commands.move(command, mode_percent=30)
            assert commands.hold(command, percent=10)
    for call in (commands.clear_joint_errors, commands.reset, commands.power_off,
                 commands.query_gripper, commands.query_firmware):
        assert call()
    assert commands.power_on(3) and commands.query_limits(2, 1)
    assert commands.clear_gripper_errors(wire.GripperState(0.0123, 0.0, 0x60))


def test_no_float_reaches_the_sdk_can_fail(sdk):
    with pytest.raises(AssertionError):
        sdk.JointCtrl(0.5, 0, 0, 0, 0, 0)
    with pytest.raises(AssertionError):
        sdk.JointCtrl(np.int64(5), 0, 0, 0, 0, 0)


def test_move_is_three_joint_frames_and_the_gripper(commands, sdk, gate):
    commands.move(np.array([0, 0.5235988, 0, 0, 0, 0, 0.035]), mode_percent=None)
    assert [f.can_id for f in gate.frames] == [0x155, 0x156, 0x157, 0x159]
    assert sdk.calls == [
        ('JointCtrl', (0, 30000, 0, 0, 0, 0)), ('GripperCtrl', (35000, 1000, 1, 0))]


def test_move_with_a_mode_sends_it_first(commands, sdk):
    commands.move(np.zeros(7), mode_percent=30)
    assert sdk.calls[0] == ('MotionCtrl_2', (1, 1, 30, 0))


def test_hold_surrounds_the_mode_with_the_pose(commands, sdk):
    commands.hold(np.zeros(7), percent=10)
    names = [name for name, _ in sdk.calls]
    assert names == ['JointCtrl', 'MotionCtrl_2', 'JointCtrl', 'GripperCtrl']


@pytest.mark.parametrize(('bits', 'code'), [(0x60, 3), (0x20, 2)])
def test_clearing_the_gripper_keeps_its_power_state(commands, sdk, bits, code):
    commands.clear_gripper_errors(wire.GripperState(0.02, 0.0, bits))
    assert sdk.calls == [('GripperCtrl', (20000, 1000, code, 0))]
