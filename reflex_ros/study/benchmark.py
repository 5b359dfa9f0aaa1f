"""The simulated tasks as benchmarks: one small protocol, one success rule each.

=============== =================================================================================
task            success
=============== =================================================================================
reach, follow,  each stretch between jumps: the tool point is within the tolerance of the target
jump            for at least 80 % of the samples from 1 s after the jump on
pick_place,     the cube has rested in the bin, below its rim, with the gripper open for 0.2 s
recovery
drawer          the drawer is open by more than 10 cm
hold            the tool point has never left its place by 5 mm
=============== =================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from reflex_ros.core.clock import MS
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.tasks import FollowScore, make_task
from reflex_ros.sim.world import World

if TYPE_CHECKING:
    import numpy.typing as npt

    from reflex_ros.core.types import SimTruth

CONTROL_PERIOD_NS = 20 * MS
CAMERA_PERIOD_NS = 40 * MS
FOLLOWING = ('reach', 'follow', 'jump')
"""Tasks that are judged stretch by stretch."""

Observations = dict[str, Any]
"""By name: ``state`` float64[7] (rad, m), ``truth`` the true state, and each camera's image
uint8[H, W, 3]."""


class Benchmark(Protocol):
    """A task in closed loop, whatever simulates it.

    Attributes:
        name: Of the task. ``control_period_ns``: time between two steps.
    """

    name: str
    control_period_ns: int

    def reset(self, seed: int) -> Observations:
        """Start the episode of a seed and return its first observations by name."""

    def step(self, command: npt.ArrayLike) -> Observations:
        """Take one command, float64[7] rad and m, let one period pass, and look."""

    @property
    def is_success(self) -> bool:
        """Whether the episode so far succeeds."""

    @property
    def is_over(self) -> bool:
        """Whether the episode has reached its length."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an episode is worth.

    Attributes:
        successes: One for each judged stretch; one for the episode where there are none.
        errors_m: Mean distance from the target in each judged stretch.
    """

    successes: tuple[bool, ...]
    errors_m: tuple[float, ...]

    @property
    def is_success(self) -> bool:
        """Whether something was judged and all of it succeeded."""
        return bool(self.successes) and all(self.successes)


def judge(task: str, truths: Sequence[SimTruth], *, tolerance_m: float = 0.03) -> Judgement:
    """Judge an episode by the true states of its camera frames, oldest first.

    Args:
        task: Name of the task.
        truths: True states, evenly spaced.
        tolerance_m: Distance that counts as followed.
    """
    if task in FOLLOWING:
        score = FollowScore(tolerance_m=tolerance_m)
        for truth in truths:
            score.add_truth(truth, start_stamp_ns=truths[0].stamp_ns)
        found = score.segments()
        return Judgement(tuple(bool(s.success) for s in found),
                         tuple(s.mean_error_m for s in found))
    rule = all if task == 'hold' else any
    return Judgement((bool(truths) and rule(truth.success for truth in truths),), ())


class SimBenchmark:
    """``Benchmark`` over a task of the simulated arm.

    Args:
        task: Name of the task.
        cameras: Cameras to render, e.g. ``main`` and ``wrist``; none needs no OpenGL.
        tolerance_m: Distance that counts as followed.
        options: Of the task.
    """

    control_period_ns = CONTROL_PERIOD_NS

    def __init__(self, task: str, *, cameras: tuple[str, ...] = (), tolerance_m: float = 0.03,
                 **options: Any) -> None:
        self.name = task
        self._tolerance_m = tolerance_m
        self._cameras = cameras
        self.world = World(make_task(task, **options), seed=0)
        self._rig: CameraRig | None = None
        self._truths: list[SimTruth] = []
        self._steps = 0

    def reset(self, seed: int) -> Observations:
        """Start the episode of a seed and return its first observations."""
        self.close()
        self.world.reset(seed)
        if self._cameras:
            self._rig = CameraRig(self.world.model_xml, cameras=self._cameras, seed=seed)
        self._truths, self._steps = [], 0
        return self._look()

    def step(self, command: npt.ArrayLike) -> Observations:
        """Take one command, let one period pass, and look."""
        joints = list(command)  # type: ignore[arg-type]
        self.world.command(joints[:6], joints[6])
        self._steps += 1
        self.world.advance(self._steps * CONTROL_PERIOD_NS)
        return self._look()

    def _look(self) -> Observations:
        truth = self.world.truth(self._steps + 1, self.world.time_ns)
        self._truths.append(truth)
        images = {} if self._rig is None else {
            camera: self._rig.render(self.world.snapshot(), camera, self._steps + 1)
            for camera in self._cameras}
        return {'state': truth.joint_position, 'truth': truth, **images}

    @property
    def is_success(self) -> bool:
        """Whether the episode so far succeeds."""
        return judge(self.name, self._truths, tolerance_m=self._tolerance_m).is_success

    @property
    def is_over(self) -> bool:
        """Whether the episode has reached the length of its task."""
        return self.world.is_over

    def close(self) -> None:
        """Free what renders the cameras."""
        if self._rig is not None:
            self._rig.close()
            self._rig = None
