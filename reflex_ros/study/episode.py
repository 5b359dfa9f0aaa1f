"""One episode of the closed loop on the virtual clock, from parameters to its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING

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
from reflex_ros.stages.oracle import OraclePolicy
from reflex_ros.stages.runlog import RunLog
from reflex_ros.stages.virtual import VirtualConfig, VirtualRun

if TYPE_CHECKING:
    from reflex_ros.core.param_table import Value
    from reflex_ros.core.types import ByteArray, SimEvent
    from reflex_ros.stages.models import ChunkModel, FrameEncoder

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

    def parameters(self) -> dict[str, Value]:
        """Return every parameter of bridge, encoder, policy and simulator."""
        values: dict[str, Value] = {}
        for node in (SIMULATOR, ENCODER, POLICY, BRIDGE):
            values.update(defaults(node))
        delay_s = self.delay_ms / 1e3
        chosen: dict[str, Value] = {
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
        unknown = sorted(set(chosen) - set(values))
        if unknown:
            raise KeyError(f'unknown parameters: {", ".join(unknown)}')
        return {**values, **chosen}


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
                encoder: FrameEncoder | None = None,
                costs: Mapping[str, Cost] | None = None,
                edit_image: Callable[[ByteArray], ByteArray] | None = None) -> Episode:
    """Run one episode.

    Args:
        spec: The episode.
        model: The policy; None for ``oracle``.
        encoder: The encoder that goes with it; with one, cameras are rendered.
        costs: Modelled costs; None for those of ``spec``.
        edit_image: Changes every image before it is encoded (ablations).
    """
    params = spec.parameters()
    options = {'kinds': spec.kinds} if spec.kinds else {}
    world = World(make_task(spec.task, **options), seed=spec.seed)
    phase = np.random.default_rng((spec.seed, 7)).integers(0, 40)
    config = VirtualConfig(
        bridge=replace(bridge_config(params, policy='tiny'), instruction='follow the target'),
        policy=policy_config(params),
        camera_phase_ns=int(phase) * MS,
        costs=costs or constant_costs(
            encode=spec.encode_ms, denoise=spec.denoise_ms, instruction=5.0, publish=0.1,
            stage_copy=0.1, decode=0.1,
        ),
        seed=spec.seed, duration_ns=round(spec.duration_s * S),
        pipeline=str(params['policy.pipeline']),
    )
    with _renderer(world, spec, edit_image, is_needed=encoder is not None) as render:
        run = VirtualRun(
            config, world=world, limits=limits_from(params),
            model=model or OraclePolicy(make_chunk_expert), encoder=encoder, render=render,
        )
        log = run.run()
    return _result(spec, log, run.policy.fallbacks, config.bridge.period_ns)


@contextmanager
def _renderer(world: World, spec: EpisodeSpec, edit: Callable[[ByteArray], ByteArray] | None, *,
              is_needed: bool) -> Iterator[Callable[[str], ByteArray] | None]:
    """Return a function that renders a camera now, None if no images are needed."""
    if not is_needed:
        yield None
        return
    rig = CameraRig(world.model_xml, cameras=('main',), seed=spec.seed)
    frames = count(1)

    def render(camera: str) -> ByteArray:
        image = rig.render(world.snapshot(), camera, next(frames))
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
