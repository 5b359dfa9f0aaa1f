"""One episode of the closed loop on the virtual clock, from parameters to its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from reflex_ros.core.clock import MS, S
from reflex_ros.core.param_table import BRIDGE, ENCODER, POLICY, SIMULATOR
from reflex_ros.core.params import defaults
from reflex_ros.core.probe import Cost, constant_costs
from reflex_ros.core.summary import LedgerSummary, summarise
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.experts import make_chunk_expert
from reflex_ros.sim.tasks import make_task
from reflex_ros.sim.tasks.score import FollowScore, SegmentScore
from reflex_ros.sim.world import World
from reflex_ros.stages.build import bridge_config, limits_from, policy_config
from reflex_ros.stages.models import FrameEncoder
from reflex_ros.stages.oracle import OraclePolicy
from reflex_ros.stages.runlog import RunLog
from reflex_ros.stages.virtual import VirtualConfig, VirtualRun

if TYPE_CHECKING:
    from reflex_ros.core.param_table import Value
    from reflex_ros.core.types import ByteArray, FloatArray, SimEvent, SimTruth
    from reflex_ros.stages.models import ChunkModel

SIM_DRIVES: Mapping[str, Value] = MappingProxyType({
    'arm.acceleration_rad_s2': (20.0,) * 6,
    'arm.jerk_rad_s3': (2000.0,) * 6,
    'arm.gripper_acceleration_m_s2': 20.0,
    'arm.gripper_jerk_m_s3': 1000.0,
    'safety.speed_scale': 1.0,
    'run.autostart': True,
})
"""What ``config/sim.yaml`` sets for the simulated drives, which have no such limits of their own;
a real PiPer's are a quarter of it."""


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One episode.

    Attributes:
        mode: ``sync``, ``async_naive`` or ``reflex``. ``execute_steps``: rows per chunk.
        delay_ms: Injected delay. ``seed``: seed of world, costs and camera phase.
        policy: Family of the policy; decides its presets.
        kinds: Ways in which the target may move, () for the task's own mix.
        task: Task of the world. ``duration_s``: its length.
        tolerance_m: Distance within which the target counts as followed.
        params: Further parameters by name.
        encode_ms, denoise_ms: Modelled costs.
        instruction: What a policy that reads is told.
    """

    mode: str = 'reflex'
    execute_steps: int = 5
    delay_ms: float = 0.0
    seed: int = 0
    policy: str = 'oracle'
    task: str = 'jump'
    kinds: tuple[str, ...] = ()
    duration_s: float = 8.0
    tolerance_m: float = 0.03
    params: Mapping[str, Value] = field(default_factory=dict)
    encode_ms: float = 5.0
    denoise_ms: float = 15.0
    instruction: str = 'follow the target'

    def parameters(self) -> dict[str, Value]:
        """Return every parameter of bridge, encoder, policy and simulator."""
        values: dict[str, Value] = {}
        for node in (SIMULATOR, ENCODER, POLICY, BRIDGE):
            values.update(defaults(node))
        chosen = self.chosen()
        unknown = sorted(set(chosen) - set(values))
        if unknown:
            raise KeyError(f'unknown parameters: {", ".join(unknown)}')
        return {**values, **chosen}

    def chosen(self) -> dict[str, Value]:
        """Return the parameters that an episode sets, whatever their defaults are."""
        delay_s = self.delay_ms / 1e3
        return {
            **SIM_DRIVES,
            'policy.name': self.policy,
            'chunk.mode': self.mode,
            'chunk.execute_steps': self.execute_steps,
            'delay.injected_s': delay_s,
            'safety.max_observation_age_s': max(0.5, 2 * delay_s + 0.15),
            'chunk.blend_above_rad': 10.0,  # compared is each stitcher as it is
            'safety.catch_up_factor': 1000.0,
            **self.params,
        }


class SeeingEncoder(FrameEncoder, Protocol):
    """An encoder that says what it wants to see."""

    @property
    def cameras(self) -> tuple[str, ...]:
        """Return the cameras that it encodes, primary first."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an episode begins that repeats a part of a longer one.

    Attributes:
        world_ns: World time at which the arm is enabled; until then it rests.
        camera_phase_ns: Offset of the first frame from the first tick.
        world_length_s: Length that the world's motions are drawn for.
        draw: Seed of costs and of the policy's noise.
    """

    world_ns: int
    camera_phase_ns: int
    world_length_s: float
    draw: int


class LaterWorld:
    """A world that has gone on for a while, as one at time 0.

    Args:
        world: The world, at its own time 0.
        start_ns: World time that is to be time 0.
    """

    def __init__(self, world: World, start_ns: int) -> None:
        self._world, self._start_ns = world, start_ns
        world.advance(start_ns)
        world.truth(0, 0)  # what happened before is nobody's news

    def advance(self, until_ns: int) -> None:
        """Run the physics to a time since the start, ns."""
        self._world.advance(self._start_ns + until_ns)

    def truth(self, number: int, stamp_ns: int) -> SimTruth:
        """Return the true state now, stamped ``stamp_ns``."""
        return self._world.truth(number, stamp_ns)

    def command(self, joints_rad: FloatArray, gripper_m: float) -> None:
        """Set the drive targets."""
        self._world.command(joints_rad, gripper_m)

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity, ``float64[7]`` each."""
        return self._world.joint_state()


