"""A blend that fits: as short as the limits of the arm allow, or none.

A joint that moves away from its new path is led back over a detour, which grows with the duration.
A blend that goes further than the rows ask for, and than braking would take, is none that fits:
with a chunk that steps to and fro every other tick an arm would swing beyond all of them.

The path that would be commanded is judged, chunk included, with the differences and bounds of
``core.limits.Limiter``: what fits passes the limiter unchanged. All durations are judged at once
on arrays, so that this takes a fraction of a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from reflex_ros.core.brake import Axis, level_off, stop
from reflex_ros.core.clock import MS, S
from reflex_ros.core.interpolate import Path, Setpoint, revolute
from reflex_ros.core.limits import JointLimits, Stream
from reflex_ros.core.stitch import BLEND_NS, blend, decay
from reflex_ros.core.types import FloatArray

LONGEST_NS = 500 * MS
"""Longest blend. It is as long as the ramp that leads from a held pose into a plan, and as an
observation is believed by default; 5 rad/s^2 take up 0.2 rad in it."""

_GROWTH = 1.3
"""Ratio of a duration to the one tried before it: at most so much longer than it must be."""
_SLACK = 1e-9
"""Relative, for rounding, as in the limiter."""
STRAY_RAD = 0.01
"""A detour this long is none: braking and blending differ by as much."""
_STENCIL = 3
"""Earlier commands that the jerk of a command is made of."""
_UNITS = ('rad/s', 'rad/s^2', 'rad/s^3')


@dataclass(frozen=True, slots=True)
class Fit:
    """What came of a search.

    Attributes:
        path: The blended path, None if no duration fits.
        duration_ns: Its length. ``text``: what the longest one would exceed, '' if one fits.
    """

    path: Path | None
    duration_ns: int = 0
    text: str = ''


@dataclass(frozen=True, slots=True)
class Window:
    """Where and when a path takes over; times in ns on its clock.

    Attributes:
        at_ns: Tick of the switch. ``until_ns``: from here on the path is not executed.
        period_ns: Control period. ``shortest_ns``: shortest blend.
    """

    at_ns: int
    until_ns: int
    period_ns: int
    shortest_ns: int = BLEND_NS


def fit_blend(new: Path, stream: Stream, limits: JointLimits, *, window: Window,
              names: tuple[str, ...]) -> Fit:
    """Return the new path with the shortest blend that no joint's limits forbid, if it is direct.

    The blend starts from the command stream in position, velocity and acceleration. Grippers are
    blended too but not judged: theirs is a step of opening, which the limiter may stretch.

    Args:
        new: Path that takes over.
        stream: The stream one period before the switch.
        limits: Limits of the joints.
        window: Where it takes over.
        names: Joint names.
    """
    steps = np.arange(ceil((LONGEST_NS + _STENCIL * window.period_ns) / window.period_ns) + 1)
    rows, is_executed = _rows(new, window, steps)
    start, curve = _start(new, stream, window, rows[1])
    durations_s = _durations(window.shortest_ns) / S
    passed_s = steps * (window.period_ns / S)
    value, slope, bend = decay(np.clip(passed_s / durations_s[:, None], 0.0, 1.0))
    offsets = (value[..., None] * start.position
               + (slope * durations_s[:, None])[..., None] * start.velocity
               + (bend * durations_s[:, None] ** 2)[..., None] * curve)
    # The last ticks that are judged have a blended command among those that they differ from.
    is_judged = passed_s - _STENCIL * (window.period_ns / S) < durations_s[:, None]
    judged = _Judged(rows + offsets, stream, limits, window.period_ns / S, is_judged, is_executed)
    for i in np.flatnonzero(judged.worst <= 1.0 + _SLACK).tolist():
        if judged.too_fast(i) < 0:
            if text := judged.stray(i, rows, names, durations_s[i]):
                return Fit(None, text=text)
            ns = round(durations_s[i] * S)
            return Fit(blend(new, offset=start, at_ns=window.at_ns, duration_ns=ns,
                             acceleration=curve), ns)
    return Fit(None, text=judged.excess(len(durations_s) - 1, names, durations_s[-1]))


def _durations(shortest_ns: int) -> FloatArray:
    """Return the durations to try, ascending up to ``LONGEST_NS``, whole ns."""
    first = min(max(shortest_ns, 10 * MS), LONGEST_NS)
    count = ceil(np.log(LONGEST_NS / first) / np.log(_GROWTH)) + 1 if first < LONGEST_NS else 1
    return np.rint(np.geomspace(first, LONGEST_NS, count))


def _rows(new: Path, window: Window, steps: npt.NDArray[np.int64]) -> tuple[
        FloatArray, npt.NDArray[np.bool_]]:
    """Return the new path at the ticks, ``float64[N, J]``, and which of them it may execute.

    Beyond its last tick it goes straight on: how it ends is not the seam's fault.
    """
    times = window.at_ns + steps * window.period_ns
    until_ns = max(window.until_ns, window.at_ns + window.period_ns)
    beyond_s = np.maximum(times - until_ns, 0) / S
    rows = new.positions(np.minimum(times, until_ns))
    return rows + beyond_s[:, None] * new.at(until_ns).velocity, times <= until_ns


def _start(new: Path, stream: Stream, window: Window, second: FloatArray) -> tuple[
        Setpoint, FloatArray]:
    """Return old minus new setpoint at the switch, and old minus new acceleration.

    The stream goes on with the acceleration that it has. That of the new path is the one which
    leads to its ``second`` command, since commands are what the limits hold for.
    """
    h = window.period_ns / S
    first = new.at(window.at_ns)
    begun = stream.velocity + h * stream.acceleration
    position = stream.position + h * begun
    velocity = begun + h * stream.acceleration / 2.0
    acceleration = 2.0 * (second - first.position - h * first.velocity) / h**2
    arm = revolute(len(position))
    curve = np.where(arm, stream.acceleration - acceleration, 0.0)
    # A gripper's step only shrinks: it starts with the velocity of the new path.
    speed = np.where(arm, velocity - first.velocity, 0.0)
    return Setpoint(position - first.position, speed), curve


class _Judged:
    """Commands of every duration against the limits: ``float64[D, N, J]``, arm joints only."""

    def __init__(self, commands: FloatArray, stream: Stream, limits: JointLimits, h: float,
                 is_judged: npt.NDArray[np.bool_], is_executed: npt.NDArray[np.bool_]) -> None:
        self._arm = np.flatnonzero(revolute(commands.shape[2]))
        self._h, self._stream, self._limits = h, stream, limits
        before = np.array([stream.position - h * (2.0 * stream.velocity - h * stream.acceleration),
                           stream.position - h * stream.velocity, stream.position])
        shape = (len(commands), *before.shape)
        p = np.concatenate([np.broadcast_to(before, shape), commands], axis=1)[..., self._arm]
        v = np.diff(p, axis=1) / h
        a = np.diff(v, axis=1) / h
        self._parts = v[:, 2:], a[:, 1:], np.diff(a, axis=1) / h
        self._p, (self._v, self._a, _) = p[:, 3:], self._parts
        self._level = level_off(self._v, self._a, self._of('jerk') * h, h)
        self._is_inside = is_judged & is_executed
        low, high = self._range()
        self._outside = np.maximum(low - self._p, self._p - high) * self._is_inside[..., None]
        bounds = [self._of(name) for name in ('velocity', 'acceleration', 'jerk')]
        shares = [np.abs(part) / most for part, most in zip(self._parts, bounds, strict=True)]
        shares.append(np.abs(self._level) / bounds[0])
        self._shares = np.array(shares) * is_judged[..., None]
        self.worst = self._shares.max(axis=(0, 2, 3))
        self.worst = np.where(self._outside.max(axis=(1, 2)) > _SLACK, np.inf, self.worst)
        """For each duration the largest part of a limit that is used."""

    def _of(self, name: str) -> FloatArray:
        return np.asarray(getattr(self._limits, name)[self._arm])

    def _range(self) -> tuple[FloatArray, FloatArray]:
        """Return the range of each joint, widened to where the stream is."""
        here = self._stream.position[self._arm]
        return np.minimum(self._of('lower'), here), np.maximum(self._of('upper'), here)

    def too_fast(self, i: int) -> int:
        """Return which joint could not brake inside its range any more, -1 if all could."""
        p, v, a = self._p[i], self._v[i], self._a[i]
        most = self._of('acceleration')
        fastest = np.maximum(np.abs(v), np.abs(self._level[i]))
        reserve = 2.0 * most / self._of('jerk') + 3.0 * self._h
        reach = fastest * (fastest / (2.0 * most) + reserve)
        low, high = self._range()
        is_near = ((p - reach < low) | (p + reach > high)) & (fastest > 0.0)
        for n, j in np.argwhere(is_near & self._is_inside[i][:, None]).tolist():
            axis = Axis(self._h, low.item(j), high.item(j), *(
                self._of(name).item(j) for name in ('velocity', 'acceleration', 'jerk')))
            if not axis.can_stop((p.item(n, j), v.item(n, j), a.item(n, j)),
                                 previous=p.item(max(n - 1, 0), j)):
                return int(j)
        return -1

    def stray(self, i: int, rows: FloatArray, names: tuple[str, ...], duration_s: float) -> str:
        """Return which joint goes further than rows, stream and braking do; '' if none.

        Args:
            i: Of the duration ``duration_s``. ``rows``: the new path at the same ticks.
            names: Joint names.
        """
        meanwhile = self._is_inside[i]
        asked = rows[meanwhile][:, self._arm]
        ends = np.vstack([self._stream.position[self._arm], self._stop(), asked])
        low, high = ends.min(axis=0), ends.max(axis=0)
        p = self._p[i][meanwhile]
        beyond = np.maximum(low - p, p - high).max(axis=0)
        j = int(np.argmax(beyond))
        if beyond[j] <= STRAY_RAD:
            return ''
        return (f'over {duration_s:g} s {names[self._arm[j]]} would go to {p[:, j].min():.3f} to '
                f'{p[:, j].max():.3f} rad where {low[j]:.3f} to {high[j]:.3f} is asked for')

    def _stop(self) -> FloatArray:
        """Return where braking from the stream would end, of each joint."""
        bounds = zip(*(self._of(name).tolist() for name in (
            'lower', 'upper', 'velocity', 'acceleration', 'jerk')), strict=True)
        states = zip(*(part[self._arm].tolist() for part in (
            self._stream.position, self._stream.velocity, self._stream.acceleration)), strict=True)
        return np.array([stop(Axis(self._h, *bound), state)[0]
                         for bound, state in zip(bounds, states, strict=True)])

    def excess(self, i: int, names: tuple[str, ...], duration_s: float) -> str:
        """Return which joint exceeds what under one duration."""
        shares = self._shares[:, i].max(axis=1)
        kind, j = (int(k) for k in np.unravel_index(int(np.argmax(shares)), shares.shape))
        if shares[kind, j] > 1.0 + _SLACK:
            bound = ('velocity', 'acceleration', 'jerk')[kind % 3]
            most = self._of(bound).item(j)
            return (f'over {duration_s:g} s {names[self._arm[j]]} would need '
                    f'{shares[kind, j] * most:.3g} {_UNITS[kind % 3]} of {most:.3g}')
        beyond = self._outside[i].max(axis=0)
        low, high = self._range()
        j = int(np.argmax(beyond)) if beyond.max() > _SLACK else self.too_fast(i)
        furthest = self._p[i][self._is_inside[i], j]
        return (f'over {duration_s:g} s {names[self._arm[j]]} would go to '
                f'{furthest.min():.3f} to {furthest.max():.3f} rad, too close to or beyond its '
                f'{low[j]:.3f} to {high[j]:.3f}')
