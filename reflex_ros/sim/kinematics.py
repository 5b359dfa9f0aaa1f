"""Forward and inverse kinematics of the PiPer, from the same DH table as the scene.

``Kinematics`` iterates on the arm's model: position first, attitude in what freedom is left, as a
weighted six-dimensional solution misses the point by centimetres near the workspace edge.
``leaning_pose`` solves the one attitude of the follow tasks (gripper down, leaning outwards) in
closed form for any number of points at once.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from reflex_ros.core.types import FloatArray
from reflex_ros.sim.mjcf import JOINT_RANGE, TIP_OFFSET_M, Dh, dh_table, scene_xml

DOWN: tuple[tuple[float, ...], ...] = ((-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, -1.0))
"""Attitude of a gripper that looks down with joint 6 at zero; its mirror image drives joint 6
into its stop."""

LEAN_RAD = 0.5
"""Outward lean of the gripper in the follow tasks; strictly down is out of reach past 0.36 m."""

POINT_DAMPING, ATTITUDE_DAMPING = 1e-5, 0.02
MAX_STEP_RAD = 0.3
"""Largest turn of a joint in one iteration of the inverse kinematics."""

LOWER, UPPER = (tuple(column) for column in zip(*JOINT_RANGE, strict=True))


def yaw_matrix(angle_rad: float) -> FloatArray:
    """Return the rotation about the base's z axis, float64[3, 3]."""
    c, s = np.cos(angle_rad), np.sin(angle_rad)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def pitch_matrix(angle_rad: float) -> FloatArray:
    """Return the rotation about the base's y axis, float64[3, 3]."""
    c, s = np.cos(angle_rad), np.sin(angle_rad)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def small_turn(rotation: FloatArray) -> FloatArray:
    """Return axis times sine of the angle of a rotation float64[3, 3], float64[3]."""
    (_, xy, xz), (yx, _, yz), (zx, zy, _) = rotation.tolist()
    return np.array([zy - yz, xz - zx, yx - xy]) / 2


def leaning(position: FloatArray, *, yaw_rad: float | None = None,
            lean_rad: float = LEAN_RAD) -> FloatArray:
    """Return the attitude at a point that looks down and leans away from the base.

    Args:
        position: float64[3] tool point, m.
        yaw_rad: Yaw of the fingers in the base frame; None = in line with the arm.
        lean_rad: Angle from straight down, outwards positive.

    Returns:
        float64[3, 3] rotation of the tool frame.
    """
    bearing = float(np.arctan2(position[1], position[0]))
    turn = 0.0 if yaw_rad is None else yaw_rad - bearing
    return yaw_matrix(bearing) @ pitch_matrix(-lean_rad) @ yaw_matrix(turn) @ np.array(DOWN)


def grasp_attitude(position: FloatArray, yaw_rad: float) -> FloatArray:
    """Return the attitude to grasp at ``position`` with the fingers turned to ``yaw_rad``.

    The lean grows with the distance from the base as far as reach demands it.
    """
    lean = np.clip((np.hypot(position[0], position[1]) - 0.22) * 2.6, 0.0, 0.7)
    return leaning(position, yaw_rad=yaw_rad, lean_rad=float(lean))


def leaning_pose(position: npt.ArrayLike, *, dh: Dh = 'new',
                 lean_rad: float = LEAN_RAD) -> FloatArray:
    """Return the joints whose tool point is at ``position`` with the leaning attitude.

    With joints 4 and 6 at zero the arm is a planar chain turned by joint 1. Where the wanted
    attitude needs more of joint 5 than it has, joint 5 stays at its limit and the point is kept;
    a point out of reach is approached as far as the chain goes.

    Args:
        position: float64[..., 3] tool points in the base frame, m.
        dh: Variant of the DH table.
        lean_rad: Angle from straight down, outwards positive.

    Returns:
        float64[..., 6] rad, inside the joint limits.
    """
    rows = dh_table(dh)
    point = np.asarray(position, dtype=np.float64)
    reach = np.hypot(point[..., 0], point[..., 1])
    height = point[..., 2] - rows[0].d
    upper, hand = rows[2].a, rows[5].d + TIP_OFFSET_M
    forearm = np.hypot(rows[3].a, rows[3].d)
    bend = np.arctan2(rows[3].d, rows[3].a)
    hand_angle = lean_rad - np.pi / 2
    shoulder, fore = _two_links(reach - hand * np.cos(hand_angle),
                                height - hand * np.sin(hand_angle), upper, forearm)
    wrist = _wrap(np.pi / 2 - (bend - fore) - hand_angle, 0.0)
    clipped = _clip(wrist, LOWER[4], UPPER[4])
    elbow_sum = bend - fore
    limited = wrist != clipped
    if limited.any():
        stiff = rows[3].a + hand * np.sin(clipped), rows[3].d + hand * np.cos(clipped)
        bend_stiff = np.arctan2(stiff[1], stiff[0])
        shoulder_stiff, fore_stiff = _two_links(reach, height, upper, np.hypot(*stiff))
        shoulder = np.where(limited, shoulder_stiff, shoulder)
        elbow_sum = np.where(limited, bend_stiff - fore_stiff, elbow_sum)
    out = np.zeros((*point.shape[:-1], 6))
    out[..., 0] = np.arctan2(point[..., 1], point[..., 0])
    out[..., 1] = -shoulder - rows[1].theta
    middle = (LOWER[2] + UPPER[2]) / 2
    out[..., 2] = _wrap(elbow_sum - out[..., 1] - rows[1].theta - rows[2].theta, middle)
    out[..., 4] = clipped
    return _clip(out, LOWER, UPPER)


