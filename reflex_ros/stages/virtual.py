"""The whole loop on a virtual clock: same stages, modelled costs, deterministic.

World, bridge, encoder and policy run from one event queue. A stage's outputs arrive when its
modelled cost has passed (or its injected delay), and while it is busy its newest input waits, as
in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import numpy as np

from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.probe import Cost, CostModel, ModelProbe, constant_costs
from reflex_ros.core.timeline import Timeline
from reflex_ros.core.types import (
    ActionChunk,
    ChunkTrace,
    ControlTick,
    Frame,
    KvBlock,
    Plan,
    SimTruth,
    Task,
)
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.encoder import EncoderConfig, EncoderStage
from reflex_ros.stages.pipeline import TWO_STREAM, Turn, turns
from reflex_ros.stages.policy import PolicyConfig, PolicyStage
from reflex_ros.stages.replay_costs import (
    TRANSPORT,
    TRANSPORT_BLOCK,
    TRANSPORT_FRAME,
    TRANSPORT_PLAN,
)
from reflex_ros.stages.runlog import RunLog

if TYPE_CHECKING:
    from reflex_ros.arm.direct import Plant
    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.ledger import LedgerWriter
    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import ByteArray, FloatArray
    from reflex_ros.stages.base import Output
    from reflex_ros.stages.bridge_config import BridgeConfig
    from reflex_ros.stages.models import ChunkModel, FrameEncoder

STATUS_PERIOD_NS = 100 * MS
START_NS = 1 * S

# order at one instant: the camera sees the world before the tick moves it
PRIORITY_CAMERA, PRIORITY_STAGE, PRIORITY_TICK = 0, 1, 2

TRANSPORT_OF: Mapping[type, str] = MappingProxyType({
    ActionChunk: TRANSPORT, KvBlock: TRANSPORT_BLOCK, Plan: TRANSPORT_PLAN})
"""What travels between nodes, and the cost of its way."""


class VirtualWorld(Protocol):
    """The simulated world as the wiring needs it; ``sim.world.World`` is one."""

    def advance(self, until_ns: int) -> None:
        """Run the physics to a world time, ns."""

    def truth(self, number: int, stamp_ns: int) -> SimTruth:
        """Return the true state now, stamped ``stamp_ns``."""

    def command(self, joints_rad: FloatArray, gripper_m: float) -> None:
        """Set the drive targets."""

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity, ``float64[7]`` each."""


@dataclass(frozen=True, slots=True)
class VirtualConfig:
    """Settings of a virtual run.

    Attributes:
        bridge, policy: Settings of the stages.
        cameras: Camera names, primary first. ``camera_period_ns``: their period.
        encoder: Settings of the encoder stage, None for the defaults with these cameras.
        camera_phase_ns: Offset of the first frame; random per seed, so that events and frames
            do not keep step.
        costs: Modelled cost by span name; of a transport too, else it takes no time.
        seed: Seed of random costs.
        duration_ns: Length of the run.
        pipeline: ``two_stream``, or ``serial`` for encoder and policy in turns.
    """

    bridge: BridgeConfig
    policy: PolicyConfig
    cameras: tuple[str, ...] = ('main',)
    encoder: EncoderConfig | None = None
    camera_period_ns: int = 40 * MS
    camera_phase_ns: int = 0
    costs: Mapping[str, Cost] = field(
        default_factory=lambda: constant_costs(
            encode=5.0, denoise=15.0, instruction=5.0, publish=0.1, stage_copy=0.1, decode=0.1,
            vision=2.0, prefix=3.0)
    )
    seed: int = 0
    duration_ns: int = 8 * S
    pipeline: str = TWO_STREAM


