"""What the world tells about itself: the truth message and its events."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reflex_ros.core.types import FloatArray, SimEvent, SimTruth
from reflex_ros.sim.scene import Scene


@dataclass(frozen=True, slots=True)
class Goal:
    """What the tool point is measured against.

    Attributes:
        position: float64[3] m. velocity: float64[3] m/s, of this instant only.
    """

    position: FloatArray = field(compare=False)
    velocity: FloatArray = field(compare=False)

    @classmethod
    def at(cls, position: FloatArray) -> Goal:
        """Return a goal at rest."""
        return cls(np.asarray(position, dtype=np.float64), np.zeros(3))


class EventLog:
    """Events in world time, handed out once."""

    def __init__(self) -> None:
        self._events: list[tuple[str, int]] = []

    def add(self, name: str, time_ns: int) -> None:
        """Note that ``name`` happened at world time ``time_ns``."""
        self._events.append((name, time_ns))

    def take(self, offset_ns: int) -> tuple[SimEvent, ...]:
        """Return the events since the last call with world time + ``offset_ns`` as stamps."""
        events, self._events = self._events, []
        return tuple(SimEvent(name, time_ns + offset_ns) for name, time_ns in events)


def describe(scene: Scene, goal: Goal, *, number: int, stamp_ns: int, task: str, phase: str,
             success: bool, events: tuple[SimEvent, ...]) -> SimTruth:
    """Return the truth of the scene as it stands; every array is a copy."""
    position, velocity = scene.joint_state()
    return SimTruth(number=number, stamp_ns=stamp_ns, task=task, joint_position=position,
                    joint_velocity=velocity, tip_position=scene.tip,
                    target_position=goal.position.copy(), target_velocity=goal.velocity.copy(),
                    objects=scene.objects(), phase=phase, success=success, events=events)