@dataclass(frozen=True, slots=True)
class Episode:
    """What became of an episode.

    Attributes:
        spec: The episode. ``summary``: its figures. ``segments``: score between jumps.
        mean_error_m: Mean distance of the judged samples, nan without any.
        fallbacks: Inferences whose prediction was refused. ``log``: everything published.
    """

    spec: EpisodeSpec
    summary: LedgerSummary
    segments: tuple[SegmentScore, ...]
    mean_error_m: float
    fallbacks: int
    log: RunLog = field(repr=False)


def run_episode(spec: EpisodeSpec, *, model: ChunkModel | None = None,
                encoder: SeeingEncoder | None = None,
                costs: Mapping[str, Cost] | None = None,
                edit_image: Callable[[ByteArray], ByteArray] | None = None,
                entry: Entry | None = None) -> Episode:
    """Run one episode.

    Args:
        spec: The episode.
        model: The policy; None for ``oracle``.
        encoder: The encoder that goes with it; with one, its cameras are rendered.
        costs: Modelled costs; None for those of ``spec``.
        edit_image: Changes every image before it is encoded (ablations).
        entry: Where it begins, None for time 0 of a world of the task's own length.
    """
    params = spec.parameters()
    options: dict[str, Any] = {'kinds': spec.kinds} if spec.kinds else {}
    if entry is not None:
        options['duration_s'] = entry.world_length_s
    world = World(make_task(spec.task, **options), seed=spec.seed)
    phase_ns = int(np.random.default_rng((spec.seed, 7)).integers(0, 40)) * MS
    cameras = encoder.cameras if encoder is not None else ('main',)
    config = VirtualConfig(
        bridge=replace(bridge_config(params, policy='tiny'), instruction=spec.instruction),
        policy=policy_config(params),
        cameras=cameras,
        camera_phase_ns=entry.camera_phase_ns if entry else phase_ns,
        costs=costs or constant_costs(
            encode=spec.encode_ms, denoise=spec.denoise_ms, instruction=5.0, publish=0.1,
            stage_copy=0.1, decode=0.1,
        ),
        seed=entry.draw if entry else spec.seed, duration_ns=round(spec.duration_s * S),
        pipeline=str(params['policy.pipeline']),
    )
    stage = LaterWorld(world, entry.world_ns) if entry else world
    with _renderer(world, spec, edit_image, () if encoder is None else cameras) as render:
        run = VirtualRun(
            config, world=stage, limits=limits_from(params),
            model=model or OraclePolicy(make_chunk_expert), encoder=encoder, render=render,
        )
        log = run.run()
    return _result(spec, log, run.policy.fallbacks, config.bridge.period_ns)


@contextmanager
def _renderer(world: World, spec: EpisodeSpec, edit: Callable[[ByteArray], ByteArray] | None,
              cameras: tuple[str, ...]) -> Iterator[Callable[[str], ByteArray] | None]:
    """Return a function that renders a camera now, None if no images are needed."""
    if not cameras:
        yield None
        return
    rig = CameraRig(world.model_xml, cameras=cameras, seed=spec.seed)
    frames = {camera: count(1) for camera in cameras}

    def render(camera: str) -> ByteArray:
        image = rig.render(world.snapshot(), camera, next(frames[camera]))
        return image if edit is None else edit(image)

    try:
        yield render
    finally:
        rig.close()


def _result(spec: EpisodeSpec, log: RunLog, fallbacks: int, period_ns: int) -> Episode:
    events: list[SimEvent] = [e for t in log.truths for e in t.events if e.name == 'jump']
    score = FollowScore(tolerance_m=spec.tolerance_m)
    start_ns = log.truths[0].stamp_ns
    for truth in log.truths:
        score.add_truth(truth, start_stamp_ns=start_ns)
    segments = score.segments()
    errors = [s.mean_error_m for s in segments]
    return Episode(
        spec, summarise(log.ticks, log.traces, period_ns=period_ns, events=events), segments,
        float(np.mean(errors)) if errors else float('nan'), fallbacks, log,
    )
