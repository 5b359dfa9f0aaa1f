"""Follow a target that moves smoothly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.sim.tasks.base import HOME_NOISE_RAD, Start, draw_start
from reflex_ros.sim.tasks.target import (
    KINDS,
    Segment,
    check_kinds,
    draw_segment,
    draw_segments,
)
from reflex_ros.sim.truth import Goal

if TYPE_CHECKING:
    from reflex_ros.sim.world import World


class Follow:
    """The target moves without jumps.

    Success now: the tool point is within ``tolerance_m`` of the target. Success of an episode or
    of the time after a jump is judged by ``FollowScore``.

    Args:
        duration_s: Length of an episode.
        kinds: Kinds of motion to draw from.
        tolerance_m: 0.03 for scripted control, 0.05 for learned policies.
        home_noise_rad: Spread of the start pose.
    """

    name = 'follow'
    _jumps = False

    def __init__(self, *, duration_s: float = 8.0, kinds: Sequence[str] = tuple(KINDS),
                 tolerance_m: float = 0.03, home_noise_rad: float = HOME_NOISE_RAD) -> None:
        self.duration_s = duration_s
        self.tolerance_m = tolerance_m
        self.segments: tuple[Segment, ...] = ()
        self._kinds = check_kinds(kinds)
        self._home_noise_rad = home_noise_rad
        self._active = -1

    @property
    def phase(self) -> str:
        """Kind of motion of the running segment."""
        return self.segments[max(0, self._active)].kind if self.segments else ''

    def reset(self, rng: np.random.Generator) -> Start:
        """Draw the start and the whole motion of the target."""
        start = draw_start(rng, home_noise_rad=self._home_noise_rad)
        self.segments = (draw_segments(rng, self.duration_s, self._kinds) if self._jumps
                         else (draw_segment(rng, 0.0, self._kinds),))
        self._active = 0
        return start

    def advance(self, world: World, time_s: float) -> None:
        """Move the target; a jump is an event of the first step that shows it."""
        while (self._active + 1 < len(self.segments)
               and self.segments[self._active + 1].start_s <= time_s):
            self._active += 1
            world.emit('jump')
        segment = self.segments[self._active]
        world.set_goal(Goal(*segment.at(time_s)), show=True)

    def is_success(self, world: World) -> bool:
        """Return whether the tool point is at the target."""
        return bool(np.linalg.norm(world.scene.tip - world.goal.position) < self.tolerance_m)
