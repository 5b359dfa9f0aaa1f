"""No setpoint stream makes the command stream leave its limits; a lawful one passes bit by bit."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.interpolate import Setpoint
from reflex_ros.core.limits import JointLimits, Limiter, piper_limits
from reflex_ros.core.types import JOINT_NAMES

H_NS = 20 * MS
H = 0.02
PIPER = piper_limits()
MIDDLE = (PIPER.lower + PIPER.upper) / 2
seeds = st.integers(0, 100_000)


def violations(commands: np.ndarray, limits: JointLimits) -> list[str]:
    """Return the limits that a command stream breaks; it is at rest before its first row."""
    stream = np.vstack([commands[:1]] * 3 + [commands])
    v = np.diff(stream, axis=0) / H
    a = np.diff(v, axis=0) / H
    j = np.diff(a, axis=0) / H
    inside = (commands >= np.minimum(limits.lower, commands[0])).all() and (
        commands <= np.maximum(limits.upper, commands[0])
    ).all()
    found = [] if inside else ['range']
    bounds = {'velocity': limits.velocity, 'acceleration': limits.acceleration}
    for name, values in (('velocity', v), ('acceleration', a)):
        if (np.abs(values) > bounds[name] * (1 + 1e-6)).any():
            found.append(name)
    # Rounding and a clip of 1e-10 rad are divided by h^3: 1e-4 rad/s^3.
    return found + (['jerk'] if (np.abs(j) > limits.jerk * (1 + 1e-6) + 1e-4).any() else [])


def random_limits(seed: int) -> JointLimits:
    """Return limits with anything from a soft to a stiff ratio of jerk to acceleration."""
    rng = np.random.default_rng(seed)
    lower = rng.uniform(-3.0, 0.0, 7)
    return JointLimits(
        lower=lower,
        upper=lower + rng.uniform(0.05, 4.0, 7),
        velocity=rng.uniform(0.05, 4.0, 7),
        acceleration=rng.uniform(0.3, 30.0, 7),
        jerk=10.0 ** rng.uniform(1.0, 3.5, 7),
    )


def random_stream(seed: int, limits: JointLimits, ticks: int) -> list[Setpoint]:
    """Return steps, noise, ramps, sines or a mixture, also far outside the range."""
    rng = np.random.default_rng(seed)
    span = limits.upper - limits.lower
    kind = seed % 5
    stream, goal = [], limits.lower + span / 2
    for k in range(ticks):
        t = k * H
        speed = np.zeros(7)
        if kind == 0 and k % 25 == 0:
            goal = limits.lower + span * rng.uniform(-0.3, 1.3, 7)
        elif kind == 1:
            goal = limits.lower + span * rng.uniform(-0.1, 1.1, 7)
            speed = rng.normal(0.0, 3.0, 7)
        elif kind == 2:
            speed = limits.velocity * rng.uniform(-1.5, 1.5, 7) if k % 20 == 0 else speed
            goal = goal + speed * H
        elif kind == 3:
            goal = limits.lower + span * (0.5 + 0.6 * np.sin(4.0 * t + np.arange(7)))
            speed = span * 2.4 * np.cos(4.0 * t + np.arange(7))
        elif kind == 4:
            goal = goal + rng.normal(0.0, 0.01, 7)
            speed = rng.normal(0.0, 0.5, 7)
        stream.append(Setpoint(goal.copy(), speed.copy()))
    return stream


def lawful_stream(limits: JointLimits, ticks: int, *, rate: float = 1.5) -> list[Setpoint]:
    """Return a sine around the middle that starts at rest and keeps every limit with room."""
    reach = 0.3 * np.minimum.reduce(
        [
            (limits.upper - limits.lower) / 2,
            limits.velocity / rate,
            limits.acceleration / rate**2,
            limits.jerk / rate**3,
        ]
    )
    middle = (limits.lower + limits.upper) / 2
    stream = []
    for k in range(ticks):
        t = k * H
        # (1 - cos)^2 has zero position, velocity, acceleration and jerk at t = 0.
        c, s = 1.0 - np.cos(rate * t), np.sin(rate * t)
        stream.append(Setpoint(middle + reach * c * c / 8, reach * rate * 2 * c * s / 8))
    return stream


def run(limiter: Limiter, stream: list[Setpoint]) -> np.ndarray:
    return np.array([limiter.position] + [limiter.step(s).position for s in stream])


def brake_to_rest(limiter: Limiter, most: int = 5000) -> np.ndarray:
    commands = [limiter.position]
    while not limiter.is_stopped:
        commands.append(limiter.brake().position)
        assert len(commands) < most
    return np.array(commands)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_no_stream_makes_the_commands_leave_the_limits(seed: int) -> None:
    limits = random_limits(seed) if seed % 2 else PIPER
    limiter = Limiter(limits, period_ns=H_NS)
    limiter.reset((limits.lower + limits.upper) / 2)
    assert violations(run(limiter, random_stream(seed, limits, 80)), limits) == []


def test_the_check_of_the_limits_can_fail() -> None:
    raw = np.array([MIDDLE, MIDDLE, MIDDLE + 0.3, MIDDLE + 9.0])
    assert violations(raw, PIPER) == ['range', 'velocity', 'acceleration', 'jerk']
    assert violations(np.array([MIDDLE, MIDDLE + 3e-3]), PIPER) == ['acceleration', 'jerk']


@given(seeds, st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_it_can_always_stop_inside_the_range(seed: int, ticks: int) -> None:
    limits = random_limits(seed) if seed % 2 else PIPER
    limiter = Limiter(limits, period_ns=H_NS)
    limiter.reset((limits.lower + limits.upper) / 2)
    moved = run(limiter, random_stream(seed, limits, ticks))
    assert violations(np.vstack([moved, brake_to_rest(limiter)[1:]]), limits) == []
    last = limiter.position
    for _ in range(3):
        assert np.array_equal(limiter.brake().position, last)


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_a_lawful_stream_passes_bit_by_bit(seed: int) -> None:
    limits = random_limits(seed)
    limiter = Limiter(limits, period_ns=H_NS)
    limiter.reset((limits.lower + limits.upper) / 2)
    for setpoint in lawful_stream(limits, 200):
        limited = limiter.step(setpoint)
        assert limited.limited == ()
        assert np.array_equal(limited.position, setpoint.position)
        assert np.array_equal(limited.velocity, setpoint.velocity)


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_what_is_limited_first_would_have_broken_a_limit(seed: int) -> None:
    limits = random_limits(seed) if seed % 2 else PIPER
    middle = (limits.lower + limits.upper) / 2
    wide = JointLimits(
        middle - 1e3, middle + 1e3, limits.velocity, limits.acceleration, limits.jerk
    )
    limiter, free = Limiter(limits, period_ns=H_NS), Limiter(wide, period_ns=H_NS)
    limiter.reset(middle)
    free.reset(middle)
    commands = [middle]
    for setpoint in random_stream(5 * seed + 2, limits, 100) + random_stream(seed, limits, 5):
        taken = np.vstack([commands, setpoint.position])
        limited = limiter.step(setpoint)
        free.step(setpoint)
        if limited.limited:
            # Every limited joint breaks a limit now, or when it brakes from here.
            halted = np.vstack([taken, brake_to_rest(deepcopy(free))[1:]])
            for name in limited.limited:
                i = JOINT_NAMES.index(name)
                alone = JointLimits(
                    *(
                        getattr(limits, field)[i : i + 1]
                        for field in ('lower', 'upper', 'velocity', 'acceleration', 'jerk')
                    )
                )
                assert (
                    violations(taken[:, i : i + 1], alone)
                    or violations(halted[:, i : i + 1], alone)
                    or not np.array_equal(free.position, setpoint.position)
                )
            return
        commands.append(setpoint.position)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_after_a_jump_the_stream_is_caught_up_and_passes_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    limiter = Limiter(PIPER, period_ns=H_NS)
    limiter.reset(PIPER.lower + (PIPER.upper - PIPER.lower) * rng.uniform(0.2, 0.8, 7))
    rate = rng.uniform(0.5, 1.5)
    results = [limiter.step(s) for s in lawful_stream(PIPER, 300, rate=rate)]
    last = max(k for k, r in enumerate(results) if r.limited)
    assert last < 200
    assert results[-1].limited == ()


@pytest.mark.parametrize('distance', [0.0005, 0.002, 0.01, 0.1, 0.5, 1.5])
def test_a_step_takes_hardly_longer_than_the_optimum_in_continuous_time(distance: float) -> None:
    ruckig = pytest.importorskip('ruckig')
    otg = ruckig.Ruckig(1)
    query, trajectory = ruckig.InputParameter(1), ruckig.Trajectory(1)
    query.target_position = [distance]
    query.max_velocity, query.max_acceleration, query.max_jerk = [3.0], [5.0], [200.0]
    otg.calculate(query, trajectory)
    limiter = Limiter(PIPER, period_ns=H_NS)
    limiter.reset(MIDDLE)
    target = MIDDLE.copy()
    target[0] += distance
    ticks = 0
    overshoot = 0.0
    while not (np.array_equal(limiter.position, target) and limiter.is_stopped):
        overshoot = max(overshoot, limiter.step(Setpoint(target, np.zeros(7))).position[0])
        ticks += 1
        assert ticks < 200
    assert ticks * H <= trajectory.duration + 4 * H
    assert overshoot <= target[0] + 1e-9


def test_joints_are_limited_one_by_one() -> None:
    limiter = Limiter(PIPER, period_ns=H_NS)
    limiter.reset(MIDDLE)
    target = MIDDLE.copy()
    target[2] += 0.5
    limited = limiter.step(Setpoint(target, np.zeros(7)))
    assert limited.limited == ('joint3',)
    assert np.array_equal(np.delete(limited.position, 2), np.delete(MIDDLE, 2))
    assert limited.velocity[2] == pytest.approx((limited.position[2] - MIDDLE[2]) / H)


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('field', ['position', 'velocity'])
def test_a_number_that_is_not_finite_leaves_the_state_untouched(field: str, bad: float) -> None:
    limiter, twin = Limiter(PIPER, period_ns=H_NS), Limiter(PIPER, period_ns=H_NS)
    stream = random_stream(3, PIPER, 40)
    for one in (limiter, twin):
        one.reset(MIDDLE)
        run(one, stream[:20])
    values = {'position': MIDDLE.copy(), 'velocity': np.zeros(7)}
    values[field][4] = bad
    with pytest.raises(ConfigError, match='joint5'):
        limiter.step(Setpoint(**values))
    with pytest.raises(ConfigError, match='joint5'):
        limiter.reset(np.array([0.0] * 4 + [bad] + [0.0] * 2))
    assert np.array_equal(run(limiter, stream[20:]), run(twin, stream[20:]))


def test_a_setpoint_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(ConfigError, match='shape'):
        Limiter(PIPER, period_ns=H_NS).step(Setpoint(np.zeros(6), np.zeros(6)))


def test_an_arm_outside_its_range_stays_or_comes_in_but_goes_no_further() -> None:
    limiter = Limiter(PIPER, period_ns=H_NS)
    start = MIDDLE.copy()
    start[1] = -0.05
    limiter.reset(start)
    assert np.array_equal(limiter.step(Setpoint(start, np.zeros(7))).position, start)
    further, inside = start.copy(), start.copy()
    further[1], inside[1] = -0.5, 0.4
    stream = [Setpoint(further, np.zeros(7))] * 50 + [Setpoint(inside, np.zeros(7))] * 100
    commands = run(limiter, stream)
    assert commands[:51, 1].min() == -0.05
    assert violations(commands, PIPER) == []
    assert commands[-1, 1] == 0.4
    assert run(limiter, [Setpoint(further, np.zeros(7))] * 100)[:, 1].min() >= 0.0


def test_a_setpoint_outside_the_range_ends_at_its_border() -> None:
    limiter = Limiter(PIPER, period_ns=H_NS)
    limiter.reset(MIDDLE)
    beyond = Setpoint(PIPER.upper + 0.1, np.ones(7))
    assert np.abs(run(limiter, [beyond] * 300)[-1] - PIPER.upper).max() < 1e-9
    assert limiter.step(beyond).limited == JOINT_NAMES


def test_brake_names_the_joints_that_still_move() -> None:
    limiter = Limiter(PIPER, period_ns=H_NS)
    limiter.reset(MIDDLE)
    assert limiter.is_stopped
    target = MIDDLE.copy()
    target[3] += 1.0
    run(limiter, [Setpoint(target, np.zeros(7))] * 10)
    assert not limiter.is_stopped
    assert limiter.brake().limited == ('joint4',)
    brake_to_rest(limiter)
    assert limiter.brake().limited == ()


def test_full_speed_stops_within_the_time_the_limits_imply() -> None:
    limiter = Limiter(PIPER, period_ns=H_NS)
    limiter.reset(np.array([-2.6, 1, -1, 0, 0, 0, 0.03]))
    target = np.array([2.6, 1, -1, 0, 0, 0, 0.03])
    while limiter.velocity[0] < 3.0 - 1e-6:
        limiter.step(Setpoint(target, np.zeros(7)))
    ticks = len(brake_to_rest(limiter)) - 1
    assert 3.0 / 5.0 <= ticks * H <= 3.0 / 5.0 + 5.0 / 200.0 + 3 * H


def test_piper_limits_are_the_intersection_of_both_tables() -> None:
    degrees = np.rad2deg(PIPER.upper[:6])
    np.testing.assert_allclose(degrees, [150, 179.9, 0, 100, 69.9, 100], atol=0.1)
    np.testing.assert_allclose(
        np.rad2deg(PIPER.lower[:6]), [-150, 0, -170, -100, -69.9, -100], atol=0.1
    )
    assert (PIPER.lower[6], PIPER.upper[6]) == (0.0, 0.07)
    assert (PIPER.velocity[:6] == 3.0).all()
    assert (PIPER.acceleration[:6] == 5.0).all()
    assert (piper_limits(acceleration=9.0, jerk=300.0).jerk[:6] == 300.0).all()


def test_limits_intersect_and_scale() -> None:
    other = JointLimits(
        PIPER.lower + 0.01, PIPER.upper + 1.0, PIPER.velocity / 2, PIPER.acceleration, PIPER.jerk
    )
    both = PIPER.intersect(other)
    assert np.array_equal(both.lower, other.lower)
    assert np.array_equal(both.upper, PIPER.upper)
    assert np.array_equal(both.velocity, other.velocity)
    slow = PIPER.scaled(0.25)
    assert np.array_equal(slow.velocity, PIPER.velocity * 0.25)
    assert np.array_equal(slow.acceleration, PIPER.acceleration)


@pytest.mark.parametrize('speed', [0.0, -1.0, 1.5, np.nan])
def test_a_speed_out_of_bounds_is_refused(speed: float) -> None:
    with pytest.raises(ConfigError, match='speed'):
        PIPER.scaled(speed)


def test_limits_that_make_no_sense_name_the_joint() -> None:
    def limits(**fields):
        base = {
            name: getattr(PIPER, name).copy()
            for name in ('lower', 'upper', 'velocity', 'acceleration', 'jerk')
        }
        for name, value in fields.items():
            base[name][3] = value
        return JointLimits(**base)

    for fields in ({'velocity': 0.0}, {'jerk': np.nan}, {'upper': -2.0}, {'acceleration': -1.0}):
        with pytest.raises(ConfigError, match=f'{next(iter(fields))} of joint4'):
            limits(**fields)
    with pytest.raises(ConfigError, match='upper of joint4'):
        PIPER.intersect(limits(lower=1.745, upper=1.745)).intersect(limits(upper=0.0))
    with pytest.raises(ConfigError, match='shape'):
        JointLimits(np.zeros(7), np.ones(6), np.ones(7), np.ones(7), np.ones(7))
    with pytest.raises(ConfigError, match='joints'):
        PIPER.intersect(JointLimits(*([np.zeros(2)] + [np.ones(2)] * 4)))


def test_limits_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match='read-only'):
        PIPER.lower[0] = 0.0


def test_limiter_refuses_wrong_names_and_periods() -> None:
    with pytest.raises(ConfigError, match='names'):
        Limiter(PIPER, period_ns=H_NS, names=('joint1',))
    with pytest.raises(ConfigError, match='period_ns'):
        Limiter(PIPER, period_ns=0)


# ---- how long a stop takes -------------------------------------------------------------------


def time_to_stop(limiter: Limiter) -> int:
    """Return how long the limiter brakes, ns; twenty times the bound at most."""
    bound = limiter._limits.longest_stop_ns(H_NS)
    for tick in range(20 * bound // H_NS):
        if limiter.is_stopped:
            return tick * H_NS
        limiter.brake()
    raise AssertionError('never stopped')


def hurried(seed: int, limits: JointLimits, ticks: int) -> Limiter:
    """Return a limiter that was driven to and fro, each joint on its own."""
    limiter = Limiter(limits, period_ns=H_NS)
    limiter.reset((limits.lower + limits.upper) / 2)
    for setpoint in random_stream(seed, limits, ticks):
        limiter.step(setpoint)
    return limiter


@given(seeds, st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_no_stop_takes_longer_than_its_bound(seed: int, ticks: int) -> None:
    limits = random_limits(seed)
    assert time_to_stop(hurried(seed, limits, ticks)) <= limits.longest_stop_ns(H_NS)


@pytest.mark.parametrize('scale', [1.0, 0.1, 0.03])
def test_the_bound_follows_the_acceleration_and_two_seconds_can_fail(scale: float) -> None:
    """From full speed the stop takes most of the bound, and at a tenth far more than 2 s."""
    limits = JointLimits(np.full(7, -1e3), np.full(7, 1e3), PIPER.velocity,
                         PIPER.acceleration * scale, PIPER.jerk)
    limiter = Limiter(limits, period_ns=H_NS)
    limiter._v = np.where(np.arange(7) < 6, limits.velocity, 0.0)
    bound, taken = limits.longest_stop_ns(H_NS), time_to_stop(limiter)
    assert 0.6 * bound < taken <= bound
    assert (taken > 2_000 * MS) == (scale < 0.5)


def test_a_part_of_a_command_can_be_taken_back_and_put_to_rest():
    limiter = Limiter(piper_limits(), period_ns=20_000_000)
    start = np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.02])
    limiter.reset(start)
    before = limiter.stream
    limiter.step(Setpoint(start + 0.01, np.zeros(7)))
    after, kept = limiter.stream, np.arange(7) < 3
    limiter.undo(~kept)
    for name in ('position', 'velocity', 'acceleration'):
        was, now = getattr(before, name), getattr(after, name)
        assert np.array_equal(getattr(limiter.stream, name), np.where(kept, now, was))
    limiter.rest(np.arange(7) == 0)
    assert limiter.velocity[0] == 0.0 and limiter.velocity[1] == after.velocity[1] != 0.0
    assert np.array_equal(limiter.position, np.where(kept, after.position, before.position))
    limiter.undo()
    assert limiter.velocity[0] == 0.0, 'a rest is not taken back'
