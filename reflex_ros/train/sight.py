"""What the vision towers learn to read off an image before anything is learned of acting.

Places are read in metres and also as the joints that would bring the tool there, since those are
what the action expert needs: the inverse kinematics is then learned from millions of pixels and
not from the flow loss. The camera on the wrist reads places in the tool's frame and joints as the
turn that is still to be made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reflex_ros.sim.experts import follow
from reflex_ros.sim.experts.drawer import BEHIND
from reflex_ros.sim.experts.pick_place import GRASP_M
from reflex_ros.sim.kinematics import DOWN, grasp_attitude, pitch_matrix, yaw_matrix
from reflex_ros.sim.mjcf import HOME
from reflex_ros.train import poses

if TYPE_CHECKING:
    from reflex_ros.train.dataset import Demonstrations

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

WRIST_AT, WRIST_FORWARD = (0.07, 0.0, -0.102), (-0.25, 0.0, 1.0)
"""The wrist camera in the tool's frame: where it is, m, and where it looks."""
WRIST_HALF_VIEW = np.tan(np.radians(75 / 2))
LYING_M = 0.03
"""A cube whose centre is higher is in the fingers or in the air."""
NEAR_M = 0.25
"""The wrist camera reads turns that are to be made no farther from the object than this."""
FAR_RAD = 0.9
SOLVER_STEPS = 30


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing to read off an image.

    Attributes:
        values: ``float32[F, n]``. valid: ``bool[F]`` frames that show it.
        weight: Of each value in the loss. kept: Whether the policy's token starts with it.
    """

    values: Float32
    valid: Bools
    weight: float = 1.0
    kept: bool = True


def _columns(data: Demonstrations) -> tuple[Float64, Float64, Float64, Float64]:
    scene = data.scene.astype(np.float64)
    return scene[:, :3], scene[:, 3:6], scene[:, 6], scene[:, 7:10]


def scene_readings(data: Demonstrations) -> tuple[Reading, ...]:
    """Return what the camera that looks at the scene reads."""
    ball, cube, yaw, handle = _columns(data)
    shown, lying = ball[:, 2] > 0, cube[:, 2] < LYING_M
    always = np.ones(len(yaw), bool)
    return (
        Reading(np.float32(ball), shown),
        Reading(np.float32(follow.reference(ball)[:, [0, 1, 2, 4]]), shown),
        Reading(np.float32(cube), always),
        Reading(_turn(yaw), lying, 0.3),
        Reading(np.float32(grasp_joints(data)), lying, 0.5),
        Reading(np.float32(handle[:, :2]), always),
        Reading(np.float32(hook_joints(data)), always, 0.3),
        Reading(data.measured, always, 0.1, kept=False),
    )


def wrist_readings(data: Demonstrations) -> tuple[Reading, ...]:
    """Return what the camera on the wrist reads."""
    ball, cube, yaw, handle = _columns(data)
    joints = data.measured[:, :6].astype(np.float64)
    tip, attitude = poses.tool_poses(joints)
    seen = [np.einsum('fji,fj->fi', attitude, point - tip) for point in (ball, cube, handle)]
    views = [in_wrist_view(point) for point in seen]
    shown, lying = ball[:, 2] > 0, cube[:, 2] < LYING_M
    heading = np.arctan2(attitude[:, 1, 1], attitude[:, 0, 1])
    turns = [
        follow.reference(ball)[:, [0, 1, 2, 4]] - joints[:, [0, 1, 2, 4]],
        grasp_joints(data) - joints, hook_joints(data) - joints,
    ]
    near = [np.linalg.norm(s, axis=1) < NEAR_M for s in seen]
    small = [np.abs(turn).max(1) < FAR_RAD for turn in turns]
    visible = np.stack([shown & views[0], views[1], views[2]], 1)
    always = np.ones(len(yaw), bool)
    return (
        Reading(np.float32(seen[0]), visible[:, 0]),
        Reading(np.float32(seen[1]), visible[:, 1]),
        Reading(_turn(yaw - heading), visible[:, 1] & lying, 0.3),
        Reading(np.float32(seen[2]), visible[:, 2], 0.5),
        Reading(np.float32(turns[0]), visible[:, 0] & near[0] & small[0], 0.5),
        Reading(np.float32(turns[1]), visible[:, 1] & near[1] & small[1] & lying, 0.5),
        Reading(np.float32(turns[2]), visible[:, 2] & near[2] & small[2], 0.3),
        Reading(np.float32(visible), always, 0.2),
        Reading(data.measured, always, 0.05, kept=False),
    )


READINGS: Mapping[str, Callable[[Demonstrations], tuple[Reading, ...]]] = MappingProxyType({
    'main': scene_readings, 'wrist': wrist_readings})  # fmt: skip
"""By camera."""


def ball_readings(data: Demonstrations) -> tuple[Reading, ...]:
    """Return what a policy that only follows reads: the target's x and y, and the joints."""
    always = np.ones(len(data.tick), bool)
    joints = data.measured[:, :6]
    return Reading(data.scene[:, :2], always), Reading(joints, always, 0.1)


def in_wrist_view(points: Float64) -> Bools:
    """Return whether points float64[F, 3] in the tool's frame are inside the wrist's image."""
    off = points - np.array(WRIST_AT)
    forward = np.array(WRIST_FORWARD) / np.linalg.norm(WRIST_FORWARD)
    up = np.array((1.0, 0.0, 0.25)) / np.linalg.norm((1.0, 0.0, 0.25))
    depth, high, wide = off @ forward, off @ up, off[:, 1]
    edge = WRIST_HALF_VIEW * depth
    return np.asarray((depth > 0.02) & (np.abs(high) < edge) & (np.abs(wide) < edge))


def _turn(yaw: Float64) -> Float32:
    """Return a yaw that repeats every quarter turn as a point on a circle."""
    return np.stack((np.cos(4 * yaw), np.sin(4 * yaw)), 1).astype(np.float32)


def grasp_joints(data: Demonstrations) -> Float64:
    """Return the joints that hold the tool around the cube where it lies, float64[F, 6]."""
    _, cube, yaw, _ = _columns(data)
    lying = np.flatnonzero(cube[:, 2] < LYING_M)
    points = np.column_stack((cube[lying, :2], np.full(len(lying), GRASP_M)))
    pairs = zip(points, yaw[lying], strict=True)
    attitudes = np.array([grasp_attitude(point, turn) for point, turn in pairs])
    joints = np.zeros((len(yaw), 6))
    if len(lying):
        joints[lying] = _solved(points, attitudes)
    return joints


def hook_joints(data: Demonstrations) -> Float64:
    """Return the joints that hook the finger behind the drawer's handle, float64[F, 6]."""
    handle = _columns(data)[3]
    attitude = yaw_matrix(0.5) @ pitch_matrix(-0.7) @ np.array(DOWN)
    return _solved(handle + np.array([*BEHIND, -0.005]),
                   np.broadcast_to(attitude, (len(handle), 3, 3)))  # fmt: skip


def _solved(points: Float64, attitudes: Float64) -> Float64:
    """Return the joints at poses float64[F, 3] and float64[F, 3, 3]; equal ones solved once."""
    keys = np.round(np.column_stack((points, attitudes[:, :, 1])), 4)
    _, first, back = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    home = np.broadcast_to(np.array(HOME), (len(first), 6))
    return poses.solve(home, points[first], attitudes[first], iterations=SOLVER_STEPS)[back]
