"""The newest readings of the arm, and whether they show an arm at rest."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import MS, S
from reflex_ros.core.interpolate import revolute

if TYPE_CHECKING:
    from reflex_ros.core.types import ArmFeedback

RESTING_RAD_S = 1.0
"""An arm that is slower rests, as far as its pose may become the command."""
LONGEST_NS = 20 * MS
"""Two readings further apart are compared as if they were so far apart."""


class Readings:
    """Remembers the two newest readings of different instants.

    Args:
        joints: Number of joints, grippers included.
    """

    def __init__(self, joints: int) -> None:
        self._joints = revolute(joints)
        self._kept: deque[ArmFeedback] = deque(maxlen=2)
        self.newest: ArmFeedback | None = None
        """What the arm said last, None before that."""

    def take(self, reading: ArmFeedback) -> ArmFeedback:
        """Keep a reading and return it."""
        self.newest = reading
        if not self._kept or reading.mono_ns > self._kept[-1].mono_ns:
            self._kept.append(reading)
        return reading

    def is_resting(self, reading: ArmFeedback) -> bool:
        """Return whether a pose equals the one read before it: a damaged one does not."""
        before = [other for other in self._kept if other.mono_ns < reading.mono_ns]
        if not before:
            return False
        moved = np.abs(reading.position - before[-1].position)[self._joints]
        passed_ns = min(reading.mono_ns - before[-1].mono_ns, LONGEST_NS)
        return bool((moved < RESTING_RAD_S * passed_ns / S).all())

    def is_slow(self, reading: ArmFeedback, velocity: float) -> bool:
        """Return whether no joint is faster than ``velocity``, rad/s."""
        return bool(np.all(np.abs(reading.velocity[self._joints]) < velocity))