def _clip(values: FloatArray, lower: npt.ArrayLike, upper: npt.ArrayLike) -> FloatArray:
    """Return what ``np.clip`` does, in a third of its time for short arrays."""
    return np.asarray(np.minimum(np.maximum(values, lower), upper))


def _wrap(angle: FloatArray, middle: float) -> FloatArray:
    """Return the equal angle within half a turn of ``middle``, rad."""
    return np.asarray((angle - middle + np.pi) % (2 * np.pi) - np.pi + middle)


def _two_links(x: FloatArray, y: FloatArray, first: float,
               second: Any) -> tuple[FloatArray, FloatArray]:
    """Return the absolute angles of both links, elbow up, that reach (x, y), rad."""
    distance = np.maximum(np.hypot(x, y), 1e-9)
    cosine = (first ** 2 + distance ** 2 - second ** 2) / (2 * first * distance)
    angle = np.arctan2(y, x) + np.arccos(_clip(cosine, -1.0, 1.0))
    return angle, np.arctan2(y - first * np.sin(angle), x - first * np.cos(angle))


class Kinematics:
    """FK and iterative IK on the arm alone. Not thread-safe: one per thread.

    Args:
        dh: Variant of the DH table.
    """

    def __init__(self, dh: Dh = 'new') -> None:
        self._model = mujoco.MjModel.from_xml_string(scene_xml(dh, props=False))
        self._data = mujoco.MjData(self._model)
        self._tip = self._model.site('tip').id
        self._links = [self._model.body(f'link{i + 1}').id for i in range(6)]
        self._jac_p = np.zeros((3, self._model.nv))
        self._jac_r = np.zeros((3, self._model.nv))
        self._light, self._heavy = POINT_DAMPING * np.eye(3), ATTITUDE_DAMPING * np.eye(3)

    def tip(self, joints_rad: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return tool point float64[3] (m) and attitude float64[3, 3]; copies."""
        self._pose(joints_rad)
        return self._data.site_xpos[self._tip].copy(), self._attitude().copy()

    def links(self, joints_rad: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the six link frames: float64[6, 3] origins (m), float64[6, 3, 3] attitudes."""
        self._pose(joints_rad)
        return (self._data.xpos[self._links].copy(),
                self._data.xmat[self._links].reshape(6, 3, 3).copy())

    def solve(self, joints_rad: npt.ArrayLike, position: FloatArray,
              attitude: FloatArray | None = None, *, iterations: int = 4) -> FloatArray:
        """Return joints nearer to a tool pose, starting from ``joints_rad``.

        Args:
            joints_rad: float64[6] start; decides the branch.
            position: float64[3] wanted tool point, m.
            attitude: float64[3, 3] wanted attitude, reached as far as the point allows.
            iterations: Damped least-squares steps; 4 track a moving pose, 40 find a new one.

        Returns:
            float64[6] rad inside the joint limits; not guaranteed to have converged.
        """
        joints = np.array(joints_rad, dtype=np.float64)
        for _ in range(iterations):
            self._pose(joints)
            mujoco.mj_comPos(self._model, self._data)
            mujoco.mj_jacSite(self._model, self._data, self._jac_p, self._jac_r, self._tip)
            joints = joints + self._limited_step(joints, position, attitude)
        return joints

    def _pose(self, joints_rad: npt.ArrayLike) -> None:
        self._data.qpos[:6] = joints_rad
        mujoco.mj_kinematics(self._model, self._data)

    def _attitude(self) -> FloatArray:
        return np.asarray(self._data.site_xmat[self._tip]).reshape(3, 3)

    def _limited_step(self, joints: FloatArray, position: FloatArray,
                      attitude: FloatArray | None) -> FloatArray:
        """Return a step that ends inside the limits.

        A joint that would leave its range stops there and the others take over its part of the
        point's way; cutting it off afterwards would let the point drift.
        """
        fixed = np.zeros(6)
        free = np.ones(6, dtype=bool)
        for _ in range(3):
            step = fixed + self._step(position, attitude, fixed, free)
            step *= min(1.0, MAX_STEP_RAD / max(float(np.abs(step).max()), 1e-12))
            inside = np.clip(joints + step, LOWER, UPPER) - joints
            leaves = free & (np.abs(inside - step) > 1e-12)
            if not leaves.any():
                break
            fixed[leaves] = inside[leaves]
            free &= ~leaves
        return np.asarray(inside)

    def _step(self, position: FloatArray, attitude: FloatArray | None, fixed: FloatArray,
              free: npt.NDArray[np.bool_]) -> FloatArray:
        """Return the step of the free joints: undamped for the point, damped for the attitude."""
        jac, turn = self._jac_p[:, :6] * free, self._jac_r[:, :6] * free
        pinv = jac.T @ np.linalg.inv(jac @ jac.T + self._light)
        way = position - self._data.site_xpos[self._tip] - self._jac_p[:, :6] @ fixed
        step = pinv @ way
        if attitude is not None:
            null = np.diag(free.astype(np.float64)) - pinv @ jac
            rest = turn @ null
            error = (small_turn(attitude @ self._attitude().T) - turn @ step
                     - self._jac_r[:, :6] @ fixed)
            step = step + null @ (rest.T @ np.linalg.solve(rest @ rest.T + self._heavy, error))
        return np.asarray(step)
