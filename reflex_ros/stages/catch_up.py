"""How fast joints may go that are behind their chunk: after a hold, a gap or in a ramp.

Rows are due by time, so a chunk goes on while the arm rests. What is missing then is made up for
at little more than the speed that the chunk itself asks for, not at that of the limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import MS, S
from reflex_ros.core.interpolate import revolute

if TYPE_CHECKING:
    from reflex_ros.core.types import FloatArray
    from reflex_ros.stages.follower import Running

LEAST_RAD_S = 0.4
"""A chunk that is slower counts as so fast: its joints must get there, too."""
_AVERAGED_NS = 100 * MS
"""The speed of a chunk is that over so long: rows of a learned policy jitter."""
_RAMP_PEAK = 1.5
"""Times the factor of 1.25 this is the largest speed of a ramp, in gaps over its duration."""


def catch_up_speed(running: Running, due_ns: int, factor: float,
                   gap: FloatArray | None = None, ramp_ns: int = 0) -> FloatArray:
    """Return the largest speeds, ``float64[J]``, rad/s; infinite for grippers.

    Args:
        running: The chunk that is followed from the tick ``due_ns`` on.
        factor: How many times as fast as the chunk is in the rest of its rows.
        gap: ``float64[J]`` that a ramp of ``ramp_ns`` leads over; None for none.
    """
    rows = running.chunk.positions[max(0, int(running.row(due_ns))):]
    own = np.full(rows.shape[1], LEAST_RAD_S)
    if len(rows) > 1:
        apart = min(len(rows) - 1, max(1, round(_AVERAGED_NS / running.chunk.step_period_ns)))
        moved = np.abs(rows[apart:] - rows[:-apart]).max(axis=0)
        own = np.maximum(own, moved * (S / (apart * running.chunk.step_period_ns)))
    if gap is not None:
        own = np.maximum(own, _RAMP_PEAK * np.abs(gap) * (S / ramp_ns))
    return np.where(revolute(len(own)), factor * own, np.inf)
