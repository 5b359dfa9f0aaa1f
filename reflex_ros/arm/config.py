"""Settings of the driver."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.arm import wire
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.limits import JointLimits, piper_limits
from reflex_ros.core.types import JOINT_NAMES

if TYPE_CHECKING:
    from pathlib import Path

TRANSPORTS = ('socketcan', 'socketcand')
BITRATE = 1_000_000


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """Settings of one arm.

    Attributes:
        channel: CAN interface, or the channel's name on a socketcand server.
        transport: ``socketcan`` (kernel interface) or ``socketcand`` (TCP).
        host, port: Server of ``socketcand``.
        bitrate: Rate that a kernel interface must have, bit/s.
        send: False = shadow mode: queries and feedback, but no command frame ever.
        prefix: Put before every joint name, e.g. ``left_``.
        limits: Our limits, None = ``core.limits.piper_limits`` with ``gripper_max_m``.
        gripper_max_m: Largest opening that is ever commanded, m.
        gripper_torque_nm: Torque bound sent with every gripper command, N·m, 0..5.
        speed_percent: Share of the arm's own top speed, 1..100; scales the velocity limit too.
        min_firmware: Oldest accepted version, e.g. ``1.7-3``.
        max_jump_rad, max_jump_m: Largest step between two commands.
        feedback_timeout_ns: Older feedback is lost.
        connect_timeout_ns, enable_timeout_ns: Bounds of the blocking calls.
        lock_dir: Folder of the channel lock, None = the user's runtime folder.
    """

    channel: str = 'can0'
    transport: str = 'socketcan'
    host: str = '127.0.0.1'
    port: int = 29536
    bitrate: int = BITRATE
    send: bool = True
    prefix: str = ''
    limits: JointLimits | None = None
    gripper_max_m: float = 0.07
    gripper_torque_nm: float = 1.0
    speed_percent: int = 100
    min_firmware: str = '1.7-3'
    max_jump_rad: float = 0.35
    max_jump_m: float = 0.05
    feedback_timeout_ns: int = 100_000_000
    connect_timeout_ns: int = 2_000_000_000
    enable_timeout_ns: int = 5_000_000_000
    lock_dir: Path | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for the first setting that is out of range."""
        self._require(bool(self.channel), 'channel', self.channel, 'a name')
        self._require(self.transport in TRANSPORTS, 'transport', self.transport,
                      ' or '.join(TRANSPORTS))
        self._require(0 < self.port < 65535, 'port', self.port, '1 to 65534')
        self._between('gripper_max_m', self.gripper_max_m, 1e-3, 0.1)
        self._between('gripper_torque_nm', self.gripper_torque_nm, 0.0, 5.0)
        self._between('speed_percent', self.speed_percent, 1, 100)
        self._between('max_jump_rad', self.max_jump_rad, 1e-3, math.pi)
        self._between('max_jump_m', self.max_jump_m, 1e-3, 0.1)
        self._between('feedback_timeout_ns', self.feedback_timeout_ns, 10_000_000, 1_000_000_000)
        self._require(wire.firmware_key(self.min_firmware) is not None, 'min_firmware',
                      self.min_firmware, 'a version such as 1.7-3')

    @property
    def names(self) -> tuple[str, ...]:
        """Return the joint names, gripper last."""
        return tuple(self.prefix + name for name in JOINT_NAMES)

    @property
    def own_limits(self) -> JointLimits:
        """Return our limits at the configured speed, before the arm's are known."""
        limits = piper_limits() if self.limits is None else self.limits
        upper = np.append(limits.upper[:-1], self.gripper_max_m)
        return replace(limits, upper=upper).scaled(self.speed_percent / 100)

    @property
    def bus_name(self) -> str:
        """Return what identifies the bus: the interface, or channel, host and port."""
        if self.transport == 'socketcan':
            return self.channel
        return f'{self.channel}@{self.host}:{self.port}'

    def _between(self, name: str, value: float, low: float, high: float) -> None:
        self._require(low <= value <= high, name, value, f'{low} to {high}')

    @staticmethod
    def _require(is_met: bool, name: str, value: object, expected: str) -> None:
        if not is_met:
            raise ConfigError(f'Arm {name}: got {value!r}, expected {expected}. Correct it.')
