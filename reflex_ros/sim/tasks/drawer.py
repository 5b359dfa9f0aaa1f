"""Pull the drawer open by its handle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.sim.tasks.base import HOME_NOISE_RAD, Start, draw_start
from reflex_ros.sim.truth import Goal

if TYPE_CHECKING:
    from reflex_ros.sim.world import World

CABINET = (0.52, 0.24)
SPREAD_M = 0.02
OPEN_M = 0.10


class Drawer:
    """The cabinet stands within 2 cm of its place. Success now: the drawer is open by 10 cm.

    The goal is the handle, which moves with the drawer.

    Args:
        duration_s: Length of an episode.
        home_noise_rad: Spread of the start pose.
    """

    name = 'drawer'
    phase = ''

    def __init__(self, *, duration_s: float = 8.0,
                 home_noise_rad: float = HOME_NOISE_RAD) -> None:
        self.duration_s = duration_s
        self._home_noise_rad = home_noise_rad

    def reset(self, rng: np.random.Generator) -> Start:
        """Draw the start pose and the place of the cabinet."""
        start = draw_start(rng, home_noise_rad=self._home_noise_rad)
        x, y = CABINET + rng.uniform(-SPREAD_M, SPREAD_M, 2)
        return Start(start.joints_rad, start.cube, (float(x), float(y)))

    def advance(self, world: World, time_s: float) -> None:
        """Keep the goal on the handle."""
        velocity = np.array([-world.scene.drawer_speed_m_s, 0.0, 0.0])
        world.set_goal(Goal(world.scene.handle, velocity))

    def is_success(self, world: World) -> bool:
        """Return whether the drawer is open."""
        return world.scene.drawer_m > OPEN_M
