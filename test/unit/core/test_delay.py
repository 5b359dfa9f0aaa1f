"""The delay estimate is a high quantile of the newest samples after a warm-up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflex_ros.core.clock import MS
from reflex_ros.core.delay import MAX_SAMPLE_NS, DelayEstimator
from reflex_ros.core.errors import ConfigError


def test_warm_up_samples_do_not_count() -> None:
    delay = DelayEstimator(initial_ns=80 * MS, warmup=3)
    for sample in (900, 800, 700):
        delay.add(sample * MS)
        assert (delay.value_ns, delay.samples) == (80 * MS, 0)
    delay.add(50 * MS)
    assert (delay.value_ns, delay.samples) == (50 * MS, 1)


@pytest.mark.parametrize(
    ('count', 'quantile', 'expected'),
    [(1, 0.95, 1), (2, 0.95, 2), (20, 0.95, 19), (50, 0.95, 48), (50, 0.5, 25), (50, 1.0, 50)],
)
def test_value_is_the_smallest_sample_that_covers_the_share(count, quantile, expected) -> None:
    delay = DelayEstimator(initial_ns=0, warmup=0, quantile=quantile)
    for sample in reversed(range(1, count + 1)):
        delay.add(sample)
    assert delay.value_ns == expected


def test_old_samples_leave_the_window() -> None:
    delay = DelayEstimator(initial_ns=0, warmup=0, window=4, quantile=1.0)
    for sample in (100, 1, 2, 3, 4):
        delay.add(sample)
    assert (delay.value_ns, delay.samples) == (4, 4)


def test_one_outlier_in_fifty_does_not_move_the_estimate() -> None:
    delay = DelayEstimator(initial_ns=0, warmup=0)
    for sample in [40 * MS] * 49 + [900 * MS]:
        delay.add(sample)
    assert delay.value_ns == 40 * MS


@pytest.mark.parametrize(
    ('value_ms', 'steps'), [(0, 0), (1, 1), (20, 1), (21, 2), (60, 3), (100, 5)]
)
def test_steps_are_rounded_up(value_ms: int, steps: int) -> None:
    assert DelayEstimator(initial_ns=value_ms * MS).steps(20 * MS) == steps


@pytest.mark.parametrize('wrong_ns', [-1, MAX_SAMPLE_NS + 1, 10**18])
def test_samples_that_can_be_no_delay_are_counted_not_taken(wrong_ns: int) -> None:
    delay = DelayEstimator(initial_ns=5, warmup=1)
    delay.add(wrong_ns)
    delay.add(7)
    delay.add(wrong_ns)
    assert (delay.value_ns, delay.samples, delay.refused) == (5, 0, 2)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=120), st.floats(0.01, 1.0))
def test_the_share_of_covered_samples_is_at_least_the_quantile(samples, quantile) -> None:
    delay = DelayEstimator(initial_ns=0, warmup=0, window=50, quantile=quantile)
    for sample in samples:
        delay.add(sample)
    window = np.array(samples[-50:])
    assert (window <= delay.value_ns).mean() >= quantile - 1e-6
    assert delay.value_ns in window


@pytest.mark.parametrize(
    'arguments',
    [
        {'initial_ns': -1},
        {'initial_ns': 0, 'window': 0},
        {'initial_ns': 0, 'quantile': 0.0},
        {'initial_ns': 0, 'quantile': 1.1},
        {'initial_ns': 0, 'warmup': -1},
    ],
)
def test_arguments_out_of_bounds_are_refused(arguments) -> None:
    name = next(reversed(arguments))
    with pytest.raises(ConfigError, match=name):
        DelayEstimator(**arguments)


def test_a_period_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match='period_ns'):
        DelayEstimator(initial_ns=1).steps(0)
