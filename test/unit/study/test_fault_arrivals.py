"""The judge of real time: what keeps the limits passes with jitter, each wrong is found."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.interpolate import Setpoint
from reflex_ros.core.limits import Limiter, piper_limits
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.can_tap import TapRecord
from reflex_ros.study.fault_arrivals import MAX_SPREAD, grid, judge_arrivals, parts_of

PERIOD_S, BEGIN_S = 0.02, 5.003
POSE = np.array([0.0, 1.0, -1.0, 0.0, 0.2, 0.0])
HOLDS = 13
MDEG = 180_000.0 / np.pi


def swing(ticks=200, rate=2.5, half=0.64):
    """Return poses of joint 1 in a swing, from rest, float64[ticks, 6]; 1.6 rad/s at most."""
    turned = rate * PERIOD_S * np.arange(ticks)
    # a begin without a step in the acceleration
    acceleration = np.minimum(1.0, np.arange(ticks) / 5.0) * half * rate**2 * np.cos(turned)
    rows = np.tile(POSE, (ticks, 1))
    rows[:, 0] += np.cumsum(np.cumsum(acceleration)) * PERIOD_S**2
    return rows


def lateness(count, most_s=0.009, seed=0):
    return np.random.default_rng(seed).uniform(0.0, most_s, count)


def records(rows, times_s, *, holds=HOLDS):
    """Return the frames of a power-on and of ticks, as they arrive."""
    out = []

    def put(at_s, *messages):
        for message in messages:
            frame = codec.encode(message)
            at_s += 1e-4
            out.append(TapRecord(round(at_s * 1e9), 'can0', frame.can_id, frame.data))

    def joints(row):
        mdeg = np.round(row * MDEG).astype(int).tolist()
        return [codec.JointTarget(j, mdeg[j - 1], mdeg[j]) for j in (1, 3, 5)]

    grip = codec.GripperTarget(20_000, 1000, 1)
    for n in range(holds):
        put(times_s[0] - 0.0205 * (holds - n), *joints(rows[0]),
            codec.Mode(1, 1, 10), *joints(rows[0]), grip)
    for n, (row, at_s) in enumerate(zip(rows, times_s, strict=True)):
        put(at_s, *([codec.Mode(1, 1, 100)] if n == 0 else []), *joints(row), grip)
    return out


def judged(rows, times_s=None, poses=None, limits=None):
    if times_s is None:
        times_s = BEGIN_S + PERIOD_S * np.arange(len(rows)) + lateness(len(rows))
    if poses is None:
        poses = np.array([[0.0, *POSE, 0.02], [100.0, *POSE, 0.02]])
    return judge_arrivals(parts_of(records(rows, times_s)), poses, period_s=PERIOD_S,
                          limits=limits or piper_limits())


def text(*args, **names):
    return '\n'.join(judged(*args, **names).violations)


@pytest.mark.parametrize('seed', range(5))
def test_a_swing_that_arrives_up_to_half_a_period_late_passes(seed):
    rows = swing()
    found = judged(rows, BEGIN_S + PERIOD_S * np.arange(len(rows)) + lateness(len(rows), 0.0095,
                                                                             seed))
    assert found.violations == ()
    assert found.commands == len(rows) + 2 * HOLDS
    assert 1.5 < found.max_velocity < 1.9 and 0.008 < found.spread_s <= 0.01


def test_the_grid_is_found_from_the_arrivals_alone():
    numbers = np.array([0, 1, 2, 4, 5, 9, *range(10, 60)])
    for begin_s in (0.0, 0.013, 0.0199):
        found, spread_s = grid(begin_s + PERIOD_S * numbers + lateness(len(numbers), 0.014),
                               PERIOD_S)
        assert np.array_equal(found, numbers) and 0.012 < spread_s < 0.014


@pytest.mark.parametrize('late_s', [0.0094, 0.0105, 0.0116, 0.0135])
def test_a_single_command_that_is_late_by_more_than_half_a_period_passes(late_s):
    """The next comes soon after it, in its own period: it is late and not a burst."""
    rows = swing()
    times_s = BEGIN_S + PERIOD_S * np.arange(len(rows)) + lateness(len(rows), 0.002)
    times_s[100] = BEGIN_S + PERIOD_S * 100 + late_s
    found = judged(rows, times_s)
    assert found.violations == () and late_s - 0.001 < found.spread_s <= late_s


def test_a_tick_without_a_command_interrupts_the_stream_and_not_its_motion():
    rows, ticks = swing(), np.arange(200)
    times_s = BEGIN_S + PERIOD_S * (ticks + (ticks >= 60)) + lateness(200)
    assert judged(rows, times_s).violations == ()


def test_a_drift_below_the_resolution_before_a_start_passes():
    """The first step of a start may be greater by what the drift was: still no jump."""
    limits = piper_limits(jerk=100.0)
    limiter = Limiter(limits, period_ns=20_000_000)
    limiter.reset(np.append(POSE, 0.02))
    goals = np.tile(np.append(POSE, 0.02), (100, 1))
    goals[15, 0] += 0.9 / MDEG
    goals[16:, 0] += 0.9 / MDEG + 0.64 * (1.0 - np.cos(2.5 * PERIOD_S * np.arange(1.5, 85.5)))
    out = np.array([limiter.step(Setpoint(goal, np.zeros(7))).position[:6] for goal in goals])
    for shift in np.linspace(0.0, 1.0, 16) / MDEG:
        moved = out + np.array([shift, 0, 0, 0, 0, 0])
        poses = np.array([[0.0, *moved[0], 0.02], [100.0, *moved[15], 0.02]])
        assert judged(moved, poses=poses, limits=limits).violations == ()


def held_up(late_s, where):
    """Return frames of which one command of the power-on is held up within, or before its mode."""
    frames = records(swing(60), BEGIN_S + PERIOD_S * np.arange(60))
    late_ns = round(late_s * 1e9)
    return [record._replace(mono_ns=record.mono_ns - (late_ns if i < where else 0))
            for i, record in enumerate(frames)]


@pytest.mark.parametrize('where', [1, 2, 3, 8 * 4 + 1, 8 * 4 + 2, 8 * 4 + 5, 8 * 12 + 7])
def test_a_power_on_that_is_held_up_between_two_frames_passes(where):
    """The thread that powers the arm has no deadline: the pose is what must not move."""
    poses = np.array([[0.0, *POSE, 0.02]])
    found = judge_arrivals(parts_of(held_up(0.04, where)), poses, limits=piper_limits(),
                           period_s=PERIOD_S)
    assert found.violations == ()


# ---- planted ---------------------------------------------------------------------------------


def test_a_jump_is_found_can_fail():
    rows = swing()
    rows[100:, 2] += 0.05
    found = text(rows)
    assert 'joint 3: velocity' not in found and 'joint 3: acceleration' in found
    rows[100:, 2] += 0.1
    assert 'joint 3: velocity' in text(rows)


def test_an_overspeed_is_found_by_order_and_by_the_times_that_were_read_can_fail():
    rows = np.tile(POSE, (100, 1))
    rows[:, 0] = np.clip(0.1 * (np.arange(100) - 60), -1.0, 1.0)
    found = text(rows, poses=np.array([[0.0, *rows[0], 0.02]]))
    assert 'velocity' in found and ' rad in ' in found


def test_an_acceleration_is_found_by_the_times_that_were_read_can_fail():
    rows = np.tile(POSE, (100, 1))
    rows[50:, 0] += 0.03 * np.arange(50)
    found = text(rows)
    assert 'acceleration' in found and 'mean velocity changes' in found


def test_a_burst_that_catches_up_is_found_can_fail():
    rows = swing()
    times_s = BEGIN_S + PERIOD_S * np.arange(len(rows)) + lateness(len(rows), 0.002)
    times_s[100:103] = times_s[102] + 0.003 * np.arange(3)
    assert 'a second command in one period, 3.0 ms after the first' in text(rows, times_s)


def test_one_command_too_early_is_found_can_fail():
    rows = swing()
    times_s = BEGIN_S + PERIOD_S * np.arange(len(rows)) + lateness(len(rows), 0.002)
    times_s[100] = times_s[99] + 0.004
    found = text(rows, times_s)
    assert 'a second command in one period' in found


@pytest.mark.parametrize('early_s', [0.0065, 0.0085, 0.0105])
def test_one_command_early_by_half_a_period_is_no_late_one_can_fail(early_s):
    rows = swing()
    times_s = BEGIN_S + PERIOD_S * np.arange(len(rows)) + lateness(len(rows), 0.002)
    times_s[100] = BEGIN_S + PERIOD_S * 100 - early_s
    assert 'a second command in one period' in text(rows, times_s)


def test_commands_at_any_time_prove_nothing_can_fail():
    rows = np.tile(POSE, (200, 1))
    times_s = BEGIN_S + PERIOD_S * np.arange(200) + lateness(200, 0.0199)
    assert f'at most {1e3 * MAX_SPREAD * PERIOD_S:.1f} ms' in text(rows, times_s)


def test_a_start_away_from_the_arm_and_a_pose_that_moves_while_powered_are_found_can_fail():
    rows = swing()
    poses = np.array([[0.0, *(POSE + 0.02), 0.02]])
    assert 'the stream began 0.0200 rad away' in text(rows, poses=poses)
    parts = parts_of(records(rows, BEGIN_S + PERIOD_S * np.arange(len(rows))))
    parts[0].commands[4, 1] += 0.01
    found = judge_arrivals(parts, np.array([[0.0, *POSE, 0.02]]), limits=piper_limits(),
                           period_s=PERIOD_S)
    assert 'moved while the arm was powered' in '\n'.join(found.violations)


def test_a_start_at_full_speed_after_a_gap_is_found_can_fail():
    rows = swing()
    keep = np.ones(len(rows), bool)
    keep[60:64] = False
    times_s = BEGIN_S + PERIOD_S * np.arange(len(rows)) + lateness(len(rows))
    assert 'acceleration' in text(rows[keep], times_s[keep])


def test_a_stream_that_begins_anew_where_the_arm_was_pushed_is_found_can_fail():
    """A resume leads the stream to where the arm is, within the limits: it never steps."""
    rows = np.vstack([np.tile(POSE, (40, 1)), swing() + np.array([0.4, 0, 0, 0, 0, 0])])
    there = POSE + np.array([0.4, 0, 0, 0, 0, 0])
    found = text(rows, poses=np.array([[0.0, *POSE, 0.02], [BEGIN_S + 0.4, *there, 0.02]]))
    assert 'velocity' in found and 'acceleration' in found


def test_a_pose_that_moves_in_half_of_a_held_up_command_is_found_can_fail():
    parts = parts_of(held_up(0.04, 8 * 4 + 1))
    parts[0].commands[9, 3] += 0.01
    found = judge_arrivals(parts, np.array([[0.0, *POSE, 0.02]]), limits=piper_limits(),
                           period_s=PERIOD_S)
    assert 'moved while the arm was powered' in '\n'.join(found.violations)
