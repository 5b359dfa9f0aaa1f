"""What a new chunk is to continue: the running plan at the instants of the chunk's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.interpolate import SetpointPath
from reflex_ros.core.types import ArmState

if TYPE_CHECKING:
    from reflex_ros.core.types import FloatArray, Plan


@dataclass(frozen=True, slots=True)
class Guide:
    """Rows of the running plan on the grid of a new chunk.

    Attributes:
        rows: ``float64[n, J]`` absolute positions, rad and m, of the first ``n`` rows; what lies
            behind the plan's end is missing.
        frozen_steps: Rows that will have been executed before the new chunk can take over.
        soft_end: First row that is free.
    """

    rows: FloatArray
    frozen_steps: int
    soft_end: int


def guide_from(
    plan: Plan | None,
    *,
    step0_ns: int,
    first_execution_ns: int,
    period_ns: int,
    rows: int,
    execute_steps: int,
    soft_steps: int,
    past: Callable[[int], FloatArray | None],
) -> Guide | None:
    """Return the guide of a chunk, None where there is nothing to continue.

    Args:
        plan: Newest plan.
        step0_ns: ROS time of the new chunk's row 0.
        first_execution_ns: ROS time at which it can take over.
        period_ns: Time between rows.
        rows: Rows of the new chunk.
        execute_steps: Rows of it that are meant to be executed.
        soft_steps: Rows behind the frozen ones over which the guidance fades.
        past: Measured state at a ROS time, for rows before the plan's first setpoint.

    Returns:
        None while the arm follows no chunk, and where guided inpainting is not feasible at this
        delay: ``frozen <= rows - execute_steps``.
    """
    if plan is None or plan.arm_state is not ArmState.TRACKING or not plan.active_chunk_id:
        return None
    stamps, setpoints = plan.setpoint_stamps_ns, plan.setpoints
    if setpoints is None or stamps is None or not len(setpoints):
        return None
    if not np.isfinite(setpoints).all():
        return None
    frozen = max(0, -(-(first_execution_ns - step0_ns) // period_ns))
    if frozen > rows - execute_steps:
        return None
    path = SetpointPath(stamps, setpoints)
    known: list[FloatArray] = []
    for row in range(rows):
        at_ns = step0_ns + row * period_ns
        if at_ns > path.end_ns and known:
            break
        measured = past(at_ns) if at_ns < path.start_ns else None
        known.append(path.at(at_ns).position if measured is None else measured)
    return Guide(np.stack(known), frozen, min(frozen + soft_steps, rows - execute_steps))