class _Worker:
    """One stage with one worker: busy until its outputs exist, newest input waits."""

    def __init__(self, run: VirtualRun, stage: EncoderStage | PolicyStage,
                 due: Callable[[], int | None], turn: Turn) -> None:
        self._run = run
        self._stage = stage
        self._due = due
        self.turn = turn
        self._wake_ns = -1
        self.is_busy = self.is_dead = False

    def poke(self) -> None:
        """Start a step if one is due, or wake up when it becomes due."""
        if self.is_busy:
            return
        due_ns = None if self.is_dead else self._due()
        if due_ns is None or due_ns > self._run.clock.mono_ns():
            self.turn.leave(self)
            if due_ns is not None and due_ns != self._wake_ns:
                self._wake_ns = due_ns
                self._run.timeline.at(due_ns, self.poke, priority=PRIORITY_STAGE)
        elif self.turn.take(self):
            self._start()

    def _start(self) -> None:
        now = self._run.clock.now()
        self._stage.begin(now)
        outputs, probe = self._stage.step(now)
        self.is_busy = True
        done_ns = max([probe.ready_ns, *(o.not_before_ns for o in outputs)])
        self._run.timeline.at(done_ns, lambda: self._finish(outputs), priority=PRIORITY_STAGE)

    def _finish(self, outputs: tuple[Output, ...]) -> None:
        self.is_busy = False
        self.turn.give(self)
        if not self.is_dead:
            self._stage.end(self._run.clock.now(), published=len(outputs))
            self._run.publish(outputs)
        self._run.poke_after(self)


