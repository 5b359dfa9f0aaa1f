"""Figures with 95 % confidence intervals; quantiles are observed values, as in every report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import ceil, floor, inf, nan, sqrt

import numpy as np
import numpy.typing as npt

from reflex_ros.core.stats import wilson

Z = 1.96
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """One figure of a run.

    Attributes:
        value: The figure, nan without samples.
        low, high: Ends of its 95 % interval; infinite where the samples do not bound it.
        n: Number of samples.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def is_measured(self) -> bool:
        """Whether there is a value at all."""
        return math.isfinite(self.value)


NOTHING = Estimate(nan, -inf, inf, 0)
"""A figure without samples."""


def exact(value: float, n: int) -> Estimate:
    """Return a count, or a figure that is not an estimate of anything."""
    return Estimate(value, value, value, n) if math.isfinite(value) else NOTHING


def quantile(samples: npt.ArrayLike, share: float) -> Estimate:
    """Return a quantile with its distribution-free interval between order statistics.

    It assumes independent samples. Too few of them leave an end open, at infinity.
    """
    values = np.sort(np.asarray(samples, np.float64))
    values = values[np.isfinite(values)]
    n = len(values)
    if not n:
        return NOTHING
    half = Z * sqrt(n * share * (1 - share))
    low, high = floor(n * share - half), ceil(n * share + half) + 1
    rank = max(1, ceil(n * share - 1e-9))
    return Estimate(
        float(values[rank - 1]),
        float(values[low - 1]) if low >= 1 else -inf,
        float(values[high - 1]) if high <= n else inf,
        n,
    )


def greatest(samples: npt.ArrayLike) -> Estimate:
    """Return the largest sample; it is what happened, and no interval bounds another run's."""
    values = np.asarray(samples, np.float64)
    values = values[np.isfinite(values)]
    return Estimate(float(values.max()), -inf, inf, len(values)) if len(values) else NOTHING


def proportion(hits: int, n: int) -> Estimate:
    """Return a share of independent trials with its Wilson interval."""
    return Estimate(hits / n, *wilson(hits, n), n) if n else NOTHING


def clustered(hits: npt.ArrayLike, sizes: npt.ArrayLike, *, seed: int = 0) -> Estimate:
    """Return a share of trials that come in blocks, with a bootstrap interval over the blocks.

    Ticks of one stall are no independent trials, seconds of a run nearly are. Where no block or
    every one has hits, resampling shows nothing: Wilson's interval for the blocks stands instead.

    Args:
        hits, sizes: Hits and trials of each block.
        seed: Seed of the resampling.
    """
    k, n = np.asarray(hits, np.float64), np.asarray(sizes, np.float64)
    k, n = k[n > 0], n[n > 0]
    if not len(n):
        return NOTHING
    value, total = float(k.sum() / n.sum()), int(n.sum())
    if value in (0.0, 1.0):
        return Estimate(value, *wilson(len(n) if value else 0, len(n)), total)
    rng = np.random.default_rng(seed)
    shares = []
    for _ in range(RESAMPLES):
        picked = rng.integers(0, len(n), len(n))
        shares.append(k[picked].sum() / n[picked].sum())
    low, high = np.quantile(shares, [0.025, 0.975])
    return Estimate(value, min(float(low), value), max(float(high), value), total)


def difference(new: Estimate, old: Estimate, *, widen: float = 1.0) -> tuple[float, float]:
    """Return the interval of ``new - old`` from those of both (Newcombe's method).

    Args:
        new, old: The figures.
        widen: Factor on the widths, where many figures are compared at once.
    """
    if not (new.is_measured and old.is_measured):
        return -inf, inf
    gap = new.value - old.value
    below = math.hypot(new.value - new.low, old.high - old.value)
    above = math.hypot(new.high - new.value, old.value - old.low)
    return gap - widen * below, gap + widen * above
