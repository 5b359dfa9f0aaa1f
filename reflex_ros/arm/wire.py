"""Bytes and units of the arm's CAN frames, as the driver writes and reads them.

Classic CAN, 11-bit ids, eight data bytes, big-endian, two's complement. The simulator has a codec
of its own, so that each checks the other. Units on the wire: 0.001 deg, 0.001 mm of total gripper
opening, 0.001 N·m, 0.001 rad/s, 0.01 rad/s², 0.1 deg for limits.
"""

from __future__ import annotations

import math
import re
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

JOINTS = 6
FRAME_BYTES = 8

ESTOP = 0x150
MODE = 0x151
JOINT_12, JOINT_34, JOINT_56 = 0x155, 0x156, 0x157
GRIPPER = 0x159
MOTOR_POWER = 0x471
QUERY_LIMITS = 0x472
JOINT_CONFIG = 0x475
QUERY_PARAMETERS = 0x477
FIRMWARE = 0x4AF

STATUS = 0x2A1
FEEDBACK_12, FEEDBACK_34, FEEDBACK_56 = 0x2A5, 0x2A6, 0x2A7
GRIPPER_FEEDBACK = 0x2A8
HIGH_SPEED = range(0x251, 0x257)
LOW_SPEED = range(0x261, 0x267)
ANGLE_LIMIT = 0x473
ACCELERATION_LIMIT = 0x47C
GRIPPER_PARAMETERS = 0x47E

CYCLIC_IDS = (
    STATUS, FEEDBACK_12, FEEDBACK_34, FEEDBACK_56, GRIPPER_FEEDBACK, *HIGH_SPEED, *LOW_SPEED,
)
"""Ids that a healthy follower arm sends all the time."""

FEEDBACK_IDS = frozenset({*CYCLIC_IDS, 0x2A2, 0x2A3, 0x2A4})
"""Those and the end pose, which nothing here reads."""

COMMAND_IDS = frozenset({
    *range(0x150, 0x160), *range(0x160, 0x180), 0x191, 0x422, 0x470, 0x471, 0x474, 0x475, 0x479,
    0x47A, 0x47D,
})
"""Ids that only a commander sends; 0x16x and 0x17x are its shifted forms."""

LEADER_IDS = frozenset({*range(0x3A0, 0x3B0), *range(0x2B1, 0x2B9), *range(0x2C1, 0x2C9)})
"""Ids seen from an arm in leader mode or with shifted feedback."""

ALLOWED: Mapping[int, str] = MappingProxyType({
    MODE: 'CAN control, joint position mode and speed; no other mode',
    JOINT_12: 'targets of joint1 and joint2',
    JOINT_34: 'targets of joint3 and joint4',
    JOINT_56: 'targets of joint5 and joint6',
    GRIPPER: 'target and torque bound of the gripper; never its zero',
    MOTOR_POWER: 'power of one joint on; off only at a confirmed request',
    JOINT_CONFIG: 'clear errors; never zero or acceleration',
    ESTOP: 'reset, only at a confirmed request; no teaching',
    QUERY_LIMITS: 'ask for range, speed and acceleration of a joint',
    QUERY_PARAMETERS: 'ask for the range of the gripper; sets nothing',
    FIRMWARE: 'ask for the firmware version',
})
"""Every id that may leave, with the only content that it may have. None of them is stored."""

CONTROL_STANDBY, CONTROL_CAN, CONTROL_TEACH, CONTROL_LEADER = 0, 1, 2, 6
MOVE_JOINT = 1
GRIPPER_OFF_CLEAR, GRIPPER_ON, GRIPPER_ON_CLEAR = 2, 1, 3
QUERY_ANGLE, QUERY_ACCELERATION = 1, 2
POWER_OFF, POWER_ON = 1, 2
EFFECTIVE = 0xAE
KEEP_ACCELERATION = 0x7FFF
ALL_JOINTS = 7
ENABLED_BIT = 1 << 6
HOMED_BIT = 1 << 7
"""Of the gripper alone: its zero is known."""

