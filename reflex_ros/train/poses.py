"""Forward and inverse kinematics of many poses at once, as ``sim.kinematics`` has them for one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reflex_ros.sim.kinematics import ATTITUDE_DAMPING, LOWER, MAX_STEP_RAD, POINT_DAMPING, UPPER
from reflex_ros.sim.mjcf import TIP_OFFSET_M, dh_table

Float64 = npt.NDArray[np.float64]


def joint_frames(joints_rad: npt.NDArray[np.floating]) -> Float64:
    """Return the frames ``float64[6, ..., 4, 4]`` of joints ``[..., >= 6]`` by the DH table."""
    joints, frames = np.asarray(joints_rad, np.float64), []
    pose = np.broadcast_to(np.eye(4), (*joints.shape[:-1], 4, 4))
    for index, row in enumerate(dh_table('new')):
        angle = joints[..., index] + row.theta
        c, s = np.cos(angle), np.sin(angle)
        ca, sa = np.cos(row.alpha), np.sin(row.alpha)
        zero, one = np.zeros_like(c), np.ones_like(c)
        step = np.stack(
            (c, -s, zero, row.a * one,
             s * ca, c * ca, -sa * one, -sa * row.d * one,
             s * sa, c * sa, ca * one, ca * row.d * one,
             zero, zero, zero, one), -1,
        ).reshape(*c.shape, 4, 4)  # fmt: skip
        pose = pose @ step
        frames.append(pose)
    return np.stack(frames)


def tool_poses(joints_rad: npt.NDArray[np.floating]) -> tuple[Float64, Float64]:
    """Return tool points ``float64[..., 3]`` (m) and attitudes ``float64[..., 3, 3]``."""
    last = joint_frames(joints_rad)[-1]
    tip: Float64 = last[..., :3, 3] + TIP_OFFSET_M * last[..., :3, 2]
    return tip, last[..., :3, :3]


def solve(start: Float64, points: Float64, attitudes: Float64, *, iterations: int) -> Float64:
    """Return joints ``float64[F, 6]`` nearer to tool poses, see ``Kinematics.solve``.

    Joints that would leave their range are cut off, and the next step makes up for it.

    Args:
        start: ``float64[F, 6]``. points: ``float64[F, 3]``. attitudes: ``float64[F, 3, 3]``.
        iterations: Damped least-squares steps.
    """
    joints = np.clip(start, LOWER, UPPER)
    for _ in range(iterations):
        frames = joint_frames(joints)
        tip = frames[-1, :, :3, 3] + TIP_OFFSET_M * frames[-1, :, :3, 2]
        axes = np.moveaxis(frames[:, :, :3, 2], 0, 2)
        arms = tip[:, :, None] - np.moveaxis(frames[:, :, :3, 3], 0, 2)
        jac = np.cross(axes, arms, axis=1)
        jac_t = np.swapaxes(jac, 1, 2)
        pinv = jac_t @ np.linalg.inv(jac @ jac_t + POINT_DAMPING * np.eye(3))
        step = (pinv @ (points - tip)[..., None])[..., 0]
        turn = attitudes @ np.swapaxes(frames[-1, :, :3, :3], 1, 2)
        error = np.stack((turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0],
                          turn[:, 1, 0] - turn[:, 0, 1]), -1) / 2  # fmt: skip
        error = error - (axes @ step[..., None])[..., 0]
        null = np.eye(6) - pinv @ jac
        rest = axes @ null
        rest_t = np.swapaxes(rest, 1, 2)
        damped = np.linalg.solve(rest @ rest_t + ATTITUDE_DAMPING * np.eye(3), error[..., None])
        step = step + (null @ rest_t @ damped)[..., 0]
        step *= np.minimum(1.0, MAX_STEP_RAD / np.maximum(np.abs(step).max(1), 1e-12))[:, None]
        joints = np.clip(joints + step, LOWER, UPPER)
    return joints
