"""The expert of the follow tasks.

Law, once per control step: command += feed-forward + gain * (reference - command), limited in
speed. The reference is the pose at the target; a reference that jumps gives no feed-forward.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reflex_ros.core.types import FloatArray, SimTruth
from reflex_ros.sim.kinematics import leaning_pose
from reflex_ros.sim.mjcf import GRIPPER_RANGE_M, Dh

GAIN = 0.15
"""Part of the distance to the reference that one 20 ms step covers."""

MAX_SPEED_RAD_S = 2.5
JUMP_RAD = 0.15
"""A reference that moves farther than this in 20 ms has jumped."""

PERIOD_NS = 20_000_000
BEND_S = 0.6
"""How long an acceleration is believed in, s."""

LONGEST_BETWEEN_S = 0.4
MAX_ACCELERATION_M_S2 = 0.8
"""A larger change of velocity is a stop or a start, not a bend."""

WORKSPACE = ((0.25, -0.17, 0.10), (0.41, 0.17, 0.30))
"""Corners of the region that targets move in, m; extrapolation ends at its faces."""


def reference(positions: npt.ArrayLike, *, dh: Dh = 'new') -> FloatArray:
    """Return the poses float64[..., 6] (rad) at target positions float64[..., 3] (m)."""
    return leaning_pose(positions, dh=dh)


def extrapolate(truth: SimTruth, times_s: FloatArray, *,
                before: SimTruth | None = None) -> FloatArray:
    """Return where the target will be at ``truth.stamp_ns`` + ``times_s`` if it goes on so.

    Args:
        truth: State of the world; its present target position and velocity are used.
        times_s: float64[n] s.
        before: An earlier truth; with it the motion is bent as it has bent since, unless the
            target jumped or stopped in between. Without it the motion is straight.

    Returns:
        float64[n, 3] m, inside the workspace.
    """
    times = times_s[:, None]
    lower = np.minimum(WORKSPACE[0], truth.target_position)
    upper = np.maximum(WORKSPACE[1], truth.target_position)
    ahead = truth.target_position + truth.target_velocity * times
    if before is not None:
        ahead = ahead + acceleration(truth, before) * np.minimum(times, BEND_S) ** 2 / 2
    return np.minimum(np.maximum(ahead, lower), upper)


def acceleration(truth: SimTruth, before: SimTruth) -> FloatArray:
    """Return the target's acceleration between two truths, float64[3] m/s^2; 0 after a jump."""
    elapsed_s = (truth.stamp_ns - before.stamp_ns) / 1e9
    if not 0.0 < elapsed_s <= LONGEST_BETWEEN_S:
        return np.zeros(3)
    mean_velocity = (truth.target_position - before.target_position) / elapsed_s
    middle = (truth.target_velocity + before.target_velocity) / 2
    found = (truth.target_velocity - before.target_velocity) / elapsed_s
    is_smooth = (np.abs(mean_velocity - middle).max() < 0.02
                 and np.abs(found).max() < MAX_ACCELERATION_M_S2)
    return found if is_smooth else np.zeros(3)


def roll(command: FloatArray, references: FloatArray, *,
         period_ns: int = PERIOD_NS) -> FloatArray:
    """Return the commands of the law from ``command`` along ``references``.

    Args:
        command: float64[B, 6] command (or state) before the first step, rad.
        references: float64[B, n + 1, 6] reference poses, one per step, rad.
        period_ns: Length of a step.

    Returns:
        float64[B, n, 6] rad; row i is sent at the instant of reference i.
    """
    steps = period_ns / PERIOD_NS
    gain, limit = 1.0 - (1.0 - GAIN) ** steps, MAX_SPEED_RAD_S * period_ns / 1e9
    feed = references[:, 1:] - references[:, :-1]
    feed[np.abs(feed).max(axis=-1) > JUMP_RAD * steps] = 0.0
    if len(feed) == 1:
        return np.array([_joint_along(*joint, gain, limit) for joint in zip(
            command[0].tolist(), references[0, :-1].T.tolist(), feed[0].T.tolist(), strict=True,
        )]).T[None]
    out = np.empty_like(feed)
    for i in range(feed.shape[1]):
        move = feed[:, i] + gain * (references[:, i] - command)
        command = command + np.minimum(np.maximum(move, -limit), limit)
        out[:, i] = command
    return out


