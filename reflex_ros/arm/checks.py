"""Refusals: what forbids a command or the enabling of an arm. Pure functions, no bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.errors import ConfigError

if TYPE_CHECKING:
    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import FloatArray

RANGE_TOLERANCE = 1e-4
"""Slack of the range check, rad and m: rounding only, the limiter works inside the range."""


def check_command(
    position: object,
    names: tuple[str, ...],
    *,
    limits: JointLimits,
    last: FloatArray | None,
    max_jump: FloatArray,
) -> FloatArray:
    """Return the command as a checked ``float64[J]`` copy; the last line before the wire.

    Args:
        position: What the caller wants to send.
        names: Joint names, length J.
        limits: Range in force.
        last: ``float64[J]`` previous command, None if there is none to compare with.
        max_jump: ``float64[J]`` largest step between two commands, rad and m.

    Raises:
        ConfigError: Not numeric, wrong shape, not finite, out of range, or a jump.
    """
    try:
        command = np.array(position, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f'Command: got {type(position).__name__}, expected {len(names)} numbers (rad, m). '
            'Nothing was sent; correct the caller.'
        ) from error
    if command.shape != (len(names),):
        raise ConfigError(
            f'Command shape: got {command.shape}, expected ({len(names)},) = {", ".join(names)} '
            '(rad, m). Nothing was sent; correct the caller.'
        )
    _first(~np.isfinite(command), command, names, 'a finite number')
    outside = (command < limits.lower - RANGE_TOLERANCE) | (command > limits.upper + RANGE_TOLERANCE)
    for i in np.flatnonzero(outside)[:1]:
        bounds = f'{limits.lower[i]:.4f} to {limits.upper[i]:.4f}'
        _first(outside, command, names, bounds)
    if last is not None:
        jump = np.abs(command - last) > max_jump
        for i in np.flatnonzero(jump)[:1]:
            _first(jump, command, names, f'within {max_jump[i]:.4f} of the last command {last[i]:.4f}')
    return np.clip(command, limits.lower, limits.upper)


def _first(bad: object, values: FloatArray, names: tuple[str, ...], expected: str) -> None:
    for i in np.flatnonzero(np.asarray(bad))[:1]:
        unit = 'm' if names[i].endswith('gripper') else 'rad'
        raise ConfigError(
            f'Command {names[i]}: got {values[i]}, expected {expected} ({unit}). '
            'Nothing was sent; the limiter must run before the driver.'
        )
