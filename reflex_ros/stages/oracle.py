"""The policy without weights: the expert's chunk from the simulator's true state.

It isolates execution from learning: whatever goes wrong with it is the executor's doing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from reflex_ros.core.clock import MS
from reflex_ros.core.types import JOINT_NAMES

if TYPE_CHECKING:
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import FloatArray, SimTruth
    from reflex_ros.stages.models import InferRequest

KEPT_TRUTHS = 64


class Expert(Protocol):
    """Rolls a command law against the world as it is now, without knowing its future."""

    def chunk(self, truth: SimTruth, state: FloatArray, *, horizon: int, period_ns: int,
              start_delay_ns: int = 0) -> FloatArray:
        """Return ``float64[horizon, 7]`` from ``state``, row 0 at truth + ``start_delay_ns``."""


class OraclePolicy:
    """``ChunkModel`` over the scripted expert of whatever task the world is in.

    Args:
        make_expert: Returns a fresh expert for the name of a task.
        horizon: Rows of a chunk.
        step_period_ns: Time between rows.
    """

    def __init__(self, make_expert: Callable[[str], Expert], *, horizon: int = 50,
                 step_period_ns: int = 20 * MS) -> None:
        self._make_expert = make_expert
        self._expert: Expert | None = None
        self._task = ''
        self._horizon = horizon
        self._step_period_ns = step_period_ns
        self._truths: deque[SimTruth] = deque(maxlen=KEPT_TRUTHS)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Return the names of one PiPer."""
        return JOINT_NAMES

    @property
    def step_period_ns(self) -> int:
        """Return the time between rows."""
        return self._step_period_ns

    @property
    def guided_rows(self) -> int:
        """Return 0: an expert has no flow that could be steered."""
        return 0

    @property
    def ring_ok(self) -> bool:
        """Return True: the oracle needs no ring."""
        return True

    def truth(self, truth: SimTruth) -> None:
        """Take a true state; the one that belongs to a block is looked up by its stamp."""
        if self._truths and truth.stamp_ns < self._truths[-1].stamp_ns:
            self._truths.clear()  # simulated time went back
        self._truths.append(truth)

    def infer(self, request: InferRequest, probe: Probe) -> FloatArray | None:
        """Return the expert's chunk from the truth at the observation; None if it is unknown."""
        truth = self._at(request.block.stamp_ns)
        if truth is None:
            return None
        with probe.span('denoise'):
            return self._expert_of(truth.task).chunk(
                truth, request.state, horizon=self._horizon, period_ns=self._step_period_ns,
                start_delay_ns=request.row0_stamp_ns - truth.stamp_ns,
            )

    def _expert_of(self, task: str) -> Expert:
        if self._expert is None or task != self._task:
            self._expert, self._task = self._make_expert(task), task
        return self._expert

    def _at(self, stamp_ns: int) -> SimTruth | None:
        """Return the newest truth that is not newer than the observation."""
        known = [t for t in self._truths if t.stamp_ns <= stamp_ns]
        return max(known, key=lambda t: t.stamp_ns, default=None)
