"""The judge of the command stream sees every kind of violation, and none where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.limits import Limiter, Setpoint, piper_limits
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.study.fault_judge import judge

LIMITS = piper_limits()
PERIOD_S = 0.02
POSE = np.array([0.0, 1.0, -1.0, 0.0, 0.2, 0.0, 0.03])


def look(commands, times=None, **more):
    times = 5.0 + PERIOD_S * np.arange(len(commands)) if times is None else np.array(times)
    return judge(times, np.array(commands), limits=LIMITS, period_s=PERIOD_S, **more)


def smooth():
    """Commands that the limiter makes of a jump, rounded as on the wire."""
    limiter = Limiter(LIMITS, period_ns=20_000_000, names=JOINT_NAMES)
    limiter.reset(POSE)
    goal = Setpoint(POSE + np.array([0.5, 0.3, -0.3, 0.2, 0.1, -0.4, 0.01]), np.zeros(7))
    rows = [POSE, *(limiter.step(goal).position for _ in range(80))]
    scale = np.array([180_000 / np.pi] * 6 + [1e6])
    return np.round(np.array(rows) * scale) / scale


def test_what_the_limiter_makes_is_within_the_limits():
    found = look(smooth())
    assert found.violations == () and found.commands == 81
    assert 0.5 < found.max_velocity <= 3.0 and found.max_acceleration <= 5.1


@pytest.mark.parametrize(('change', 'word'), [
    (lambda rows: rows.__setitem__((40, 0), 3.0), 'out of range'),
    (lambda rows: rows.__setitem__((40, 0), np.nan), 'out of range'),
    (lambda rows: rows.__setitem__((slice(40, None), 0), rows[40:, 0] + 0.1), 'velocity'),
    (lambda rows: rows.__setitem__((slice(40, None), 3), rows[40:, 3] + 0.01), 'acceleration'),
    (lambda rows: rows.__setitem__((slice(79, None), 4), rows[79:, 4] + 0.0016), 'jerk'),
    (lambda rows: rows.__setitem__((slice(40, None), 6), rows[40:, 6] + 0.005), 'joint 7'),
], ids=['range', 'nan', 'jump', 'acceleration', 'jerk', 'gripper'])
def test_each_violation_is_seen_can_fail(change, word):
    rows = smooth()
    change(rows)
    assert any(word in text for text in look(rows).violations)


def test_a_burst_after_a_late_command_is_seen():
    rows, late = smooth()[:40], 5.0 + PERIOD_S * np.arange(40)
    assert look(rows, late).violations == ()
    late[20] += 0.9 * PERIOD_S
    rows = rows[0] + 2.4 * (rows - rows[0])  # fast enough that a tenth of a period tells
    texts = look(rows, late).violations
    assert any('over the elapsed time' in text for text in texts)


def gap(rows, periods, *, at=30):
    """Return the times of commands before one of which nothing arrived for some periods."""
    times = 5.0 + PERIOD_S * np.arange(len(rows))
    times[at:] += (periods - 1) * PERIOD_S
    return times


def test_one_lost_tick_is_no_violation_but_what_follows_must_go_on_from_there():
    rows = smooth()
    times = gap(rows, 2)
    assert look(rows, times).violations == ()
    rows[30:, 0] += 0.2
    assert look(rows, times).violations


@pytest.mark.parametrize('periods', [3, 4, 11, 51])
def test_after_a_longer_gap_a_stream_starts_from_rest(periods):
    away = smooth()[:30]
    again = away[-1] + smooth() - POSE
    rows = np.vstack([away, again[1:]])
    assert look(rows, gap(rows, periods)).violations == ()


@pytest.mark.parametrize('periods', [3, 4, 11, 51])
def test_a_stream_that_goes_on_at_speed_after_a_gap_is_seen_can_fail(periods):
    rows = smooth()
    fastest = int(np.argmax(np.abs(np.diff(rows, axis=0)).max(axis=1))) + 1
    assert np.abs(rows[fastest] - rows[fastest - 1]).max() > 1.0 * PERIOD_S
    texts = look(rows, gap(rows, periods, at=fastest)).violations
    assert any('acceleration' in text for text in texts)


def test_a_stream_may_begin_anew_at_the_measured_pose_only():
    rows = np.vstack([np.tile(POSE, (20, 1)), np.tile(POSE + 0.04, (20, 1))])
    assert look(rows).violations
    assert look(rows, measured=rows, restarts=[20]).violations == ()
    away = look(rows, measured=np.tile(POSE, (40, 1)), restarts=[20]).violations
    assert any('away from the measured pose' in text for text in away)


def test_two_commands_at_one_instant_must_be_equal():
    rows = np.tile(POSE, (3, 1))
    assert look(rows, [5.0, 5.0, 5.02]).violations == ()
    rows[1, 2] += 0.001
    assert any('differ' in text for text in look(rows, [5.0, 5.0, 5.02]).violations)
