"""One emulated arm on its CAN bus: bytes in, bytes out, at the rates of the real one.

``receive`` takes the frames of the host, ``step`` (every 5 ms) gives all cyclic frames, ``due``
the answers to queries. Fourteen ids at 200 Hz and the six driver states at 40 Hz make the 3040
frames per second that the vendor names for a healthy arm. Time is an argument, so a test can run
it on a manual clock and a thread is not needed.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import LayoutError
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.can_codec import CanFrame
from reflex_ros.sim.cyclic import high_speed, leader, low_speed
from reflex_ros.sim.faults import FLAGS, GRIPPER_FLAGS, Direction, Kind
from reflex_ros.sim.firmware import (
    JOINTS,
    MDEG_PER_RAD,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    Control,
    Firmware,
)
from reflex_ros.sim.injector import FaultInjector
from reflex_ros.sim.parameters import Parameters

if TYPE_CHECKING:
    from reflex_ros.sim.faults import Fault
    from reflex_ros.sim.injector import Changes
    from reflex_ros.sim.plant import Plant

PERIOD_NS = 5 * MS
"""Period of the cyclic frames; the driver states come every ``LOW_SPEED_NS``."""
LOW_SPEED_NS = 25 * MS
FIRMWARE_DELAY_NS = 2 * MS
"""The SDK clears its buffer after it sent the query: an instant answer would be lost."""
FIRMWARE = 'S-V1.8-9'
FIRMWARE_ID = 0x4AF


@dataclass(frozen=True, slots=True)
class EmulatorConfig:
    """What differs between arms.

    Attributes:
        firmware: Eight characters as the arm sends them.
        is_leader: Starts in leader mode: commands are ignored, only its own targets are sent.
        enables_after_reset: Power-on commands that a motor needs after a reset.
        gripper_range_mm: 70 or 100; 0 = never configured, the gripper cannot move.
        is_supported: Rests in its first pose until it is powered; False: it falls at once.
    """

    firmware: str = FIRMWARE
    is_leader: bool = False
    enables_after_reset: int = 2
    gripper_range_mm: int = 70
    is_supported: bool = True


class Emulator:
    """One arm behind a bus.

    Not thread-safe, but for ``faults.inject``, ``faults.clear`` and reading counters.

    Args:
        plant: What the firmware drives.
        now_ns: Steady time of power-on; the fault script counts from here.
        config: Kind of arm.
        faults: Faults to inject; none by default.
    """

    def __init__(
        self,
        plant: Plant,
        now_ns: int,
        *,
        config: EmulatorConfig | None = None,
        faults: FaultInjector | None = None,
    ) -> None:
        self.config = config or EmulatorConfig()
        self.firmware = Firmware(
            plant, enables_after_reset=self.config.enables_after_reset,
            is_supported=self.config.is_supported)
        self.firmware.settings.gripper = (100, self.config.gripper_range_mm, 1)
        self.faults = faults or FaultInjector()
        self.faults.start(now_ns)
        self.received: Counter[int] = Counter()
        """Frames from the host by id, before faults and modes."""
        self._parameters = Parameters(self.firmware, self.faults)
        self._stepped_ns = now_ns
        self._low_speed_ns = now_ns
        self._foreign_ns = self._error_ns = now_ns
        self._answers: list[tuple[int, int, CanFrame]] = []
        self._order = itertools.count()
        self._is_leader = self.config.is_leader
        self._role = self.config.is_leader

    @property
    def is_leader(self) -> bool:
        """Return whether the arm is in leader mode, by configuration or by a fault."""
        return self._is_leader or self.faults.active(Kind.LEADER_MODE) is not None

    @property
    def next_due_ns(self) -> int | None:
        """Return the steady time at which ``due`` has something next, None if nothing waits."""
        answer = self._answers[0][0] if self._answers else None
        delayed = self.faults.next_due_ns
        if answer is None or delayed is None:
            return delayed if answer is None else answer
        return min(answer, delayed)

    def receive(self, can_id: int, data: bytes, now_ns: int) -> None:
        """Take one frame from the host; answers are given by ``due``."""
        self.received[can_id] += 1
        for frame in self.faults.filter([CanFrame(can_id, data)], now_ns, Direction.COMMANDS):
            self._handle(frame, now_ns)

    def step(self, now_ns: int) -> list[CanFrame]:
        """Advance to ``now_ns`` and return the cyclic frames that reach the bus."""
        self._follow(self.faults.update(now_ns))
        for frame in self.faults.delayed(now_ns, Direction.COMMANDS):
            self._handle(frame, now_ns)
        foreign = self._foreign_frames(now_ns)
        self.firmware.step(max(0, now_ns - self._stepped_ns))
        self._stepped_ns = now_ns
        if self.is_leader:
            frames = leader(self.firmware)
        else:
            frames = high_speed(self.firmware)
            if now_ns >= self._low_speed_ns:
                frames += low_speed(self.firmware)
                self._low_speed_ns = max(self._low_speed_ns + LOW_SPEED_NS, now_ns)
        passed = self.faults.filter(foreign + frames, now_ns, Direction.FEEDBACK)
        return passed + self._error_frames(now_ns)

    def due(self, now_ns: int) -> list[CanFrame]:
        """Return the answers and delayed frames whose time has come."""
        frames: list[CanFrame] = []
        while self._answers and self._answers[0][0] <= now_ns:
            frames.append(heapq.heappop(self._answers)[2])
        passed = self.faults.filter(frames, now_ns, Direction.FEEDBACK)
        return passed + self.faults.delayed(now_ns, Direction.FEEDBACK)

    def restart(self) -> None:
        """Power the arm off and on: a changed role takes effect, no motor is powered."""
        self.firmware.resume()
        self._is_leader = self._role

    def _handle(self, frame: CanFrame, now_ns: int) -> None:
        try:
            message = codec.decode_command(frame.can_id, frame.data)
        except LayoutError:
            self.firmware.ignored['malformed'] += 1
            return
        if self.is_leader and not isinstance(message, codec.Linkage):
            self.firmware.ignored['leader'] += 1
        else:
            self._carry_out(message, now_ns)

    def _carry_out(self, message: codec.Command | None, now_ns: int) -> None:
        match message:
            case codec.JointTarget():
                self.firmware.move_joints(message)
            case codec.Mode():
                self.firmware.set_mode(message)
            case codec.GripperTarget():
                self.firmware.move_gripper(message)
                if message.zero == codec.APPLY:
                    self._answer(codec.SettingAck(0x59, 1), now_ns)
            case codec.Power(motor, switch):
                if self.firmware.power(motor, switch):
                    self._answer(codec.SettingAck(0x71), now_ns)
            case codec.Motion():
                self.firmware.motion_control(message)
            case codec.FirmwareQuery():
                self._answer_firmware(now_ns + FIRMWARE_DELAY_NS)
            case codec.Linkage(role):
                self._set_role(role, now_ns)
            case None | codec.PoseTarget() | codec.ArcPoint() | codec.MitTarget():
                self.firmware.ignored['unknown_id' if message is None else 'move_mode'] += 1
            case _:
                answer = self._parameters.answer(message)
                if answer is not None:
                    self._answer(answer, now_ns)

    def _answer(self, message: codec.Feedback, due_ns: int) -> None:
        heapq.heappush(self._answers, (due_ns, next(self._order), codec.encode(message)))

    def _answer_firmware(self, due_ns: int) -> None:
        fault = self.faults.active(Kind.FIRMWARE)
        version = fault.version if fault else self.config.firmware
        text = f'H-V1.2-1{version:8.8}20260101'.encode('ascii', 'replace')
        for start in range(0, len(text), codec.FRAME_BYTES):
            self._answer(codec.FirmwareText(text[start:start + codec.FRAME_BYTES]), due_ns)

    def _set_role(self, role: int, now_ns: int) -> None:
        if role in (ROLE_LEADER, ROLE_FOLLOWER):
            self.firmware.persistent_writes += 1
            self._role = role == ROLE_LEADER
        self._answer(codec.SettingAck(0x70), now_ns)

    def _follow(self, changes: Changes) -> None:
        firmware = self.firmware
        for fault in changes.began:
            if fault.kind is Kind.ESTOP:
                firmware.stop()
            elif fault.kind is Kind.TEACH_MODE:
                firmware.start_teaching()
            elif fault.kind is Kind.POWER_LOSS:
                for joint in fault.joints:
                    firmware.power(joint, 1)
        for fault in changes.ended:
            if fault.kind is Kind.TEACH_MODE:
                firmware.end_teaching()
            elif fault.kind in (Kind.STATUS, Kind.DRIVER_FLAGS) and not fault.latched:
                firmware.clear_errors()
            elif fault.kind is Kind.GRIPPER_FLAGS and not fault.latched:
                firmware.gripper_bits = 0
        firmware.is_gripper_stuck = self.faults.active(Kind.GRIPPER_STUCK) is not None
        firmware.is_gripper_homed = self.faults.active(Kind.GRIPPER_ZERO_LOSS) is None
        firmware.feed_gripper(self.faults.active(Kind.GRIPPER_POWER_LOSS) is None)
        for joint in range(JOINTS):
            overload = self.faults.active(Kind.OVERLOAD, joint + 1)
            firmware.overload_ma[joint] = overload.current_ma if overload else 0
            is_honest = overload is not None and not overload.lying
            known = firmware.blocked_rad[joint]
            at = firmware.reading.joints_rad[joint] if known is None else known
            firmware.blocked_rad[joint] = at if is_honest else None
        for fault in self.faults.all_active(Kind.GRIPPER_FLAGS):
            firmware.gripper_bits |= sum(GRIPPER_FLAGS[name] for name in fault.gripper_flags)
        for fault in self.faults.all_active(Kind.STATUS):
            firmware.error_status = fault.status or firmware.error_status
            firmware.limit_bits |= _bits(fault.limit_joints)
            firmware.comm_bits |= _bits(fault.comm_joints)
        for fault in self.faults.all_active(Kind.DRIVER_FLAGS):
            for joint in fault.joints:
                firmware.driver_bits[joint - 1] |= sum(FLAGS[name] for name in fault.flags)

    def _error_frames(self, now_ns: int) -> list[CanFrame]:
        fault = self.faults.active(Kind.BUS_ERRORS)
        if fault is None or now_ns < self._error_ns:
            return []
        self._error_ns = max(self._error_ns + round(fault.period_s * S), now_ns)
        return [CanFrame(codec.ERROR_ID, bytes(codec.FRAME_BYTES))]

    def _foreign_frames(self, now_ns: int) -> list[CanFrame]:
        fault = self.faults.active(Kind.SECOND_COMMANDER)
        if fault is None or now_ns < self._foreign_ns:
            return []
        self._foreign_ns = max(self._foreign_ns + round(fault.period_s * S), now_ns)
        frames = [codec.encode(codec.Mode(Control.CAN, 1, 50))]
        frames += [codec.encode(target) for target in self._foreign_targets(fault)]
        for frame in frames:
            self._handle(frame, now_ns)
        return frames

    def _foreign_targets(self, fault: Fault) -> list[codec.JointTarget]:
        if fault.joints_deg is not None:
            mdeg = [round(angle * 1000) for angle in fault.joints_deg]
        else:
            mdeg = [round(angle * MDEG_PER_RAD) for angle in self.firmware.reading.joints_rad]
        return [codec.JointTarget(n + 1, mdeg[n], mdeg[n + 1]) for n in range(0, JOINTS, 2)]


def _bits(joints: tuple[int, ...]) -> int:
    return sum(1 << (joint - 1) for joint in joints)
