"""Stopping a graph: group by group, patient first, by force in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.core.clock import S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reflex_ros.bringup.event_log import EventLog
    from reflex_ros.bringup.supervise import Member
    from reflex_ros.core.clock import Clock

PATIENCE_NS = 5 * S
HURRIED_NS = 2 * S
"""What a process gets for its stop, beside the time that its arm may need to come to rest."""


class Stopping:
    """SIGTERM to one group after the other; SIGKILL to what does not stop.

    Args:
        groups: Members that stop together, first group first. Their ``child`` becomes None when
            the supervisor has noticed the end.
        clock: Steady time.
        log: Where events go.
    """

    def __init__(
        self, groups: Sequence[Sequence[Member]], *, clock: Clock, log: EventLog
    ) -> None:
        self._groups = [list(group) for group in groups]
        self._clock = clock
        self._log = log
        self._deadline_ns = 0
        self._hurries = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing runs any more."""
        return not self._groups

    def advance(self) -> None:
        """Ask the next group, end what is overdue."""
        while self._groups:
            living = [member for member in self._groups[0] if member.child is not None]
            if not living:
                self._groups.pop(0)
                self._deadline_ns = 0
            elif self._deadline_ns == 0:
                self._ask(living)
                return
            else:
                if self._clock.mono_ns() >= self._deadline_ns:
                    self._end(living)
                return

    def hurry(self) -> None:
        """Ask everything that is left at once and wait less; asked again, end it."""
        self._hurries += 1
        self._groups = [[member for group in self._groups for member in group]]
        self._deadline_ns = 0
        if self._hurries > 1:
            self._deadline_ns = self._clock.mono_ns()
        self.advance()

    def _ask(self, living: Sequence[Member]) -> None:
        patience_ns = HURRIED_NS if self._hurries else PATIENCE_NS
        longest_s = max(member.spec.stop_s for member in living)
        self._deadline_ns = self._clock.mono_ns() + patience_ns + round(longest_s * S)
        for member in living:
            if member.child is not None:
                self._log.event('terminate', member.spec.executable, pid=member.child.pid)
                member.child.terminate()

    def _end(self, living: Sequence[Member]) -> None:
        for member in living:
            if member.child is not None:
                self._log.event('kill', member.spec.executable, pid=member.child.pid,
                                text='did not stop in time: killed')
                member.child.kill()
        self._deadline_ns = self._clock.mono_ns() + HURRIED_NS
