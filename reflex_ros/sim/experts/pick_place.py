"""The expert of ``pick_place`` and ``recovery``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reflex_ros.core.types import FloatArray, SimTruth
from reflex_ros.sim.experts.manipulation import Move, step_toward, yaw_of
from reflex_ros.sim.kinematics import Kinematics, grasp_attitude
from reflex_ros.sim.mjcf import GRIPPER_RANGE_M, Dh

OPEN_M = GRIPPER_RANGE_M[1]
HOVER_M = 0.10
GRASP_M = 0.024
"""Height of the tool point in the grasp; lower, the fingertips touch the table."""

LIFT_M = 0.12
OVER_BIN_M = 0.09
HELD_M = 0.045
"""Opening below which the gripper may have the cube (36 mm wide) between its fingers."""

EMPTY_M = 0.02


class PickPlaceExpert:
    """Hover, descend, close, lift, carry, release, retreat; the phase follows from the truth.

    Args:
        dh: Variant of the DH table.
    """

    def __init__(self, dh: Dh = 'new') -> None:
        self._kinematics = Kinematics(dh)

    def command(self, truth: SimTruth, last: npt.ArrayLike) -> FloatArray:
        """Return the next 50 Hz command float64[7] after ``last`` float64[7], rad and m."""
        return step_toward(self._kinematics, last, self.choose(truth))

    def choose(self, truth: SimTruth) -> Move:
        """Return what to do in the situation of ``truth``."""
        cube, bin_at = truth.objects['cube'], truth.objects['bin'][:3]
        if is_holding(truth):
            return self._with_cube(truth.tip_position, bin_at)
        if np.abs(cube[:2] - bin_at[:2]).max() < 0.06 and cube[2] < 0.04:
            over = bin_at + [0.0, 0.0, OVER_BIN_M + 0.05]
            return Move('retreat', over, grasp_attitude(over, 0.0), OPEN_M)
        return self._without_cube(truth, cube)

    @staticmethod
    def _with_cube(tip: FloatArray, bin_at: FloatArray) -> Move:
        over = bin_at + [0.0, 0.0, OVER_BIN_M]
        attitude = grasp_attitude(over, 0.0)
        if np.linalg.norm(tip - over) < 0.02:
            return Move('release', over, attitude, OPEN_M)
        if tip[2] > 0.085 or np.hypot(*(tip - over)[:2]) < 0.05:
            return Move('carry', over, attitude, 0.0)
        return Move('lift', np.array([tip[0], tip[1], LIFT_M]), None, 0.0, 0.25)

    @staticmethod
    def _without_cube(truth: SimTruth, cube: FloatArray) -> Move:
        tip, opening = truth.tip_position, truth.joint_position[6]
        grasp = np.array([cube[0], cube[1], GRASP_M])
        attitude = grasp_attitude(cube, yaw_of(cube))
        off = np.hypot(*(tip - grasp)[:2])
        if np.linalg.norm(tip - grasp) < 0.011 and opening > EMPTY_M:
            return Move('close', tip, None, 0.0)
        # Once on the way down a larger offset is tolerated, or the two phases would alternate.
        if opening > 0.055 and (off < 0.012 or (off < 0.03 and tip[2] < 0.09)):
            return Move('descend', grasp, attitude, OPEN_M, 0.20)
        return Move('hover', np.array([cube[0], cube[1], HOVER_M]), attitude, OPEN_M)


def is_holding(truth: SimTruth) -> bool:
    """Return whether the cube is between fingers that have stopped closing."""
    near = np.linalg.norm(truth.objects['cube'][:3] - truth.tip_position) < 0.035
    opening, speed = truth.joint_position[6], truth.joint_velocity[6]
    return bool(near) and EMPTY_M < opening < HELD_M and speed > -0.02
