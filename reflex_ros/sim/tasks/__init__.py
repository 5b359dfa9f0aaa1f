"""Tasks of the simulated arm, behind one protocol."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.tasks.base import Start, Task
from reflex_ros.sim.tasks.drawer import Drawer
from reflex_ros.sim.tasks.follow import Follow
from reflex_ros.sim.tasks.hold import Hold
from reflex_ros.sim.tasks.jump import Jump
from reflex_ros.sim.tasks.pick_place import PickPlace
from reflex_ros.sim.tasks.reach import Reach
from reflex_ros.sim.tasks.recovery import Recovery
from reflex_ros.sim.tasks.score import FollowScore, SegmentScore

TASKS: Mapping[str, type[Any]] = MappingProxyType({
    task.name: task for task in (Hold, Reach, Follow, Jump, PickPlace, Drawer, Recovery)})

__all__ = ['TASKS', 'FollowScore', 'SegmentScore', 'Start', 'Task', 'make_task']


def make_task(name: str, **options: Any) -> Task:
    """Return a task by name.

    Args:
        name: Key of ``TASKS``.
        options: Keyword arguments of the task's class.

    Raises:
        ConfigError: Unknown task or option.
    """
    if name not in TASKS:
        raise ConfigError(f'task: got {name!r}, expected one of {sorted(TASKS)}.'
                          ' Correct the name.')
    try:
        task: Task = TASKS[name](**options)
    except TypeError as error:
        raise ConfigError(f'options of task {name}: {error}. See the class of'
                          ' the task.') from error
    return task
