"""A path passes through its rows, rests in its last one and never overshoots a gripper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.interpolate import Setpoint, SetpointPath, gripper_columns
from reflex_ros.core.stitch import blend

T0 = 7 * S


def rows_and_times(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    times = T0 + np.cumsum(rng.integers(1, 60 * MS, n))
    rows = rng.normal(size=(n, 7))
    rows[:, 6] = rng.uniform(0.0, 0.07, n)
    return times, rows


seeds = st.integers(0, 10_000)
lengths = st.integers(1, 12)


@given(seeds, lengths, st.booleans())
@settings(max_examples=100, deadline=None)
def test_path_passes_through_every_row_bitwise(seed: int, n: int, is_linear: bool) -> None:
    times, rows = rows_and_times(seed, n)
    path = SetpointPath(times, rows, linear=(is_linear,) * 7)
    for t, row in zip(times.tolist(), rows, strict=True):
        assert np.array_equal(path.at(t).position, row)
    assert (path.start_ns, path.end_ns) == (times[0], times[-1])


@given(seeds, st.integers(2, 12))
@settings(max_examples=60, deadline=None)
def test_velocity_is_the_derivative_and_is_continuous(seed: int, n: int) -> None:
    times, rows = rows_and_times(seed, n)
    times = T0 + np.arange(n) * 20 * MS
    path = SetpointPath(times, rows)
    d = 1_000
    for t in times.tolist()[1:] + (times[:-1] + 7 * MS).tolist():
        before, here, after = path.at(t - d), path.at(t), path.at(t + d)
        slope = (after.position - before.position) / (2 * d / S)
        # Curvature stays below ~5e4 rad/s^2 for unit-normal rows at 20 ms: 1 us shifts < 0.2.
        np.testing.assert_allclose(slope, here.velocity, atol=0.2)
        np.testing.assert_allclose(before.velocity, after.velocity, atol=0.4)


@given(seeds, lengths, st.integers(0, 10 * S))
@settings(max_examples=60, deadline=None)
def test_last_row_is_held_at_rest(seed: int, n: int, later: int) -> None:
    times, rows = rows_and_times(seed, n)
    end = SetpointPath(times, rows).at(int(times[-1]) + later)
    assert np.array_equal(end.position, rows[-1])
    assert not end.velocity.any()


def test_before_the_first_row_the_path_stands_in_it() -> None:
    times, rows = rows_and_times(1, 5)
    start = SetpointPath(times, rows).at(int(times[0]) - 1)
    assert np.array_equal(start.position, rows[0])
    assert not start.velocity.any()


@given(seeds, st.integers(2, 12), st.floats(0.0, 1.0))
@settings(max_examples=200, deadline=None)
def test_gripper_stays_between_the_rows_around_it(seed: int, n: int, share: float) -> None:
    times, rows = rows_and_times(seed, n)
    path = SetpointPath(times, rows)
    for i in range(n - 1):
        t = int(times[i] + share * (times[i + 1] - times[i]))
        low, high = sorted((rows[i, 6], rows[i + 1, 6]))
        assert low - 1e-12 <= path.at(t).position[6] <= high + 1e-12


def test_a_joint_may_overshoot_its_rows_so_the_gripper_check_can_fail() -> None:
    rows = np.zeros((4, 7))
    rows[:, :] = np.array([0.0, 0.05, 0.05, 0.0])[:, None]
    path = SetpointPath(T0 + np.arange(4) * 20 * MS, rows)
    middle = path.at(T0 + 30 * MS).position
    assert middle[0] > 0.0501
    assert middle[6] == pytest.approx(0.05, abs=1e-12)


def test_constant_acceleration_is_reproduced_between_the_rows() -> None:
    times = T0 + np.array([0, 20, 40, 60, 80, 110]) * MS
    t = (times - T0) / S
    path = SetpointPath(times, np.tile((0.3 + 2.0 * t + 1.5 * t**2)[:, None], (1, 7)))
    at = path.at(T0 + 47 * MS)
    assert at.position[0] == pytest.approx(0.3 + 2.0 * 0.047 + 1.5 * 0.047**2, abs=1e-12)
    assert at.velocity[0] == pytest.approx(2.0 + 3.0 * 0.047, abs=1e-9)


def test_linear_columns_are_straight() -> None:
    times, rows = rows_and_times(3, 4)
    path = SetpointPath(times, rows, linear=(True,) + (False,) * 6)
    t = int(times[1] + times[2]) // 2
    share = (t - times[1]) / (times[2] - times[1])
    assert path.at(t).position[0] == pytest.approx(rows[1, 0] + share * (rows[2, 0] - rows[1, 0]))


def test_path_copies_its_rows() -> None:
    times, rows = rows_and_times(4, 3)
    path = SetpointPath(times, rows)
    kept = rows[0].copy()
    rows[:] = 9.0
    assert np.array_equal(path.at(int(times[0])).position, kept)


def test_two_arms_have_two_grippers() -> None:
    assert np.flatnonzero(gripper_columns(14)).tolist() == [6, 13]


@pytest.mark.parametrize(
    ('times', 'rows', 'linear', 'word'),
    [
        ([1, 1], np.zeros((2, 7)), None, 'increasing'),
        ([2, 1], np.zeros((2, 7)), None, 'increasing'),
        ([], np.zeros((0, 7)), None, 'N >= 1'),
        ([1], np.zeros((2, 7)), None, 'N >= 1'),
        ([1], np.zeros(7), None, 'N >= 1'),
        ([1], np.zeros((1, 7)), (True,), 'linear'),
        ([1, 2], np.array([[0.0] * 7, [0.0] * 6 + [np.nan]]), None, 'row 1 column 6'),
    ],
)
def test_bad_rows_are_refused(times, rows, linear, word) -> None:
    with pytest.raises(ConfigError, match=word):
        SetpointPath(times, rows, linear=linear)


@pytest.mark.parametrize('rows', [1, 2, 9])
def test_positions_are_those_of_single_instants(rows):
    rng = np.random.default_rng(rows)
    times = np.cumsum(rng.integers(1, 40 * MS, rows)) + 5 * S
    path = SetpointPath(times, rng.normal(size=(rows, 7)))
    asked = np.concatenate([times, times - 1, times + 1, rng.integers(4 * S, 6 * S, 50)])
    blended = blend(path, offset=Setpoint(rng.normal(size=7), rng.normal(size=7)),
                    at_ns=int(times[0]), duration_ns=60 * MS)
    for one in (path, blended):
        single = np.array([one.at(int(t)).position for t in asked])
        assert np.array_equal(one.positions(asked), single)
    assert path.positions(asked[:0]).shape == (0, 7)
