"""Put the cube into the bin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.sim.tasks.base import HOME_NOISE_RAD, Start, draw_start
from reflex_ros.sim.truth import Goal

if TYPE_CHECKING:
    from reflex_ros.sim.world import World

BIN = (0.28, -0.25, 0.0)
"""Middle of the bin's floor, m."""

HALF_BIN_M = 0.06
RELEASED_M = 0.05
"""Opening of the gripper past which the cube is let go, m."""

REST_S = 0.2


class PickPlace:
    """The cube lies somewhere in reach, the bin stands still.

    Success now: the cube has been inside the bin, below its rim, with the gripper open for 0.2 s.

    Args:
        duration_s: Length of an episode.
        home_noise_rad: Spread of the start pose.
    """

    name = 'pick_place'

    def __init__(self, *, duration_s: float = 12.0,
                 home_noise_rad: float = HOME_NOISE_RAD) -> None:
        self.duration_s = duration_s
        self._home_noise_rad = home_noise_rad
        self._placed_since_s: float | None = None
        self._time_s = 0.0

    @property
    def phase(self) -> str:
        """``placed`` once the cube rests in the bin, else ``open``."""
        return 'open' if self._placed_since_s is None else 'placed'

    def reset(self, rng: np.random.Generator) -> Start:
        """Draw the start pose and the place of the cube."""
        self._placed_since_s = None
        self._time_s = 0.0
        return draw_start(rng, home_noise_rad=self._home_noise_rad)

    def advance(self, world: World, time_s: float) -> None:
        """Watch the cube; nothing moves by itself."""
        if time_s == 0.0:
            world.set_goal(Goal.at(np.array(BIN)))
        self._time_s = time_s
        if not self._is_placed(world):
            self._placed_since_s = None
        elif self._placed_since_s is None:
            self._placed_since_s = time_s

    def is_success(self, world: World) -> bool:
        """Return whether the cube has rested in the bin for long enough."""
        return (self._placed_since_s is not None
                and self._time_s - self._placed_since_s >= REST_S)

    @staticmethod
    def _is_placed(world: World) -> bool:
        cube = world.scene.cube
        inside = np.abs(cube[:2] - BIN[:2]).max() < HALF_BIN_M and cube[2] < 0.04
        return bool(inside) and world.joint_state()[0][6] > RELEASED_M
