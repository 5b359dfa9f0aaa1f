"""What a run of one fault on real threads needs around it: clock, operator, scene and expert."""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import Instant, S, SystemClock
from reflex_ros.core.types import SimTruth
from reflex_ros.sim.plant import HOME

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.core.clock import Clock
    from reflex_ros.core.types import FloatArray

HOME_GAIN = 0.3
"""How fast an arm that is away from home is led back to it, 1/s."""


class SteppedClock(SystemClock):
    """The clocks of this machine, of which ROS time can be stepped."""

    def __init__(self) -> None:
        self._step_ns = 0

    def stamp_ns(self) -> int:
        """Return ROS time in ns."""
        return super().stamp_ns() + self._step_ns

    def now(self) -> Instant:
        """Return both times."""
        now = super().now()
        return Instant(now.mono_ns, now.stamp_ns + self._step_ns)

    def step_stamp(self, delta_ns: int) -> None:
        """Step ROS time alone."""
        self._step_ns += delta_ns


class WallTimeline:
    """Calls functions at instants of the steady clock, one after the other, on one thread."""

    def __init__(self, clock: Clock, failed: Callable[[BaseException], None]) -> None:
        self._clock, self._failed = clock, failed
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._guarded, name='operator', daemon=True)

    def at(self, mono_ns: int, action: Callable[[], object]) -> None:
        """Call ``action`` at an instant, at once if that has passed."""
        with self._changed:
            heapq.heappush(self._queue, (mono_ns, next(self._order), action))
            self._changed.notify_all()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is not due yet is not called."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join(20.0)

    def _guarded(self) -> None:
        try:
            while (action := self._next()) is not None:
                action()
        except BaseException as error:  # the run raises it
            self._failed(error)

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            while not self._is_stopping:
                left_ns = self._queue[0][0] - self._clock.mono_ns() if self._queue else None
                if left_ns is not None and left_ns <= 0:
                    return heapq.heappop(self._queue)[2]
                self._changed.wait(None if left_ns is None else left_ns / S)
        return None


class Scene:
    """What the cameras see, told to the oracle: a task without a moving target."""

    def advance(self, mono_ns: int) -> None:
        """Do nothing: the arm moves in the simulator's process."""

    def look(self, number: int, clock: Clock) -> tuple[int, object, SimTruth]:
        """Return stamp, nothing to render, and the truth of now."""
        stamp_ns = clock.stamp_ns()
        none = np.zeros(3)
        return stamp_ns, None, SimTruth(
            number, stamp_ns, 'home', np.array([*HOME, 0.0]), np.zeros(7), none, none, none)


class HomeExpert:
    """Leads the arm home from wherever it is, slowly, and holds it there."""

    def chunk(self, truth: SimTruth, state: FloatArray, *, horizon: int, period_ns: int,
              start_delay_ns: int = 0) -> FloatArray:
        """Return ``float64[horizon, 7]`` from ``state``."""
        del truth, start_delay_ns
        start = np.asarray(state, np.float64)
        home = np.array([*HOME, start[-1]])
        left = np.exp(-HOME_GAIN * period_ns / S * np.arange(horizon))
        return home + left[:, None] * (start - home)