_MDEG_PER_RAD = 180_000.0 / math.pi
_TORQUE_NM_PER_A = (1.18125, 1.18125, 1.18125, 0.95844, 0.95844, 0.95844)
_PAIR = struct.Struct('>ii')
_GRIPPER = struct.Struct('>ihBB')
_MOTOR = struct.Struct('>hhi')
_DRIVER = struct.Struct('>HhbBH')
_ANGLE_LIMIT = struct.Struct('>BhhHB')
_ACCELERATION_LIMIT = struct.Struct('>BH')
_FIRMWARE = re.compile(rb'S-V(\d+)\.(\d+)-(\d+)')
_FIRMWARE_LENGTH = 8


class Frame(NamedTuple):
    """One CAN frame: identifier and eight data bytes."""

    can_id: int
    data: bytes


class Status(NamedTuple):
    """0x2A1, raw codes; one bit per joint in ``limit_bits`` and ``comm_bits``."""

    control_mode: int
    arm_status: int
    move_mode: int
    teach: int
    motion_status: int
    limit_bits: int
    comm_bits: int


class GripperState(NamedTuple):
    """0x2A8: total opening in m, motor torque in N·m, status bits."""

    opening_m: float
    torque_nm: float
    bits: int


class MotorState(NamedTuple):
    """0x251..0x256: speed in rad/s, current in A."""

    speed_rad_s: float
    current_a: float


class DriverState(NamedTuple):
    """0x261..0x266: supply in V, temperatures in °C, status bits (bit 6 = powered)."""

    voltage_v: float
    driver_c: int
    motor_c: int
    bits: int


class AngleLimit(NamedTuple):
    """0x473: range in rad and top speed in rad/s of one joint, 1..6."""

    joint: int
    lower_rad: float
    upper_rad: float
    speed_rad_s: float


class AccelerationLimit(NamedTuple):
    """0x47C: top acceleration in rad/s² of one joint, 1..6."""

    joint: int
    acceleration_rad_s2: float


def rad_to_mdeg(angle_rad: float) -> int:
    """Return the angle as a whole number of 0.001 deg."""
    return round(float(angle_rad) * _MDEG_PER_RAD)


def mdeg_to_rad(angle_mdeg: int) -> float:
    """Return the angle in rad."""
    return angle_mdeg / _MDEG_PER_RAD


def m_to_um(opening_m: float) -> int:
    """Return the opening as a whole number of 0.001 mm, never negative."""
    return max(0, round(float(opening_m) * 1e6))


def torque_nm(joint: int, current_a: float, *, is_old_scale: bool) -> float:
    """Return the torque estimate of joint 1..6; firmware <= 1.8-2 reports J1..J3 at a quarter."""
    scale = 4.0 if is_old_scale and joint <= 3 else 1.0
    return current_a * _TORQUE_NM_PER_A[joint - 1] * scale


def mode_frame(speed_percent: int) -> Frame:
    """CAN control, MOVE J, speed in %, position-velocity mode, installation unchanged."""
    return Frame(MODE, bytes([CONTROL_CAN, MOVE_JOINT, speed_percent, 0, 0, 0, 0, 0]))


def joint_frames(angles_mdeg: Iterable[int]) -> tuple[Frame, Frame, Frame]:
    """Return the three frames that carry six joint targets, 0.001 deg."""
    j1, j2, j3, j4, j5, j6 = angles_mdeg
    return (
        Frame(JOINT_12, _PAIR.pack(j1, j2)),
        Frame(JOINT_34, _PAIR.pack(j3, j4)),
        Frame(JOINT_56, _PAIR.pack(j5, j6)),
    )


def gripper_frame(opening_um: int, torque_mnm: int, code: int) -> Frame:
    """Return the gripper target in 0.001 mm with a torque bound in 0.001 N·m; never sets zero."""
    return Frame(GRIPPER, struct.pack('>iHBB', opening_um, torque_mnm, code, 0))


def power_frame(motor: int, code: int) -> Frame:
    """Power one motor 1..6, or all and the gripper (7), on or off."""
    return Frame(MOTOR_POWER, bytes([motor, code, 0, 0, 0, 0, 0, 0]))


def limit_query_frame(joint: int, content: int) -> Frame:
    """Ask for one joint's range and speed, or its acceleration."""
    return Frame(QUERY_LIMITS, bytes([joint, content, 0, 0, 0, 0, 0, 0]))


def gripper_query_frame() -> Frame:
    """Ask for the gripper's range; the fifth byte 3 says that no load is being set."""
    return Frame(QUERY_PARAMETERS, bytes([4, 0, 0, 0, 3, 0, 0, 0]))


