"""How large a step a chunk may make where it takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import S
from reflex_ros.core.interpolate import revolute
from reflex_ros.core.types import RejectReason, Stitch

if TYPE_CHECKING:
    from reflex_ros.core.types import FloatArray
    from reflex_ros.stages.follower import Running


def judge_seam(
    running: Running, step: FloatArray, *, names: tuple[str, ...], held: FloatArray,
    switch_ns: int, rest_ns: int | None, speed: FloatArray, max_seam_rad: float,
) -> tuple[RejectReason, str]:  # fmt: skip
    """Refuse a step that is too large, also where a ramp would lead over it.

    A chunk shows where the arm would be if it had gone its way since the observation, so it may
    honestly be as much further off as the arm can move in that time. Where it ends a rest its row
    0 may not: that is where the arm has been since it came to rest.

    Args:
        running: The chunk.
        step: ``float64[J]`` step that it would make at the switch; grippers are not judged.
        names: Joint names.
        held: ``float64[J]`` last command.
        switch_ns: Steady instant of the switch.
        rest_ns: Since when the arm rests, None while it follows a plan.
        speed: ``float64[J]`` velocity limits.
        max_seam_rad: Bound without the time since the observation.
    """
    steps = [(step, switch_ns)]
    if rest_ns is not None:
        steps.append((running.path.at(running.step0_ns).position - held, rest_ns))
    joints = revolute(len(names))
    for found, until_ns in steps:
        added = speed * max(0, until_ns - running.observation_ns) / S
        bounds = np.where(joints, max_seam_rad + added, np.inf)
        worst = int(np.argmax(np.where(joints, np.abs(found) - bounds, -np.inf)))
        if not abs(found[worst]) <= bounds[worst]:
            return RejectReason.SEAM, _text(
                running, names[worst], found=found[worst], bound=bounds[worst],
                added=added[worst])
    return RejectReason.NONE, ''


def _text(running: Running, joint: str, *, found: float, bound: float, added: float) -> str:
    return (
        f'Seam of chunk {running.chunk.chunk_id} at {joint}: got {found:+.3f} rad, expected at '
        f'most {bound:.3f} rad ({added:.3f} rad of them for the time since its observation). '
        f'Use stitch={Stitch.BLEND.value} and check units and normalisation.'
    )
