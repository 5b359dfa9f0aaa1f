"""Follow a target that moves and jumps."""

from __future__ import annotations

from reflex_ros.sim.tasks.follow import Follow


class Jump(Follow):
    """As ``Follow``, but every 1.2 to 3.2 s the target is elsewhere and moves otherwise.

    Each jump is an event ``jump``. The time of a jump is drawn without regard to control ticks
    and camera frames, so that reactions are measured at a random phase.
    """

    name = 'jump'
    _jumps = True
