"""Time-discrete braking and catching up of one joint under jerk, acceleration and speed limits.

The state of a joint is its last command ``p`` and the finite differences ``v``, ``a`` of its
command stream. One tick chooses the next acceleration ``a'`` within a jerk step of ``a``; then
``v' = v + h a'`` and ``p' = p + h v'``. Everything here is exact for that recursion.

*Levelling off* brings the acceleration to zero at full jerk. With ``s = h x jerk`` it takes
``n = floor(|a| / s)`` more ticks of non-zero acceleration and adds ``h (n |a| - s n (n + 1) / 2)``
to the speed. *Braking* takes, at every tick, the acceleration from which levelling off ends at
speed zero, clipped to the limits: it reaches rest in finitely many ticks and stays there.
*Catching up* pushes towards the target as long as braking would still end short of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import copysign, floor, sqrt

import numpy as np

from reflex_ros.core.types import FloatArray

State = tuple[float, float, float]
"""Position, velocity and acceleration of a command stream: rad, rad/s, rad/s^2."""

_REST = 1e-9
"""Speed (rad/s) below which a joint that has levelled off is at rest: rounding, not motion."""
_TOLERANCE = 1e-12
"""Precision (rad) to which a stop is aimed."""
_SLACK = 1e-10
"""Room (rad) left for rounding where a stop is checked."""
_STEPS = 60
_REL = 1e-9
"""Relative slack of the pass-through test; a difference of commands is not exact in float64."""


def level_off(v: FloatArray, a: FloatArray, step: FloatArray, h: float) -> FloatArray:
    """Return the speed after the acceleration has been brought to zero at full jerk."""
    size = np.abs(a)
    n = np.floor(size / step)
    return v + np.sign(a) * h * (n * size - step * n * (n + 1.0) / 2.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """Limits of one joint and its period.

    Attributes:
        h: Period, s. The next five as in ``core.limits.JointLimits``, for one joint.
        step: Largest change of the acceleration in one tick.
        cruise: Speed below which braking no longer takes full deceleration.
        reserve: Time in which a joint that brakes from a speed reaches full deceleration, s.
        top, push, jump: Speed, acceleration and its change in one tick up to which a setpoint
            passes: the limits with room for rounding.
    """

    h: float
    lower: float
    upper: float
    velocity: float
    acceleration: float
    jerk: float
    step: float = field(init=False)
    cruise: float = field(init=False)
    reserve: float = field(init=False)
    top: float = field(init=False)
    push: float = field(init=False)
    jump: float = field(init=False)

    def __post_init__(self) -> None:
        step, most = self.h * self.jerk, self.acceleration
        n = floor(most / step)
        object.__setattr__(self, 'step', step)
        object.__setattr__(self, 'reserve', 2.0 * most / self.jerk + 3.0 * self.h)
        object.__setattr__(self, 'top', self.velocity * (1.0 + _REL))
        object.__setattr__(self, 'push', most * (1.0 + _REL) + _REL)
        object.__setattr__(self, 'jump', step * (1.0 + _REL) + _REL)
        # The speed that levelling off from full deceleration takes away, its own tick included.
        cruise = self.h * ((n + 1) * most - step * n * (n + 1) / 2.0)
        object.__setattr__(self, 'cruise', cruise)

    def clip(self, position: float, *, previous: float) -> float:
        """Return the position inside the range, which is widened to ``previous``."""
        return min(max(position, min(self.lower, previous)), max(self.upper, previous))

    def can_stop(self, state: State, *, previous: float) -> bool:
        """Return whether braking from ``state`` stays inside the range.

        Args:
            state: State to brake from.
            previous: Command before it; a range is widened to it, so that a joint that begins
                outside may come in.
        """
        _, low, high = stop(self, state)
        below = min(self.lower, previous) - _SLACK
        above = max(self.upper, previous) + _SLACK
        return below <= low and high <= above


def may_pass(axis: Axis, state: State, target: tuple[float, float], *, is_limiting: bool) -> bool:
    """Return whether a setpoint may be sent as it is: within the limits, and to be stopped from.

    Plain numbers, for a control loop asks this of every joint at every tick.

    Args:
        axis: Limits of the joint.
        state: State before the tick.
        target: Position (rad) of the setpoint at the tick and its velocity (rad/s).
        is_limiting: Whether the joint is behind. It passes again only if it could follow a stream
            of that velocity from here on; else it would pass one setpoint and overshoot the next.
    """
    before, v_before, a_before = state
    p, speed = target
    v = (p - before) / axis.h
    a = (v - v_before) / axis.h
    passes = (
        min(axis.lower, before) <= p <= max(axis.upper, before)
        and abs(v) <= axis.top and abs(a) <= axis.push and abs(a - a_before) <= axis.jump
    )
    if not passes or (is_limiting and not _stays(axis, v, a, speed)):
        return False
    level = _level(axis, v, a)
    fastest = max(abs(v), abs(level))
    if fastest > axis.top:
        return False
    reach = fastest * (fastest / (2.0 * axis.acceleration) + axis.reserve)
    if fastest > 0.0 and (p - reach < axis.lower or p + reach > axis.upper):
        return axis.can_stop((p, v, a), previous=before)
    return True


def _stays(axis: Axis, v: float, a: float, speed: float) -> bool:
    """Return whether a stream of constant ``speed`` could be followed from here on."""
    settle = (speed - v) / axis.h
    most = min(axis.jump, axis.push)
    return abs(settle - a) <= axis.jump and abs(settle) <= most


def _level(axis: Axis, v: float, a: float) -> float:
    """Return ``level_off`` of one joint."""
    size = abs(a)
    n = floor(size / axis.step)
    by = axis.h * (n * size - axis.step * n * (n + 1.0) / 2.0)
    return v + by if a > 0.0 else v - by


def _onset(axis: Axis, dv: float) -> float:
    """Return the acceleration of the next tick that, levelled off, changes the speed by ``dv``."""
    step = axis.step
    y = abs(dv) / axis.h
    if y <= step:
        return dv / axis.h
    n = int((sqrt(1.0 + 8.0 * y / step) - 1.0) / 2.0)
    return copysign((y + step * n * (n + 1) / 2.0) / (n + 1), dv)


def _window(axis: Axis, v: float, a: float) -> tuple[float, float]:
    """Return the accelerations that keep jerk, acceleration and, levelled off, the speed."""
    low = max(a - axis.step, -axis.acceleration)
    high = min(a + axis.step, axis.acceleration)
    # The speed yields to the other limits where the two disagree by rounding.
    top = min(max(_onset(axis, axis.velocity - v), low), high)
    bottom = max(min(_onset(axis, -axis.velocity - v), top), low)
    return bottom, top


def _brake_onset(axis: Axis, v: float, a: float) -> float:
    """Return the acceleration of the next tick of braking to rest."""
    onset = _onset(axis, -v)
    low, high = a - axis.step, a + axis.step
    if onset < low:
        onset = low
    elif onset > high:
        onset = high
    most = axis.acceleration
    return -most if onset < -most else min(onset, most)


def stop(axis: Axis, state: State) -> tuple[float, float, float]:
    """Return where braking from ``state`` ends, and the extremes on the way, ``state`` included.

    Returns:
        Final, lowest and highest position, rad.
    """
    p, v, a = state
    h, most, step, cruise = axis.h, axis.acceleration, axis.step, axis.cruise
    low = high = p
    while abs(v) > _REST or abs(a) > step:
        ticks = 0
        if abs(a) == most and a * v < 0.0:
            ticks = int((abs(v) - cruise) / (h * most))
        if ticks > 0:
            # Full deceleration goes on until the speed is that of the last ramp: one jump.
            p += h * ticks * (v + h * a * (ticks + 1) / 2.0)
            v += h * ticks * a
        else:
            a = _brake_onset(axis, v, a)
            v += h * a
            p += h * v
        if p < low:
            low = p
        elif p > high:
            high = p
    return p, low, high


def brake(axis: Axis, state: State) -> float:
    """Return the next command of braking to rest; the same command again once at rest."""
    p, v, a = state
    after = v + axis.h * _brake_onset(axis, v, a)
    return p if abs(after) <= _REST else axis.clip(p + axis.h * after, previous=p)


def catch_up(axis: Axis, state: State, target: tuple[float, float]) -> float:
    """Return the next command towards a setpoint that moves on at its own speed.

    Args:
        axis: Limits of the joint.
        state: State before the tick.
        target: Position (rad) of the setpoint at the tick and its velocity (rad/s).

    Returns:
        The command, rad. From the state after it the joint can stop inside its range.
    """
    p, v, a = state
    goal = axis.clip(target[0], previous=p)
    speed = min(max(target[1], -axis.velocity), axis.velocity) if goal == target[0] else 0.0
    bottom, top = _window(axis, v, a)
    onset = _root(_overshoot(axis, state, goal, speed), bottom, top)
    if not axis.can_stop(_after(axis, state, onset), previous=p):
        most = _root(_overshoot(axis, state, max(axis.upper, p), 0.0), bottom, top)
        least = _root(_overshoot(axis, state, min(axis.lower, p), 0.0), bottom, top)
        onset = max(min(onset, most), least)
    reached = _after(axis, state, onset)
    if axis.can_stop(reached, previous=p):
        return axis.clip(reached[0], previous=p)
    return brake(axis, state)


def _after(axis: Axis, state: State, onset: float) -> State:
    v = state[1] + axis.h * onset
    return state[0] + axis.h * v, v, onset


def _overshoot(axis: Axis, state: State, goal: float, speed: float) -> Callable[[float], float]:
    """Return by how much the joint passes the goal if it brakes to ``speed`` after this tick."""

    def passed(onset: float) -> float:
        p, v, a = _after(axis, state, onset)
        return stop(axis, (p - goal, v - speed, a))[0]

    return passed


def _root(passed: Callable[[float], float], low: float, high: float) -> float:
    """Return where a rising function crosses zero in [low, high], else the nearer end."""
    at_high = passed(high)
    if at_high <= 0.0:
        return high
    at_low = passed(low)
    if at_low >= 0.0:
        return low
    side = 0
    for _ in range(_STEPS):
        # Illinois: regula falsi that halves the weight of an end that stays twice.
        middle = high - at_high * (high - low) / (at_high - at_low)
        value = passed(middle)
        if abs(value) <= _TOLERANCE:
            return middle
        if value > 0.0:
            high, at_high = middle, value
            at_low = at_low / 2.0 if side > 0 else at_low
            side = 1
        else:
            low, at_low = middle, value
            at_high = at_high / 2.0 if side < 0 else at_high
            side = -1
    return low