def firmware_query_frame() -> Frame:
    """Ask for the firmware version."""
    return Frame(FIRMWARE, bytes([1, 0, 0, 0, 0, 0, 0, 0]))


def clear_error_frame() -> Frame:
    """Clear the errors of all joints; zero and acceleration stay untouched."""
    return Frame(JOINT_CONFIG, bytes([ALL_JOINTS, 0, 0, 0x7F, 0xFF, EFFECTIVE, 0, 0]))


def reset_frame() -> Frame:
    """Reset the arm: power goes at once and the arm falls."""
    return Frame(ESTOP, bytes([2, 0, 0, 0, 0, 0, 0, 0]))


def is_forbidden(frame: Frame) -> bool:
    """Return whether a frame writes persistent parameters or leaves joint position mode.

    Forbidden are zeroing, limit, load, crash and gripper parameters, leader mode, end pose, MIT
    and firmware update, whoever in this process asks for them.
    """
    can_id, data = frame
    if can_id == GRIPPER:
        return data[7] != 0
    if can_id == JOINT_CONFIG:
        return data[1] != 0 or data[2] != 0
    if can_id == MODE:
        return data[3] != 0 or data[1] != MOVE_JOINT
    if can_id == QUERY_PARAMETERS:
        return any(data[1:4])
    if can_id == ESTOP:
        return data[1] != 0 or data[2] != 0
    return can_id not in ALLOWED


def decode_status(data: bytes) -> Status:
    """Decode 0x2A1."""
    return Status(data[0], data[1], data[2], data[3], data[4], data[6], data[7])


def decode_pair(data: bytes) -> tuple[int, int]:
    """Decode two joint angles, 0.001 deg, of 0x2A5, 0x2A6 or 0x2A7."""
    first, second = _PAIR.unpack(data)
    return first, second


def decode_gripper(data: bytes) -> GripperState:
    """Decode 0x2A8."""
    opening_um, torque_mnm, bits, _ = _GRIPPER.unpack(data)
    return GripperState(opening_um * 1e-6, torque_mnm * 1e-3, bits)


def gripper_bits(data: bytes) -> int:
    """Return the status bits of 0x2A8 alone."""
    return data[6]


def decode_motor(data: bytes) -> MotorState:
    """Decode 0x251..0x256; the scale of the position in bytes 4..7 is not documented: unused."""
    speed, current, _ = _MOTOR.unpack(data)
    return MotorState(speed * 1e-3, current * 1e-3)


def decode_driver(data: bytes) -> DriverState:
    """Decode 0x261..0x266."""
    voltage, driver_c, motor_c, bits, _ = _DRIVER.unpack(data)
    return DriverState(voltage * 0.1, driver_c, motor_c, bits)


def decode_angle_limit(data: bytes) -> AngleLimit:
    """Decode 0x473."""
    joint, upper, lower, speed, _ = _ANGLE_LIMIT.unpack(data)
    return AngleLimit(joint, math.radians(lower * 0.1), math.radians(upper * 0.1), speed * 1e-3)


def decode_acceleration_limit(data: bytes) -> AccelerationLimit:
    """Decode 0x47C; bytes 3..7 are unused."""
    joint, acceleration = _ACCELERATION_LIMIT.unpack_from(data)
    return AccelerationLimit(joint, acceleration * 1e-2)


def decode_gripper_range(data: bytes) -> float:
    """Decode 0x47E: the opening that the arm is configured for, m; 0 = never configured."""
    return data[1] * 1e-3


def firmware_in(text: bytes) -> str:
    """Return the version in what the arm sent on 0x4AF, e.g. ``S-V1.8-3``; '' if not there yet.

    The version field has eight characters; what follows it directly is a date.
    """
    start = text.find(b'S-V')
    field = text[start:start + _FIRMWARE_LENGTH] if start >= 0 else b''
    if len(field) < _FIRMWARE_LENGTH or not _FIRMWARE.match(field):
        return ''
    return field.decode('ascii').rstrip('\0 ')


def firmware_key(version: str) -> tuple[int, int, int] | None:
    """Return a version (``S-V1.8-3``, ``1.8-3``) as numbers that compare, None if it is none."""
    match = re.fullmatch(r'(?:S-V)?(\d+)\.(\d+)-(\d+)\D*', version.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
