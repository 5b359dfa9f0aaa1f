"""Scripted experts: commands and chunks from the truth alone."""

from __future__ import annotations

from typing import Protocol

import numpy.typing as npt

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import FloatArray, SimTruth
from reflex_ros.sim.experts.drawer import DrawerExpert
from reflex_ros.sim.experts.follow import PERIOD_NS, FollowExpert
from reflex_ros.sim.experts.hold import HoldExpert
from reflex_ros.sim.experts.imagine import ImaginingExpert
from reflex_ros.sim.experts.manipulation import Expert
from reflex_ros.sim.experts.pick_place import PickPlaceExpert
from reflex_ros.sim.mjcf import Dh

__all__ = ['ChunkExpert', 'make_chunk_expert', 'make_expert']


class ChunkExpert(Protocol):
    """The expert of a task as a policy without weights."""

    def chunk(self, truth: SimTruth, state: npt.ArrayLike, *, horizon: int = 50,
              period_ns: int = PERIOD_NS, start_delay_ns: int = 0) -> FloatArray:
        """Return float64[horizon, 7] absolute positions that continue ``state`` float64[7].

        Args:
            truth: State of the world at the observation.
            state: State at the instant of row 0, rad and m.
            horizon: Number of rows. period_ns: Time between rows.
            start_delay_ns: Instant of row 0 after the truth.
        """


def make_expert(task: str, dh: Dh = 'new') -> Expert:
    """Return the step-by-step expert of a manipulation task.

    Raises:
        ConfigError: The task has none.
    """
    if task in ('pick_place', 'recovery'):
        return PickPlaceExpert(dh)
    if task == 'drawer':
        return DrawerExpert(dh)
    raise ConfigError(f'step-by-step expert of task: got {task!r}, expected pick_place, recovery'
                      ' or drawer. Use make_chunk_expert for the other tasks.')


def make_chunk_expert(task: str, dh: Dh = 'new') -> ChunkExpert:
    """Return the chunk expert of a task; one per thread and episode.

    Raises:
        ConfigError: Unknown task.
    """
    if task == 'hold':
        return HoldExpert()
    if task in ('reach', 'follow', 'jump'):
        return FollowExpert(dh)
    return ImaginingExpert(make_expert(task, dh), dh)
