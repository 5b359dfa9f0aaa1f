"""Reach a target that stays where it is."""

from __future__ import annotations

from reflex_ros.sim.tasks.base import HOME_NOISE_RAD
from reflex_ros.sim.tasks.follow import Follow


class Reach(Follow):
    """As ``Follow`` with a target at rest.

    Args:
        duration_s: Length of an episode.
        tolerance_m: Largest distance that counts as reached.
        home_noise_rad: Spread of the start pose.
    """

    name = 'reach'

    def __init__(self, *, duration_s: float = 4.0, tolerance_m: float = 0.03,
                 home_noise_rad: float = HOME_NOISE_RAD) -> None:
        super().__init__(duration_s=duration_s, kinds=('static',), tolerance_m=tolerance_m,
                         home_noise_rad=home_noise_rad)
