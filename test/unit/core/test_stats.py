"""Quantiles are observed values; intervals have known answers and the promised coverage."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.stats import bootstrap_mean, bootstrap_median, quantiles, wilson


def test_quantiles_of_one_to_hundred_are_their_ranks() -> None:
    samples = np.random.default_rng(0).permutation(np.arange(1, 101))
    expected = {'p50': 50, 'p90': 90, 'p95': 95, 'p99': 99, 'max': 100, 'n': 100}
    assert quantiles(samples) == expected


def test_quantiles_of_one_sample_are_that_sample() -> None:
    assert set(quantiles([3.5]).values()) == {3.5, 1}


def test_quantiles_of_nothing_are_nan_with_a_count_of_zero() -> None:
    result = quantiles([])
    assert result.pop('n') == 0
    assert all(np.isnan(value) for value in result.values())


def test_missing_measurements_are_not_hidden() -> None:
    with pytest.raises(ConfigError, match='1 of 2 not finite'):
        quantiles([1.0, np.nan])
    with pytest.raises(ConfigError, match='not finite'):
        bootstrap_median([np.inf], 0)


@pytest.mark.parametrize(
    ('k', 'n', 'low', 'high'),
    [
        (0, 20, 0.0, 0.1611),
        (10, 20, 0.2993, 0.7007),
        (20, 20, 0.8389, 1.0),
        (13, 20, 0.4329, 0.8188),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_interval_has_known_answers(k, n, low, high) -> None:
    assert wilson(k, n) == pytest.approx((low, high), abs=1e-4)


def test_wilson_interval_covers_the_true_share() -> None:
    counts = np.random.default_rng(1).binomial(40, 0.3, 2000)
    covered = [low <= 0.3 <= high for low, high in (wilson(int(k), 40) for k in counts)]
    assert 0.93 < np.mean(covered) < 0.98


@pytest.mark.parametrize(('k', 'n'), [(-1, 2), (3, 2)])
def test_wilson_refuses_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(ConfigError, match='k='):
        wilson(k, n)


def test_bootstrap_interval_brackets_the_median_and_depends_only_on_the_seed() -> None:
    samples = np.random.default_rng(2).normal(10.0, 1.0, 200)
    low, high = bootstrap_median(samples, 3)
    assert (low, high) == bootstrap_median(samples, 3)
    assert (low, high) != bootstrap_median(samples, 4)
    assert low <= np.median(samples) <= high
    assert 0.1 < high - low < 0.6


def test_bootstrap_of_equal_samples_has_no_width_and_of_none_is_nan() -> None:
    assert bootstrap_median([2.0] * 5, 0) == (2.0, 2.0)
    assert np.isnan(bootstrap_median([], 0)).all()


def test_bootstrap_refuses_bad_arguments() -> None:
    with pytest.raises(ConfigError, match='resamples'):
        bootstrap_median([1.0], 0, resamples=0)


def test_the_interval_of_a_mean_covers_the_true_mean_of_dependent_samples() -> None:
    rng, covered = np.random.default_rng(3), 0
    for _ in range(200):
        groups = [level + rng.normal(0, 0.1, 3) for level in rng.normal(5.0, 1.0, 40)]
        low, high = bootstrap_mean(groups, 0, resamples=200)
        covered += low <= 5.0 <= high
    assert 0.88 < covered / 200 <= 1.0


def test_drawing_single_samples_of_dependent_groups_would_cover_less_can_fail() -> None:
    rng, covered = np.random.default_rng(3), 0
    for _ in range(200):
        groups = [level + rng.normal(0, 0.1, 3) for level in rng.normal(5.0, 1.0, 40)]
        low, high = bootstrap_mean([[one] for group in groups for one in group], 0, resamples=200)
        covered += low <= 5.0 <= high
    assert covered / 200 < 0.85


def test_the_interval_of_a_mean_repeats_and_has_an_answer_for_nothing() -> None:
    groups = [[1.0, 2.0], [], [4.0]]
    assert bootstrap_mean(groups, 7) == bootstrap_mean(groups, 7)
    assert bootstrap_mean([[3.0]] * 5, 0) == (3.0, 3.0)
    assert np.isnan(bootstrap_mean([[], []], 0)).all()
    with pytest.raises(ConfigError, match='not finite'):
        bootstrap_mean([[np.nan]], 0)
    with pytest.raises(ConfigError, match='resamples=0'):
        bootstrap_mean(groups, 0, resamples=0)


def test_blocks_draw_what_single_resamples_would(monkeypatch) -> None:
    samples = np.random.default_rng(5).normal(size=301)
    rng = np.random.default_rng(9)
    one_by_one = [np.median(rng.choice(samples, 301)) for _ in range(400)]
    wanted = tuple(np.quantile(one_by_one, [0.025, 0.975]))
    assert bootstrap_median(samples, 9, resamples=400) == wanted
    monkeypatch.setattr('reflex_ros.core.stats.BLOCK', 700)
    assert bootstrap_median(samples, 9, resamples=400) == wanted
    assert bootstrap_median(samples, 8, resamples=400) != wanted
