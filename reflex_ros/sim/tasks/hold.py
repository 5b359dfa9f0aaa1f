"""Stay where the arm is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.sim.tasks.base import HOME_NOISE_RAD, Start, draw_start

if TYPE_CHECKING:
    from reflex_ros.sim.world import World


class Hold:
    """Nothing moves. Success now: the tool point is within 5 mm of where it started.

    Args:
        duration_s: Length of an episode.
        home_noise_rad: Spread of the start pose.
    """

    name = 'hold'
    phase = ''

    def __init__(self, *, duration_s: float = 4.0, home_noise_rad: float = HOME_NOISE_RAD) -> None:
        self.duration_s = duration_s
        self._home_noise_rad = home_noise_rad

    def reset(self, rng: np.random.Generator) -> Start:
        """Draw the start pose."""
        return draw_start(rng, home_noise_rad=self._home_noise_rad)

    def advance(self, world: World, time_s: float) -> None:
        """Move nothing; the world's first goal is the tool point at the start."""

    def is_success(self, world: World) -> bool:
        """Return whether the tool point is where it started."""
        return bool(np.linalg.norm(world.scene.tip - world.goal.position) < 0.005)
