"""The driver's bytes and the simulator's bytes, two codecs written apart, mean the same."""

from __future__ import annotations

import math
import random

import pytest

from reflex_ros.arm import wire
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.can_codec import decode_command, encode
from reflex_ros.sim.faults import FLAGS

COMMANDS = [
    (wire.mode_frame(80), codec.Mode(1, 1, 80)),
    (wire.gripper_frame(65000, 1500, wire.GRIPPER_ON), codec.GripperTarget(65000, 1500, 1)),
    (wire.gripper_frame(0, 0, wire.GRIPPER_OFF_CLEAR), codec.GripperTarget(0, 0, 2)),
    (wire.power_frame(4, wire.POWER_ON), codec.Power(4, 2)),
    (wire.power_frame(7, wire.POWER_OFF), codec.Power(7, 1)),
    (wire.limit_query_frame(3, wire.QUERY_ANGLE), codec.LimitQuery(3, 1)),
    (wire.limit_query_frame(6, wire.QUERY_ACCELERATION), codec.LimitQuery(6, 2)),
    (wire.firmware_query_frame(), codec.FirmwareQuery(1)),
    (wire.clear_error_frame(), codec.JointSetting(7, 0, 0, codec.KEEP, codec.APPLY)),
    (wire.reset_frame(), codec.Motion(2)),
]


@pytest.mark.parametrize(('frame', 'message'), COMMANDS, ids=lambda value: type(value).__name__)
def test_the_simulator_reads_what_the_driver_writes(frame, message):
    assert decode_command(*frame) == message
    assert tuple(encode(message)) == tuple(frame)


def test_the_gripper_query_asks_for_gripper_parameters_and_sets_nothing():
    message = decode_command(*wire.gripper_query_frame())
    assert (message.query, message.setting, message.set_load) == (4, 0, 0)


def test_joint_targets_agree_over_the_whole_range():
    rng = random.Random(11)
    for _ in range(200):
        angles = [rng.randint(-200_000, 200_000) for _ in range(6)]
        frames = wire.joint_frames(angles)
        messages = [decode_command(*frame) for frame in frames]
        assert [m.joint for m in messages] == [1, 3, 5]
        assert [v for m in messages for v in (m.first_mdeg, m.second_mdeg)] == angles
        assert [tuple(encode(m)) for m in messages] == [tuple(f) for f in frames]


def test_the_driver_reads_the_status_that_the_simulator_writes():
    status = wire.decode_status(encode(codec.Status(1, 7, 1, 2, 1, 0, 0b10, 0b100)).data)
    assert status == wire.Status(1, 7, 1, 2, 1, 0b10, 0b100)


def test_the_driver_reads_angles_and_opening_that_the_simulator_writes():
    assert wire.decode_pair(encode(codec.JointAngles(3, -40000, 5)).data) == (-40000, 5)
    got = wire.decode_gripper(encode(codec.GripperState(30000, -1000, 0xC0)).data)
    assert got == pytest.approx(wire.GripperState(0.03, -1.0, 0xC0))


def test_the_driver_reads_motors_and_drivers_that_the_simulator_writes():
    motor = wire.decode_motor(encode(codec.MotorState(2, -3000, 250, 9)).data)
    assert motor == pytest.approx(wire.MotorState(-3.0, 0.25))
    driver = wire.decode_driver(encode(codec.DriverState(6, 240, -5, 38, 0x50, 150)).data)
    assert driver == pytest.approx(wire.DriverState(24.0, -5, 38, 0x50))


def test_the_driver_reads_limits_that_the_simulator_writes():
    got = wire.decode_angle_limit(encode(codec.AngleLimit(3, 0, -1700, 3000)).data)
    assert got == pytest.approx(wire.AngleLimit(3, math.radians(-170), 0.0, 3.0))
    bound = wire.decode_acceleration_limit(encode(codec.AccelerationLimit(4, 500)).data)
    assert bound == pytest.approx(wire.AccelerationLimit(4, 5.0))
    data = encode(codec.GripperParameters(100, 70, 1)).data
    assert wire.decode_gripper_range(data) == pytest.approx(0.07)


def test_ids_and_bits_agree():
    assert tuple(wire.HIGH_SPEED) == codec.MotorState.WIRE.ids
    assert tuple(wire.LOW_SPEED) == codec.DriverState.WIRE.ids
    feedback = {i for kind in (codec.Status, codec.JointAngles, codec.GripperState,
                               codec.MotorState, codec.DriverState) for i in kind.WIRE.ids}
    assert feedback == set(wire.CYCLIC_IDS)
    assert wire.ENABLED_BIT == codec.POWER_BIT
    assert not any(bit & codec.POWER_BIT for bit in FLAGS.values())


def test_a_codec_that_swaps_two_bytes_is_noticed_can_fail():
    frame = wire.joint_frames([1000, 2000, 3000, 4000, 5000, 6000])[0]
    swapped = frame.data[4:] + frame.data[:4]
    assert decode_command(frame.can_id, swapped) != codec.JointTarget(1, 1000, 2000)


def test_commands_that_a_bridge_must_never_send_are_those_that_write_flash():
    settings = [
        codec.LimitSetting(1, 0, 0, 0), codec.JointSetting(1, codec.APPLY, 0, 0, 0),
        codec.JointSetting(1, 0, codec.APPLY, 100, 0), codec.ParameterQuery(0, 1),
        codec.EndSpeedSetting(1, 1, 1, 1), codec.CrashSetting(bytes(6)), codec.Linkage(0xFA),
        codec.GripperSetting(100, 70, 1), codec.GripperTarget(0, 0, 1, codec.APPLY),
    ]
    assert all(wire.is_forbidden(wire.Frame(*encode(setting))) for setting in settings)
