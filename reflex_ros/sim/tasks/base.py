"""What a task is, and what one episode of it starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from reflex_ros.core.types import FloatArray
from reflex_ros.sim.mjcf import HOME

if TYPE_CHECKING:
    from reflex_ros.sim.world import World

HOME_NOISE_RAD = 0.05
"""Standard deviation of the start pose about home, rad."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where things are at time 0.

    Attributes:
        joints_rad: float64[6] pose of the arm, at rest, gripper open.
        cube: x [m], y [m], yaw [rad] on the table. cabinet: x [m], y [m].
    """

    joints_rad: FloatArray = field(compare=False)
    cube: tuple[float, float, float]
    cabinet: tuple[float, float] = (0.52, 0.24)


class Task(Protocol):
    """One kind of episode.

    Attributes:
        name: Key in ``TASKS``. duration_s: Length of an episode.
        phase: Step the task is in, '' if it has none.
    """

    name: str
    duration_s: float
    phase: str

    def reset(self, rng: np.random.Generator) -> Start:
        """Draw a new episode; everything random comes from ``rng``."""

    def advance(self, world: World, time_s: float) -> None:
        """Move what the task moves to its place at ``time_s``; called after every physics step."""

    def is_success(self, world: World) -> bool:
        """Return whether the task's success rule holds now."""


def draw_start(rng: np.random.Generator, *, home_noise_rad: float = HOME_NOISE_RAD) -> Start:
    """Draw a start pose about home and a place of the cube."""
    bearing, reach = rng.uniform(-0.35, 0.45), rng.uniform(0.25, 0.38)
    cube = (float(reach * np.cos(bearing)), float(reach * np.sin(bearing)),
            float(rng.uniform(-0.7, 0.7)))
    return Start(np.array(HOME) + rng.normal(0.0, home_noise_rad, 6), cube)
