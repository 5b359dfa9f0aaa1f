"""The running plan: which chunk is executed now, which is next, where the arm should be.

A chunk whose row 0 lies ahead waits while the running one goes on; it takes over at the first tick
not before its row 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reflex_ros.core.interpolate import Setpoint, SetpointPath, gripper_columns, revolute
from reflex_ros.core.stitch import BLEND_NS, Seam, blend, measure_seam
from reflex_ros.core.types import Stitch

if TYPE_CHECKING:
    from reflex_ros.core.fit import Fit
    from reflex_ros.core.interpolate import Path
    from reflex_ros.core.types import ActionChunk, FloatArray

MOST_WAITING = 8
MOST_ROWS = 128
"""Rows of a published plan: a message of 1000 would keep the loop from its next tick."""

FitBlend = Callable[['Running', int], 'Fit | None']
"""Looks for a blend of a chunk that takes over at a tick (steady ns); None where none is tried."""
Range = tuple['FloatArray | float', 'FloatArray | float']
"""Lower and upper end, the same for all columns or one number for each."""


@dataclass(slots=True, eq=False)
class Running:
    """An accepted chunk and what became of it; times steady, ns.

    Attributes:
        chunk: The chunk. ``path``: its setpoints, stitched once it has taken over.
        step0_ns: Instant of row 0. ``end_ns``: end of its last row's period.
        observation_ns: Oldest frame behind it. ``accepted_ns``: when it was accepted.
        covered_ns: Part of its inference that the plan before it covered.
        seam: Step at the switch, None where a ramp leads over it.
        must_blend: Whether it was accepted only because a blend fits the limits.
        fitted_ns: Length of the blend that was made to fit the limits, 0 if none was.
        is_apart: Whether its step is large and not blended to fit: joints must not sprint then.
        refusal: Why it was left out at its switch, '' if it was not.
        entered_row, entered_ns: Row and tick at which it took over, -1 until then.
        first_command_ns: Due instant of its first command, 0 if none yet.
        ticks: Ticks that executed it. ``stalled_ticks``: stalled ticks before it.
    """

    chunk: ActionChunk
    path: Path
    step0_ns: int
    end_ns: int
    observation_ns: int
    accepted_ns: int
    covered_ns: int = 0
    seam: Seam | None = None
    must_blend: bool = False
    fitted_ns: int = 0
    is_apart: bool = False
    refusal: str = ''
    entered_row: int = -1
    entered_ns: int = -1
    first_command_ns: int = 0
    ticks: int = 0
    stalled_ticks: int = field(default=0)

    def row(self, due_ns: int) -> float:
        """Return the fractional row that is due."""
        return (due_ns - self.step0_ns) / self.chunk.step_period_ns

    def covers(self, due_ns: int, max_age_ns: int) -> bool:
        """Return whether the chunk is live at a tick: row in the horizon, observation young."""
        in_rows = self.step0_ns <= due_ns < self.end_ns
        return in_rows and due_ns - self.observation_ns <= max_age_ns

    def live_until(self, max_age_ns: int) -> int:
        """Return the steady instant at which the chunk stops being live."""
        return min(self.end_ns, self.observation_ns + max_age_ns)


def make_running(chunk: ActionChunk, *, step0_ns: int, observation_ns: int, accepted_ns: int,
                 covered_ns: int, gripper_m: Range | None = None) -> Running:
    """Return an accepted chunk with its setpoint path; the gripper column is monotone.

    Args:
        chunk: The chunk.
        step0_ns, observation_ns, accepted_ns, covered_ns: See ``Running``.
        gripper_m: Smallest and largest opening of each gripper, None for any. A policy that means
            "wide open" asks for a little more than there is: its openings are clamped here and do
            not count as limited.
    """
    rows = len(chunk.positions)
    times = step0_ns + np.arange(rows, dtype=np.int64) * chunk.step_period_ns
    positions = chunk.positions.copy()
    columns = gripper_columns(positions.shape[1]) > 0
    low, high = (0.0, np.inf) if gripper_m is None else gripper_m
    positions[:, columns] = np.clip(positions[:, columns], low, high)
    path = SetpointPath(times, positions)
    end_ns = int(times[-1]) + chunk.step_period_ns
    return Running(chunk, path, step0_ns, end_ns, observation_ns, accepted_ns, covered_ns)


class Follower:
    """Active and waiting chunks, and the setpoint of every tick. Not thread-safe.

    Args:
        blend_ns: Duration over which all but ``Stitch.REPLACE`` remove the discontinuity.
        blend_above_rad: Joint step above which every stitcher does if a blend fits the limits, for
            as long as it needs.
    """

    def __init__(self, *, blend_ns: int = BLEND_NS, blend_above_rad: float = np.inf) -> None:
        self._blend_ns = blend_ns
        self._blend_above_rad = blend_above_rad
        self._waiting: list[Running] = []
        self.active: Running | None = None

    @property
    def pending(self) -> Running | None:
        """Return the chunk that takes over next."""
        return self._waiting[0] if self._waiting else None

    @property
    def newest(self) -> Running | None:
        """Return the newest accepted chunk."""
        return self._waiting[-1] if self._waiting else self.active

    def offer(self, running: Running) -> tuple[Running, ...]:
        """Queue an accepted chunk and return those that it replaces.

        A newer chunk replaces only what would begin at its row 0 or later. One that begins earlier
        still has its turn: chunks that come faster than they begin must not starve each other.
        """
        kept = [r for r in self._waiting if r.step0_ns < running.step0_ns][: MOST_WAITING - 1]
        replaced = tuple(r for r in self._waiting if r not in kept)
        self._waiting = [*kept, running]
        return replaced

    def is_due(self, due_ns: int) -> bool:
        """Return whether a waiting chunk takes over at a tick."""
        return self.pending is not None and self.pending.step0_ns <= due_ns

    def switch(self, due_ns: int, current: Setpoint | None,
               fit: FitBlend | None = None) -> tuple[Running, ...]:
        """Let the newest chunk whose row 0 is due take over; return those that end.

        One that is left out ends, too, and says why in ``refusal``.

        Args:
            due_ns: The tick.
            current: Where the arm is going now, for the seam: ``origin``, or the pose that it
                holds. None if the chunk is joined in another way; nothing is stitched then.
            fit: Looks for a blend within the limits, None where there is none to look for.
        """
        ready = [r for r in self._waiting if r.step0_ns <= due_ns]
        self._waiting = self._waiting[len(ready):]
        for i in range(len(ready) - 1, -1, -1):
            if current is None or self._stitch(ready[i], due_ns, current, fit):
                before, self.active = self.active, ready.pop(i)
                self.active.entered_row = int(self.active.row(due_ns))
                self.active.entered_ns = due_ns
                return tuple(r for r in (before, *ready) if r is not None)
        return tuple(ready)

    def setpoint(self, t_ns: int) -> Setpoint | None:
        """Return the setpoint that is due, or will be, at ``t_ns``; None without an active chunk.

        From the instant at which a waiting chunk takes over, its rows stand for the plan.
        """
        if self.active is None:
            return None
        begun = [r for r in self._waiting if r.step0_ns <= t_ns]
        return (begun[-1] if begun else self.active).path.at(t_ns)

    def origin(self, switch_ns: int, *, next_due_ns: int) -> Setpoint | None:
        """Return the setpoint at a switch of the chunk that is left; None without an active one.

        A chunk that takes over at the switch is no part of the motion that it joins.

        Args:
            switch_ns: Tick of the switch.
            next_due_ns: The next tick: no waiting chunk has its turn before it.
        """
        left = self.left_at(switch_ns, next_due_ns=next_due_ns)
        return None if left is None else left.at(switch_ns)

    def left_at(self, switch_ns: int, *, next_due_ns: int) -> Path | None:
        """Return the path of the chunk that is left at a switch, as for ``origin``."""
        if self.active is None:
            return None
        before = [r for r in self._waiting if max(r.step0_ns, next_due_ns) < switch_ns]
        return (before[-1] if before else self.active).path

    def drop(self) -> tuple[Running, ...]:
        """Forget all chunks and return them, oldest first."""
        dropped = tuple(r for r in (self.active, *self._waiting) if r is not None)
        self.active, self._waiting = None, []
        return dropped

    def remaining(self, due_ns: int, *,
                  period_ns: int = 1) -> tuple[npt.NDArray[np.int64], FloatArray]:
        """Return the next setpoints, ``MOST_ROWS`` at most: ``int64[N]`` ns, ``float64[N, J]``.

        Args:
            due_ns: Steady instant of the first.
            period_ns: Rows that are denser are left out: there is no command for them.
        """
        newest = self.newest
        if self.active is None or newest is None:
            return np.empty(0, np.int64), np.empty((0, 0))
        period = max(newest.chunk.step_period_ns, period_ns)
        times = np.arange(due_ns, newest.end_ns, period, dtype=np.int64)[:MOST_ROWS]
        rows = self.active.path.positions(times)
        for running in self._waiting:
            begun = times >= running.step0_ns
            rows[begun] = running.path.positions(times[begun])
        return times, rows

    def _stitch(self, running: Running, due_ns: int, current: Setpoint,
                fit: FitBlend | None) -> bool:
        """Join a chunk as it asks, or where its step is too large for that by a blend that fits.

        Returns:
            Whether it was joined.
        """
        joints = np.flatnonzero(revolute(len(current.position))).tolist()
        seam = running.seam = measure_seam(current, running.path.at(due_ns), joints=joints)
        blend_ns = 0 if running.chunk.stitch is Stitch.REPLACE else self._blend_ns
        if running.must_blend or seam.position > self._blend_above_rad:
            may_fit = running.must_blend or not self._is_blending(due_ns)
            found = fit(running, due_ns) if fit is not None and may_fit else None
            if found is not None and found.path is not None:
                running.path, running.fitted_ns = found.path, found.duration_ns
                return True
            if found is not None and running.must_blend:
                running.refusal = (f'left out at its switch, {seam.position:.3f} rad away: '
                                   f'{found.text}')
                return False
            running.is_apart = True
        if blend_ns:  # rtc leaves a small step, too
            running.path = blend(
                running.path, offset=seam.offset, at_ns=due_ns, duration_ns=blend_ns)
        return True

    def _is_blending(self, due_ns: int) -> bool:
        """Return whether the active chunk is still led by a blend that was made to fit.

        Begun anew with each chunk, blends would get nowhere, or beyond where any chunk asks to go.
        """
        active = self.active
        return active is not None and due_ns < active.entered_ns + active.fitted_ns
