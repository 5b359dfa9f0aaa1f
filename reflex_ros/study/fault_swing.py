"""A policy whose arm is at speed when a fault strikes: joint 1 swings, at 1.6 rad/s at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import MS, S
from reflex_ros.stages.oracle import OraclePolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.core.clock import Clock
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import FloatArray, SimTruth
    from reflex_ros.stages.models import InferRequest
    from reflex_ros.stages.oracle import Expert

SWING_RAD, SWING_RATE = 0.64, 2.5
"""Half the width of the swing and rad/s of its phase; 1.6 rad/s and 4 rad/s² at most."""
LEAD_S = np.pi / 2.0 / SWING_RATE
"""From the begin of the swing to its greatest speed."""
GAIN = 0.5
"""How fast an arm that is away from the swing is led back to it, 1/s."""


def swing_rows(state: float, middle: float, times_s: FloatArray) -> FloatArray:
    """Return positions of joint 1 that lead from a state along the swing, as an expert rolls them.

    Args:
        state: Position in row 0, rad. middle: Where the swing begins, rad.
        times_s: ``float64[H]`` of the rows from the begin of the swing on; before it, rest.
    """
    goals = middle + SWING_RAD * (1.0 - np.cos(SWING_RATE * np.maximum(times_s, 0.0)))
    rows: FloatArray = goals + (state - goals[0]) * np.exp(-GAIN * (times_s - times_s[0]))
    return rows


class FaultyOracle(OraclePolicy):
    """The oracle, with joint 1 in a swing if it is told to, behind a ring that can be lost.

    Args:
        make_expert: As for the oracle.
        cost_ns: Time that an inference takes on a real clock.

    Attributes:
        clock: Tells when a truth was seen; to be set before the first.
        slept: Called after the sleep of an inference with the instant of its end.
        is_ring_alive: What it says of the ring. gone: How many of the next blocks are gone before
            they are read.
        swing_from_ns: Steady instant at which joint 1 begins to swing, None for never.
    """

    clock: Clock

    def __init__(self, make_expert: Callable[[str], Expert], *, cost_ns: int = 0) -> None:
        super().__init__(make_expert)
        self._cost_ns = cost_ns
        self._seen_ns: dict[int, int] = {}
        self._middle: float | None = None
        self.is_ring_alive, self.gone = True, 0
        self.swing_from_ns: int | None = None
        self.slept: Callable[[int], object] = abs

    @property
    def ring_ok(self) -> bool:
        """Return whether the ring's writer lives."""
        return self.is_ring_alive

    def truth(self, truth: SimTruth) -> None:
        """Take a true state and note when."""
        super().truth(truth)
        self._seen_ns[truth.stamp_ns] = self.clock.mono_ns()
        while len(self._seen_ns) > 4 * 64:
            self._seen_ns.pop(next(iter(self._seen_ns)))

    def infer(self, request: InferRequest, probe: Probe) -> FloatArray | None:
        """Return the oracle's chunk in its swing, None for a block that is gone."""
        if self.gone:
            self.gone -= 1
            return None
        if self._cost_ns:
            due_ns = self.clock.mono_ns() + self._cost_ns
            self.clock.sleep_until(due_ns)
            self.slept(due_ns)
        rows = super().infer(request, probe)
        return rows if rows is None or self.swing_from_ns is None else self._swing(request, rows)

    def _swing(self, request: InferRequest, rows: FloatArray) -> FloatArray:
        """Overwrite joint 1; the swing goes on in steady time, whatever ROS time does."""
        truth = self._at(request.block.stamp_ns)
        assert truth is not None and self.swing_from_ns is not None
        row0_ns = self._seen_ns[truth.stamp_ns] + request.row0_stamp_ns - truth.stamp_ns
        times_ns = row0_ns - self.swing_from_ns + np.arange(len(rows)) * self.step_period_ns
        if self._middle is None:
            self._middle = float(request.state[0])
        swung = rows.copy()
        swung[:, 0] = swing_rows(float(request.state[0]), self._middle, times_ns / S)
        return swung


INFERENCE_NS = 15 * MS
"""What an inference takes on a real clock; on a virtual one it is modelled to take as long."""
