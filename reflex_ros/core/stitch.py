"""How a new chunk joins the running motion.

``replace`` takes the new path as it is. ``blend`` removes only the discontinuity: the difference
between the two motions at the switch is added to the new path and dies out within 60 ms, so the
new chunk is neither delayed nor mixed with the old one after that. How long the difference must
take to stay within the limits of the arm is found in ``core.fit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.interpolate import Path, Setpoint, gripper_columns, revolute
from reflex_ros.core.types import FloatArray

BLEND_NS = 60 * MS
"""Default length of a blend: long enough to remove the jerk, short enough not to lag."""

_T = TypeVar('_T', float, FloatArray)
_GRIPPER_RATE = 2.5
"""Largest ratio of velocity x duration to position at which the decay stays monotone."""


@dataclass(frozen=True, slots=True)
class Seam:
    """The discontinuity at a switch of chunks.

    Attributes:
        position: Largest joint step, rad.
        velocity: Largest joint velocity step, rad/s.
        offset: Old minus new setpoint, all columns.
    """

    position: float
    velocity: float
    offset: Setpoint


def measure_seam(
    old: Setpoint, new: Setpoint, *, joints: slice | Sequence[int] = slice(0, 6)
) -> Seam:
    """Return the step from ``old`` to ``new``, two setpoints of one instant.

    Args:
        old: Setpoint of the running motion.
        new: Setpoint of the motion that takes over.
        joints: Columns that count in the two figures; grippers have another unit.
    """
    position = old.position - new.position
    velocity = old.velocity - new.velocity
    columns = joints if isinstance(joints, slice) else list(joints)
    return Seam(
        position=float(np.max(np.abs(position[columns]), initial=0.0)),
        velocity=float(np.max(np.abs(velocity[columns]), initial=0.0)),
        offset=Setpoint(position, velocity),
    )


def replace(new: Path) -> Path:
    """Return the new path unchanged."""
    return new


def blend(new: Path, *, offset: Setpoint, at_ns: int, duration_ns: int = BLEND_NS,
          acceleration: FloatArray | None = None) -> Path:
    """Return the new path with the old motion's lead dying out.

    The result starts at ``new + offset`` in position and velocity, and from ``at_ns +
    duration_ns`` on it is the new path exactly. The offset is a quintic with zero acceleration at
    its end, and at its start too unless one is given. A gripper's offset shrinks monotonically: a
    velocity that would carry it past either motion is reduced, an acceleration is left out.

    Args:
        new: Path that takes over.
        offset: Old minus new setpoint at ``at_ns`` (``measure_seam(...).offset``).
        at_ns: Instant of the switch, on the clock of the path.
        duration_ns: Length of the blend, >= 0; 0 returns ``new``.
        acceleration: ``float64[J]`` old minus new acceleration at ``at_ns``, rad/s^2 and m/s^2;
            None for zero.

    Raises:
        ConfigError: ``duration_ns`` is negative or the offset is not finite.
    """
    if duration_ns < 0:
        raise ConfigError(
            f'blend duration_ns: got {duration_ns}, expected >= 0 (ns). Use {BLEND_NS}.'
        )
    curve = np.zeros(len(offset.position)) if acceleration is None else acceleration
    if not all(np.isfinite(part).all() for part in (offset.position, offset.velocity, curve)):
        raise ConfigError(
            f'blend offset: got {offset.position.tolist()}, {offset.velocity.tolist()} and '
            f'{curve.tolist()}, expected finite numbers (rad, m; per s, per s^2). Reject the '
            'chunk.'
        )
    if duration_ns == 0 or not (offset.position.any() or offset.velocity.any() or curve.any()):
        return new
    curve = curve * revolute(len(curve))
    return _Blended(new, without_overshoot(offset, duration_ns / S), curve, at_ns, duration_ns)


def decay(u: _T) -> tuple[_T, _T, _T]:
    """Return the quintic Hermite weights of value, slope and curvature at ``u`` = 0.

    At ``u`` = 1 all of them and their first two derivatives are zero.

    Args:
        u: ``float64`` share of the blend that has passed, 0..1, any shape.
    """
    left = 1.0 - u
    rest = left * left * left  # as products: one instant and many give the same bits
    return rest * (1.0 + 3.0 * u + 6.0 * u * u), rest * u * (1.0 + 3.0 * u), rest * u * u / 2.0


def without_overshoot(offset: Setpoint, duration_s: float) -> Setpoint:
    """Reduce the velocity of grippers so that their offset decays monotonically to zero."""
    size = np.abs(offset.position) * (_GRIPPER_RATE / duration_s)
    towards_zero = -np.sign(offset.position)
    safe = towards_zero * np.clip(offset.velocity * towards_zero, 0.0, size)
    is_gripper = gripper_columns(len(size)) > 0.0
    return Setpoint(offset.position, np.where(is_gripper, safe, offset.velocity))


class _Blended:
    """A path plus an offset that dies out."""

    def __init__(self, new: Path, offset: Setpoint, curve: FloatArray, at_ns: int,
                 duration_ns: int) -> None:
        self._new = new
        self._offset = offset
        self._curve = curve
        self._at_ns = at_ns
        self._duration_ns = duration_ns

    @property
    def start_ns(self) -> int:
        """Return the time of the new path's first row."""
        return self._new.start_ns

    @property
    def end_ns(self) -> int:
        """Return the time of the new path's last row."""
        return self._new.end_ns

    def at(self, t_ns: int) -> Setpoint:
        """Return the setpoint at ``t_ns``; before the switch the offset is whole."""
        new = self._new.at(t_ns)
        u = max(0, t_ns - self._at_ns) / self._duration_ns
        if u >= 1.0:
            return new
        duration_s = self._duration_ns / S
        p, v = self._offset.position, self._offset.velocity * duration_s
        c = self._curve * duration_s**2
        value, slope, curve = decay(u)
        rest = (1.0 - u) ** 2
        value_rate = -30.0 * u * u * rest
        slope_rate = rest * (1.0 + 2.0 * u - 15.0 * u * u)
        curve_rate = rest * u * (1.0 - 2.5 * u)
        return Setpoint(
            new.position + (p * value + v * slope + c * curve),
            new.velocity + (p * value_rate + v * slope_rate + c * curve_rate) / duration_s,
        )

    def positions(self, times_ns: npt.NDArray[np.int64]) -> FloatArray:
        """Return the positions at ``int64[N]`` instants, ``float64[N, J]``, as ``at`` does."""
        duration_s = self._duration_ns / S
        u = np.clip((times_ns - self._at_ns) / self._duration_ns, 0.0, 1.0)[:, None]
        value, slope, curve = decay(u)
        p, v = self._offset.position, self._offset.velocity * duration_s
        c = self._curve * duration_s**2
        return self._new.positions(times_ns) + (p * value + v * slope + c * curve)
