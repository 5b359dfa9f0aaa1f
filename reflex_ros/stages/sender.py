"""The way of a command from the limiter to the arm; what did not leave was never commanded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reflex_ros.arm.protocol import Sent
from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ReflexError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.limits import Limiter
    from reflex_ros.core.types import FloatArray

BRIDGED_NS = 40 * MS
"""Longest time between two commands that is one motion: a single lost tick at 50 Hz, seven at
200 Hz. The arm is then still on its way, tens of ms behind its target, whatever the rate is. After
a longer gap it has arrived at its last command or is about to, and whatever comes next starts from
rest there."""
BRIDGED_PERIODS = 2
"""Where that is longer: with fewer commands a second a single lost tick must not end a motion."""


class Sender:
    """Hands over what the limiter gave last, and remembers joint by joint when it left.

    The bus may take the command of one arm and not of the other, or one frame of three. A joint
    whose target left has moved, and its stream goes on from there; that of any other goes on from
    the target that it had.

    Args:
        arm: Gets the commands.
        period_ns: Control period.
        clock: Read once more when a command is ready: whatever held this process up meanwhile, a
            command goes out at its tick or not at all.
    """

    def __init__(self, arm: Arm, *, period_ns: int, clock: Clock) -> None:
        self._arm, self._period_ns, self._clock = arm, period_ns, clock
        self._bridged_ns = max(BRIDGED_NS, BRIDGED_PERIODS * period_ns)
        self._sent_ns = np.zeros(len(arm.names), np.int64)
        self._all_ns = 0
        self.is_overdue = self.is_given = False
        """Whether the newest command was ready too late, so that nothing was sent; whether all of
        it left, or would have but for shadow mode."""

    def send(self, limiter: Limiter, command: FloatArray, due_ns: int,
             hand_over: Callable[[FloatArray], Sent] | None = None) -> Sent:
        """Send the limiter's newest command, or take back what of it is not sent.

        Args:
            limiter: Of the stream. command: What it gave last, ``float64[J]``. due_ns: The tick.
            hand_over: Another way to the arm than its ``send``.

        Returns:
            What left. In shadow mode nothing does, but the stream goes on as if it had.
        """
        self.is_overdue = self._is_late(due_ns)
        sent = Sent.nothing(len(command))
        if not self.is_overdue:
            try:
                sent = (hand_over or self._arm.send)(command)
            except ReflexError as error:
                sent = Sent.nothing(len(command), str(error))
        is_given = sent.columns | (not self.is_overdue and self._is_shadow(sent))
        limiter.undo(~is_given)
        self.is_given = bool(is_given.all())
        self._sent_ns[is_given] = due_ns
        self._all_ns = due_ns if self.is_given else 0
        return sent

    def goes_on(self, due_ns: int) -> bool:
        """Return whether the whole command before that of a tick was given, one period ago."""
        return 2 * (due_ns - self._all_ns) <= 3 * self._period_ns

    def gap_ns(self, due_ns: int) -> npt.NDArray[np.int64]:
        """Return how long ago each joint had its last command, ``int64[J]``; 0 for never."""
        return np.where(self._sent_ns > 0, due_ns - self._sent_ns, 0)

    def arrived(self, gap_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which joints have come to rest by themselves since, ``bool[J]``."""
        return gap_ns > self._bridged_ns

    def _is_shadow(self, sent: Sent) -> bool:
        return not (sent or sent.failure) and self._arm.stats().is_shadow

    def _is_late(self, due_ns: int) -> bool:
        return 2 * (self._clock.mono_ns() - due_ns) > self._period_ns
