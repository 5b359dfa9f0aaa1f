"""The expert of ``drawer``: hook the closed fingers behind the handle and pull."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reflex_ros.core.types import FloatArray, SimTruth
from reflex_ros.sim.experts.manipulation import Move, step_toward
from reflex_ros.sim.kinematics import DOWN, Kinematics, pitch_matrix, yaw_matrix
from reflex_ros.sim.mjcf import Dh

BEHIND = (0.022, 0.0)
"""Offset of the tool point from the handle when hooked, m (x, y)."""


class DrawerExpert:
    """Above, lower, pull; the phase follows from the truth.

    Args:
        dh: Variant of the DH table.
    """

    def __init__(self, dh: Dh = 'new') -> None:
        self._kinematics = Kinematics(dh)
        self._attitude = yaw_matrix(0.5) @ pitch_matrix(-0.7) @ np.array(DOWN)

    def command(self, truth: SimTruth, last: npt.ArrayLike) -> FloatArray:
        """Return the next 50 Hz command float64[7] after ``last`` float64[7], rad and m."""
        return step_toward(self._kinematics, last, self.choose(truth))

    def choose(self, truth: SimTruth) -> Move:
        """Return what to do in the situation of ``truth``."""
        handle, tip = truth.objects['handle'][:3], truth.tip_position
        hook = handle + [*BEHIND, -0.005]
        off = tip - hook
        if -0.022 < off[0] < 0.014 and abs(off[1]) < 0.02 and off[2] < 0.013:
            ahead = np.array([tip[0] - 0.05, handle[1], hook[2]])
            return Move('pull', ahead, self._attitude, 0.0, 0.18)
        flat = np.hypot(*off[:2])
        # Once on the way down a larger offset is tolerated, or the two phases would alternate.
        if flat < 0.012 or (flat < 0.022 and off[2] < 0.06):
            return Move('lower', hook, self._attitude, 0.0, 0.15)
        return Move('above', handle + [*BEHIND, 0.07], self._attitude, 0.0)
