"""[ci] Known answers: which delay, execution horizon and chunk fit together."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.feasible import Choice, Timing, feasible_steps, problems, region, require
from reflex_ros.core.types import Stitch

TIMING = Timing(100 * MS, 140 * MS, 20 * MS, 500 * MS, is_row0_observed=False)
OBSERVED = dataclasses.replace(TIMING, is_row0_observed=True)


def test_rows_are_counted_upwards():
    assert TIMING.delay_rows == 5
    assert dataclasses.replace(TIMING, latency_ns=100 * MS + 1).delay_rows == 6
    assert (TIMING.entry_row, OBSERVED.entry_row) == (0, 7)


def test_a_plain_choice_works():
    assert problems(Choice(25, 10), TIMING) == ()
    require(Choice(25, 10), TIMING)


def test_a_chunk_that_runs_out_is_named():
    assert problems(Choice(12, 6), OBSERVED) == ('runs out: row 13 of 12 is needed',)
    assert problems(Choice(13, 6), OBSERVED) == ()
    # the delay counts where it is longer than what was to be executed
    assert problems(Choice(11, 1), OBSERVED) == ('runs out: row 12 of 11 is needed',)


def test_an_observation_that_grows_too_old_is_named():
    assert problems(Choice(50, 18), TIMING) == ()
    assert problems(Choice(50, 19), TIMING) == ('too old: 520 of 500 ms',)


def test_guided_inpainting_needs_the_delay_twice():
    rtc = Choice(15, 10, Stitch.RTC)
    assert problems(rtc, TIMING) == ()
    few = problems(dataclasses.replace(rtc, execute_steps=4), TIMING)
    assert few == ('rtc executes fewer rows than the 5 of the delay',)
    many = problems(dataclasses.replace(rtc, execute_steps=11), TIMING)
    assert many == ('rtc leaves 4 rows for a delay of 5',)
    assert feasible_steps(rtc, TIMING) == range(5, 11)


def test_a_choice_without_rows_is_named():
    assert problems(Choice(10, 0), TIMING) == ('executes 0 of 10 rows',)
    assert problems(Choice(10, 11), TIMING) == ('executes 11 of 10 rows',)


def test_a_refusal_says_what_would_work():
    with pytest.raises(ConfigError, match='got 12 .*rtc leaves.*expected 5 to 10'):
        require(Choice(15, 12, Stitch.RTC), TIMING)
    slow = dataclasses.replace(TIMING, latency_ns=900 * MS, delta_ns=940 * MS)
    with pytest.raises(ConfigError, match='expected none at this delay'):
        require(Choice(15, 5), slow)


@pytest.mark.parametrize('field', ['latency_ns', 'delta_ns', 'max_age_ns'])
def test_negative_times_are_refused(field):
    with pytest.raises(ConfigError, match='no negative time'):
        dataclasses.replace(TIMING, **{field: -1})
    with pytest.raises(ConfigError, match='step 0'):
        dataclasses.replace(TIMING, step_ns=0)


def test_the_region_shrinks_with_the_delay_until_nothing_is_left():
    found = region(15, TIMING, [0, 100 * MS, 140 * MS, 200 * MS], stitch=Stitch.RTC)
    assert found.spans == ((1, 15), (5, 10), (7, 8), None)


@given(
    horizon=st.integers(1, 60), latency=st.integers(0, 1500), delta=st.integers(0, 1500),
    step=st.integers(1, 90), age=st.integers(0, 2000), observed=st.booleans(),
    stitch=st.sampled_from(list(Stitch)),
)  # fmt: skip
def test_what_is_said_to_work_is_what_has_no_problem(
        horizon, latency, delta, step, age, observed, stitch):
    timing = Timing(latency * MS, delta * MS, step * MS, age * MS, is_row0_observed=observed)
    found = feasible_steps(Choice(horizon, 1, stitch), timing)
    wanted = [steps for steps in range(1, horizon + 1)
              if not problems(Choice(horizon, steps, stitch), timing)]  # fmt: skip
    assert list(found) == wanted


def test_a_chunk_of_any_length_is_judged_at_once():
    assert feasible_steps(Choice(10**15, 1), TIMING) == range(1, 19)


@given(
    horizon=st.integers(1, 60), steps=st.integers(1, 60), latency=st.integers(0, 600),
    beyond=st.integers(0, 200), age=st.integers(0, 2000), observed=st.booleans(),
    stitch=st.sampled_from(list(Stitch)),
)  # fmt: skip
def test_a_feasible_choice_never_asks_for_a_row_that_is_not_there(
        horizon, steps, latency, beyond, age, observed, stitch):
    """By walking tick by tick instead of by formula."""
    timing = Timing(latency * MS, (latency + beyond) * MS, 20 * MS, age * MS,
                    is_row0_observed=observed)
    if problems(Choice(horizon, steps, stitch), timing):
        return
    row = timing.entry_row
    for executed in range(1, max(steps, timing.delay_rows) + 1):
        assert row < horizon
        assert (latency + beyond) * MS + executed * timing.step_ns <= age * MS
        row += 1
