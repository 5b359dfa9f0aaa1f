"""Every SDK call that puts a frame on the bus, each with the frames that it must produce.

All arguments are whole numbers: a float would raise inside the SDK after earlier frames of the
same command had already left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.arm import wire

if TYPE_CHECKING:
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.arm.gate import CommandGate
    from reflex_ros.arm.link import CanLink
    from reflex_ros.core.types import FloatArray


class Commands:
    """The arm's commands; each but ``move`` returns whether the bus took every frame of it.

    In shadow mode only the queries are sent. Thread-safe through the gate's lock.

    Args:
        config: Gripper torque.
        link: The open bus.
        gate: Guards the frames.
    """

    def __init__(self, config: DriverConfig, *, link: CanLink, gate: CommandGate) -> None:
        self._link = link
        self._gate = gate
        self._torque_mnm = round(config.gripper_torque_nm * 1e3)

    def move(self, command: FloatArray, *, mode_percent: int | None) -> tuple[bool, ...]:
        """Send six joint targets and the gripper's; first the mode with a speed if given.

        Returns whether the bus took each of the frames: the mode if given, two joints each, the
        gripper.

        Args:
            command: ``float64[7]``, rad and m, checked.
            mode_percent: Speed in % for a mode frame, None = no mode frame.
        """
        angles, opening = _to_wire(command)
        mode = [] if mode_percent is None else [wire.mode_frame(mode_percent)]

        def call() -> None:
            if mode_percent is not None:
                self._mode(mode_percent)
            self._link.sdk.JointCtrl(*angles)
            self._grip(opening, wire.GRIPPER_ON)

        frames = [*mode, *wire.joint_frames(angles), self._grip_frame(opening, wire.GRIPPER_ON)]
        return self._gate.each(frames, call)

    def hold(self, pose: FloatArray, *, percent: int) -> bool:
        """Send pose, mode, pose: the mode must never meet a target left by somebody else."""
        angles, opening = _to_wire(pose)
        targets = wire.joint_frames(angles)

        def call() -> None:
            self._link.sdk.JointCtrl(*angles)
            self._mode(percent)
            self._link.sdk.JointCtrl(*angles)
            self._grip(opening, wire.GRIPPER_ON)

        gripper = self._grip_frame(opening, wire.GRIPPER_ON)
        return self._gate.command([*targets, wire.mode_frame(percent), *targets, gripper], call)

    def power_on(self, joint: int) -> bool:
        """Power one joint, 1..6."""
        return self._gate.command(
            [wire.power_frame(joint, wire.POWER_ON)],
            lambda: self._link.sdk.EnableArm(joint, wire.POWER_ON))

    def power_off(self) -> bool:
        """Cut the power of all motors and the gripper: the arm falls."""
        return self._gate.command(
            [wire.power_frame(wire.ALL_JOINTS, wire.POWER_OFF)],
            lambda: self._link.sdk.DisableArm(wire.ALL_JOINTS, wire.POWER_OFF))

    def clear_joint_errors(self) -> bool:
        """Clear the errors of all joints; power, zero and acceleration stay as they are."""
        return self._gate.command(
            [wire.clear_error_frame()],
            lambda: self._link.sdk.JointConfig(
                wire.ALL_JOINTS, 0, 0, wire.KEEP_ACCELERATION, wire.EFFECTIVE))

    def clear_gripper_errors(self, state: wire.GripperState) -> bool:
        """Clear the gripper's errors; its power state and opening stay as they are."""
        is_on = bool(state.bits & wire.ENABLED_BIT)
        code = wire.GRIPPER_ON_CLEAR if is_on else wire.GRIPPER_OFF_CLEAR
        opening = wire.m_to_um(state.opening_m)
        return self._gate.command(
            [self._grip_frame(opening, code)], lambda: self._grip(opening, code))

    def reset(self) -> bool:
        """Reset the arm: power goes at once and it falls."""
        return self._gate.command(
            [wire.reset_frame()], lambda: self._link.sdk.MotionCtrl_1(2, 0, 0))

    def query_limits(self, joint: int, content: int) -> bool:
        """Ask for one joint's range and speed (1) or its acceleration (2)."""
        return self._gate.query(
            wire.limit_query_frame(joint, content),
            lambda: self._link.sdk.SearchMotorMaxAngleSpdAccLimit(joint, content))

    def query_gripper(self) -> bool:
        """Ask for the gripper's range."""
        return self._gate.query(
            wire.gripper_query_frame(), lambda: self._link.sdk.ArmParamEnquiryAndConfig(4))

    def query_firmware(self) -> bool:
        """Ask for the firmware version."""
        return self._gate.query(
            wire.firmware_query_frame(), lambda: self._link.sdk.SearchPiperFirmwareVersion())

    def _mode(self, percent: int) -> None:
        self._link.sdk.MotionCtrl_2(wire.CONTROL_CAN, wire.MOVE_JOINT, percent, 0)

    def _grip(self, opening_um: int, code: int) -> None:
        self._link.sdk.GripperCtrl(opening_um, self._torque_mnm, code, 0)

    def _grip_frame(self, opening_um: int, code: int) -> wire.Frame:
        return wire.gripper_frame(opening_um, self._torque_mnm, code)


def _to_wire(command: FloatArray) -> tuple[list[int], int]:
    angles = [wire.rad_to_mdeg(angle) for angle in command[:wire.JOINTS]]
    return angles, wire.m_to_um(command[-1])
