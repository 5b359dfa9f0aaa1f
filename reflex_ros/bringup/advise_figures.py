"""What an advisor compares of replays: liveness, reaction, and how smooth the commands were.

The seam of a trace is what the plans differed by before anything was done about it, so it is the
same whether the step is blended away or not. What differs is the stream of commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import degrees, isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.types import ArmState, Verdict

if TYPE_CHECKING:
    from reflex_ros.bringup.replay_figures import Replayed
    from reflex_ros.core.types import ControlTick, FloatArray

JERK_ROWS = 4
"""Commands in a row that a third difference needs."""


@dataclass(frozen=True, slots=True)
class Smoothness:
    """How smooth commands in motion were; nan without enough of them.

    Attributes:
        jerk_rad_s3: Root mean square of the third difference, of the worst joint.
        acceleration_rad_s2: Largest second difference of any joint.
        limited_share: Share of the ticks in which a limit changed the command.
    """

    jerk_rad_s3: float = nan
    acceleration_rad_s2: float = nan
    limited_share: float = nan


def smoothness(ticks: Sequence[ControlTick], period_ns: int) -> Smoothness:
    """Return how smooth the commands of the ticks in ``tracking`` were.

    Args:
        ticks: In order; a skipped one parts the stream.
        period_ns: Control period.
    """
    moving = [t for t in ticks if t.arm_state is ArmState.TRACKING and len(t.command)]
    if not moving:
        return Smoothness()
    limited = sum(t.verdict is Verdict.LIMITED for t in moving) / len(moving)
    period_s = period_ns / 1e9
    index = np.array([t.index for t in moving])
    commands = np.array([t.command for t in moving])[:, :6]
    jerk = _differences(index, commands, 3) / period_s**3
    acceleration = _differences(index, commands, 2) / period_s**2
    if not len(jerk):
        return Smoothness(limited_share=limited)
    return Smoothness(float(np.sqrt((jerk**2).mean(axis=0)).max()),
                      float(np.abs(acceleration).max()), limited)


def _differences(index: np.ndarray, commands: FloatArray, order: int) -> FloatArray:
    """Return differences of commands of ticks that follow one another without a gap."""
    whole = index[order:] - index[:-order] == order
    return np.asarray(np.diff(commands, order, axis=0)[whole], np.float64)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What decides between settings.

    Attributes:
        stall_ratio: Of the ledger. ``reaction_ms``: newest frame to first command, 95 %.
        seam_deg: Step between plans at a chunk change before stitching, 95 %.
        smooth: Of the commands. ``chunks``: executed ones; ``rejected``: the others that came.
        replan_hz: Chunks a second between the first command of the first and of the last one.
    """

    stall_ratio: float
    reaction_ms: float
    seam_deg: float
    smooth: Smoothness
    chunks: int
    rejected: int = 0
    replan_hz: float = nan

    @property
    def score(self) -> tuple[float, float, float]:
        """Return stalls, reaction and jerk; what was not measured is worst."""
        return tuple(1e9 if isnan(v) else v for v in (  # type: ignore[return-value]
            self.stall_ratio, self.reaction_ms, self.smooth.jerk_rad_s3))


def outcome_of(done: Replayed, period_ns: int) -> Outcome:
    """Return what decides, of a replay."""
    after = done.replayed
    return Outcome(
        after.summary.stall_ratio, after.summary.observation_to_command['p95'],
        degrees(after.seam_rad['p95']), smoothness(done.log.ticks, period_ns),
        after.summary.fates['executed'], after.summary.fates['rejected'],
        _replan_hz([t.first_command_stamp_ns for t in done.log.traces]))


def _replan_hz(stamps_ns: Sequence[int]) -> float:
    entered = sorted(stamp for stamp in stamps_ns if stamp)
    if len(entered) < 2 or entered[0] == entered[-1]:
        return nan
    return (len(entered) - 1) * 1e9 / (entered[-1] - entered[0])
