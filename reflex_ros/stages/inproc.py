"""The whole loop in one process on real threads, without ROS and without CAN.

The same stages as in the nodes: a tick thread with absolute deadlines, one worker each for encoder
and policy, one camera thread. Outputs are delivered by plain calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.clock import MS, S
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.types import (
    ActionChunk,
    ChunkTrace,
    ControlTick,
    Frame,
    KvBlock,
    Plan,
    StallEvent,
    Task,
)
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.encoder import EncoderConfig, EncoderStage
from reflex_ros.stages.pipeline import TWO_STREAM, turns
from reflex_ros.stages.policy import PolicyConfig, PolicyStage
from reflex_ros.stages.runlog import RunLog
from reflex_ros.stages.worker import StageWorker, TickLoop

if TYPE_CHECKING:
    from reflex_ros.arm.direct import Plant
    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.clock import Clock, Instant
    from reflex_ros.core.ledger import LedgerWriter
    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import ByteArray, SimTruth
    from reflex_ros.stages.base import Output
    from reflex_ros.stages.bridge_config import BridgeConfig
    from reflex_ros.stages.models import ChunkModel, FrameEncoder

STATUS_NS = 100 * MS


class LiveWorld(Protocol):
    """A world behind a lock; ``sim.live.SharedWorld`` is one."""

    def advance(self, mono_ns: int) -> None:
        """Run the physics up to a steady instant."""

    def look(self, number: int, clock: Clock) -> tuple[int, object, SimTruth]:
        """Return stamp, snapshot and truth of now."""


@dataclass(frozen=True, slots=True)
class InprocConfig:
    """Settings of an inproc run; see ``stages.virtual.VirtualConfig``."""

    bridge: BridgeConfig
    policy: PolicyConfig
    cameras: tuple[str, ...] = ('main',)
    encoder: EncoderConfig | None = None
    camera_period_ns: int = 40 * MS
    duration_ns: int = 10 * S
    pipeline: str = TWO_STREAM


@dataclass(slots=True)
class _Failures:
    """Exceptions of the threads, first one kept."""

    first: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, error: BaseException) -> None:
        """Keep the first exception."""
        with self.lock:
            self.first = self.first or error


class InprocRun:
    """One run of the closed loop in this process, in real time.

    Args:
        config: Settings.
        world: The simulated world; ``plant`` is its arm.
        plant: What the bridge's direct arm drives.
        limits: Limits of the arm.
        clock: A real clock.
        model: The policy. ``encoder``: encodes frames, None for blocks without payload.
        render: Returns the image of a camera from a snapshot and a frame number; None for frames
            without pixels. Called from one thread.
        ledger: Where the bridge writes its ticks.
        arm: Another arm than a direct one over ``plant``.
    """

    def __init__(self, config: InprocConfig, *, world: LiveWorld, plant: Plant,
                 limits: JointLimits, clock: Clock, model: ChunkModel,
                 encoder: FrameEncoder | None = None,
                 render: Callable[[object, str, int], ByteArray] | None = None,
                 ledger: LedgerWriter | None = None, arm: Arm | None = None) -> None:
        self._config, self._world, self._clock, self._render = config, world, clock, render
        self.log = RunLog()
        self._failures = _Failures()
        self._lock = threading.RLock()
        self._is_stopping = threading.Event()
        self.bridge = Bridge(arm or DirectArm(plant, clock, limits=limits), config.bridge, clock,
                             ledger)
        self._encoder = EncoderStage(
            config.encoder or EncoderConfig(config.cameras), lambda _: ClockProbe(clock), encoder)
        self.policy = PolicyStage(model, config.policy, lambda _: ClockProbe(clock))
        failed, (first, second) = self._failures.take, turns(config.pipeline)
        self._encoder_worker = StageWorker(
            self._encoder, clock=clock, due=self._encoder_due, publish=self._publish,
            failed=failed, name='encoder', turn=first)
        self._policy_worker = StageWorker(
            self.policy, clock=clock, due=self._policy_due, publish=self._publish,
            failed=failed, name='policy', turn=second)
        self._loop = TickLoop(self._tick, period_ns=config.bridge.period_ns, clock=clock,
                              failed=failed)
        self._cameras = threading.Thread(target=self._watch, name='cameras', daemon=True)

    def run(self) -> RunLog:
        """Run for the configured time, stop in good order and return the log.

        Raises:
            BaseException: Whatever ended one of the threads.
        """
        self.bridge.connect()
        self.bridge.activate()
        for part in (self._encoder_worker, self._policy_worker, self._loop, self._cameras):
            part.start()
        end_ns = self._clock.mono_ns() + self._config.duration_ns
        while self._failures.first is None and self._clock.mono_ns() < end_ns:
            self._clock.sleep_until(min(end_ns, self._clock.mono_ns() + STATUS_NS))
            self._statuses()
        self._finish()
        if self._failures.first is not None:
            raise self._failures.first
        return self.log

    def _finish(self) -> None:
        with self._lock:
            self.bridge.request_stop(self._clock.now())
        until_ns = self._clock.mono_ns() + self.bridge.longest_stop_ns
        while not self.bridge.is_at_rest and self._clock.mono_ns() < until_ns:
            self._clock.sleep_until(self._clock.mono_ns() + 5 * MS)
        self._loop.stop()
        self._is_stopping.set()
        self._cameras.join(5.0)
        self._policy_worker.stop()
        self._encoder_worker.stop()
        self._publish(self.bridge.close(self._clock.now()))

    # ---- threads -----------------------------------------------------------------------------

    def _tick(self, now: Instant, due_ns: int, index: int) -> None:
        self._world.advance(now.mono_ns)
        with self._lock:
            # who waits for the lock runs late
            self._publish(self.bridge.step(self._clock.now(), due_ns, index))

    def _watch(self) -> None:
        try:
            due_ns = self._clock.mono_ns()
            while not self._is_stopping.is_set():
                self._look()
                due_ns = max(due_ns + self._config.camera_period_ns, self._clock.mono_ns())
                self._clock.sleep_until(due_ns)
        except BaseException as error:  # run() raises it
            self._failures.take(error)

    def _look(self) -> None:
        number = len(self.log.truths) + 1
        stamp_ns, snapshot, truth = self._world.look(number, self._clock)
        self.log.truths.append(truth)
        self._policy_worker.feed(lambda: self.policy.on_truth(truth))
        for camera in self._config.cameras:
            image = None if self._render is None else self._render(snapshot, camera, number)
            frame = Frame(camera, stamp_ns, self._clock.mono_ns(), image)
            self._encoder_worker.feed(lambda f=frame: self._encoder.on_frame(f))  # type: ignore[misc]

    def _statuses(self) -> None:
        for worker in (self._encoder_worker, self._policy_worker):
            status = worker.status()
            with self._lock:
                self.bridge.status(status, self._clock.now())

    # ---- wiring ------------------------------------------------------------------------------

    def _publish(self, outputs: tuple[Output, ...]) -> None:
        for output in outputs:
            self._deliver(output.value)

    def _deliver(self, value: object) -> None:
        self.log.add(value)
        policy, encoder = self._policy_worker, self._encoder_worker
        if isinstance(value, ControlTick):
            stamp_ns, measured = value.stamp_ns, np.asarray(value.measured)
            policy.feed(lambda: self.policy.on_joint_state(stamp_ns, measured))
            encoder.feed(lambda: self._encoder.on_joint_state(stamp_ns, measured))
        elif isinstance(value, KvBlock):
            now = self._clock.now()
            policy.feed(lambda: self.policy.on_block(value, now))
        elif isinstance(value, ActionChunk):
            with self._lock:
                outputs = self.bridge.offer(value, self._clock.now())
            self._publish(outputs)
        elif isinstance(value, Plan):
            policy.feed(lambda: self.policy.on_plan(value))
            encoder.feed(lambda: self._encoder.on_plan(value))
        elif isinstance(value, ChunkTrace):
            policy.feed(lambda: self.policy.on_trace(value))
        elif isinstance(value, Task):
            policy.feed(lambda: self.policy.on_task(value))
            encoder.feed(lambda: self._encoder.on_task(value))
        else:
            assert isinstance(value, StallEvent)

    def _encoder_due(self, now: Instant) -> int | None:
        return now.mono_ns if self._encoder.is_due() else None

    def _policy_due(self, now: Instant) -> int | None:
        stamp_ns = self.policy.due_at(now)
        if stamp_ns is None:
            return None
        return max(now.mono_ns, stamp_ns - (now.stamp_ns - now.mono_ns))
