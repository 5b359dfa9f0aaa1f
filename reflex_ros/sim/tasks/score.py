"""Judging how well a target was followed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import SimTruth

SETTLE_S = 1.0
"""Time after a jump that is not judged, s."""

SHARE = 0.8
"""Part of the judged time that must be within tolerance."""

SHORTEST_S = 0.2
"""A segment with less judged time than this is not judged, s."""


@dataclass(frozen=True, slots=True)
class SegmentScore:
    """One segment between jumps.

    Attributes:
        start_s, end_s: First and last sample.
        within: Share of the judged samples within tolerance. success: ``within`` >= 0.8.
        mean_error_m: Mean distance over the judged samples.
    """

    start_s: float
    end_s: float
    within: float
    success: bool
    mean_error_m: float


class FollowScore:
    """Distances between tool point and target, sampled evenly, judged per segment.

    A segment succeeds when at least 80 % of its samples from 1 s after its jump are within
    tolerance. The start of the episode counts as a jump.

    Args:
        tolerance_m: 0.03 for scripted control, 0.05 for learned policies.
        settle_s: Time after a jump that is not judged.
    """

    def __init__(self, *, tolerance_m: float = 0.03, settle_s: float = SETTLE_S) -> None:
        self._tolerance_m = tolerance_m
        self._settle_s = settle_s
        self._times: list[float] = []
        self._errors: list[float] = []
        self._jumps: list[float] = []

    def add(self, time_s: float, tip: npt.ArrayLike, target: npt.ArrayLike) -> None:
        """Add one sample: tool point and target, float64[3] m, at ``time_s``.

        Raises:
            ConfigError: ``time_s`` is not later than the last sample.
        """
        if self._times and time_s <= self._times[-1]:
            raise ConfigError(f'sample of a follow score: got time {time_s}, expected later than'
                              f' {self._times[-1]} (s). Use one score per episode.')
        self._times.append(time_s)
        self._errors.append(float(np.linalg.norm(np.subtract(tip, target))))

    def jump(self, time_s: float) -> None:
        """Note that the target jumped at ``time_s``."""
        self._jumps.append(time_s)

    def add_truth(self, truth: SimTruth, *, start_stamp_ns: int = 0) -> None:
        """Add a sample and the jumps of one truth message; times count from ``start_stamp_ns``."""
        for event in truth.events:
            if event.name == 'jump':
                self.jump((event.stamp_ns - start_stamp_ns) / 1e9)
        self.add((truth.stamp_ns - start_stamp_ns) / 1e9, truth.tip_position,
                 truth.target_position)

    def segments(self) -> tuple[SegmentScore, ...]:
        """Return the judged segments in order; those with too little time are left out."""
        times, errors = np.array(self._times), np.array(self._errors)
        if not len(times):
            return ()
        edges = [float(times[0]), *sorted(self._jumps), float('inf')]
        scores = []
        for start, end in pairwise(edges):
            judged = (times >= start + self._settle_s) & (times < end)
            if judged.any() and np.ptp(times[judged]) >= SHORTEST_S - 1e-9:
                within = float((errors[judged] < self._tolerance_m).mean())
                scores.append(SegmentScore(start, float(times[judged][-1]), within,
                                           within >= SHARE, float(errors[judged].mean())))
        return tuple(scores)

    @property
    def success(self) -> bool:
        """Whether at least one segment was judged and every one succeeded."""
        scores = self.segments()
        return bool(scores) and all(score.success for score in scores)
