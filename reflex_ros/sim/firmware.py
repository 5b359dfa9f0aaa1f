"""State machine of the arm's main controller: modes, power, targets, limits, settings.

It takes decoded commands and knows neither bytes nor faults nor the bus. Modelled from the
vendor's documents and users' reports, never seen on a real arm:

* Only MOVE J in position-velocity mode moves the joints; every other mode is ignored and counted.
* An emergency stop holds the measured pose. A real arm comes down slowly, damped.
* "Resume" (0x150, 2) cuts the power of every motor at once: a plant that can sag sags.
* After a resume each motor needs two power-on commands; after teaching, the first mode command
  is ignored.
* Without commands the arm holds its last target; there is no host watchdog.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import S
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.plant import Releasable

if TYPE_CHECKING:
    from reflex_ros.sim.plant import Plant

JOINTS = codec.JOINTS
MDEG_PER_RAD = 180_000.0 / math.pi
RANGE_DEG = ((-150, 150), (0, 180), (-170, 0), (-100, 100), (-70, 70), (-120, 120))
"""Factory range of each joint, deg."""
MAX_SPEED_MRAD_S = 3000
MAX_ACCELERATION_CRAD_S2 = 500
GRIPPER_RANGE_MM = 70
RANGE_TOLERANCE_MDEG = 100
"""The wire resolution of a limit; a target that rounds to the limit is not beyond it."""
REACHED_MDEG = 500
HOLD_CURRENT_MA = 300
POWER_ON, POWER_OFF = 2, 1
STOP, RESUME = 1, 2
TEACH_START, TEACH_END = 1, 2
ROLE_LEADER, ROLE_FOLLOWER = 0xFA, 0xFC


class Control(IntEnum):
    """Control modes of 0x2A1 and 0x151."""

    STANDBY = 0
    CAN = 1
    TEACH = 2
    LEADER = 6


class ArmStatus(IntEnum):
    """Status codes of 0x2A1 that the state machine sets by itself; faults may set any other."""

    NORMAL = 0
    EMERGENCY_STOP = 1
    BEYOND_LIMIT = 4


@dataclass(slots=True)
class Settings:
    """What a real arm keeps in flash."""

    upper_ddeg: list[int] = field(default_factory=lambda: [10 * hi for _, hi in RANGE_DEG])
    lower_ddeg: list[int] = field(default_factory=lambda: [10 * lo for lo, _ in RANGE_DEG])
    speed_mrad_s: list[int] = field(default_factory=lambda: [MAX_SPEED_MRAD_S] * JOINTS)
    acceleration_crad_s2: list[int] = field(
        default_factory=lambda: [MAX_ACCELERATION_CRAD_S2] * JOINTS)
    crash_levels: bytes = bytes([1] * JOINTS)
    end_speed: tuple[int, int, int, int] = (500, 1000, 1000, 2000)
    gripper: tuple[int, int, int] = (100, GRIPPER_RANGE_MM, 1)
    zero_rad: list[float] = field(default_factory=lambda: [0.0] * JOINTS)
    zero_gripper_m: float = 0.0


@dataclass(slots=True)
class Reading:
    """Newest state of the plant in the arm's own zero, lists of six and the gripper."""

    joints_rad: list[float]
    speeds_rad_s: list[float]
    gripper_m: float


