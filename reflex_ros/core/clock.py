"""Two times that never mix, and the one place that converts between them.

*mono* is the steady clock: every duration, deadline and ``_ns`` field. *stamp* is ROS time: it
comes from message headers and may be simulated or stepped. ``ClockOffset`` converts both ways
from a pair that was read together.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Protocol

US = 1_000
MS = 1_000_000
S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks, read together.

    Attributes:
        mono_ns: Steady clock, ns.
        stamp_ns: ROS time, ns since its epoch.
    """

    mono_ns: int
    stamp_ns: int


class Clock(Protocol):
    """Source of both times; stages take one and cannot tell which kind it is."""

    def mono_ns(self) -> int:
        """Return the steady clock in ns."""

    def stamp_ns(self) -> int:
        """Return ROS time in ns."""

    def now(self) -> Instant:
        """Return both times, read together."""

    def sleep_until(self, mono_ns: int) -> None:
        """Block until the steady clock reaches ``mono_ns``; return at once if it has."""


class SystemClock:
    """Steady clock and wall clock of this machine."""

    def mono_ns(self) -> int:
        """Return the steady clock in ns."""
        return time.monotonic_ns()

    def stamp_ns(self) -> int:
        """Return the wall clock in ns since 1970."""
        return time.time_ns()

    def now(self) -> Instant:
        """Return both times; the stamp lies between two readings of the steady clock."""
        before = time.monotonic_ns()
        stamp = time.time_ns()
        return Instant((before + time.monotonic_ns()) // 2, stamp)

    def sleep_until(self, mono_ns: int) -> None:
        """Block until the steady clock reaches ``mono_ns``."""
        while (left := mono_ns - time.monotonic_ns()) > 0:
            time.sleep(left / S)


def cpu_ns() -> int:
    """Return the CPU time that this process has used, all threads together, ns.

    It stands still while other programs have the cores, so it compares pieces of code on a busy
    machine; it is no clock of the outside world.
    """
    return time.process_time_ns()


class ManualClock:
    """A clock that moves only when told; for tests and the virtual wiring.

    Args:
        mono_ns: First value of the steady clock.
        stamp_ns: First value of ROS time; far from ``mono_ns`` so that a mix-up shows.
    """

    def __init__(self, mono_ns: int = 0, stamp_ns: int = 1_700_000_000 * S) -> None:
        self._lock = threading.Lock()
        self._now = Instant(mono_ns, stamp_ns)  # replaced as a whole: readers need no lock

    def mono_ns(self) -> int:
        """Return the steady clock in ns."""
        return self._now.mono_ns

    def stamp_ns(self) -> int:
        """Return ROS time in ns."""
        return self._now.stamp_ns

    def now(self) -> Instant:
        """Return both times."""
        return self._now

    def advance(self, delta_ns: int) -> None:
        """Move both clocks forward by ``delta_ns`` (>= 0)."""
        if delta_ns < 0:
            raise ValueError(f'a steady clock cannot go back: got {delta_ns} ns, expected >= 0.')
        with self._lock:
            now = self._now
            self._now = Instant(now.mono_ns + delta_ns, now.stamp_ns + delta_ns)

    def step_stamp(self, delta_ns: int) -> None:
        """Step ROS time alone by ``delta_ns`` (either sign), as a clock correction does."""
        with self._lock:
            self._now = Instant(self._now.mono_ns, self._now.stamp_ns + delta_ns)

    def sleep_until(self, mono_ns: int) -> None:
        """Advance to ``mono_ns`` at once; nothing blocks on a manual clock."""
        if mono_ns > self._now.mono_ns:
            with self._lock:
                now = self._now
                if mono_ns > now.mono_ns:  # nobody else went there meanwhile
                    self._now = Instant(mono_ns, now.stamp_ns + mono_ns - now.mono_ns)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Conversion between the two clocks, from one pair read together.

    Attributes:
        offset_ns: ``stamp_ns - mono_ns`` at the pair.
    """

    offset_ns: int

    @classmethod
    def at(cls, now: Instant) -> ClockOffset:
        """Return the conversion that holds at ``now``."""
        return cls(now.stamp_ns - now.mono_ns)

    def to_mono(self, stamp_ns: int) -> int:
        """Return the steady time of a stamp, ns."""
        return stamp_ns - self.offset_ns

    def to_stamp(self, mono_ns: int) -> int:
        """Return the stamp of a steady time, ns."""
        return mono_ns + self.offset_ns
