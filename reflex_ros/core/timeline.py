"""An event queue on a manual clock; two runs with the same inputs call in the same order."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from reflex_ros.core.clock import MS, ManualClock


class Timeline:
    """Calls functions at instants of a ``ManualClock``, which it alone moves.

    Order is (instant, priority, insertion); a lower priority number comes first. A function may
    schedule further ones, also at the present instant. Not thread-safe.

    Args:
        clock: Clock to move.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._queue: list[tuple[int, int, int, Callable[[], None]]] = []
        self._insertions = itertools.count()

    def __len__(self) -> int:
        """Return the number of functions still to be called."""
        return len(self._queue)

    @property
    def next_ns(self) -> int | None:
        """Steady instant of the next call, None if nothing is scheduled."""
        return self._queue[0][0] if self._queue else None

    def at(self, mono_ns: int, fn: Callable[[], None], *, priority: int = 0) -> None:
        """Schedule ``fn`` at a steady instant.

        Raises:
            ValueError: The instant lies in the past.
        """
        now_ns = self._clock.mono_ns()
        if mono_ns < now_ns:
            raise ValueError(
                f'event cannot be scheduled in the past: got {(mono_ns - now_ns) / MS} ms from '
                'now, expected >= 0.'
            )
        heapq.heappush(self._queue, (mono_ns, priority, next(self._insertions), fn))

    def run_until(self, mono_ns: int) -> int:
        """Call everything that is due up to and including ``mono_ns``; leave the clock there.

        Returns:
            Number of functions called.
        """
        called = 0
        while self._queue and self._queue[0][0] <= mono_ns:
            due_ns, _, _, fn = heapq.heappop(self._queue)
            self._clock.sleep_until(due_ns)
            fn()
            called += 1
        self._clock.sleep_until(mono_ns)
        return called
