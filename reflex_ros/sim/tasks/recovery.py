"""Put the cube into the bin although it is shoved away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.sim.tasks.base import HOME_NOISE_RAD, Start
from reflex_ros.sim.tasks.pick_place import PickPlace

if TYPE_CHECKING:
    from reflex_ros.sim.world import World

SHOVE_M = (0.05, 0.09)
SECOND_SHOVE = 0.3
"""Probability of the second shove."""


class Recovery(PickPlace):
    """As ``PickPlace``, but the cube is shoved 5 to 9 cm, an event ``shove`` each time.

    First shove: when the open gripper comes down over the cube. Second, in 30 % of the episodes:
    when the cube is being lifted.

    Args:
        duration_s: Length of an episode.
        home_noise_rad: Spread of the start pose.
    """

    name = 'recovery'

    def __init__(self, *, duration_s: float = 16.0,
                 home_noise_rad: float = HOME_NOISE_RAD) -> None:
        super().__init__(duration_s=duration_s, home_noise_rad=home_noise_rad)
        self._rng = np.random.default_rng(0)
        self._shoves = 0

    def reset(self, rng: np.random.Generator) -> Start:
        """Draw the start; shoves are drawn later from the same generator."""
        self._rng = rng
        self._shoves = 0
        return super().reset(rng)

    def advance(self, world: World, time_s: float) -> None:
        """Shove the cube when its moment has come."""
        super().advance(world, time_s)
        if self._shoves >= 2:
            return
        tip, cube = world.scene.tip, world.scene.cube
        if self._shoves == 0 and tip[2] < 0.07 and np.hypot(*(tip - cube)[:2]) < 0.04:
            self._shove(world)
        elif self._shoves == 1 and tip[2] > 0.08 and cube[2] > 0.05:
            if self._rng.random() < SECOND_SHOVE:
                self._shove(world)
            self._shoves = 2

    def _shove(self, world: World) -> None:
        self._shoves += 1
        cube = world.scene.cube
        place = cube[:2]
        for _ in range(50):
            bearing, distance = self._rng.uniform(0.0, 2 * np.pi), self._rng.uniform(*SHOVE_M)
            place = cube[:2] + distance * np.array([np.cos(bearing), np.sin(bearing)])
            if 0.22 < np.hypot(*place) < 0.42 and -0.12 < place[1] < 0.16:
                break
        world.scene.place_cube(float(place[0]), float(place[1]), self._rng.uniform(-0.7, 0.7))
        world.emit('shove')
