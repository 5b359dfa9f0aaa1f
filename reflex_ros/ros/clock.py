"""A clock whose stamps come from a node, so that simulated time reaches the stages."""

from __future__ import annotations

from typing import Any

from reflex_ros.core.clock import Clock, Instant, SystemClock


class RosClock:
    """Implements ``core.clock.Clock``: steady time of this machine, stamps of a ROS clock.

    Args:
        ros_clock: ``node.get_clock()``; follows ``/clock`` under ``use_sim_time``.
        steady: Source of the steady time and of sleeping.
    """

    def __init__(self, ros_clock: Any, *, steady: Clock | None = None) -> None:
        self._ros = ros_clock
        self._steady = steady or SystemClock()

    @property
    def steady(self) -> Clock:
        """Return the source of the steady time, for who needs no stamps."""
        return self._steady

    def mono_ns(self) -> int:
        """Return the steady clock in ns."""
        return self._steady.mono_ns()

    def stamp_ns(self) -> int:
        """Return ROS time in ns; 0 under ``use_sim_time`` until the first ``/clock``."""
        return int(self._ros.now().nanoseconds)

    def now(self) -> Instant:
        """Return both times; the stamp lies between two readings of the steady clock."""
        before = self._steady.mono_ns()
        stamp = self.stamp_ns()
        return Instant((before + self._steady.mono_ns()) // 2, stamp)

    def sleep_until(self, mono_ns: int) -> None:
        """Block until the steady clock reaches ``mono_ns``."""
        self._steady.sleep_until(mono_ns)
