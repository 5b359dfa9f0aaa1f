from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.tasks import FollowScore


def score(error_m, *, jumps=(), until_s=4.0, tolerance_m=0.03) -> FollowScore:
    """Sample ``error_m(t)`` every 20 ms."""
    result = FollowScore(tolerance_m=tolerance_m)
    for jump in jumps:
        result.jump(jump)
    for time_s in np.arange(0.0, until_s, 0.02):
        result.add(float(time_s), (error_m(time_s), 0.0, 0.0), (0.0, 0.0, 0.0))
    return result


def test_a_target_within_tolerance_succeeds():
    (segment,) = score(lambda t: 0.02).segments()
    assert segment.success
    assert segment.within == 1.0
    assert segment.mean_error_m == pytest.approx(0.02)


def test_a_target_out_of_tolerance_fails():
    assert not score(lambda t: 0.04).success
    assert score(lambda t: 0.04, tolerance_m=0.05).success


def test_the_first_second_after_a_jump_is_not_judged():
    assert score(lambda t: 0.2 if t % 2.0 < 0.95 else 0.01, jumps=(2.0,)).success
    assert not score(lambda t: 0.2 if t % 2.0 < 1.3 else 0.01, jumps=(2.0,)).success


def test_a_fifth_of_the_judged_time_may_be_missed_and_no_more():
    assert score(lambda t: 0.2 if t < 1.55 else 0.01).success
    assert not score(lambda t: 0.2 if t < 1.65 else 0.01).success


def test_segments_are_judged_apart_and_all_must_succeed():
    result = score(lambda t: 0.01 if t < 2.0 else 0.2, jumps=(2.0,))
    assert [segment.success for segment in result.segments()] == [True, False]
    assert not result.success


def test_a_segment_too_short_to_judge_is_left_out():
    assert len(score(lambda t: 0.01, jumps=(2.0, 3.1)).segments()) == 1
    assert score(lambda t: 0.01, until_s=1.1).segments() == ()


def test_nothing_seen_is_no_success():
    assert not FollowScore().success


def test_samples_out_of_order_are_refused():
    result = FollowScore()
    result.add(1.0, (0, 0, 0), (0, 0, 0))
    with pytest.raises(ConfigError, match='follow score'):
        result.add(1.0, (0, 0, 0), (0, 0, 0))
