"""Chunks of the manipulation experts: the expert acts in a world that it imagines.

The imagined world has no contacts: joints follow their commands with the drives' lag, a cube
between closed fingers moves with them and falls when let go, a hooked drawer follows the finger.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reflex_ros.core.types import FloatArray, SimTruth
from reflex_ros.sim.experts.manipulation import PERIOD_S, Expert
from reflex_ros.sim.experts.pick_place import is_holding
from reflex_ros.sim.kinematics import Kinematics
from reflex_ros.sim.mjcf import Dh

PERIOD_NS = 20_000_000
JOINT_LAG_S = 0.06
GRIPPER_LAG_S = 0.05
CUBE_M, ASKEW_M = 0.036, 0.042
CUBE_REST_M = 0.018
HOOK_M = 0.016
"""Distance of tool point and handle when the finger touches it, m."""


class ImaginingExpert:
    """A step-by-step expert as a source of chunks.

    Args:
        expert: Expert of the task. dh: Variant of the DH table of its arm.
    """

    def __init__(self, expert: Expert, dh: Dh = 'new') -> None:
        self._expert = expert
        self._kinematics = Kinematics(dh)

    def chunk(self, truth: SimTruth, state: npt.ArrayLike, *, horizon: int = 50,
              period_ns: int = PERIOD_NS, start_delay_ns: int = 0) -> FloatArray:
        """Return the expert's chunk, float64[horizon, 7]; see the function of that name."""
        return chunk(self._expert, self._kinematics, truth, state, horizon=horizon,
                     period_ns=period_ns, start_delay_ns=start_delay_ns)


def chunk(expert: Expert, kinematics: Kinematics, truth: SimTruth, state: npt.ArrayLike, *,
          horizon: int = 50, period_ns: int = PERIOD_NS, start_delay_ns: int = 0) -> FloatArray:
    """Return the expert's chunk for the situation of ``truth``.

    Args:
        expert: Expert of the task. kinematics: Of the same arm; not shared with other threads.
        truth: State of the world at the observation.
        state: float64[7] state that row 0 continues, rad and m.
        horizon: Number of rows. period_ns: Time between rows.
        start_delay_ns: Instant of row 0 after the truth; until then the arm is taken to do
            as the expert would.

    Returns:
        float64[horizon, 7] absolute positions, rad and m.
    """
    command = np.array(state, dtype=np.float64)
    seen = _after(expert, kinematics, truth, start_delay_ns, command)
    count = int(np.ceil((horizon - 1) * period_ns / PERIOD_NS)) + 1
    rows = np.empty((count, 7))
    for i in range(count):
        rows[i] = command = expert.command(seen, command)
        seen = _moved(kinematics, seen, _lagged(seen, command))
    if period_ns == PERIOD_NS:
        return rows
    at = np.arange(horizon) * period_ns / PERIOD_NS
    return np.stack([np.interp(at, np.arange(count), column) for column in rows.T], axis=1)


def _after(expert: Expert, kinematics: Kinematics, truth: SimTruth, delay_ns: int,
           state: FloatArray) -> SimTruth:
    """Return the world after the delay, if the arm does until then what the expert would do.

    What the arm really does until then is in the running plan, of which ``state`` is all that is
    known: the imagined joints are moved to fit it.
    """
    seen = truth
    command = truth.joint_position + JOINT_LAG_S * truth.joint_velocity
    steps = round(max(delay_ns, 0) / PERIOD_NS)
    for _ in range(steps):
        command = expert.command(seen, command)
        seen = _moved(kinematics, seen, _lagged(seen, command))
    if not steps:
        return truth
    shift = np.append(state[:6] - command[:6], 0.0)
    return _moved(kinematics, seen, seen.joint_position + shift)


def _lagged(seen: SimTruth, command: FloatArray) -> FloatArray:
    """Return the joints one step later; fingers on a cube cannot close further."""
    lag = np.array([JOINT_LAG_S] * 6 + [GRIPPER_LAG_S])
    joints = command + (seen.joint_position - command) * np.exp(-PERIOD_S / lag)
    opening = seen.joint_position[6]
    if opening > CUBE_M - 0.004 and np.linalg.norm(
            seen.objects['cube'][:3] - seen.tip_position) < 0.03:
        # A cube that lies askew keeps the fingers wider apart than its side.
        joints[6] = max(joints[6], opening if opening < ASKEW_M else CUBE_M)
    return joints


def _moved(kinematics: Kinematics, seen: SimTruth, joints: FloatArray) -> SimTruth:
    """Return the truth with the arm at ``joints`` and what it holds or pulls taken along."""
    tip, _ = kinematics.tip(joints[:6])
    cube, handle = seen.objects['cube'].copy(), seen.objects['handle'].copy()
    if is_holding(seen):
        cube[:3] += tip - seen.tip_position
    elif cube[2] > 2 * CUBE_REST_M:
        cube[2] = CUBE_REST_M
    off = tip - handle[:3]
    if seen.task == 'drawer' and np.hypot(off[1], off[2]) < 0.03 and off[0] > -0.01:
        handle[0] = min(handle[0], tip[0] - HOOK_M)
    return replace(seen, joint_position=joints, tip_position=tip,
                   joint_velocity=(joints - seen.joint_position) / PERIOD_S,
                   objects={**seen.objects, 'cube': cube, 'handle': handle})