class VirtualRun:
    """One run of the closed loop on a virtual clock.

    Args:
        config: Settings.
        world: The simulated world, at time 0.
        limits: Limits of the arm.
        model: The policy.
        encoder: Encodes frames, None for blocks without payload.
        render: Returns the image of a camera now; None for frames without pixels.
        ledger: Where the bridge writes its ticks.
        make_arm: Makes the arm from this run; None for a direct one over the world. An arm whose
            calls take time lets the timeline run meanwhile.
    """

    def __init__(self, config: VirtualConfig, *, world: VirtualWorld, limits: JointLimits,
                 model: ChunkModel, encoder: FrameEncoder | None = None,
                 render: Callable[[str], ByteArray] | None = None,
                 ledger: LedgerWriter | None = None,
                 make_arm: Callable[[VirtualRun], Arm] | None = None) -> None:
        self.config = config
        self.clock = ManualClock(mono_ns=START_NS)
        self.timeline = Timeline(self.clock)
        self.world = world
        self.log = RunLog()
        self._render = render
        costs = CostModel(config.costs, seed=config.seed)

        def make_probe(start_ns: int) -> Probe:
            return ModelProbe(start_ns, costs)

        plant: Plant = world
        self.arm: Arm = (DirectArm(plant, self.clock, limits=limits) if make_arm is None
                         else make_arm(self))
        self.bridge = Bridge(self.arm, config.bridge, self.clock, ledger)
        self.encoder = EncoderStage(config.encoder or EncoderConfig(config.cameras), make_probe,
                                    encoder)
        self.policy = PolicyStage(model, config.policy, make_probe)
        first, second = turns(config.pipeline)
        self.encoder_worker = _Worker(self, self.encoder, self._encoder_due, first)
        self.policy_worker = _Worker(self, self.policy, self._policy_due, second)
        self._index = self._truths = 0
        self._arrivals: dict[str, int] = {}
        self.transports: dict[str, list[int]] = {}
        """How long what travelled was under way, by transport, ns."""
        self.start_ns = START_NS
        """Instant of tick 0: when the arm was enabled."""

    def run(self) -> RunLog:
        """Run to the end, stop in good order and return the log."""
        self.start()
        self.timeline.run_until(self.start_ns + self.config.duration_ns)
        return self.finish()

    def start(self) -> None:
        """Connect and activate the arm and schedule the first events."""
        self.bridge.connect()
        self.bridge.activate()
        self.start_ns = self.clock.mono_ns()
        self.timeline.at(self.start_ns + self.config.camera_phase_ns, self._camera,
                         priority=PRIORITY_CAMERA)
        self.timeline.at(self.start_ns, self._tick, priority=PRIORITY_TICK)
        self.timeline.at(self.start_ns, self._statuses, priority=PRIORITY_STAGE)

    def finish(self) -> RunLog:
        """Stop in good order: decelerate, hold, close the traces; return the log."""
        self.bridge.request_stop(self.clock.now())
        while not self.bridge.is_at_rest:
            self.timeline.run_until(self.clock.mono_ns() + self.config.bridge.period_ns)
        self.publish(self.bridge.close(self.clock.now()))
        return self.log

    # ---- events ------------------------------------------------------------------------------

    def advance(self) -> None:
        """Run the physics up to now."""
        self.world.advance(self.clock.mono_ns() - START_NS)

    def _tick(self) -> None:
        now = self.clock.now()
        self.advance()
        period_ns = self.config.bridge.period_ns
        due_ns = self.start_ns + self._index * period_ns
        self.publish(self.bridge.step(now, due_ns, self._index))
        self._index += 1
        self.timeline.at(due_ns + period_ns, self._tick, priority=PRIORITY_TICK)
        self.policy_worker.poke()

    def _camera(self) -> None:
        now = self.clock.now()
        self.advance()
        self._truths += 1
        truth = self.world.truth(self._truths, now.stamp_ns)
        self.log.truths.append(truth)
        self.policy.on_truth(truth)
        images = {camera: None if self._render is None else self._render(camera)
                  for camera in self.config.cameras}
        self._travel(TRANSPORT_FRAME, partial(self._receive, now.stamp_ns, images))
        self.timeline.at(now.mono_ns + self.config.camera_period_ns, self._camera,
                         priority=PRIORITY_CAMERA)

    def _receive(self, stamp_ns: int, images: Mapping[str, ByteArray | None]) -> None:
        for camera, image in images.items():
            self.encoder.on_frame(Frame(camera, stamp_ns, self.clock.mono_ns(), image))
        self.encoder_worker.poke()

    def _statuses(self) -> None:
        now = self.clock.now()
        if not self.encoder_worker.is_dead:
            self.bridge.status(self.encoder.status(now), now)
        if not self.policy_worker.is_dead:
            self.bridge.status(self.policy.status(now), now)
        self.timeline.at(now.mono_ns + STATUS_PERIOD_NS, self._statuses, priority=PRIORITY_STAGE)

    # ---- wiring ------------------------------------------------------------------------------

    def poke_after(self, worker: _Worker) -> None:
        """Let the stage step that may have waited for this one, then this one again."""
        other = self.policy_worker if worker is self.encoder_worker else self.encoder_worker
        if other.turn is worker.turn:
            other.poke()
        worker.poke()

    def publish(self, outputs: tuple[Output, ...]) -> None:
        """Deliver outputs to the log and to every stage that reads them, each when it is there."""
        for output in outputs:
            transport = TRANSPORT_OF.get(type(output.value))
            if transport is None:
                self._deliver(output.value)
            else:
                self._travel(transport, partial(self._deliver, output.value))

    def _travel(self, transport: str, arrive: Callable[[], None]) -> None:
        """Call ``arrive`` once the cost of the transport has passed, at once without one."""
        cost = self.config.costs.get(transport)
        if cost is None:
            arrive()
            return
        now_ns, calls = self.clock.mono_ns(), self.transports.setdefault(transport, [])
        # in order, as the middleware keeps it
        at_ns = max(self._arrivals.get(transport, 0),
                    now_ns + cost.duration_ns(len(calls), (self.config.seed,)))
        self._arrivals[transport] = at_ns
        calls.append(at_ns - now_ns)
        if at_ns == now_ns:
            arrive()
        else:
            self.timeline.at(at_ns, arrive, priority=PRIORITY_STAGE)

    def _deliver(self, value: object) -> None:
        now = self.clock.now()
        self.log.add(value)
        if isinstance(value, ControlTick):
            for stage in (self.encoder, self.policy):
                stage.on_joint_state(value.stamp_ns, np.asarray(value.measured))
        elif isinstance(value, KvBlock):
            self.policy.on_block(value, now)
            self.policy_worker.poke()
        elif isinstance(value, ActionChunk):
            self.publish(self.bridge.offer(value, now))
        elif isinstance(value, Plan):
            self.encoder.on_plan(value)
            self.policy.on_plan(value)
            self.policy_worker.poke()
        elif isinstance(value, ChunkTrace):
            self.policy.on_trace(value)
        elif isinstance(value, Task):
            self.encoder.on_task(value)
            self.policy.on_task(value)

    def _encoder_due(self) -> int | None:
        return self.clock.mono_ns() if self.encoder.is_due() else None

    def _policy_due(self) -> int | None:
        now = self.clock.now()
        stamp_ns = self.policy.due_at(now)
        if stamp_ns is None:
            return None
        return max(now.mono_ns, stamp_ns - (now.stamp_ns - now.mono_ns))
