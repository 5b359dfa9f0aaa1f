"""The arm's CAN frames as the simulator reads and writes them: one dataclass per frame.

Written from the protocol tables and not from the driver's codec, so that each of the two checks
the other. Classic CAN: 11-bit ids, eight data bytes, big-endian, two's complement. A dataclass
lists the bytes in wire order; ``x`` in a format is a reserved byte: written 0, read and ignored.
Frames that differ by joint only share a class; their first field says which joint (1..6) it is, or
the first of two.

Units on the wire: 0.001 deg, 0.001 mm (gripper: total opening), 0.001 N·m, 0.001 rad/s,
0.01 rad/s², 0.1 deg for limits, 0.1 V, 1 °C, 0.001 A.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from reflex_ros.core.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Mapping

FRAME_BYTES = 8
JOINTS = 6
KEEP = 0x7FFF
"""In a setting: leave this value as it is."""
APPLY = 0xAE
"""In a setting: this part of the frame is meant."""
ALL_MOTORS = (7, 0xFF)
POWER_BIT = 0x40
"""Of the state byte of a driver or the gripper: the motor is powered."""
HOMED_BIT = 0x80
CLEAR_BIT = 0x02
"""Of a gripper command's code: clear the errors."""
ERROR_ID = 0x2000_0080
"""Identifier of an error frame: the flag of the kernel's CAN interface and "bus error"."""


class CanFrame(NamedTuple):
    """One frame on the bus: 11-bit identifier and data bytes."""

    can_id: int
    data: bytes


class Wire:
    """Where a frame class lives on the bus.

    Args:
        layout: ``struct`` format of the eight data bytes.
        ids: One id, or several that count up; ``first`` and ``step`` number them.
    """

    __slots__ = ('numbers', 'packer')

    def __init__(self, layout: str, *ids: int, first: int = 1, step: int = 1) -> None:
        self.packer = struct.Struct('>' + layout)
        assert self.packer.size == FRAME_BYTES, layout
        self.numbers = {can_id: first + step * n for n, can_id in enumerate(ids)}

    @property
    def ids(self) -> tuple[int, ...]:
        """Return the ids."""
        return tuple(self.numbers)

    @property
    def is_numbered(self) -> bool:
        """Return whether the first field of the dataclass tells which id it is."""
        return len(self.numbers) > 1


@dataclass(frozen=True, slots=True)
class Motion:
    """0x150: stop 1 = emergency, 2 = resume (power is cut); track; teach 1 = start, 2 = end."""

    WIRE: ClassVar = Wire('BBB5x', 0x150)
    stop: int
    track: int = 0
    teach: int = 0


@dataclass(frozen=True, slots=True)
class Mode:
    """0x151: control 0 standby, 1 CAN; move 0 P, 1 J, 2 L, 3 C, 4 M; mit 0 = position-velocity."""

    WIRE: ClassVar = Wire('BBBBBB2x', 0x151)
    control: int
    move: int
    speed_percent: int
    mit: int = 0
    residence_s: int = 0
    installation: int = 0


@dataclass(frozen=True, slots=True)
class PoseTarget:
    """0x152..154: X,Y / Z,RX / RY,RZ; ``part`` 1..3, 0.001 mm and 0.001 deg."""

    WIRE: ClassVar = Wire('ii', 0x152, 0x153, 0x154)
    part: int
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class JointTarget:
    """0x155..157: targets of joints ``joint`` and ``joint + 1`` (1, 3, 5), 0.001 deg."""

    WIRE: ClassVar = Wire('ii', 0x155, 0x156, 0x157, step=2)
    joint: int
    first_mdeg: int
    second_mdeg: int


@dataclass(frozen=True, slots=True)
class ArcPoint:
    """0x158: index of the point of an arc."""

    WIRE: ClassVar = Wire('B7x', 0x158)
    index: int


@dataclass(frozen=True, slots=True)
class GripperTarget:
    """0x159: opening, torque bound, code (bit 0 power, bit 1 clear errors), zero 0xAE = set."""

    WIRE: ClassVar = Wire('iHBB', 0x159)
    opening_um: int
    torque_mnm: int
    code: int
    zero: int = 0


@dataclass(frozen=True, slots=True)
class MitTarget:
    """0x15A..15F: position 16, velocity 12, kp 12, kd 12, torque 8, check 4 bits in one word."""

    WIRE: ClassVar = Wire('Q', *range(0x15A, 0x160))
    joint: int
    word: int

    @property
    def fields(self) -> tuple[int, int, int, int, int]:
        """Return raw position, velocity, kp, kd and torque."""
        word = self.word
        return (word >> 48, word >> 36 & 0xFFF, word >> 24 & 0xFFF, word >> 12 & 0xFFF,
                word >> 4 & 0xFF)

    @property
    def is_intact(self) -> bool:
        """Return whether the check nibble is the XOR of the first seven bytes' low nibbles."""
        check = 0
        for byte in self.word.to_bytes(8, 'big')[:7]:
            check ^= byte
        return check & 0xF == self.word & 0xF


