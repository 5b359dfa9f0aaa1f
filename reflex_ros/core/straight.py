"""Chunk traces with straight stamps, see ``core.clock_steps``; what is not sure is 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reflex_ros.core.clock import S
from reflex_ros.core.clock_steps import ClockSteps
from reflex_ros.core.types import ChunkTrace, Fate

OLDEST_NS = 10 * S
"""No frame behind a command is older: a stamp that says so is of the clock before the step."""


def straight_traces(traces: Sequence[ChunkTrace], steps: ClockSteps, stamps_ns: npt.ArrayLike,
                    straight_ns: npt.ArrayLike) -> tuple[ChunkTrace, ...]:
    """Return the traces in the order of their straight stamps.

    Args:
        traces: As recorded. ``steps``: those of the run.
        stamps_ns, straight_ns: Of each tick, as recorded and straight.
    """
    raw, rows, counts = np.unique(np.asarray(stamps_ns, np.int64), return_index=True,
                                  return_counts=True)
    rows = rows[counts == 1]
    commands = dict(zip(raw[counts == 1].tolist(),
                        np.asarray(straight_ns, np.int64)[rows].tolist(), strict=True))
    return _traces(traces, steps, commands)


def _traces(traces: Sequence[ChunkTrace], steps: ClockSteps,
            commands: Mapping[int, int]) -> tuple[ChunkTrace, ...]:
    """Return the traces with straight stamps; no chunk has an older frame than the one before."""
    found = []
    newest_ns = observed_ns = -1 << 62
    for trace in sorted(traces, key=lambda trace: trace.accepted_ns):
        one = _trace(trace, steps, commands, newest_ns, observed_ns)
        found.append(one)
        if trace.fate is not Fate.REJECTED:
            newest_ns = max(newest_ns, one.newest_stamp_ns)
            observed_ns = max(observed_ns, one.observation_stamp_ns)
    return tuple(sorted(found, key=lambda trace: trace.stamp_ns))


def _trace(trace: ChunkTrace, steps: ClockSteps, commands: Mapping[int, int],
           newest_ns: int, observed_ns: int) -> ChunkTrace:
    """Return a trace with straight stamps, 0 where its newest frame may lie beyond a step."""
    accepted_ns = trace.accepted_ns + steps.offset_ns
    stamp_ns = steps.nearest(trace.stamp_ns, accepted_ns)
    raw_ns = trace.first_command_stamp_ns
    command_ns = commands.get(raw_ns) or (steps.nearest(raw_ns, accepted_ns) if raw_ns else 0)
    until_ns = command_ns or stamp_ns
    newest, observed = (
        steps.straight(at_ns, from_ns=max(from_ns, until_ns - OLDEST_NS), until_ns=until_ns)
        for at_ns, from_ns in ((trace.newest_stamp_ns, newest_ns),
                               (trace.observation_stamp_ns, observed_ns)))
    return replace(trace, stamp_ns=stamp_ns, newest_stamp_ns=newest or 0,
                   observation_stamp_ns=observed or 0, first_command_stamp_ns=command_ns)
