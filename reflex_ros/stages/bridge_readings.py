"""The newest readings of the arm, and whether they show an arm at rest."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import MS, S
from reflex_ros.core.interpolate import revolute

if TYPE_CHECKING:
    from reflex_ros.core.types import ArmFeedback

RESTING_RAD = 0.01
"""An arm rests whose readings lie no further apart: a hand that holds it trembles."""
RESTING_NS = 100 * MS
"""For so long at least."""
LEAST_READINGS = 5
"""So many readings must agree: damaged ones do not."""
_STALE_NS = S
_KEPT = 128


class Readings:
    """Remembers the newest readings of different instants.

    Args:
        joints: Number of joints, grippers included.
    """

    def __init__(self, joints: int) -> None:
        self._joints = revolute(joints)
        self._kept: deque[ArmFeedback] = deque(maxlen=_KEPT)
        self.newest: ArmFeedback | None = None
        """What the arm said last, None before that."""

    def take(self, reading: ArmFeedback) -> ArmFeedback:
        """Keep a reading and return it."""
        self.newest = reading
        if not self._kept or reading.mono_ns > self._kept[-1].mono_ns:
            self._kept.append(reading)
        return reading

    def is_resting(self, reading: ArmFeedback) -> bool:
        """Return whether the arm has been in the pose of a reading for several readings."""
        count = 1
        for other in reversed(self._kept):
            ago_ns = reading.mono_ns - other.mono_ns
            if ago_ns <= 0:
                continue
            away = np.abs(reading.position - other.position)[self._joints]
            if ago_ns > _STALE_NS or not (away <= RESTING_RAD).all():
                return False
            count += 1
            if count >= LEAST_READINGS and ago_ns >= RESTING_NS:
                return True
        return False

    def is_slow(self, reading: ArmFeedback, velocity: float) -> bool:
        """Return whether no joint is faster than ``velocity``, rad/s."""
        return bool(np.all(np.abs(reading.velocity[self._joints]) < velocity))
