"""A blend starts on the old motion, ends on the new one, and adds nothing after that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.interpolate import Setpoint, SetpointPath
from reflex_ros.core.stitch import BLEND_NS, blend, measure_seam, replace

AT = 3 * S


def random_path(seed: int) -> SetpointPath:
    rng = np.random.default_rng(seed)
    rows = np.cumsum(rng.normal(0.0, 0.03, (12, 7)), axis=0)
    rows[:, 6] = np.clip(np.abs(rows[:, 6]), 0.0, 0.07)
    return SetpointPath(AT + (np.arange(12) - 3) * 20 * MS, rows)


def random_setpoint(seed: int) -> Setpoint:
    rng = np.random.default_rng(seed + 1)
    position = rng.normal(0.0, 0.05, 7)
    position[6] = rng.uniform(0.0, 0.07)
    return Setpoint(position, rng.normal(0.0, 1.0, 7) * ([1.0] * 6 + [0.05]))


seeds = st.integers(0, 10_000)
durations = st.sampled_from([20 * MS, BLEND_NS, 120 * MS])


def test_seam_is_measured_on_joints_and_kept_for_all_columns() -> None:
    old = Setpoint(np.array([0.1, 0, 0, 0, 0, 0, 0.07]), np.zeros(7))
    new = Setpoint(np.array([0.0, 0, 0, 0, 0.3, 0, 0.0]), np.array([0, 0, 2.0, 0, 0, 0, 9.0]))
    seam = measure_seam(old, new)
    assert seam.position == pytest.approx(0.3)
    assert seam.velocity == pytest.approx(2.0)
    np.testing.assert_allclose(seam.offset.position, [0.1, 0, 0, 0, -0.3, 0, 0.07])
    np.testing.assert_allclose(seam.offset.velocity, [0, 0, -2.0, 0, 0, 0, -9.0])
    assert measure_seam(old, new, joints=(0,)).position == pytest.approx(0.1)


@given(seeds, durations)
@settings(max_examples=100, deadline=None)
def test_blend_starts_exactly_on_the_old_setpoint(seed: int, duration_ns: int) -> None:
    new, old = random_path(seed), random_setpoint(seed)
    offset = measure_seam(old, new.at(AT)).offset
    start = blend(new, offset=offset, at_ns=AT, duration_ns=duration_ns).at(AT)
    np.testing.assert_allclose(start.position, old.position, rtol=0, atol=1e-15)
    np.testing.assert_allclose(start.velocity[:6], old.velocity[:6], rtol=0, atol=1e-13)


def test_replace_misses_the_old_setpoint_so_the_start_check_can_fail() -> None:
    new, old = random_path(0), random_setpoint(0)
    assert np.abs(replace(new).at(AT).position - old.position).max() > 0.01


@given(seeds, durations, st.integers(0, S))
@settings(max_examples=60, deadline=None)
def test_blend_ends_exactly_on_the_new_path(seed: int, duration_ns: int, later: int) -> None:
    new = random_path(seed)
    offset = measure_seam(random_setpoint(seed), new.at(AT)).offset
    t = AT + duration_ns + later
    blended, plain = blend(new, offset=offset, at_ns=AT, duration_ns=duration_ns).at(t), new.at(t)
    assert np.array_equal(blended.position, plain.position)
    assert np.array_equal(blended.velocity, plain.velocity)


@given(seeds, durations)
@settings(max_examples=60, deadline=None)
def test_blend_adds_no_step_in_position_velocity_or_acceleration(
    seed: int, duration_ns: int
) -> None:
    still = SetpointPath([AT], np.zeros((1, 7)))
    offset = random_setpoint(seed)
    path = blend(still, offset=offset, at_ns=AT, duration_ns=duration_ns)
    times = np.linspace(AT, AT + duration_ns, 2001).astype(np.int64)
    h = float(times[1] - times[0]) / S
    setpoints = [path.at(int(t)) for t in times]
    position = np.array([s.position for s in setpoints])
    velocity = np.array([s.velocity for s in setpoints])
    np.testing.assert_allclose(
        np.diff(position, axis=0) / h, (velocity[1:] + velocity[:-1]) / 2, atol=2e-3
    )
    acceleration = np.diff(velocity, axis=0) / h
    peak = np.abs(acceleration).max(axis=0)
    assert (np.abs(acceleration[-1]) <= 0.01 * peak + 1e-6).all()
    assert (np.abs(acceleration[0, :6]) <= 0.01 * peak[:6] + 1e-6).all()
    assert (np.abs(np.diff(acceleration, axis=0)) <= 0.02 * peak + 1e-6).all()


@given(seeds, durations)
@settings(max_examples=100, deadline=None)
def test_gripper_offset_shrinks_monotonically(seed: int, duration_ns: int) -> None:
    still = SetpointPath([AT], np.zeros((1, 7)))
    offset = random_setpoint(seed)
    path = blend(still, offset=offset, at_ns=AT, duration_ns=duration_ns)
    grip = [path.at(AT + duration_ns * i // 200).position[6] for i in range(201)]
    assert (np.diff(grip) * np.sign(offset.position[6]) <= 1e-12).all()
    assert min(grip) >= -1e-15 or offset.position[6] < 0


def test_a_joint_offset_may_grow_so_the_gripper_check_can_fail() -> None:
    still = SetpointPath([AT], np.zeros((1, 7)))
    offset = Setpoint(np.full(7, 0.01), np.full(7, 1.0))
    at = blend(still, offset=offset, at_ns=AT).at(AT + 10 * MS)
    assert at.position[0] > 0.01
    assert at.position[6] < 0.01


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_no_seam_means_no_change(seed: int) -> None:
    new = random_path(seed)
    zero = Setpoint(np.zeros(7), np.zeros(7))
    assert blend(new, offset=zero, at_ns=AT) is new
    assert blend(new, offset=random_setpoint(seed), at_ns=AT, duration_ns=0) is new
    assert replace(new) is new


def test_blend_keeps_the_ends_of_the_path() -> None:
    new = random_path(5)
    path = blend(new, offset=random_setpoint(5), at_ns=AT)
    assert (path.start_ns, path.end_ns) == (new.start_ns, new.end_ns)


def test_a_blend_can_be_blended_again() -> None:
    first = blend(random_path(6), offset=random_setpoint(6), at_ns=AT)
    second = random_path(7)
    t = AT + 20 * MS
    offset = measure_seam(first.at(t), second.at(t)).offset
    start = blend(second, offset=offset, at_ns=t).at(t)
    np.testing.assert_allclose(start.position, first.at(t).position, atol=1e-15)


@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_an_offset_that_is_not_finite_is_refused(bad: float) -> None:
    offset = Setpoint(np.zeros(7), np.array([0.0] * 6 + [bad]))
    with pytest.raises(ConfigError, match='finite'):
        blend(random_path(0), offset=offset, at_ns=AT)


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(ConfigError, match='duration_ns'):
        blend(random_path(0), offset=random_setpoint(0), at_ns=AT, duration_ns=-1)


@given(seeds, durations)
@settings(max_examples=40, deadline=None)
def test_a_blend_can_start_with_the_old_acceleration_too(seed: int, duration_ns: int) -> None:
    still = SetpointPath([AT], np.zeros((1, 7)))
    bend = np.random.default_rng(seed).normal(0.0, 3.0, 7)
    path = blend(still, offset=random_setpoint(seed), at_ns=AT, duration_ns=duration_ns,
                 acceleration=bend)
    without = blend(still, offset=random_setpoint(seed), at_ns=AT, duration_ns=duration_ns)
    soon = AT + duration_ns // 10_000
    gained = (path.at(soon).velocity - without.at(soon).velocity) / (duration_ns / 1e13)
    np.testing.assert_allclose(gained, np.where(np.arange(7) < 6, bend, 0.0), rtol=0.01,
                               atol=1e-6)
    instants = AT + np.arange(0, duration_ns + 20 * MS, 7 * MS)
    assert np.array_equal(path.positions(instants),
                          np.array([path.at(int(t)).position for t in instants]))


def test_a_blend_from_the_old_acceleration_can_fail() -> None:
    """Without it the quintic starts with none."""
    still = SetpointPath([AT], np.zeros((1, 7)))
    path = blend(still, offset=Setpoint(np.full(7, 0.01), np.zeros(7)), at_ns=AT)
    assert np.abs(path.at(AT + 6_000).velocity[:6] / 6e-6).max() < 0.1
