"""Braking ends in finitely many ticks, where it was said to end, inside the limits."""

from __future__ import annotations

from math import copysign

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex_ros.core.brake import Axis, brake, catch_up, level_off, stop

H = 0.02


def axis_and_state(seed: int) -> tuple[Axis, tuple[float, float, float]]:
    """Return a joint far from its range, and a state that keeps its limits."""
    rng = np.random.default_rng(seed)
    axis = Axis(
        H,
        -1e3,
        1e3,
        velocity=rng.uniform(0.05, 4.0),
        acceleration=rng.uniform(0.3, 30.0),
        jerk=10.0 ** rng.uniform(0.5, 3.5),
    )
    v = axis.velocity * rng.uniform(-1.0, 1.0)
    a = axis.acceleration * rng.choice([-1.0, 1.0, rng.uniform(-1.0, 1.0)])
    level = level_off(np.array([v]), np.array([a]), np.array([axis.step]), H)[0]
    return axis, (rng.normal(), v, a if abs(level) <= axis.velocity else 0.0)


def ticks_of(axis: Axis, state: tuple[float, float, float]) -> list[tuple[float, float, float]]:
    """Return every state of braking to rest, the first included."""
    states = [state]
    while states[-1][1] != 0.0 or abs(states[-1][2]) > axis.step:
        p, v, a = states[-1]
        now = brake(axis, (p, v, a))
        after = (now - p) / H
        states.append((now, after, (after - v) / H))
        assert len(states) < 5000
    return states


@given(st.integers(0, 100_000))
@settings(max_examples=200, deadline=None)
def test_braking_ends_where_stop_says(seed: int) -> None:
    axis, state = axis_and_state(seed)
    p, v, a = np.array(ticks_of(axis, state)).T
    final, low, high = stop(axis, state)
    np.testing.assert_allclose((final, low, high), (p[-1], p.min(), p.max()), rtol=0, atol=1e-8)
    assert np.abs(a).max() <= axis.acceleration * (1 + 1e-6) + 1e-6
    assert np.abs(np.diff(a)).max(initial=0.0) <= axis.step * (1 + 1e-6) + 1e-5


@given(st.integers(0, 100_000))
@settings(max_examples=100, deadline=None)
def test_level_off_is_the_speed_after_ramping_the_acceleration_down(seed: int) -> None:
    axis, (_, v, a) = axis_and_state(seed)
    expected, left = v, a
    while abs(left) > axis.step:
        left -= copysign(axis.step, left)
        expected += H * left
    level = level_off(np.array([v]), np.array([a]), np.array([axis.step]), H)
    assert level[0] == pytest.approx(expected, abs=1e-9)


@given(st.integers(0, 100_000))
@settings(max_examples=60, deadline=None)
def test_catching_up_reaches_a_moving_target_and_keeps_its_speed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis = Axis(H, -1e3, 1e3, velocity=3.0, acceleration=5.0, jerk=200.0)
    speed, target = rng.uniform(-1.5, 1.5), rng.uniform(-1.0, 1.0)
    p = v = a = 0.0
    for _ in range(200):
        target += H * speed
        now = catch_up(axis, (p, v, a), (target, speed))
        after = (now - p) / H
        p, v, a = now, after, (after - v) / H
    assert p == pytest.approx(target, abs=1e-7)
    assert v == pytest.approx(speed, abs=1e-5)


def test_a_joint_at_rest_repeats_its_command_exactly() -> None:
    axis = Axis(H, -1.0, 1.0, velocity=3.0, acceleration=5.0, jerk=200.0)
    assert brake(axis, (0.1 + 0.2, 0.0, 0.0)) == 0.1 + 0.2
    assert stop(axis, (0.3, 0.0, 0.0)) == (0.3, 0.3, 0.3)


@pytest.mark.parametrize(
    ('p', 'v', 'previous', 'can'),
    [
        (0.9, 0.0, 0.9, True),
        (0.9, 3.0, 0.84, False),
        (0.9, -0.3, 0.906, True),
        (-1.02, 0.0, -1.02, True),
        (-1.02, -0.1, -1.018, False),
    ],
)
def test_a_stop_beyond_the_range_is_foreseen(p, v, previous, can) -> None:
    axis = Axis(H, -1.0, 1.0, velocity=3.0, acceleration=5.0, jerk=200.0)
    assert axis.can_stop((p, v, 0.0), previous=previous) is can
