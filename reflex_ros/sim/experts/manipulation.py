"""What the manipulation experts share: a phase rule and a speed-limited way to a tool pose.

The experts keep no memory: the next command follows from the truth and the last command alone.
So they recover from whatever happens to the objects, and a chunk can start from any state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reflex_ros.core.types import FloatArray, SimTruth
from reflex_ros.sim.kinematics import Kinematics, small_turn

PERIOD_S = 0.02
MAX_SPEED_RAD_S = 2.5
MAX_TURN_RAD_S = 2.5
"""Fastest turn of the tool's attitude; a whole turn asked at once would throw the point off."""


@dataclass(frozen=True, slots=True)
class Move:
    """Where the tool goes in one phase.

    Attributes:
        phase: Name of the phase.
        position: float64[3] m. attitude: float64[3, 3]; None = keep the present one.
        gripper_m: Total opening. speed_m_s: Largest speed of the tool point.
    """

    phase: str
    position: FloatArray = field(compare=False)
    attitude: FloatArray | None = field(compare=False)
    gripper_m: float
    speed_m_s: float = 0.30


class Expert(Protocol):
    """A scripted expert of one task."""

    def choose(self, truth: SimTruth) -> Move:
        """Return what to do in the situation of ``truth``."""

    def command(self, truth: SimTruth, last: npt.ArrayLike) -> FloatArray:
        """Return the next 50 Hz command float64[7] after ``last`` float64[7], rad and m."""


def step_toward(kinematics: Kinematics, last: npt.ArrayLike, move: Move) -> FloatArray:
    """Return the command one control step after ``last`` on the way of ``move``.

    Args:
        kinematics: Of the arm that is commanded.
        last: float64[7] last command, rad and m.
        move: Where to go.

    Returns:
        float64[7] rad and m, joints no faster than 2.5 rad/s.
    """
    joints = np.asarray(last, dtype=np.float64)[:6]
    tip, attitude = kinematics.tip(joints)
    way = move.position - tip
    reach = move.speed_m_s * PERIOD_S
    point = tip + way * min(1.0, reach / max(float(np.linalg.norm(way)), 1e-9))
    if move.attitude is not None:
        attitude = turn_toward(attitude, move.attitude, MAX_TURN_RAD_S * PERIOD_S)
    turn = kinematics.solve(joints, point, attitude, iterations=2) - joints
    # One factor for all joints: cutting them singly would bend the way of the point.
    turn *= min(1.0, MAX_SPEED_RAD_S * PERIOD_S / max(float(np.abs(turn).max()), 1e-9))
    return np.append(joints + turn, move.gripper_m)


def turn_toward(attitude: FloatArray, wanted: FloatArray, limit_rad: float) -> FloatArray:
    """Return ``attitude`` turned toward ``wanted``, float64[3, 3] each, by at most the limit."""
    error = wanted @ attitude.T
    axis = small_turn(error)
    length = float(np.linalg.norm(axis))
    angle = float(np.arctan2(length, (np.trace(error) - 1) / 2))
    if angle <= limit_rad or length < 1e-9:
        return wanted
    x, y, z = axis / length
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    turned = np.eye(3) + np.sin(limit_rad) * cross + (1 - np.cos(limit_rad)) * cross @ cross
    return np.asarray(turned @ attitude)


def yaw_of(pose: FloatArray) -> float:
    """Return the yaw of a cube's pose float64[7], taken to within an eighth of a turn, rad."""
    w, x, y, z = pose[3:]
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return float((yaw + np.pi / 4) % (np.pi / 2) - np.pi / 4)
