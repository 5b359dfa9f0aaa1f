"""A plant without physics: every joint follows its target with a first-order lag.

For tests of the bus and the driver where MuJoCo would only add time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from reflex_ros.core.clock import S
from reflex_ros.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reflex_ros.core.clock import Clock
    from reflex_ros.core.types import FloatArray

JOINTS = 6
HOME = (0.0, 0.52, -0.70, 0.0, 0.17, 0.0)
"""A pose inside every joint's range, rad."""
REST = (0.0, 0.0, 0.0, 0.0, 0.35, 0.0)
"""Where an arm without power comes to lie, rad."""
_SAGGING = np.array([False, True, True, False, True, False])


class Plant(Protocol):
    """What the emulated firmware drives."""

    def command(self, joints_rad: FloatArray, gripper_m: float) -> None:
        """Set the targets: ``float64[6]`` rad and the total opening in m."""

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity, each ``float64[7]`` (rad, m; rad/s, m/s)."""


@runtime_checkable
class Releasable(Protocol):
    """A plant whose joints can lose their power, one by one (0..5)."""

    def release(self, joint: int) -> None:
        """Cut the power of a joint; it moves as gravity wants."""

    def engage(self, joint: int) -> None:
        """Restore the power of a joint; it holds where it is."""


class KinematicPlant:
    """Six joints and a gripper with a first-order lag; solved exactly between two calls.

    Joints 2, 3 and 5 sag to a rest pose while released. Safe from any thread.

    Args:
        clock: Its steady time moves the joints.
        start: ``float64[6]`` first pose, rad. ``gripper_m``: first opening.
        lag_s: Time constant of the lag. ``sag_s``: of the fall of a released joint.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        start: Sequence[float] = HOME,
        gripper_m: float = 0.0,
        lag_s: float = 0.05,
        sag_s: float = 0.4,
    ) -> None:
        if len(start) != JOINTS or not np.isfinite([*start, gripper_m]).all():
            raise ConfigError(
                f'Kinematic plant start: got {list(start)}, gripper {gripper_m}, expected '
                f'{JOINTS} finite angles (rad) and an opening (m). Correct the pose.'
            )
        if not (lag_s > 0.0 and sag_s > 0.0):
            raise ConfigError(
                f'Kinematic plant lag: got lag_s {lag_s}, sag_s {sag_s}, expected > 0 (s). '
                'Correct the time constants.'
            )
        self._clock = clock
        self._lock = threading.Lock()
        self._position = np.array([*start, gripper_m], dtype=np.float64)
        self._velocity = np.zeros(JOINTS + 1)
        self._target = self._position.copy()
        self._rest = np.array([*REST, 0.0])
        self._lag_s = np.full(JOINTS + 1, lag_s)
        self._powered_lag_s, self._sag_s = lag_s, sag_s
        self._is_released = np.zeros(JOINTS + 1, dtype=bool)
        self._now_ns = clock.mono_ns()

    def command(self, joints_rad: FloatArray, gripper_m: float) -> None:
        """Set the targets; released joints keep falling."""
        with self._lock:
            self._advance()
            goal = np.append(joints_rad, gripper_m)
            self._target = np.where(self._is_released, self._target, goal)

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return copies of position and velocity, ``float64[7]``."""
        with self._lock:
            self._advance()
            return self._position.copy(), self._velocity.copy()

    def release(self, joint: int) -> None:
        """Let a joint (0..5) go."""
        with self._lock:
            self._advance()
            self._is_released[joint] = True
            self._target[joint] = (self._rest if _SAGGING[joint] else self._position)[joint]
            self._lag_s[joint] = self._sag_s

    def engage(self, joint: int) -> None:
        """Catch a joint (0..5) where it is."""
        with self._lock:
            self._advance()
            self._is_released[joint] = False
            self._target[joint] = self._position[joint]
            self._lag_s[joint] = self._powered_lag_s

    def _advance(self) -> None:
        now_ns = self._clock.mono_ns()
        elapsed_s = (now_ns - self._now_ns) / S
        self._now_ns = now_ns
        left = (self._target - self._position) * np.exp(-elapsed_s / self._lag_s)
        self._position = self._target - left
        self._velocity = left / self._lag_s
