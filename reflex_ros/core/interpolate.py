"""Setpoints between the rows of a chunk.

Rows are joined by cubic Hermite pieces: the path passes through every row, its velocity is the
derivative of its position everywhere and is continuous, and it comes to rest in the last row.
Times are integers on one clock; the bridge uses the steady clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reflex_ros.core.clock import S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import JOINT_NAMES, FloatArray


@dataclass(frozen=True, slots=True)
class Setpoint:
    """Where every joint should be and how fast it should pass.

    Attributes:
        position: ``float64[J]``, rad and m.
        velocity: ``float64[J]``, rad/s and m/s.
    """

    position: FloatArray = field(compare=False)
    velocity: FloatArray = field(compare=False)


class Path(Protocol):
    """A motion that can be asked for its setpoint at any instant."""

    @property
    def start_ns(self) -> int:
        """Return the time of the first row."""

    @property
    def end_ns(self) -> int:
        """Return the time of the last row; from there on the path rests."""

    def at(self, t_ns: int) -> Setpoint:
        """Return the setpoint at ``t_ns``."""

    def positions(self, times_ns: npt.NDArray[np.int64]) -> FloatArray:
        """Return the positions at ``int64[N]`` instants, ``float64[N, J]``, as ``at`` does."""


def gripper_columns(joints: int) -> FloatArray:
    """Return 1.0 for each gripper column and 0.0 for each joint, ``float64[joints]``.

    An arm is six joints and a gripper, so every seventh column is one; with two arms, two.
    """
    columns = np.zeros(joints)
    columns[len(JOINT_NAMES) - 1 :: len(JOINT_NAMES)] = 1.0
    return columns


def revolute(joints: int) -> npt.NDArray[np.bool_]:
    """Return which columns are angles, ``bool[joints]``: all but the grippers."""
    return _revolute(joints)


@cache
def _revolute(joints: int) -> npt.NDArray[np.bool_]:
    columns = np.asarray(gripper_columns(joints) == 0.0)
    columns.flags.writeable = False
    return columns


class SetpointPath:
    """A path through given rows.

    Before the first row the path stands still in it; from the last row on it rests there.
    Joints take central-difference slopes, which reproduce a constant acceleration exactly.
    Grippers take monotone-limited slopes, which never leave the interval between two rows.

    Args:
        times_ns: ``int64[N]`` strictly increasing times of the rows, N >= 1.
        positions: ``float64[N, J]`` rows, rad and m; copied.
        linear: For each column, whether to join its rows by straight lines instead.

    Raises:
        ConfigError: Shapes disagree, times do not increase or a position is not finite.
    """

    def __init__(
        self,
        times_ns: npt.ArrayLike,
        positions: npt.ArrayLike,
        *,
        linear: tuple[bool, ...] | None = None,
    ) -> None:
        times = np.array(times_ns, dtype=np.int64)
        rows = np.array(positions, dtype=np.float64)
        _check_rows(times, rows, linear)
        self._times: list[int] = times.tolist()
        self._rows = rows
        self._zero = np.zeros(rows.shape[1])
        for array in (rows, self._zero):
            array.flags.writeable = False
        self._coefficients = _coefficients(np.diff(times) / S, rows, linear)
        self._pieces = list(zip(*self._coefficients, strict=True))

    @property
    def start_ns(self) -> int:
        """Return the time of the first row."""
        return self._times[0]

    @property
    def end_ns(self) -> int:
        """Return the time of the last row."""
        return self._times[-1]

    def at(self, t_ns: int) -> Setpoint:
        """Return the setpoint at ``t_ns``; exactly a row at the time of that row."""
        if t_ns >= self._times[-1]:
            return Setpoint(self._rows[-1], self._zero)
        if t_ns < self._times[0]:
            return Setpoint(self._rows[0], self._zero)
        i = bisect_right(self._times, t_ns) - 1
        t = (t_ns - self._times[i]) / S
        c1, c2, c3 = self._pieces[i]
        position = self._rows[i] + t * (c1 + t * (c2 + t * c3))
        return Setpoint(position, c1 + t * (2.0 * c2 + 3.0 * t * c3))

    def positions(self, times_ns: npt.NDArray[np.int64]) -> FloatArray:
        """Return the positions at ``int64[N]`` instants, ``float64[N, J]``, as ``at`` does."""
        times = np.asarray(self._times)
        last = len(times) - 1
        i = np.clip(np.searchsorted(times, times_ns, side='right') - 1, 0, last)
        if not self._pieces:
            return self._rows[i]
        inside = np.clip(times_ns, times[0], times[-1]) - times[i]
        t = (inside / S)[:, None]
        c1, c2, c3 = (part[np.minimum(i, last - 1)] for part in self._coefficients)
        return np.where((i == last)[:, None], self._rows[i],
                        self._rows[i] + t * (c1 + t * (c2 + t * c3)))


def _check_rows(
    times: npt.NDArray[np.int64], rows: FloatArray, linear: Sequence[bool] | None
) -> None:
    if rows.ndim != 2 or times.ndim != 1 or len(rows) != len(times) or len(rows) == 0:
        raise ConfigError(
            f'setpoint path rows: got times {times.shape} and positions {rows.shape}, expected '
            '[N] and [N, J] with N >= 1. Give one time for each row.'
        )
    if linear is not None and len(linear) != rows.shape[1]:
        raise ConfigError(
            f'setpoint path linear: got {len(linear)} flags, expected {rows.shape[1]} (one for '
            'each column). Give one flag for each column.'
        )
    if bool((np.diff(times) <= 0).any()):
        raise ConfigError(
            f'setpoint path times: got {times.tolist()}, expected strictly increasing (ns). '
            'Sort the rows and drop duplicates.'
        )
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0].tolist()
        raise ConfigError(
            f'setpoint path row {row} column {column}: got {rows[row, column]}, expected a finite '
            'position (rad or m). Reject the chunk.'
        )


def _coefficients(
    steps_s: FloatArray, rows: FloatArray, linear: Sequence[bool] | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the coefficients of t, t^2, t^3 of all pieces, each ``float64[N - 1, J]``."""
    if len(rows) == 1:
        none = np.empty((0, rows.shape[1]))
        return none, none, none
    h = steps_s[:, None]
    secants = np.diff(rows, axis=0) / h
    slopes = _slopes(h, secants)
    c1, nxt = slopes[:-1], slopes[1:]
    c2 = (3.0 * secants - 2.0 * c1 - nxt) / h
    c3 = (c1 + nxt - 2.0 * secants) / h**2
    if linear is not None:
        straight = np.array(linear, dtype=bool)
        c1 = np.where(straight, secants, c1)
        c2 = np.where(straight, 0.0, c2)
        c3 = np.where(straight, 0.0, c3)
    return c1, c2, c3


def _slopes(h: FloatArray, secants: FloatArray) -> FloatArray:
    """Return the velocity at each row, ``float64[N, J]``; zero in the last one."""
    slopes = np.zeros((len(secants) + 1, secants.shape[1]))
    slopes[0] = secants[0]
    left, right = secants[:-1], secants[1:]
    slopes[1:-1] = (h[1:] * left + h[:-1] * right) / (h[1:] + h[:-1])
    # Fritsch and Carlson: a slope of the secants' sign, at most three times the smaller of them,
    # keeps a cubic piece monotone.
    bound = np.where(left * right > 0.0, 3.0 * np.minimum(np.abs(left), np.abs(right)), 0.0)
    monotone = np.clip(slopes[1:-1], -bound, bound)
    is_gripper = gripper_columns(secants.shape[1]) > 0.0
    slopes[1:-1] = np.where(is_gripper, monotone, slopes[1:-1])
    return slopes
