"""Answers to the host's queries and settings, 0x472..0x47D."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.faults import Kind
from reflex_ros.sim.firmware import JOINTS, MAX_ACCELERATION_CRAD_S2, Settings

if TYPE_CHECKING:
    from reflex_ros.sim.faults import Fault
    from reflex_ros.sim.firmware import Firmware
    from reflex_ros.sim.injector import FaultInjector

_ALL = codec.ALL_MOTORS[0]


class Parameters:
    """Reads and writes the firmware's settings as the bus asks for.

    Args:
        firmware: Whose settings.
        faults: May falsify the reported limits.
    """

    def __init__(self, firmware: Firmware, faults: FaultInjector) -> None:
        self._firmware = firmware
        self._faults = faults

    def answer(self, message: codec.Command) -> codec.Feedback | None:
        """Carry out a query or setting and return its answer; None if it is not understood."""
        match message:
            case codec.LimitQuery(joint, content) if 1 <= joint <= JOINTS and content in (1, 2):
                return self._angle(joint) if content == 1 else self._acceleration(joint)
            case codec.LimitSetting(joint) if 1 <= joint <= JOINTS:
                return self._set_limits(message)
            case codec.JointSetting(joint) if 1 <= joint <= _ALL:
                return self._set_joint(message)
            case codec.ParameterQuery(setting=setting) if setting:
                return self._restore()
            case codec.ParameterQuery(query=query) if query in (1, 2, 4):
                return self._parameters(query)
            case codec.EndSpeedSetting() | codec.CrashSetting() | codec.GripperSetting():
                return self._set_parameters(message)
        self._firmware.ignored['malformed'] += 1
        return None

    def _angle(self, joint: int) -> codec.AngleLimit:
        settings = self._firmware.settings
        fault = self._faults.active(Kind.WRONG_LIMITS, joint)
        return codec.AngleLimit(
            joint,
            _or(fault, 'upper_deg', 10, settings.upper_ddeg[joint - 1]),
            _or(fault, 'lower_deg', 10, settings.lower_ddeg[joint - 1]),
            _or(fault, 'speed_rad_s', 1000, settings.speed_mrad_s[joint - 1]),
        )

    def _acceleration(self, joint: int) -> codec.AccelerationLimit:
        true = self._firmware.settings.acceleration_crad_s2[joint - 1]
        fault = self._faults.active(Kind.WRONG_LIMITS, joint)
        return codec.AccelerationLimit(joint, _or(fault, 'acceleration_rad_s2', 100, true))

    def _parameters(self, query: int) -> codec.Feedback:
        settings = self._firmware.settings
        if query == 1:
            return codec.EndSpeed(*settings.end_speed)
        if query == 2:
            return codec.CrashLevels(settings.crash_levels)
        percent, range_mm, friction = settings.gripper
        fault = self._faults.active(Kind.WRONG_LIMITS)
        return codec.GripperParameters(
            percent, _or(fault, 'gripper_range_mm', 1, range_mm), friction)

    def _set_limits(self, message: codec.LimitSetting) -> codec.SettingAck:
        settings = self._firmware.settings
        self._firmware.persistent_writes += 1
        for values, value in (
            (settings.upper_ddeg, message.upper_ddeg),
            (settings.lower_ddeg, message.lower_ddeg),
            (settings.speed_mrad_s, message.speed_mrad_s),
        ):
            if value != codec.KEEP:
                values[message.joint - 1] = value
        return codec.SettingAck(0x74)

    def _set_joint(self, message: codec.JointSetting) -> codec.SettingAck:
        firmware = self._firmware
        joints = range(JOINTS) if message.joint == _ALL else (message.joint - 1,)
        if message.zero == codec.APPLY:
            firmware.persistent_writes += 1
            firmware.set_zero(joints)
        value = message.acceleration_crad_s2
        if message.set_acceleration == codec.APPLY and value != codec.KEEP:
            firmware.persistent_writes += 1
            for joint in joints:
                firmware.settings.acceleration_crad_s2[joint] = min(
                    value, MAX_ACCELERATION_CRAD_S2)
        if message.clear == codec.APPLY:
            firmware.clear_errors(joints)
        return codec.SettingAck(0x75, int(message.zero == codec.APPLY))

    def _restore(self) -> codec.SettingAck:
        factory, settings = Settings(), self._firmware.settings
        self._firmware.persistent_writes += 1
        settings.upper_ddeg, settings.lower_ddeg = factory.upper_ddeg, factory.lower_ddeg
        settings.speed_mrad_s = factory.speed_mrad_s
        settings.acceleration_crad_s2 = factory.acceleration_crad_s2
        return codec.SettingAck(0x77)

    def _set_parameters(
        self, message: codec.EndSpeedSetting | codec.CrashSetting | codec.GripperSetting,
    ) -> codec.SettingAck:
        settings = self._firmware.settings
        self._firmware.persistent_writes += 1
        match message:
            case codec.EndSpeedSetting(linear, angular, linear_acc, angular_acc):
                settings.end_speed = (linear, angular, linear_acc, angular_acc)
                return codec.SettingAck(0x79)
            case codec.CrashSetting(levels):
                settings.crash_levels = levels
                return codec.SettingAck(0x7A)
            case codec.GripperSetting(percent, range_mm, friction):
                settings.gripper = (percent, range_mm, friction)
        return codec.SettingAck(0x7D)


def _or(fault: Fault | None, name: str, scale: int, true: int) -> int:
    wrong = getattr(fault, name) if fault else None
    return true if wrong is None else round(wrong * scale)
