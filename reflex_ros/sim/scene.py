"""Physics of the scene: drives, bodies and what can be read of them.

Nothing here knows of time beyond one step, of tasks or of ROS.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import mujoco
import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import FloatArray
from reflex_ros.sim.kinematics import LOWER, UPPER
from reflex_ros.sim.mjcf import GRIPPER_RANGE_M, MAX_SPEED_RAD_S, Dh, scene_xml

CUBE_REST_M = 0.0181
"""Height of the cube's centre on the table, m."""

HIDDEN = (0.35, 0.0, -0.5)
"""Where the target's ball is when a task does not show it: under the table."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of what a renderer needs, safe to hand to another thread.

    Attributes:
        time_ns: World time of the copy.
        qpos: float64[nq] generalised positions.
        mocap_position, mocap_attitude: float64[n, 3] and float64[n, 4] (w, x, y, z).
    """

    time_ns: int
    qpos: FloatArray = field(compare=False)
    mocap_position: FloatArray = field(compare=False)
    mocap_attitude: FloatArray = field(compare=False)


class Scene:
    """The arm on its table with cube, bin, cabinet and target. Not thread-safe.

    Args:
        dh: Variant of the DH table.
        timestep_s: Physics step, s.
    """

    def __init__(self, dh: Dh, timestep_s: float) -> None:
        self.xml = scene_xml(dh, timestep_s=timestep_s)
        self._model = model = mujoco.MjModel.from_xml_string(self.xml)
        self._data = mujoco.MjData(model)
        self._goal = np.zeros(7)
        self._range = np.array(LOWER), np.array(UPPER)
        self._is_released = np.zeros(6, dtype=bool)
        self._has_released = False
        self._gain = model.actuator_gainprm[:6].copy(), model.actuator_biasprm[:6].copy()
        self._slew = MAX_SPEED_RAD_S * timestep_s
        self._tip, self._handle = model.site('tip').id, model.site('handle').id
        self._body = {name: model.body(name).id for name in ('cube', 'bin', 'cabinet', 'drawer')}
        self._mocap = {name: int(model.body(name).mocapid[0]) for name in ('cabinet', 'target')}
        self._cube_q = int(model.joint('cube').qposadr[0])
        self._cube_v = int(model.joint('cube').dofadr[0])
        self._drawer_q = int(model.joint('drawer').qposadr[0])
        self._drawer_v = int(model.joint('drawer').dofadr[0])

    def reset(self, joints_rad: npt.ArrayLike) -> None:
        """Return every body to its place and the arm, at rest and open, to ``joints_rad``."""
        mujoco.mj_resetData(self._model, self._data)
        for joint in np.flatnonzero(self._is_released):
            self.engage(int(joint))
        joints = np.clip(joints_rad, LOWER, UPPER)
        self._goal = np.append(joints, GRIPPER_RANGE_M[1] / 2)
        self._data.qpos[:6] = joints
        self._data.qpos[6:8] = GRIPPER_RANGE_M[1] / 2
        self._data.ctrl[:] = self._goal
        self.refresh()

    def refresh(self) -> None:
        """Recompute what follows from the positions; needed after bodies were placed by hand."""
        mujoco.mj_forward(self._model, self._data)

    def command(self, joints_rad: npt.ArrayLike, gripper_m: float) -> None:
        """Set what the drives go to; out-of-range values are clamped as the SDK does.

        Args:
            joints_rad: float64[6] joint goals.
            gripper_m: Goal of the total opening.

        Raises:
            ConfigError: A value is not finite or the shape is wrong; the old goal stays.
        """
        goal = np.append(np.asarray(joints_rad, dtype=np.float64), float(gripper_m))
        if goal.shape != (7,) or not np.isfinite(goal).all():
            raise ConfigError(f'drive command: got {goal.tolist()}, expected 6 finite joints (rad)'
                              ' and one finite opening (m). Check the sender.')
        self._goal[:6] = goal[:6].clip(*self._range)  # a released joint ignores its goal
        self._goal[6] = np.clip(goal[6], *GRIPPER_RANGE_M) / 2

    def step(self) -> None:
        """Advance physics by one step; joint targets slew at no more than 3 rad/s."""
        targets = self._data.ctrl
        move = np.minimum(np.maximum(self._goal[:6] - targets[:6], -self._slew), self._slew)
        targets[:6] += move
        targets[6] = self._goal[6]
        if self._has_released:
            # Takes back the gravity compensation that the model gives every joint.
            lost = np.where(self._is_released, -self._data.qfrc_gravcomp[:6], 0.0)
            self._data.qfrc_applied[:6] = lost
        mujoco.mj_step(self._model, self._data)

    def release(self, joint: int) -> None:
        """Cut the power of joint 0..5: no drive, no gravity compensation; it falls."""
        self._is_released[joint] = self._has_released = True
        self._model.actuator_gainprm[joint] = 0.0
        self._model.actuator_biasprm[joint] = 0.0

    def engage(self, joint: int) -> None:
        """Restore the power of joint 0..5; it holds where it is."""
        self._is_released[joint] = False
        self._has_released = bool(self._is_released.any())
        self._model.actuator_gainprm[joint] = self._gain[0][joint]
        self._model.actuator_biasprm[joint] = self._gain[1][joint]
        self._data.qfrc_applied[joint] = 0.0
        here = np.clip(self._data.qpos[joint], LOWER[joint], UPPER[joint])
        self._goal[joint] = self._data.ctrl[joint] = here

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity, float64[7] each, gripper as total opening; copies."""
        return self._fold(self._data.qpos), self._fold(self._data.qvel)

    @staticmethod
    def _fold(values: FloatArray) -> FloatArray:
        """Return six joints and the sum of the two fingers."""
        folded = values[:7].copy()
        folded[6] += values[7]
        return folded

    @property
    def tip(self) -> FloatArray:
        """Tool point float64[3] in the base frame, m; a copy."""
        return np.array(self._kinematics().site_xpos[self._tip])

    @property
    def handle(self) -> FloatArray:
        """Middle of the drawer's handle float64[3], m; a copy."""
        return np.array(self._kinematics().site_xpos[self._handle])

    @property
    def drawer_m(self) -> float:
        """How far the drawer is open, m."""
        return float(self._data.qpos[self._drawer_q])

    @property
    def drawer_speed_m_s(self) -> float:
        """How fast the drawer opens, m/s."""
        return float(self._data.qvel[self._drawer_v])

    @property
    def cube(self) -> FloatArray:
        """Centre of the cube float64[3], m; a copy."""
        return np.array(self._data.qpos[self._cube_q:self._cube_q + 3])

    @property
    def target(self) -> FloatArray:
        """Centre of the target's ball float64[3], m; a copy."""
        return np.array(self._data.mocap_pos[self._mocap['target']])

    def objects(self) -> dict[str, FloatArray]:
        """Return named poses float64[7] (x, y, z, qw, qx, qy, qz) in the base frame; copies."""
        data = self._kinematics()
        poses = {name: np.concatenate((data.xpos[i], data.xquat[i]))
                 for name, i in self._body.items()}
        poses['handle'] = np.concatenate((data.site_xpos[self._handle],
                                          data.xquat[self._body['drawer']]))
        return poses

    def _kinematics(self) -> mujoco.MjData:
        """Return the data with frames of the present positions; a step leaves those before it."""
        mujoco.mj_kinematics(self._model, self._data)
        return self._data

    def place_cube(self, x_m: float, y_m: float, yaw_rad: float) -> None:
        """Put the cube on the table at rest."""
        at = self._cube_q
        self._data.qpos[at:at + 3] = (x_m, y_m, CUBE_REST_M)
        self._data.qpos[at + 3:at + 7] = (np.cos(yaw_rad / 2), 0.0, 0.0, np.sin(yaw_rad / 2))
        self._data.qvel[self._cube_v:self._cube_v + 6] = 0.0

    def place_cabinet(self, x_m: float, y_m: float) -> None:
        """Put the cabinet with its drawer on the table."""
        self._data.mocap_pos[self._mocap['cabinet']] = (x_m, y_m, 0.0)

    def place_target(self, position: npt.ArrayLike) -> None:
        """Put the target's ball at ``position`` float64[3], m."""
        self._data.mocap_pos[self._mocap['target']] = position

    def snapshot(self, time_ns: int) -> Snapshot:
        """Return a copy for a renderer."""
        data = self._data
        return Snapshot(time_ns, data.qpos.copy(), data.mocap_pos.copy(), data.mocap_quat.copy())
