"""The arm on a CAN bus, through the unmodified vendor SDK.

Nothing here ever writes a persistent parameter, disables or resets on its own: an arm without
power falls. Every frame that leaves was compared with the one that was asked for (``arm.gate``).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.arm import checks, faults, wire
from reflex_ros.arm.commands import Commands
from reflex_ros.arm.enabling import EnablingSequence
from reflex_ros.arm.feedback import FeedbackBook, FeedbackView
from reflex_ros.arm.gate import CommandGate
from reflex_ros.arm.health import Health
from reflex_ros.arm.interface import read_interface
from reflex_ros.arm.link import CanLink, wait_until
from reflex_ros.arm.lock import ChannelLock
from reflex_ros.arm.preflight import Preflight
from reflex_ros.arm.protocol import ArmReport, BusStats, Sent, always
from reflex_ros.core.clock import MS, SystemClock
from reflex_ros.core.errors import ArmError
from reflex_ros.core.priority import scheduled, scheduling
from reflex_ros.core.types import ArmFeedback, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.arm.interface import InterfaceInfo
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import FloatArray

CLEAR_NS = 300 * MS
RECENT = 100
_SILENCES = frozenset({'feedback_lost', 'status_lost', 'send_failed'})
_OLD_TORQUE_SCALE = (1, 8, 2)
_COLUMNS = (2, 2, 2, 1)
"""Joints in each frame of a command, the gripper last."""


class PiperDriver:
    """``arm.protocol.Arm`` over piper_sdk.

    Args:
        config: Bus, limits and bounds.
        clock: Steady clock; the default is the machine's.
        read_info: Reader of the kernel interface, for tests.
        make_link: Makes the bus with the SDK on it; another one than ``CanLink`` for runs on a
            virtual clock.
    """

    def __init__(
        self,
        config: DriverConfig,
        clock: Clock | None = None,
        *,
        read_info: Callable[[str], InterfaceInfo] = read_interface,
        make_link: Callable[..., CanLink] = CanLink,
    ) -> None:
        self._config = config
        self._clock = SystemClock() if clock is None else clock
        self._names = config.names
        self._book = FeedbackBook()
        self._gate = CommandGate(self._clock, send_frames=config.send)
        self._link = make_link(
            config, self._clock, book=self._book, gate=self._gate, read_info=read_info)
        self._commands = Commands(config, link=self._link, gate=self._gate)
        self._health = Health(config, link=self._link, gate=self._gate)
        self._preflight = Preflight(
            config, self._clock, link=self._link, commands=self._commands, book=self._book)
        self._enabling = EnablingSequence(
            config, self._clock, commands=self._commands, book=self._book)
        self._lock = ChannelLock(config.bus_name, folder=config.lock_dir)
        self._limits = config.own_limits
        self._max_jump = np.array([config.max_jump_rad] * wire.JOINTS + [config.max_jump_m])
        self._is_checked = self._is_enabled = self._needs_mode = False
        self._old_torque_scale = False
        self._offered: frozenset[str] = frozenset()
        self._last: FloatArray | None = None
        self._recent: deque[object] = deque(maxlen=RECENT)
        self._scheduling = scheduling()
        self._sender: int | None = None
        self._sent = self._refused = self._reconnects = 0
        self._last_refusal = ''

    @property
    def names(self) -> tuple[str, ...]:
        """Return the joint names, gripper last."""
        return self._names

    @property
    def recent(self) -> tuple[object, ...]:
        """Return ``(mono_ns, command, measured)`` of the last two seconds, oldest first."""
        return tuple(self._recent)

    def connect(self) -> None:
        """Take the channel, open the bus and wait for feedback; see ``arm.protocol.Arm``."""
        if self._link.is_open:
            return
        self._scheduling = scheduling()  # a bus that is reopened keeps it, whoever reopens it
        self._lock.acquire()
        try:
            self._open()
        except BaseException:
            self._link.close()
            self._lock.release()
            raise

    def reconnect(self) -> None:
        """Close and reopen the bus; the arm must be checked and enabled again.

        Its threads keep the priority and the core that they had after ``connect``.

        Raises:
            ArmError: As ``connect``.
        """
        self._give_up_control()
        self._lock.acquire()
        with scheduled(self._scheduling):
            self._open()
        self._reconnects += 1

    def check(self) -> ArmReport:
        """Decide whether the arm may be enabled; see ``arm.protocol.Arm``."""
        self._is_checked = False
        self._need_bus()
        found = self._preflight.run()
        self._limits = found.limits
        key = wire.firmware_key(found.view.firmware)
        self._old_torque_scale = key is not None and key <= _OLD_TORQUE_SCALE
        position = found.view.position
        checks.check_pose(position, self._names, self._limits)
        self._is_checked = True
        status = found.view.status
        return ArmReport(
            firmware=found.view.firmware,
            position=position,
            limits=found.limits,
            gripper_range_m=found.gripper_range_m,
            control_mode=status.control_mode if status else 0,
            arm_status=status.arm_status if status else 0,
            enabled=found.view.enabled,
            rates_hz=found.rates_hz,
            warnings=found.warnings,
        )

    def enable(self, *, go_on: Callable[[], None] = always) -> FloatArray:
        """Power the joints and hold the measured pose; see ``arm.protocol.Arm``."""
        if not self._is_checked:
            raise ArmError(
                'Arm enable: got no passed check, expected one. Call check() first.',
                code='arm_state', recent=self.recent)
        self._need_bus()
        self._is_enabled = False
        wait_until(self._clock, lambda: not self.faults(), timeout_ns=CLEAR_NS)
        self._preflight.check_live()
        self._refuse_lost()
        go_on()
        if self._config.send:
            hold = self._enabling.run(self._limits, go_on=go_on)
        else:
            hold = checks.check_pose(self._book.view().position, self._names, self._limits)
        self._book.watch_gripper()
        self._last, self._needs_mode, self._is_enabled = hold, True, True
        self._offered = frozenset()
        return hold.copy()

    def feedback(self) -> ArmFeedback:
        """Return a copy of the newest coherent reading."""
        view = self._book.view()
        status = view.status
        return ArmFeedback(
            mono_ns=view.joints_ns,
            position=view.position,
            velocity=view.velocity,
            effort=view.effort(is_old_scale=self._old_torque_scale),
            enabled=view.enabled,
            control_mode=status.control_mode if status else 0,
            arm_status=status.arm_status if status else 0,
            faults=self._faults(view),
        )

    def send(self, position: FloatArray) -> Sent:
        """Hand one command to the bus; see ``arm.protocol.Arm``."""
        self._own_thread()
        view = self._book.view()
        measured = view.position
        command = checks.check_command(
            position, self._names, limits=self._limits, last=self._last, max_jump=self._max_jump,
            measured=measured)
        refusal = self._refusal(view)
        sent = Sent.nothing(len(command)) if refusal else self._transmit(command)
        if not sent:
            self._refused += 1
            self._last_refusal = refusal or 'send_failed'
        else:
            self._sent += 1
        if refusal == 'shadow':
            self._last = command
        elif self._last is not None:  # the next is compared with what left of this one
            self._last = np.where(sent.columns, command, self._last)
        self._recent.append((self._clock.mono_ns(), command, measured))
        return sent

    def clear_faults(self, *, arm_supported: bool, go_on: Callable[[], None] = always) -> Reply:
        """Clear errors, reopen a lost bus, reset a supported arm; see ``arm.protocol.Arm``."""
        if not self._config.send:
            return Reply(False, 'Shadow mode sends nothing. Start with send: true.')
        self._give_up_control()
        if not self._link.is_open:
            go_on()
            try:
                self.reconnect()
            except ArmError as error:
                return Reply(False, str(error))
        if self._is_cleared():
            return Reply(True, 'Faults cleared; check and enable again.')
        if _SILENCES & set(self.faults()):
            # A bus that is open and dead: an adapter that left the bus comes back reopened.
            go_on()
            try:
                self.reconnect()
            except ArmError as error:
                return Reply(False, str(error))
            if self._is_cleared():
                return Reply(True, 'The bus was reopened; check and enable again.')
        return self._reset_or_offer(arm_supported=arm_supported, go_on=go_on)

    def disable(self, *, arm_supported: bool) -> Reply:
        """Cut the power of all motors: the arm falls. Never called by the driver itself.

        Args:
            arm_supported: The operator's word that the arm is held or parked.
        """
        if not arm_supported:
            return Reply(False, 'Without power the arm falls: support it, then repeat with '
                                'arm_supported.')
        self._give_up_control()
        is_sent = self._commands.power_off()
        return Reply(is_sent, 'Power is off.' if is_sent else 'The bus did not take the frame.')

    def faults(self) -> tuple[str, ...]:
        """Return the codes of the faults in force."""
        return self._faults(self._book.view())

    def limits(self) -> JointLimits:
        """Return the limits in force."""
        return self._limits

    def disconnect(self) -> None:
        """Close the bus and release the channel; motors keep their power."""
        self._give_up_control()
        self._link.close()
        self._lock.release()

    def stats(self) -> BusStats:
        """Return the counters."""
        view, now_ns, counts = self._book.view(), self._clock.mono_ns(), self._gate.counts
        return BusStats(
            is_connected=self._link.is_open,
            is_shadow=not self._config.send,
            frames=view.frames,
            rates_hz=self._book.rates_hz(now_ns),
            feedback_age_ns=now_ns - view.joints_ns if view.joints_ns else -1,
            sent_commands=self._sent,
            sent_frames=counts.sent,
            failed_frames=counts.failed,
            blocked_frames=counts.blocked,
            refused_commands=self._refused,
            last_refusal=self._last_refusal,
            foreign_frames=view.foreign_frames,
            decode_errors=view.decode_errors + self._link.error_frames,
            incoherent_sets=view.incoherent_sets,
            reconnects=self._reconnects,
        )

    def _open(self) -> None:
        self._sender = None
        self._link.close()
        self._book.clear()
        self._link.open()
        wait_until(self._clock, lambda: self._book.view().joints_ns > 0,
                   timeout_ns=self._config.connect_timeout_ns)
        if not self._book.view().joints_ns:
            checks.check_feedback(
                self._book.view(), self._book.silent_ids(self._clock.mono_ns()))

    def _transmit(self, command: FloatArray) -> Sent:
        percent = int(self._config.speed_percent)
        taken = self._commands.move(
            command, mode_percent=percent if self._needs_mode else None)
        self._needs_mode = self._needs_mode and not all(taken)
        return Sent(np.repeat(taken[-len(_COLUMNS):], _COLUMNS))

    def _refusal(self, view: FeedbackView) -> str:
        if not self._is_enabled:
            return 'not_enabled'
        found = self._faults(view)
        if found:
            return found[0]
        return '' if self._config.send else 'shadow'

    def _faults(self, view: FeedbackView) -> tuple[str, ...]:
        if not self._lock.is_held:
            return ()
        return self._health.faults(
            view, self._clock.mono_ns(), has_control=self._is_enabled and self._config.send)

    def _reset_or_offer(self, *, arm_supported: bool, go_on: Callable[[], None]) -> Reply:
        """Reset for the faults that a reset was offered for; say so first of any other."""
        found, resettable = self.faults(), frozenset(checks.frame_faults(self._book.view()))
        if not resettable:
            return Reply(False, '; '.join(faults.explain(code) for code in found))
        if arm_supported and resettable <= self._offered:
            go_on()  # last, for a hold may have come while the errors were cleared
            return self._reset()
        self._offered = resettable
        return Reply(
            False, f'{", ".join(found)} stays after clearing errors. A reset cuts the power '
            'and the arm falls: support it, then repeat with arm_supported.')

    def _is_cleared(self) -> bool:
        self._clear_errors()
        return wait_until(self._clock, lambda: not self.faults(), timeout_ns=CLEAR_NS)

    def _clear_errors(self) -> None:
        view = self._book.view()
        if checks.frame_faults(view):
            self._commands.clear_joint_errors()
        if view.gripper is not None and faults.gripper_faults(view.gripper):
            self._commands.clear_gripper_errors(view.gripper)

    def _reset(self) -> Reply:
        self._offered = frozenset()
        self._commands.reset()
        if wait_until(self._clock, self._is_reset, timeout_ns=3 * CLEAR_NS):
            return Reply(True, 'The arm was reset and has no power; check and enable again.')
        return Reply(False, '; '.join(faults.explain(code) for code in self.faults())
                     + ' The arm was reset and has no power.')

    def _is_reset(self) -> bool:
        view = self._book.view()
        return not any(view.enabled[:wire.JOINTS]) and not self._faults(view)

    def _give_up_control(self) -> None:
        self._is_checked = self._is_enabled = False
        self._last = None  # the arm may move before the next command: nothing to compare with

    def _need_bus(self) -> None:
        if not self._link.is_open:
            lost = self._link.lost_reason
            raise ArmError(
                f'CAN bus {self._config.bus_name}: got it {lost or "closed"}, expected it open. '
                f'{"Recover" if lost else "Call connect()"} first.',
                code='bus_lost' if lost else 'not_connected', recent=self.recent)

    def _refuse_lost(self) -> None:
        found = self.faults()
        if found:
            raise ArmError(
                f'Arm enable: got {", ".join(found)}, expected no fault. '
                f'{faults.explain(found[0])}', code=found[0], recent=self.recent)

    def _own_thread(self) -> None:
        me = threading.get_ident()
        if self._sender is None:
            self._sender = me
        if self._sender != me:
            raise ArmError(
                f'Arm send: got thread {me}, expected the one sender thread {self._sender}. '
                'Send from one thread only.', code='second_sender')