@dataclass(frozen=True, slots=True)
class Linkage:
    """0x470: role 0xFA leader, 0xFC follower; offsets of the feedback, control, linkage ids."""

    WIRE: ClassVar = Wire('BBBB4x', 0x470)
    role: int
    feedback_offset: int = 0
    control_offset: int = 0
    linkage_offset: int = 0


@dataclass(frozen=True, slots=True)
class Power:
    """0x471: motor 1..6, 7 or 0xFF all and the gripper; switch 1 off, 2 on."""

    WIRE: ClassVar = Wire('BB6x', 0x471)
    motor: int
    switch: int


@dataclass(frozen=True, slots=True)
class LimitQuery:
    """0x472: joint 1..6; content 1 = angle and speed, 2 = acceleration."""

    WIRE: ClassVar = Wire('BB6x', 0x472)
    joint: int
    content: int


@dataclass(frozen=True, slots=True)
class AngleLimit:
    """0x473: answer to content 1: range in 0.1 deg, top speed in 0.001 rad/s."""

    WIRE: ClassVar = Wire('BhhHx', 0x473)
    joint: int
    upper_ddeg: int
    lower_ddeg: int
    speed_mrad_s: int


@dataclass(frozen=True, slots=True)
class LimitSetting:
    """0x474: as ``AngleLimit``; written to flash. ``KEEP`` leaves a value."""

    WIRE: ClassVar = Wire('BhhHx', 0x474)
    joint: int
    upper_ddeg: int
    lower_ddeg: int
    speed_mrad_s: int


@dataclass(frozen=True, slots=True)
class JointSetting:
    """0x475: joint 1..6 or 7 = all; each of zero, acceleration and clear is meant if 0xAE."""

    WIRE: ClassVar = Wire('BBBHB2x', 0x475)
    joint: int
    zero: int
    set_acceleration: int
    acceleration_crad_s2: int
    clear: int


@dataclass(frozen=True, slots=True)
class SettingAck:
    """0x476: low byte of the setting's id; whether a zero was set."""

    WIRE: ClassVar = Wire('BB6x', 0x476)
    setting: int
    zero_done: int = 0


@dataclass(frozen=True, slots=True)
class ParameterQuery:
    """0x477: query 1 end speed, 2 crash levels, 4 gripper; set 1, 2 = factory values."""

    WIRE: ClassVar = Wire('BBBBB3x', 0x477)
    query: int
    setting: int = 0
    joint_feedback: int = 0
    set_load: int = 0
    load: int = 0


@dataclass(frozen=True, slots=True)
class EndSpeed:
    """0x478: top speeds (mm/s, mrad/s) and accelerations of the end; answer to query 1."""

    WIRE: ClassVar = Wire('HHHH', 0x478)
    linear: int
    angular: int
    linear_acceleration: int
    angular_acceleration: int


@dataclass(frozen=True, slots=True)
class EndSpeedSetting:
    """0x479: as ``EndSpeed``."""

    WIRE: ClassVar = Wire('HHHH', 0x479)
    linear: int
    angular: int
    linear_acceleration: int
    angular_acceleration: int


@dataclass(frozen=True, slots=True)
class CrashSetting:
    """0x47A: crash protection of each joint, 0 (off) .. 8."""

    WIRE: ClassVar = Wire('6s2x', 0x47A)
    levels: bytes


@dataclass(frozen=True, slots=True)
class CrashLevels:
    """0x47B: as ``CrashSetting``; answer to query 2."""

    WIRE: ClassVar = Wire('6s2x', 0x47B)
    levels: bytes


@dataclass(frozen=True, slots=True)
class AccelerationLimit:
    """0x47C: answer to content 2: top acceleration in 0.01 rad/s²."""

    WIRE: ClassVar = Wire('BH5x', 0x47C)
    joint: int
    acceleration_crad_s2: int


@dataclass(frozen=True, slots=True)
class GripperSetting:
    """0x47D: teaching range %, largest opening mm (70 or 100), friction."""

    WIRE: ClassVar = Wire('BBB5x', 0x47D)
    teaching_percent: int
    range_mm: int
    friction: int


@dataclass(frozen=True, slots=True)
class GripperParameters:
    """0x47E: as ``GripperSetting``; answer to query 4."""

    WIRE: ClassVar = Wire('BBB5x', 0x47E)
    teaching_percent: int
    range_mm: int
    friction: int


@dataclass(frozen=True, slots=True)
class FirmwareQuery:
    """0x4AF from the host: content 1."""

    WIRE: ClassVar = Wire('B7x', 0x4AF)
    content: int = 1


@dataclass(frozen=True, slots=True)
class FirmwareText:
    """0x4AF from the arm: eight ASCII characters of the version text."""

    WIRE: ClassVar = Wire('8s', 0x4AF)
    text: bytes


