"""Joint limits and the limiter that keeps every command stream inside them.

Velocity, acceleration and jerk are finite differences of the *command stream*: with commands
``p`` one period ``h`` apart, ``v = (p0 - p1) / h``, ``a = (v0 - v1) / h``, ``j = (a0 - a1) / h``.
A setpoint that violates nothing passes through bit by bit. Any other one is followed as fast as
the limits allow by ``core.brake``, which works on the same differences, so the bounds are exact
and do not depend on how a continuous trajectory would be sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from reflex_ros.core.brake import Axis, State, brake, catch_up, may_pass, stop
from reflex_ros.core.clock import S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.interpolate import Setpoint
from reflex_ros.core.types import JOINT_NAMES, FloatArray

_FIELDS = ('lower', 'upper', 'velocity', 'acceleration', 'jerk')
_ROUNDED_TICKS = 6


def _label(index: int, size: int) -> str:
    return JOINT_NAMES[index] if size == len(JOINT_NAMES) else f'column {index}'


@dataclass(frozen=True, slots=True, eq=False)
class JointLimits:
    """What each joint may do; grippers in m instead of rad.

    Attributes:
        lower, upper: ``float64[J]`` range, rad.
        velocity: ``float64[J]`` largest speed, rad/s.
        acceleration: ``float64[J]`` largest acceleration, rad/s^2.
        jerk: ``float64[J]`` largest change of acceleration, rad/s^3.

    Raises:
        ConfigError: Shapes disagree, a number is not finite, a range is empty or a bound is not
            positive; names the joint.
    """

    lower: FloatArray
    upper: FloatArray
    velocity: FloatArray
    acceleration: FloatArray
    jerk: FloatArray

    def __post_init__(self) -> None:
        for name in _FIELDS:
            array = np.array(getattr(self, name), dtype=np.float64)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        size = self.lower.size
        for name in _FIELDS:
            array = getattr(self, name)
            if array.shape != (size,) or size == 0:
                raise ConfigError(
                    f'joint limits {name}: got shape {array.shape}, expected ({size},) with at '
                    'least one joint. Give one number for each joint.'
                )
            _require_each(name, array, np.isfinite(array), 'a finite number')
        _require_each('upper', self.upper, self.upper >= self.lower, 'at least the lower limit')
        for name in _FIELDS[2:]:
            array = getattr(self, name)
            _require_each(name, array, array > 0.0, 'more than 0')

    def intersect(self, other: JointLimits) -> JointLimits:
        """Return what both allow.

        Raises:
            ConfigError: The joints differ in number or a common range is empty.
        """
        if other.lower.shape != self.lower.shape:
            raise ConfigError(
                f'joint limits intersect: got {other.lower.size} joints, expected '
                f'{self.lower.size}. Compare limits of the same arm.'
            )
        return JointLimits(
            np.maximum(self.lower, other.lower),
            np.minimum(self.upper, other.upper),
            *(np.minimum(getattr(self, name), getattr(other, name)) for name in _FIELDS[2:]),
        )

    def scaled(self, speed: float) -> JointLimits:
        """Return the limits with the velocity scaled; a slower arm brakes as hard as a fast one.

        Args:
            speed: Share of the velocity, in (0, 1].

        Raises:
            ConfigError: ``speed`` is out of its bounds.
        """
        if not 0.0 < speed <= 1.0:
            raise ConfigError(
                f'joint limits speed: got {speed}, expected in (0, 1]. Use 1 for full speed.'
            )
        return JointLimits(
            self.lower, self.upper, self.velocity * speed, self.acceleration, self.jerk
        )


    def longest_stop_ns(self, period_ns: int) -> int:
        """Return how long braking to rest may take, from any state within the limits.

        Full acceleration is levelled off, then the full speed is braked with one ramp of jerk:
        ``v / a + 2 a / j``, and a few ticks for the rounding to whole ones.

        Args:
            period_ns: Control period.
        """
        braking_s = self.velocity / self.acceleration + 2.0 * self.acceleration / self.jerk
        return round(float(braking_s.max()) * S) + _ROUNDED_TICKS * period_ns


def _require_each(
    name: str, values: FloatArray, is_met: npt.NDArray[np.bool_], expected: str
) -> None:
    if not is_met.all():
        i = int(np.argmin(is_met))
        raise ConfigError(
            f'joint limits {name} of {_label(i, len(values))}: got {values[i]}, expected '
            f'{expected} (rad or m, and s). Correct the limits.'
        )


def piper_limits(*, acceleration: float = 5.0, jerk: float = 200.0) -> JointLimits:
    """Return the limits of one PiPer: what the vendor's table and the hard stops both allow.

    Ranges: intersection of the SDK's soft table with the hard-stop based one. Velocity: 3 rad/s,
    the largest speed setting of the firmware. The gripper opens 0.07 m at 0.2 m/s.

    Args:
        acceleration: Joint acceleration, rad/s^2. The firmware's setting ends at 5: a stream that
            asks for more is not followed sooner, it only builds up tracking error.
        jerk: Joint jerk, rad/s^3. 200 reaches full acceleration in 25 ms, just over one tick, so
            a jump of the target costs one tick of delay and no jolt. A servo law that starts at
            2.5 rad/s in one tick is limited, smoothly, until it is caught up.
    """
    return JointLimits(
        lower=np.array([-2.6179, 0.0, -2.967, -1.745, -1.22, -1.745, 0.0]),
        upper=np.array([2.6179, 3.14, 0.0, 1.745, 1.22, 1.745, 0.07]),
        velocity=np.array([3.0] * 6 + [0.2]),
        acceleration=np.array([acceleration] * 6 + [2.0]),
        jerk=np.array([jerk] * 6 + [80.0]),
    )


@dataclass(frozen=True, slots=True)
class Stream:
    """State of a command stream after its newest command, in finite differences of commands.

    Attributes:
        position, velocity, acceleration: ``float64[J]``; rad and m, per s, per s^2.
    """

    position: FloatArray = field(compare=False)
    velocity: FloatArray = field(compare=False)
    acceleration: FloatArray = field(compare=False)


@dataclass(frozen=True, slots=True)
class Limited:
    """One command of the limiter.

    Attributes:
        position: ``float64[J]`` what to send, rad and m.
        velocity: ``float64[J]`` its velocity: the setpoint's where it passed, else that of the
            command stream.
        limited: Names of the joints whose setpoint did not pass unchanged.
    """

    position: FloatArray = field(compare=False)
    velocity: FloatArray = field(compare=False)
    limited: tuple[str, ...] = ()


class Limiter:
    """Keeps one command stream inside its limits; each joint on its own.

    Invariant: from the current state every joint can stop inside its range without exceeding a
    limit. A command is given only if the state after it has that property too; the braking
    command always has it. A joint that starts outside its range may move in, never further out.

    Args:
        limits: Limits of the joints.
        period_ns: Time between two commands, > 0.
        names: Joint names for ``Limited.limited``.

    Raises:
        ConfigError: ``names`` and ``limits`` differ in size or the period is not positive.

    Not thread-safe.
    """

    def __init__(
        self, limits: JointLimits, *, period_ns: int, names: tuple[str, ...] = JOINT_NAMES
    ) -> None:
        if len(names) != limits.lower.size:
            raise ConfigError(
                f'limiter names: got {len(names)}, expected {limits.lower.size} (one for each '
                'joint). Give one name for each joint.'
            )
        if period_ns <= 0:
            raise ConfigError(
                f'limiter period_ns: got {period_ns}, expected > 0 (ns). Correct the rate.'
            )
        self._limits = limits
        self._names = names
        self._h = h = period_ns / S
        rows = zip(*(getattr(limits, name).tolist() for name in _FIELDS), strict=True)
        self._axes = [Axis(h, *row) for row in rows]
        self._jump = np.array([axis.jump for axis in self._axes])
        self._is_slowed = False
        self.reset(np.clip(np.zeros(len(names)), limits.lower, limits.upper))

    def reset(self, position: FloatArray) -> None:
        """Start again, at rest in ``position`` (``float64[J]``, rad and m).

        Raises:
            ConfigError: Wrong shape or not finite; the state is untouched.
        """
        start = self._checked('position', position)
        self._p = start.copy()
        self._v = np.zeros_like(start)
        self._a = np.zeros_like(start)
        self._is_limiting = np.zeros(len(start), dtype=bool)
        self._before = self._state()

    def slow_down(self, velocity: FloatArray | None) -> None:
        """Bound the speed further than the limits do, until it is bounded anew.

        A joint that is faster is braked down to it within the other limits.

        Args:
            velocity: ``float64[J]`` > 0, may be infinite; None for the limits alone.
        """
        if velocity is None and not self._is_slowed:
            return
        self._is_slowed = velocity is not None
        most = self._limits.velocity
        bound = most if velocity is None else np.minimum(most, velocity)
        self._axes = [replace(axis, velocity=v)
                      for axis, v in zip(self._axes, bound.tolist(), strict=True)]

    def undo(self, joints: npt.NDArray[np.bool_] | None = None) -> None:
        """Take the newest command back: it was not sent. Only one can be taken back.

        Args:
            joints: Whose command it was, ``bool[J]``; None for all. The others' was sent.
        """
        if joints is None or joints.all():
            self._p, self._v, self._a, self._is_limiting = self._before
        elif joints.any():
            self._p, self._v, self._a, self._is_limiting = (
                np.where(joints, before, now)
                for before, now in zip(self._before, self._state(), strict=True))

    def rest(self, joints: npt.NDArray[np.bool_]) -> None:
        """Let some joints, ``bool[J]``, be at rest at their last command; the others go on."""
        self._v, self._a = np.where(joints, 0.0, self._v), np.where(joints, 0.0, self._a)
        self._is_limiting = self._is_limiting & ~joints
        self._before = self._state()

    def _states(self) -> list[State]:
        return [*zip(self._p.tolist(), self._v.tolist(), self._a.tolist(), strict=True)]

    def _state(self) -> tuple[FloatArray, FloatArray, FloatArray, npt.NDArray[np.bool_]]:
        return self._p, self._v, self._a, self._is_limiting

    @property
    def position(self) -> FloatArray:
        """Return the last command, ``float64[J]``, a copy."""
        return self._p.copy()

    @property
    def velocity(self) -> FloatArray:
        """Return the velocity of the command stream, ``float64[J]``, a copy."""
        return self._v.copy()

    @property
    def stream(self) -> Stream:
        """Return the state of the command stream, copies."""
        return Stream(self._p.copy(), self._v.copy(), self._a.copy())

    @property
    def stop_position(self) -> FloatArray:
        """Return where braking from here would end, ``float64[J]``."""
        return np.array([
            stop(axis, s)[0] for axis, s in zip(self._axes, self._states(), strict=True)])

    @property
    def is_stopped(self) -> bool:
        """Return whether braking would repeat the last command forever."""
        return not self._v.any() and bool((np.abs(self._a) <= self._jump).all())

    def step(self, setpoint: Setpoint) -> Limited:
        """Return the command for one setpoint and advance by one period.

        Raises:
            ConfigError: Wrong shape or not finite; the state is untouched.
        """
        target = self._checked('setpoint position', setpoint.position)
        speed = self._checked('setpoint velocity', setpoint.velocity)
        states, goals = self._states(), [*zip(target.tolist(), speed.tolist(), strict=True)]
        passes = [may_pass(axis, state, goal, is_limiting=behind) for axis, state, goal, behind in
                  zip(self._axes, states, goals, self._is_limiting.tolist(), strict=True)]
        self._before = self._state()
        if all(passes):
            self._advance(target.copy())
            self._is_limiting = np.zeros(len(passes), dtype=bool)
            return Limited(target.copy(), speed.copy())
        position = np.array([
            goal[0] if ok else catch_up(axis, state, goal)
            for ok, axis, state, goal in zip(passes, self._axes, states, goals, strict=True)])
        self._advance(position)
        self._is_limiting = ~np.array(passes)
        names = tuple(name for name, ok in zip(self._names, passes, strict=True) if not ok)
        return Limited(position.copy(), np.where(passes, speed, self._v), names)

    def brake(self) -> Limited:
        """Return the command that decelerates every joint and advance by one period.

        Repeated until ``is_stopped``; every joint that still moves counts as limited.
        """
        self._before = self._state()
        position = np.array([
            brake(axis, s) for axis, s in zip(self._axes, self._states(), strict=True)])
        self._advance(position)
        self._is_limiting = np.ones(len(position), dtype=bool)
        names = tuple(name for name, v in zip(self._names, self._v, strict=True) if v != 0.0)
        return Limited(position.copy(), self._v.copy(), names)

    def _checked(self, what: str, values: FloatArray) -> FloatArray:
        array = np.asarray(values, dtype=np.float64)
        if array.shape != (len(self._names),):
            raise ConfigError(
                f'limiter {what}: got shape {array.shape}, expected ({len(self._names)},). '
                'Order the joints as the limiter does.'
            )
        if not np.isfinite(array).all():
            i = int(np.argmin(np.isfinite(array)))
            raise ConfigError(
                f'limiter {what} of {self._names[i]}: got {array[i]}, expected a finite number. '
                'Reject the chunk and brake.'
            )
        return array

    def _advance(self, position: FloatArray) -> None:
        """Take a command: velocity and acceleration are always those of the stream."""
        velocity = (position - self._p) / self._h
        self._a = (velocity - self._v) / self._h
        self._v = velocity
        self._p = position
