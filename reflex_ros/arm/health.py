"""Which faults are in force: those the arm reports and those only the driver can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.arm import checks, wire
from reflex_ros.core.clock import MS

if TYPE_CHECKING:
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.arm.feedback import FeedbackView
    from reflex_ros.arm.gate import CommandGate
    from reflex_ros.arm.link import CanLink

STATUS_TIMEOUT_NS = 500 * MS
"""Status, gripper and motor states; the slowest of them arrives every 25 ms."""
SEND_FAILURES = 5


class Health:
    """Judges one view of the arm.

    Args:
        config: Time bounds.
        link: Whether the bus lives.
        gate: Whether it takes frames.
    """

    def __init__(self, config: DriverConfig, *, link: CanLink, gate: CommandGate) -> None:
        self._config = config
        self._link = link
        self._gate = gate

    def faults(self, view: FeedbackView, now_ns: int, *, has_control: bool) -> tuple[str, ...]:
        """Return the codes in force, gravest first.

        Args:
            view: Newest view.
            now_ns: Steady time.
            has_control: Whether this driver powered the joints and commands them.
        """
        found = [*self._bus(), *self._silences(view, now_ns), *_others(view, now_ns),
                 *checks.frame_faults(view)]
        if has_control:
            found += _lost_control(view)
        return tuple(dict.fromkeys(found))

    def _bus(self) -> list[str]:
        found = [] if self._link.is_open else ['bus_lost']
        counts = self._gate.counts
        if max(counts.failed_in_a_row, counts.short_in_a_row) >= SEND_FAILURES:
            found.append('send_failed')
        return found

    def _silences(self, view: FeedbackView, now_ns: int) -> list[str]:
        if now_ns - view.joints_ns > self._config.feedback_timeout_ns:
            return ['feedback_lost']
        oldest_ns = min(view.status_ns, view.gripper_ns, *view.motors_ns, *view.drivers_ns)
        return ['status_lost'] if now_ns - oldest_ns > STATUS_TIMEOUT_NS else []


def _others(view: FeedbackView, now_ns: int) -> list[str]:
    found = []
    if view.foreign_ns and now_ns - view.foreign_ns < checks.FOREIGN_NS:
        found.append('foreign_commander')
    if view.leader_ns and now_ns - view.leader_ns < checks.FOREIGN_NS:
        found.append('leader_mode')
    return found


def _lost_control(view: FeedbackView) -> list[str]:
    found = [f'joint{i}_disabled' for i, driver in enumerate(view.drivers, start=1)
             if driver is None or not driver.bits & wire.ENABLED_BIT]
    if view.gripper_lost & wire.ENABLED_BIT:
        found.append('gripper_disabled')
    if view.gripper_lost & wire.HOMED_BIT:
        found.append('gripper_zero_lost')
    if view.status is not None and view.status.control_mode != wire.CONTROL_CAN:
        found.append('control_mode_lost')
    return found