@dataclass(frozen=True, slots=True)
class Status:
    """0x2A1: modes and errors; one bit per joint in ``limit_bits`` and ``comm_bits``."""

    WIRE: ClassVar = Wire('BBBBBBBB', 0x2A1)
    control: int
    status: int
    move: int
    teach: int
    motion: int
    trajectory: int
    limit_bits: int
    comm_bits: int


@dataclass(frozen=True, slots=True)
class EndPose:
    """0x2A2..2A4: X,Y / Z,RX / RY,RZ; ``part`` 1..3, 0.001 mm and 0.001 deg."""

    WIRE: ClassVar = Wire('ii', 0x2A2, 0x2A3, 0x2A4)
    part: int
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class JointAngles:
    """0x2A5..2A7: joints ``joint`` and ``joint + 1`` (1, 3, 5), 0.001 deg."""

    WIRE: ClassVar = Wire('ii', 0x2A5, 0x2A6, 0x2A7, step=2)
    joint: int
    first_mdeg: int
    second_mdeg: int


@dataclass(frozen=True, slots=True)
class GripperState:
    """0x2A8: opening 0.001 mm, torque 0.001 N·m, state bits (6 powered, 7 homed)."""

    WIRE: ClassVar = Wire('ihBx', 0x2A8)
    opening_um: int
    torque_mnm: int
    bits: int


@dataclass(frozen=True, slots=True)
class MotorState:
    """0x251..256: speed 0.001 rad/s, current 0.001 A, position (unit not documented)."""

    WIRE: ClassVar = Wire('hhi', *range(0x251, 0x257))
    joint: int
    speed_mrad_s: int
    current_ma: int
    position: int


@dataclass(frozen=True, slots=True)
class DriverState:
    """0x261..266: supply 0.1 V, temperatures °C, state bits (6 powered), bus current 0.001 A."""

    WIRE: ClassVar = Wire('HhbBH', *range(0x261, 0x267))
    joint: int
    voltage_dv: int
    driver_c: int
    motor_c: int
    bits: int
    current_ma: int


Command = (
    Motion | Mode | PoseTarget | JointTarget | ArcPoint | GripperTarget | MitTarget | Linkage
    | Power | LimitQuery | LimitSetting | JointSetting | ParameterQuery | EndSpeedSetting
    | CrashSetting | GripperSetting | FirmwareQuery
)
Feedback = (
    Status | EndPose | JointAngles | GripperState | MotorState | DriverState | AngleLimit
    | AccelerationLimit | SettingAck | EndSpeed | CrashLevels | GripperParameters | FirmwareText
)


def _by_id(union: Any) -> Mapping[int, Any]:
    return MappingProxyType({i: kind for kind in union.__args__ for i in kind.WIRE.numbers})


COMMANDS = _by_id(Command)
"""Class of each id from the host."""
FEEDBACK = _by_id(Feedback)
"""Class of each id from the arm."""
_ID_OF = MappingProxyType({
    (kind, number): can_id
    for table in (COMMANDS, FEEDBACK)
    for kind in table.values()
    for can_id, number in kind.WIRE.numbers.items()
})


def encode(message: Command | Feedback) -> CanFrame:
    """Return the frame of a message of either direction.

    Raises:
        LayoutError: A value does not fit its bytes, or there is no such joint.
    """
    wire = message.WIRE
    values = [getattr(message, name) for name in message.__slots__]
    number = values.pop(0) if wire.is_numbered else 1
    try:
        return CanFrame(_ID_OF[type(message), number], wire.packer.pack(*values))
    except (struct.error, KeyError) as error:
        raise LayoutError(
            f'CAN frame {type(message).__name__}: got {message} ({error}), expected values that '
            f'fit {wire.packer.format!r} and a number in {tuple(wire.numbers.values())}. '
            'Clamp before encoding.'
        ) from error


def decode_command(can_id: int, data: bytes) -> Command | None:
    """Return the message of a frame from the host, None if the id is not one of them.

    Raises:
        LayoutError: The frame has not eight data bytes.
    """
    message: Command | None = _decode(COMMANDS, can_id, data)
    return message


def decode_feedback(can_id: int, data: bytes) -> Feedback | None:
    """Return the message of a frame from the arm, None if the id is not one of them.

    Raises:
        LayoutError: The frame has not eight data bytes.
    """
    message: Feedback | None = _decode(FEEDBACK, can_id, data)
    return message


def _decode(table: Mapping[int, Any], can_id: int, data: bytes) -> Any:
    kind = table.get(can_id)
    if kind is None:
        return None
    if len(data) != FRAME_BYTES:
        raise LayoutError(
            f'CAN frame 0x{can_id:03X}: got {len(data)} data bytes, expected {FRAME_BYTES}. '
            'Check the sender.'
        )
    wire = kind.WIRE
    values = wire.packer.unpack(data)
    return kind(wire.numbers[can_id], *values) if wire.is_numbered else kind(*values)
