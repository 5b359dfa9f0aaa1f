"""Figures for reports: quantiles and intervals, never a mean alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan, sqrt
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import FloatArray

QUANTILES = MappingProxyType({'p50': 0.50, 'p90': 0.90, 'p95': 0.95, 'p99': 0.99})
"""Names and shares of the quantiles in every report."""
BLOCK = 100_000
"""Indices drawn at once for a bootstrap interval."""


def quantiles(samples: npt.ArrayLike) -> dict[str, float]:
    """Return ``p50 p90 p95 p99 max n`` of the samples, in their unit.

    Quantiles are observed values (the smallest sample that the share does not exceed), never
    interpolated ones. Without samples every figure is nan and ``n`` is 0.

    Raises:
        ConfigError: A sample is not finite.
    """
    values = np.sort(_finite('quantiles', samples))
    n = len(values)
    if n == 0:
        return {**dict.fromkeys((*QUANTILES, 'max'), nan), 'n': 0}
    ranks = {name: max(1, int(np.ceil(q * n - 1e-9))) for name, q in QUANTILES.items()}
    result = {name: float(values[rank - 1]) for name, rank in ranks.items()}
    return {**result, 'max': float(values[-1]), 'n': n}


def wilson(k: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson score interval of a share of ``k`` in ``n``; (0, 1) for no trials.

    Raises:
        ConfigError: Not 0 <= k <= n, or ``z`` is negative.
    """
    if not 0 <= k <= n or z < 0.0:
        raise ConfigError(
            f'wilson interval: got k={k} n={n} z={z}, expected 0 <= k <= n and z >= 0. '
            'Count successes and trials again.'
        )
    if n == 0:
        return 0.0, 1.0
    share, z2 = k / n, z * z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low = 0.0 if k == 0 else max(0.0, centre - half)
    return low, 1.0 if k == n else min(1.0, centre + half)


def bootstrap_median(
    samples: npt.ArrayLike, seed: int, *, resamples: int = 2000, level: float = 0.95
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the median, in the unit of the samples.

    Args:
        samples: Independent samples; (nan, nan) for none.
        seed: Seed of the resampling; equal seeds give equal intervals.
        resamples: Number of resamples, >= 1.
        level: Coverage, in (0, 1).

    Raises:
        ConfigError: A sample is not finite, or an argument is out of its bounds.
    """
    values = _finite('bootstrap', samples)
    _check_bootstrap(resamples, level)
    if len(values) == 0:
        return nan, nan
    medians = [np.median(values[drawn], axis=1) for drawn in _draws(len(values), seed, resamples)]
    return _ends(np.concatenate(medians), level)


def bootstrap_mean(
    groups: Sequence[Sequence[float]], seed: int, *, resamples: int = 2000, level: float = 0.95
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of all samples, in their unit.

    Whole groups are drawn, since samples of one group (the stretches of an episode) are not
    independent of each other.

    Args:
        groups: Samples by group; (nan, nan) for none. Empty groups count for nothing.
        seed, resamples, level: As for ``bootstrap_median``.

    Raises:
        ConfigError: A sample is not finite, or an argument is out of its bounds.
    """
    own = [_finite('bootstrap', group) for group in groups if len(group)]
    _check_bootstrap(resamples, level)
    if not own:
        return nan, nan
    sums, counts = (np.array([of(group) for group in own]) for of in (np.sum, len))
    means = [sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
             for drawn in _draws(len(own), seed, resamples)]
    return _ends(np.concatenate(means), level)


def _check_bootstrap(resamples: int, level: float) -> None:
    if resamples < 1 or not 0.0 < level < 1.0:
        raise ConfigError(
            f'bootstrap interval: got resamples={resamples} level={level}, expected >= 1 and in '
            '(0, 1). Use the defaults.'
        )


def _draws(count: int, seed: int, resamples: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield rows of drawn indices, so many in one block that memory stays small."""
    rng, rows = np.random.default_rng(seed), max(1, BLOCK // count)
    for first in range(0, resamples, rows):
        yield rng.integers(0, count, (min(rows, resamples - first), count))


def _ends(found: FloatArray, level: float) -> tuple[float, float]:
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _finite(what: str, samples: npt.ArrayLike) -> FloatArray:
    values = np.asarray(samples, dtype=np.float64).ravel()
    bad = int(np.count_nonzero(~np.isfinite(values)))
    if bad:
        raise ConfigError(
            f'{what} samples: got {bad} of {len(values)} not finite, expected finite numbers. '
            'Drop missing measurements and report their count.'
        )
    return values
