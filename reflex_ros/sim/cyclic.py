"""The frames that an arm sends by itself, from the state of its controller.

The hot path of the simulator: 3040 frames per second. It packs with the codec's layouts directly,
because an object per frame would triple the cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.can_codec import CanFrame
from reflex_ros.sim.end_pose import end_pose
from reflex_ros.sim.firmware import HOLD_CURRENT_MA, MDEG_PER_RAD, Control

if TYPE_CHECKING:
    from reflex_ros.sim.firmware import Firmware

SUPPLY_DV, DRIVER_C, MOTOR_C, BUS_CURRENT_MA = 240, 35, 38, 150
MOVE_JOINT = 1
TORQUE_MNM = 1000
_INT16 = 32_767
_BLOCKED_M = 5e-4

_STATUS_ID, = codec.Status.WIRE.ids
_GRIPPER_ID, = codec.GripperState.WIRE.ids
_STATUS = codec.Status.WIRE.packer.pack
_GRIPPER = codec.GripperState.WIRE.packer.pack
_PAIR = codec.JointAngles.WIRE.packer.pack
_MOTOR = codec.MotorState.WIRE.packer.pack
_DRIVER = codec.DriverState.WIRE.packer.pack
_POSE_IDS = codec.EndPose.WIRE.ids
_JOINT_IDS = codec.JointAngles.WIRE.ids
_MOTOR_IDS = codec.MotorState.WIRE.ids
_DRIVER_IDS = codec.DriverState.WIRE.ids


def high_speed(firmware: Firmware) -> list[CanFrame]:
    """Return the fourteen frames of every cycle: 0x2A1..2A8 and 0x251..256."""
    reading = firmware.reading
    mdeg = [round(angle * MDEG_PER_RAD) for angle in reading.joints_rad]
    pose = end_pose(reading.joints_rad)
    status = _STATUS(firmware.control & 0xFF, firmware.status, firmware.move, firmware.teach,
                     firmware.motion, 0, firmware.limit_bits, firmware.comm_bits)
    frames = [CanFrame(_STATUS_ID, status)]
    frames += [CanFrame(can_id, _PAIR(pose[2 * n], pose[2 * n + 1]))
               for n, can_id in enumerate(_POSE_IDS)]
    frames += [CanFrame(can_id, _PAIR(mdeg[2 * n], mdeg[2 * n + 1]))
               for n, can_id in enumerate(_JOINT_IDS)]
    frames.append(CanFrame(_GRIPPER_ID, _gripper(firmware)))
    for can_id, speed, power, overload_ma, angle in zip(
        _MOTOR_IDS, reading.speeds_rad_s, firmware.powered, firmware.overload_ma, mdeg,
        strict=True,
    ):
        speed_mrad_s = max(-_INT16, min(_INT16, round(speed * 1e3)))
        frames.append(CanFrame(
            can_id, _MOTOR(speed_mrad_s, (overload_ma or HOLD_CURRENT_MA) if power else 0,
                           angle)))
    return frames


def low_speed(firmware: Firmware) -> list[CanFrame]:
    """Return the six driver states, 0x261..266."""
    return [
        CanFrame(can_id, _DRIVER(SUPPLY_DV, DRIVER_C, MOTOR_C,
                                 bits | (codec.POWER_BIT if power else 0), BUS_CURRENT_MA))
        for can_id, bits, power in zip(
            _DRIVER_IDS, firmware.driver_bits, firmware.powered, strict=True)
    ]


def leader(firmware: Firmware) -> list[CanFrame]:
    """Return what an arm in leader mode sends: its own pose as commands, no feedback."""
    mdeg = [round(angle * MDEG_PER_RAD) for angle in firmware.reading.joints_rad]
    gripper_um = round(firmware.reading.gripper_m * 1e6)
    targets = [codec.JointTarget(n + 1, mdeg[n], mdeg[n + 1]) for n in range(0, len(mdeg), 2)]
    return [
        codec.encode(codec.Mode(Control.CAN, MOVE_JOINT, 100)),
        *(codec.encode(target) for target in targets),
        codec.encode(codec.GripperTarget(gripper_um, TORQUE_MNM, 1)),
    ]


def _gripper(firmware: Firmware) -> bytes:
    opening_m = firmware.reading.gripper_m
    is_on = firmware.is_gripper_powered
    is_blocked = is_on and abs(firmware.gripper_target_m - opening_m) > _BLOCKED_M
    torque_mnm = min(firmware.gripper_torque_mnm, _INT16) if is_blocked else 0
    homed = codec.HOMED_BIT if firmware.is_gripper_homed else 0
    bits = homed | firmware.gripper_bits | (codec.POWER_BIT if is_on else 0)
    return _GRIPPER(round(opening_m * 1e6), torque_mnm, bits)
