"""What an event would have had to wait for, whenever it comes, and at a given place of the rhythm.

A run asks, executes and asks again. How long a jump waits for the first command that could know
of it depends on where in this rhythm it falls, its *phase*: the time since the newest frame that
the chunk before it was made from. Two runs of a cell do not keep step, so their jumps have other
phases; with few jumps that alone moves the median by much of the length of the rhythm. One run can
be asked about the phases of the other, though.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reflex_ros.core.clock import MS
from reflex_ros.core.types import Fate

if TYPE_CHECKING:
    from reflex_ros.core.types import ChunkTrace

Times = npt.NDArray[np.int64]


def knowledge(traces: Sequence[ChunkTrace]) -> tuple[Times, Times]:
    """Return the newest frame of each chunk, rising, and the first command that knows of it.

    Stamps in ns; each frame once. Chunks that were rejected or not executed are left out.
    """
    known = sorted((t.newest_stamp_ns, t.first_command_stamp_ns) for t in traces
                   if t.first_command_stamp_ns and t.fate is not Fate.REJECTED)
    newest = np.array([stamp for stamp, _ in known], np.int64)
    commands = np.array([command for _, command in known], np.int64)
    soonest = np.minimum.accumulate(commands[::-1])[::-1]
    frames, first = np.unique(newest, return_index=True)
    return frames, soonest[first]


def reactions_ms(traces: Sequence[ChunkTrace], instants_ns: Times) -> npt.NDArray[np.float64]:
    """Return the first command that could know of each instant minus the instant, ms.

    What ``core.summary`` says of an event, for events at any time; nan without such a command.
    """
    frames, soonest = knowledge(traces)
    at = np.searchsorted(frames, instants_ns, 'left')
    found = np.full(len(instants_ns), np.nan)
    has = at < len(frames)
    found[has] = (soonest[at[has]] - instants_ns[has]) / MS
    return found


def phases_ms(traces: Sequence[ChunkTrace], instants_ns: Times) -> npt.NDArray[np.float64]:
    """Return the phase of each instant, ms; nan before the first chunk and after the last."""
    frames, _ = knowledge(traces)
    at = np.searchsorted(frames, instants_ns, 'left')
    found = np.full(len(instants_ns), np.nan)
    has = (at > 0) & (at < len(frames))
    found[has] = (instants_ns[has] - frames[at[has] - 1]) / MS
    return found


def reactions_at_ms(traces: Sequence[ChunkTrace], phases: Sequence[float | None], *,
                    begin_ns: int, end_ns: int) -> list[float | None]:
    """Return what an event at each phase would have waited in this run: the median, ms.

    Args:
        traces: Of the run.
        phases: Of the events, ms; None for an event without one.
        begin_ns, end_ns: Part of the run in which they may fall.

    Returns:
        One value for each phase (of an even number the lower one), None without a phase and where
        the rhythm of this run is nowhere so long.
    """
    frames, soonest = knowledge(traces)
    own = (frames[:-1] >= begin_ns) & (frames[1:] < end_ns)
    starts, ends, commands = frames[:-1][own], frames[1:][own], soonest[1:][own]
    found: list[float | None] = []
    for phase in phases:
        instants = starts + round((phase or 0.0) * MS)
        waits = np.sort((commands - instants)[instants <= ends])
        has = phase is not None and len(waits) > 0
        found.append(round(float(waits[(len(waits) - 1) // 2]) / MS, 3) if has else None)
    return found