class Firmware:
    """Controller of one arm.

    Not thread-safe: one thread calls it.

    Args:
        plant: What it drives.
        enables_after_reset: Power-on commands that a motor needs after a resume.
        is_supported: First value of the attribute; False: it falls at once.
    """

    def __init__(
        self, plant: Plant, *, enables_after_reset: int = 2, is_supported: bool = True,
    ) -> None:
        self._plant = plant
        self._enables_after_reset = enables_after_reset
        self.is_supported = is_supported
        """Whether something holds the arm up: a joint that loses its power stays where it is.
        Ends with the next power-on; set it to let an operator hold the arm."""
        self.settings = Settings()
        self.control: int = Control.STANDBY
        self.move = self.mit = self.speed_percent = self.teach = 0
        self.is_stopped = False
        self.error_status = 0
        """Latched status code above those of ``ArmStatus``, 0 if none."""
        self.limit_bits = self.comm_bits = 0
        self.driver_bits = [0] * JOINTS
        """Latched error bits of each motor driver, without the power bit."""
        self.gripper_bits = 0
        """Latched error bits of the gripper."""
        self.overload_ma = [0] * JOINTS
        """Current of joints that do not move, 0 = not overloaded."""
        self.blocked_rad: list[float | None] = [None] * JOINTS
        """Where an overloaded joint stands and says so; None: it claims that it follows."""
        self.is_gripper_stuck = False
        self.is_gripper_homed = True
        self._is_gripper_fed = True
        self._slip_rad = [0.0] * JOINTS
        self.powered = [False] * JOINTS
        self.is_gripper_powered = False
        self.gripper_torque_mnm = 0
        self.is_leader = False
        self.ignored: Counter[str] = Counter()
        """Commands without effect, by reason."""
        self.persistent_writes = 0
        """Commands that would have written to the flash of a real arm."""
        self._missing_enables = [1] * JOINTS
        self._ignore_next_mode = False
        self.reading = self._read()
        self.target_rad = list(self.reading.joints_rad)
        self._reference_rad = list(self.reading.joints_rad)
        self.gripper_target_m = self.reading.gripper_m
        if isinstance(plant, Releasable) and not is_supported:
            for joint in range(JOINTS):
                plant.release(joint)

    @property
    def status(self) -> int:
        """Return the status code of 0x2A1."""
        if self.is_stopped:
            return ArmStatus.EMERGENCY_STOP
        if self.error_status:
            return self.error_status
        return ArmStatus.BEYOND_LIMIT if self.limit_bits else ArmStatus.NORMAL

    @property
    def motion(self) -> int:
        """Return 1 while a joint is on its way, 0 once all have arrived."""
        bound = REACHED_MDEG / MDEG_PER_RAD
        pairs = zip(self.target_rad, self.reading.joints_rad, strict=True)
        return int(any(abs(target - now) > bound for target, now in pairs))

    def step(self, elapsed_ns: int) -> None:
        """Move the reference toward the targets, drive the plant, read it."""
        self.reading = self._read()
        percent = self.speed_percent / 100.0
        elapsed_s = elapsed_ns / S
        for joint, is_on in enumerate(self.powered):
            if not is_on:
                self._reference_rad[joint] = self.reading.joints_rad[joint]
            else:
                bound = self.settings.speed_mrad_s[joint] * 1e-3 * percent * elapsed_s
                error = self.target_rad[joint] - self._reference_rad[joint]
                moved = min(max(error, -bound), bound)
                self._reference_rad[joint] += moved
                if self.overload_ma[joint] and self.blocked_rad[joint] is None:
                    self._slip_rad[joint] -= moved
        if any(self.powered) or self.is_gripper_powered:
            self._drive()

    def power(self, motor: int, switch: int) -> bool:
        """Power a motor 1..6, or all and the gripper (7, 0xFF); return whether understood."""
        is_all = motor in codec.ALL_MOTORS
        if not (is_all or 1 <= motor <= JOINTS) or switch not in (POWER_ON, POWER_OFF):
            self.ignored['malformed'] += 1
            return False
        self.reading = self._read()
        for joint in range(JOINTS) if is_all else (motor - 1,):
            if switch == POWER_ON:
                self._power_on(joint)
            else:
                self._power_off(joint)
        if is_all:
            self.is_gripper_powered = (
                switch == POWER_ON and not self.is_stopped and self._is_gripper_fed)
        return True

    def set_mode(self, message: codec.Mode) -> None:
        """Enter a control and move mode, unless stopped or taught by hand."""
        if self.is_stopped or self.control == Control.TEACH:
            self.ignored['stopped' if self.is_stopped else 'teach'] += 1
        elif self._ignore_next_mode:
            self._ignore_next_mode = False
            self.ignored['first_mode_after_teach'] += 1
        else:
            self.control, self.move, self.mit = message.control, message.move, message.mit
            self.speed_percent = min(message.speed_percent, 100)

    def motion_control(self, message: codec.Motion) -> None:
        """Stop, resume, start or end teaching."""
        if message.stop == STOP:
            self.stop()
        elif message.stop == RESUME:
            self.resume()
        if message.teach == TEACH_START:
            self.start_teaching()
        elif message.teach == TEACH_END:
            self.end_teaching()

    def stop(self) -> None:
        """Latch the emergency stop and hold the measured pose."""
        self.is_stopped = True
        self._hold()

    def resume(self) -> None:
        """Release the emergency stop by cutting all power; errors are cleared."""
        self.is_stopped = False
        self.control = Control.STANDBY
        self.clear_errors()
        self._slip_rad = [0.0] * JOINTS
        for joint in range(JOINTS):
            self._power_off(joint)
        self.is_gripper_powered = False
        self._missing_enables = [self._enables_after_reset] * JOINTS

    def start_teaching(self) -> None:
        """Let the arm be dragged by hand; commands are ignored meanwhile."""
        self.control, self.teach = Control.TEACH, TEACH_START
        self._hold()

    def end_teaching(self) -> None:
        """Return to standby; the next mode command is ignored."""
        if self.control == Control.TEACH:
            self.control, self._ignore_next_mode = Control.STANDBY, True
        self.teach = TEACH_END
        self._hold()

    def clear_errors(self, joints: range | tuple[int, ...] = range(JOINTS)) -> None:
        """Clear latched errors of joints (0..5); an emergency stop stays."""
        self.error_status = 0
        for joint in joints:
            self.limit_bits &= ~(1 << joint)
            self.comm_bits &= ~(1 << joint)
            self.driver_bits[joint] = 0

    def move_joints(self, message: codec.JointTarget) -> None:
        """Take the targets of two joints, if the mode allows motion."""
        reason = self._refusal()
        if reason:
            self.ignored[reason] += 1
            return
        for joint, mdeg in ((message.joint - 1, message.first_mdeg),
                            (message.joint, message.second_mdeg)):
            self._move_joint(joint, mdeg)

    def move_gripper(self, message: codec.GripperTarget) -> None:
        """Take the gripper's target, within the configured range; bit 0 of the code powers it."""
        if self.is_stopped:
            self.ignored['stopped'] += 1
            return
        if message.zero == codec.APPLY:
            self.persistent_writes += 1
            self.settings.zero_gripper_m += self.reading.gripper_m
            self.reading = self._read()
        self.is_gripper_powered = bool(message.code & 1) and self._is_gripper_fed
        if message.code & codec.CLEAR_BIT:
            self.gripper_bits = 0
        if self.is_gripper_powered:
            range_um = self.settings.gripper[1] * 1000
            self.gripper_target_m = min(max(message.opening_um, 0), range_um) * 1e-6
            self.gripper_torque_mnm = message.torque_mnm

    def feed_gripper(self, is_fed: bool) -> None:
        """Connect or cut the supply of the gripper's motor; connected, a command powers it."""
        self._is_gripper_fed = is_fed
        self.is_gripper_powered &= is_fed

    def set_zero(self, joints: range | tuple[int, ...]) -> None:
        """Make the present angle of joints (0..5) their zero."""
        for joint in joints:
            self.settings.zero_rad[joint] += self.reading.joints_rad[joint]
        self.reading = self._read()
        for joint in joints:
            self.target_rad[joint] = self._reference_rad[joint] = self.reading.joints_rad[joint]

    def _refusal(self) -> str:
        if self.is_stopped:
            return 'stopped'
        if self.error_status:
            return 'error'
        if self.control != Control.CAN:
            return 'control_mode'
        return '' if self.move == 1 and self.mit == 0 else 'move_mode'

    def _move_joint(self, joint: int, mdeg: int) -> None:
        lower = self.settings.lower_ddeg[joint] * 100 - RANGE_TOLERANCE_MDEG
        upper = self.settings.upper_ddeg[joint] * 100 + RANGE_TOLERANCE_MDEG
        if not lower <= mdeg <= upper:
            self.limit_bits |= 1 << joint
            self.ignored['range'] += 1
        elif not self.powered[joint]:
            self.ignored['power'] += 1
        else:
            self.limit_bits &= ~(1 << joint)
            self.target_rad[joint] = mdeg / MDEG_PER_RAD

    def _power_on(self, joint: int) -> None:
        if self.is_stopped:
            self.ignored['stopped'] += 1
            return
        self._missing_enables[joint] = max(0, self._missing_enables[joint] - 1)
        if self._missing_enables[joint] or self.powered[joint]:
            return
        if isinstance(self._plant, Releasable):
            self._plant.engage(joint)
        now_rad = self.reading.joints_rad[joint]
        self.target_rad[joint] = self._reference_rad[joint] = now_rad
        self.powered[joint] = True
        self.is_supported = False

    def _power_off(self, joint: int) -> None:
        falls = self.powered[joint] and not self.is_supported
        if falls and isinstance(self._plant, Releasable):
            self._plant.release(joint)
        self.powered[joint] = False
        self._missing_enables[joint] = max(1, self._missing_enables[joint])

    def _hold(self) -> None:
        self.reading = self._read()
        for joint in range(JOINTS):
            self.target_rad[joint] = self._reference_rad[joint] = self.reading.joints_rad[joint]
        self.gripper_target_m = self.reading.gripper_m

    def _drive(self) -> None:
        settings = self.settings
        goal = np.array([(r if at is None else at) + z + slip for r, at, z, slip in zip(
            self._reference_rad, self.blocked_rad, settings.zero_rad, self._slip_rad,
            strict=True)])
        is_driven = self.is_gripper_powered and not self.is_gripper_stuck
        opening_m = self.gripper_target_m if is_driven else self.reading.gripper_m
        self._plant.command(goal, opening_m + settings.zero_gripper_m)

    def _read(self) -> Reading:
        position, velocity = self._plant.joint_state()
        values, speeds = position.tolist(), velocity.tolist()
        zero = self.settings.zero_rad
        joints = [value - z - slip for value, z, slip in zip(
            values[:JOINTS], zero, self._slip_rad, strict=True)]
        return Reading(joints, speeds[:JOINTS], values[JOINTS] - self.settings.zero_gripper_m)
