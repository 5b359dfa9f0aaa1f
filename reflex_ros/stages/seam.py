"""How large a step a chunk may make where it takes over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import S
from reflex_ros.core.interpolate import revolute

if TYPE_CHECKING:
    from reflex_ros.core.fit import Fit
    from reflex_ros.core.types import FloatArray
    from reflex_ros.stages.follower import Running

_JUDGED = 'Seam of chunk {} at {}: got {:+.3f} rad, expected at most {:.3f} rad '
_REMEDY = 'Check units and normalisation.'


def judge_seam(
    running: Running, step: FloatArray, *, names: tuple[str, ...], held: FloatArray,
    switch_ns: int, rest_ns: int | None, speed: FloatArray, max_seam_rad: float,
    fit: Callable[[], Fit | None],
) -> str:  # fmt: skip
    """Return why a step is too large, also where a ramp would lead over it; '' if it is not.

    A chunk shows where the arm would be if it had gone its way since the observation, so it may
    honestly be as much further off as the arm can move in that time. Where it ends a rest its row
    0 may not: that is where the arm has been since it came to rest. A larger step between two
    motions is let in if a blend takes it up within the limits; the chunk is marked for it.

    Args:
        running: The chunk.
        step: ``float64[J]`` step that it would make at the switch; grippers are not judged.
        names: Joint names.
        held: ``float64[J]`` last command.
        switch_ns: Steady instant of the switch.
        rest_ns: Since when the arm rests, None while it follows a plan.
        speed: ``float64[J]`` velocity limits.
        max_seam_rad: Bound without the time since the observation.
        fit: Looks for that blend; gives None where none would be tried.
    """
    bound = partial(_beyond, running, names=names, speed=speed, max_seam_rad=max_seam_rad)
    if rest_ns is not None:
        row0 = running.path.at(running.step0_ns).position - held
        if text := bound(row0, until_ns=rest_ns):
            return text + _REMEDY
    text = bound(step, until_ns=switch_ns)
    if not text:
        return ''
    running.must_blend = True
    found = fit()
    if found is not None and found.path is not None:
        return ''
    return text + (f'No blend fits the limits: {found.text}. ' if found else '') + _REMEDY


def _beyond(running: Running, found: FloatArray, *, until_ns: int, names: tuple[str, ...],
            speed: FloatArray, max_seam_rad: float) -> str:
    """Return which joint is further off than it may be, '' if none."""
    joints = revolute(len(names))
    added = speed * max(0, until_ns - running.observation_ns) / S
    bounds = np.where(joints, max_seam_rad + added, np.inf)
    worst = int(np.argmax(np.where(joints, np.abs(found) - bounds, -np.inf)))
    if abs(found[worst]) <= bounds[worst]:
        return ''
    return _JUDGED.format(running.chunk.chunk_id, names[worst], found[worst], bounds[worst]) + (
        f'({added[worst]:.3f} rad of them for the time since its observation). ')
