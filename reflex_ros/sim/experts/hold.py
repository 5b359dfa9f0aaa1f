"""The expert of ``hold``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reflex_ros.core.types import FloatArray, SimTruth
from reflex_ros.sim.experts.follow import PERIOD_NS


class HoldExpert:
    """Repeats the first state that it is given, so that a sagging arm is not followed down."""

    def __init__(self) -> None:
        self._state: FloatArray | None = None

    def chunk(self, truth: SimTruth, state: npt.ArrayLike, *, horizon: int = 50,
              period_ns: int = PERIOD_NS, start_delay_ns: int = 0) -> FloatArray:
        """Return the held state in every row, float64[horizon, 7]."""
        if self._state is None:
            self._state = np.array(state, dtype=np.float64)
        return np.tile(self._state, (horizon, 1))
