"""The table of the replay bench says what was measured, and whether it is fast enough."""

from __future__ import annotations

import pytest

from reflex_ros.study.replay_report import replay_lines, speed_of


def cell(cpu_s, duration_s=6.0, contents=1):
    return {**speed_of(cpu_s, duration_s), 'contents': contents}


def lines_of(oracle, **changes):
    return replay_lines({'summary': {'cells': {
        'replay, oracle': oracle, 'replay, tiny': cell([1.0, 1.5, 4.0]),
        'episode, oracle': cell([0.4, 0.4, 0.4], 8.0), 'episode, tiny': cell([2.0], 8.0),
        **changes}}})


def test_speeds_are_virtual_seconds_per_cpu_second():
    found = speed_of([0.6, 0.3, 0.2], 6.0)
    assert found['times_best'] == pytest.approx(30.0)
    assert found['times_median'] == pytest.approx(20.0)
    assert found['per_s_median'] == pytest.approx(0.05) and found['runs'] == 3


def test_the_median_decides_and_equal_contents_are_said():
    oracle, tiny = lines_of(cell([0.2, 0.25, 9.0]))[2:4]
    assert '24.0 (30.0) | 20: pass | 3 | equal |' in oracle
    assert '4.0 (6.0) | 3: pass |' in tiny


def test_too_slow_or_other_contents_can_fail():
    oracle = lines_of(cell([0.2, 0.31, 0.4], contents=2))[2]
    assert '20: fail' in oracle and '2 different ones' in oracle


def test_the_time_of_all_experiments_is_computed_from_the_episodes():
    assert lines_of(cell([0.2]))[-1].startswith(
        '2700 episodes of 8 s on 2 cores would take 0.1 h with `oracle` and 0.8 h with `tiny`')
