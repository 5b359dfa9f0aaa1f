"""A recorded sweep of the gripper, closed to open to closed, in the units of every integration.

``test/data/gripper/sweep.log`` has the frames of an emulated arm as candump writes them, in the
bytes of the simulator's codec; the driver's codec reads them here. Its two end stops are the two
points of a calibration: the policy's "closed" and "open".
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from reflex_ros.arm import wire
from reflex_ros.arm.checks import GRIPPER_TOLERANCE_M
from reflex_ros.arm.feedback import FeedbackBook
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.infer.processing.robot import RobotMap
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.emulator import Emulator
from reflex_ros.sim.plant import KinematicPlant

FULL_M, SWEEP_S = 0.07, 2.4
FULL = {'m': 0.07, 'mm': 70.0, 'fraction': 1.0, 'percent': 100.0}


def swept():
    """Return the lines of a sweep: commands at 50 Hz, feedback every 20 ms."""
    clock = ManualClock(S)
    arm = Emulator(KinematicPlant(clock, gripper_m=0.0), clock.mono_ns())
    lines = []
    for cycle in range(round(SWEEP_S / 0.005)):
        clock.advance(5 * MS)
        now_ns = clock.mono_ns()
        if cycle % 4 == 0:
            share = min(1.0, 1.25 * (1.0 - abs(2.0 * cycle * 0.005 / SWEEP_S - 1.0)))
            target = codec.encode(codec.GripperTarget(round(share * FULL_M * 1e6), 1000, 1))
            arm.receive(*target, now_ns)
            lines.append(line(now_ns, target))
        feedback = [frame for frame in arm.step(now_ns) if frame.can_id == 0x2A8]
        if cycle % 4 == 3:
            lines.append(line(now_ns, feedback[0]))
    return lines


def line(now_ns, frame):
    return f'({now_ns / S:.6f}) can0 {frame.can_id:03X}#{frame.data.hex().upper()}'


@pytest.fixture
def recorded(root):
    return (root / 'test' / 'data' / 'gripper' / 'sweep.log').read_text().splitlines()


def openings(lines, *, share=1.0):
    """Return times in s and measured openings in m, as the driver reads the frames.

    ``share`` of each opening stands in the frames of a gripper that reports another length.
    """
    book, times, found = FeedbackBook(), [], []
    for text in lines:
        stamp, _, frame = text.split()
        can_id, data = frame.split('#')
        data = bytes.fromhex(data)
        if int(can_id, 16) != wire.GRIPPER_FEEDBACK:
            continue
        opening_um, *rest = struct.unpack('>ihBB', data)
        data = struct.pack('>ihBB', round(share * opening_um), *rest)
        book.on_frame(wire.Frame(wire.GRIPPER_FEEDBACK, data),
                      mono_ns=round(float(stamp[1:-1]) * S), stamp_s=0.0)
        times.append(float(stamp[1:-1]))
        found.append(book.view().gripper.opening_m)
    return np.array(times), np.array(found)


def problems(opened, gripper_unit):
    """Return what is wrong with the two end stops of a sweep in a unit of a policy."""
    scale = RobotMap(joint_unit='rad', gripper_unit=gripper_unit).scales()[-1]
    low, high = opened.min() * scale, opened.max() * scale
    slack, full = 0.01 * FULL[gripper_unit], FULL[gripper_unit]
    found = [] if abs(low) <= slack else [f'closed is {low:g}']
    return found + ([] if abs(high - full) <= slack else [f'open is {high:g} of {full:g}'])


def test_the_recording_is_what_the_simulator_s_codec_writes(recorded):
    assert recorded == swept()


def test_a_sweep_is_read_as_it_was_driven(recorded):
    times, opened = openings(recorded)
    top = int(opened.argmax())
    assert len(times) > 100 and np.all(np.diff(times) > 0)
    assert np.all(np.diff(opened[:top + 1]) >= -1e-6), 'opens without a step back'
    assert np.all(np.diff(opened[top:]) <= 1e-6) and opened[-1] < 0.005, 'and closes'
    assert np.abs(np.diff(opened)).max() < 0.005, 'no reading leaps'
    assert opened.min() > -GRIPPER_TOLERANCE_M and opened.max() < FULL_M + GRIPPER_TOLERANCE_M


@pytest.mark.parametrize('unit', FULL)
def test_the_end_stops_are_closed_and_open_in_every_unit_of_a_policy(recorded, unit):
    assert problems(openings(recorded)[1], unit) == []


@pytest.mark.parametrize(('share', 'what'), [
    (0.5, 'open is 35 of 70'),  # one finger, where the total opening is meant
    (1.0 / 0.7, 'open is 100 of 70'),  # a gripper of 100 mm under a map of 70
    (22.9, 'open is 1603 of 70'),  # an angle in mrad, as other arms' grippers report
], ids=['finger', 'other gripper', 'angle'])
def test_a_gripper_of_another_scale_can_fail(recorded, share, what):
    assert any(what in text for text in problems(openings(recorded, share=share)[1], 'mm'))
