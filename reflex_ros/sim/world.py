"""The simulated world: physics, a task that moves things, and the truth about both.

A bus, a camera and a clock may share one world: a lock keeps every reading whole. Time starts at 0
and moves only in ``advance``. Two worlds with the same task, seed and commands at the same times
go the same way, bit by bit, on one machine.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import FloatArray, SimTruth
from reflex_ros.sim.mjcf import Dh
from reflex_ros.sim.scene import HIDDEN, Scene, Snapshot
from reflex_ros.sim.tasks import Task, make_task
from reflex_ros.sim.truth import EventLog, Goal, describe

S = 1_000_000_000


class World:
    """One episode of a task. Safe from any thread; ``scene`` and ``goal`` are for the task.

    Args:
        task: Name of a task with its defaults, or a task.
        seed: Seed of everything random in the episode.
        dh: Variant of the DH table.
        timestep_s: Physics step; a whole number of ns.

    Raises:
        ConfigError: Unknown task or variant, or a step that is not positive.
    """

    def __init__(self, task: str | Task, *, seed: int, dh: Dh = 'new',
                 timestep_s: float = 0.004) -> None:
        self.task: Task = make_task(task) if isinstance(task, str) else task
        self._step_ns = round(timestep_s * S)
        if self._step_ns <= 0:
            raise ConfigError(f'physics step: got {timestep_s}, expected > 0 (s). Use 0.004.')
        self.dh = dh
        self._lock = threading.RLock()
        self.scene = Scene(dh, timestep_s)
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Start a new episode at time 0."""
        with self._lock:
            self._time_ns = 0
            self._events = EventLog()
            start = self.task.reset(np.random.default_rng(seed))
            self.scene.reset(start.joints_rad)
            self.scene.place_cube(*start.cube)
            self.scene.place_cabinet(*start.cabinet)
            self.scene.place_target(HIDDEN)
            self.scene.refresh()
            self.goal = Goal.at(self.scene.tip)
            self.task.advance(self, 0.0)

    @property
    def time_ns(self) -> int:
        """World time, ns."""
        return self._time_ns

    @property
    def model_xml(self) -> str:
        """The scene that a renderer has to load."""
        return self.scene.xml

    @property
    def is_over(self) -> bool:
        """Whether the episode has reached the task's duration; the world goes on all the same."""
        return self._time_ns >= self.task.duration_s * S

    def command(self, joints_rad: npt.ArrayLike, gripper_m: float) -> None:
        """Set the drive goals from now on: float64[6] rad and the total opening in m.

        Raises:
            ConfigError: Wrong shape or a value that is not finite; the old goals stay.
        """
        with self._lock:
            self.scene.command(joints_rad, gripper_m)

    def release(self, joint: int) -> None:
        """Cut the power of joint 0..5; it falls."""
        with self._lock:
            self.scene.release(joint)

    def engage(self, joint: int) -> None:
        """Restore the power of joint 0..5; it holds where it is."""
        with self._lock:
            self.scene.engage(joint)

    def advance(self, until_ns: int) -> None:
        """Run physics and task up to ``until_ns``; ends less than one step before it."""
        while self._time_ns + self._step_ns <= until_ns:
            with self._lock:
                self.scene.step()
                self._time_ns += self._step_ns
                self.task.advance(self, self._time_ns / S)

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity, float64[7] each (rad, m; rad/s, m/s); copies."""
        with self._lock:
            return self.scene.joint_state()

    def truth(self, number: int, stamp_ns: int) -> SimTruth:
        """Return the truth of now with the events since the last call.

        Args:
            number: Publisher's counter.
            stamp_ns: ROS time of now; stamps of events follow from it.
        """
        with self._lock:
            return describe(self.scene, self.goal, number=number, stamp_ns=stamp_ns,
                            task=self.task.name, phase=self.task.phase,
                            success=self.task.is_success(self),
                            events=self._events.take(stamp_ns - self._time_ns))

    def snapshot(self) -> Snapshot:
        """Return a copy of what a renderer needs."""
        with self._lock:
            return self.scene.snapshot(self._time_ns)

    def set_goal(self, goal: Goal, *, show: bool = False) -> None:
        """Set what the tool point is measured against; for tasks. ``show`` puts the ball there."""
        self.goal = goal
        if show:
            self.scene.place_target(goal.position)

    def emit(self, name: str) -> None:
        """Note an event of now; for tasks."""
        self._events.add(name, self._time_ns)