def _joint_along(command: float, references: list[float], feed: list[float], gain: float,
                 limit: float) -> list[float]:
    """Return the commands of one joint, to the last bit as ``roll`` computes those of many arms.

    A lone arm costs a tenth of what arrays of six take.
    """
    out = []
    for target, step in zip(references, feed, strict=True):
        move = step + gain * (target - command)
        command += move if -limit <= move <= limit else max(min(move, limit), -limit)
        out.append(command)
    return out


def chunk(truth: SimTruth, state: npt.ArrayLike, *, horizon: int = 50,
          period_ns: int = PERIOD_NS, start_delay_ns: int = 0, dh: Dh = 'new',
          before: SimTruth | None = None) -> FloatArray:
    """Return the expert's chunk for a target seen in ``truth``.

    Args:
        truth: State of the world at the observation; what comes after it is not known.
        state: float64[7] state that row 0 continues, rad and m.
        horizon: Number of rows. period_ns: Time between rows.
        start_delay_ns: Instant of row 0 after the truth; the target is extrapolated over it.
        dh: Variant of the DH table.
        before: The truth before this one, at most 0.4 s older; improves the extrapolation.

    Returns:
        float64[horizon, 7] absolute positions, gripper open.
    """
    times_s = (start_delay_ns + np.arange(horizon + 1) * period_ns) / 1e9
    references = reference(extrapolate(truth, times_s, before=before), dh=dh)[None]
    start = np.asarray(state, dtype=np.float64)[None, :6]
    return _with_open_gripper(roll(start, references, period_ns=period_ns))[0]


class FollowExpert:
    """``chunk`` that remembers the truth before, and so sees how the target's way bends.

    Args:
        dh: Variant of the DH table.
    """

    def __init__(self, dh: Dh = 'new') -> None:
        self._dh = dh
        self._before: SimTruth | None = None
        self._now: SimTruth | None = None

    def chunk(self, truth: SimTruth, state: npt.ArrayLike, *, horizon: int = 50,
              period_ns: int = PERIOD_NS, start_delay_ns: int = 0) -> FloatArray:
        """Return the expert's chunk, float64[horizon, 7]; see the function of that name."""
        if self._now is None or truth.stamp_ns != self._now.stamp_ns:
            self._before, self._now = self._now, truth
        return chunk(truth, state, horizon=horizon, period_ns=period_ns,
                     start_delay_ns=start_delay_ns, dh=self._dh, before=self._before)


def labels(states: npt.ArrayLike, references: npt.NDArray[np.floating],
           first: npt.ArrayLike, *, horizon: int = 50) -> FloatArray:
    """Return the expert's chunks for a batch, along references that are already computed.

    Args:
        states: float64[B, >= 6] command (or state) that row 0 continues, rad.
        references: float[B, T, 6] poses of the target's motion without later jumps, rad, one per
            20 ms; the last is held.
        first: int[B] index of row 0 in ``references``.
        horizon: Number of rows.

    Returns:
        float64[B, horizon, 7] absolute positions, gripper open.
    """
    table = np.asarray(references)
    index = np.asarray(first)[:, None] + np.arange(horizon + 1)
    index = np.minimum(index, table.shape[1] - 1)
    picked = np.take_along_axis(table, index[..., None], axis=1).astype(np.float64)
    return _with_open_gripper(roll(np.asarray(states, dtype=np.float64)[:, :6], picked))


def _with_open_gripper(joints: FloatArray) -> FloatArray:
    """Return float64[..., 7] with the gripper fully open."""
    opening = np.full((*joints.shape[:-1], 1), GRIPPER_RANGE_M[1])
    return np.concatenate((joints, opening), axis=-1)
