"""Replay of a bag through the stages in one process, on the virtual clock.

Frames, true states and instructions arrive when they were recorded; the arm is where it was
recorded, whatever it is commanded, or an obedient one that follows its commands. Bridge, encoder
and policy are those of every other wiring. Two replays of one bag publish the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.bag import values
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import Frame, SimTruth
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.health import JUMP_NS
from reflex_ros.stages.replay_costs import Latencies, make_latencies
from reflex_ros.stages.replay_inject import FrameDrops, Injections
from reflex_ros.stages.virtual import (
    PRIORITY_CAMERA,
    PRIORITY_STAGE,
    PRIORITY_TICK,
    START_NS,
    VirtualConfig,
    VirtualRun,
)

if TYPE_CHECKING:
    from reflex_ros.bag.read import BagMessage, BagReader
    from reflex_ros.core.clock import Instant
    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import ByteArray, FloatArray, StageStatus
    from reflex_ros.stages.bridge_config import BridgeConfig
    from reflex_ros.stages.encoder import EncoderConfig
    from reflex_ros.stages.models import ChunkModel, FrameEncoder
    from reflex_ros.stages.policy import PolicyConfig
    from reflex_ros.stages.replay_source import Recorded
    from reflex_ros.stages.runlog import RunLog


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """Settings of a replay.

    Attributes:
        bridge, policy, encoder: Settings of the stages.
        seed: Orders drawn latencies and lost frames.
        injections: What is changed of latencies and frames.
        is_timed: See ``replay_costs.make_latencies``.
        is_arm_recorded: Whether the arm is where it was recorded; else it obeys its commands.
    """

    bridge: BridgeConfig
    policy: PolicyConfig
    encoder: EncoderConfig
    seed: int = 0
    injections: Injections = field(default_factory=Injections)
    is_timed: bool = True
    is_arm_recorded: bool = True


class ReplayedWorld:
    """The recorded arm as a plant, or an obedient one that starts from its pose.

    Args:
        recorded: The bag.
        is_recorded: Whether commands are ignored.
    """

    def __init__(self, recorded: Recorded, *, is_recorded: bool) -> None:
        self._states, self._is_recorded = recorded.states, is_recorded
        self._start_ns = self._at_ns = recorded.start_ns
        self._position, _ = self._states.at(self._at_ns)
        self._still = np.zeros(len(self._position))
        self._seen = self._states.at(self._at_ns)

    def advance(self, until_ns: int) -> None:
        """Go to a time since the start of the replay's clock, ns."""
        at_ns = self._start_ns + until_ns
        if at_ns != self._at_ns:  # a tick reads its feedback several times
            self._at_ns, self._seen = at_ns, self._states.at(at_ns)

    def truth(self, number: int, stamp_ns: int) -> SimTruth:
        """Refuse: true states come from the bag.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f'true state {number} at {stamp_ns} ns: got a request to a recorded world, expected '
            'none. Take it from sim_truth.'
        )

    def command(self, joints_rad: FloatArray, gripper_m: float) -> None:
        """Take a command; the recorded arm does not listen."""
        self._position = np.array([*joints_rad, gripper_m])

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity now."""
        if self._is_recorded:
            return self._seen
        return self._position, self._still


class _ReportingBridge(Bridge):
    """A bridge whose signs of life of the others are published too."""

    on_status: Callable[[StageStatus], None]

    def status(self, status: StageStatus, now: Instant) -> None:
        """Take a sign of life and pass it on."""
        self.on_status(status)
        super().status(status, now)


class ReplayRun(VirtualRun):
    """One replay.

    Args:
        config: Settings.
        recorded: What the bag gives. ``reader``: the same bag, open, for its images.
        limits: Limits of the arm.
        model: The policy. ``encoder``: encodes frames, None for blocks without payload.
        publish: Gets everything that is published, and when on the axis of the bag.
        copy: Gets every message that is replayed, as recorded.
    """

    def __init__(self, config: ReplayConfig, recorded: Recorded, reader: BagReader, *,
                 limits: JointLimits, model: ChunkModel, encoder: FrameEncoder | None = None,
                 publish: Callable[[object, int], None] | None = None,
                 copy: Callable[[BagMessage], None] | None = None) -> None:
        self.recorded = recorded
        self.latencies = make_latencies(
            recorded.samples, config.injections.stages, now=self._axis_ns,
            is_timed=config.is_timed)
        super().__init__(
            VirtualConfig(bridge=config.bridge, policy=config.policy, encoder=config.encoder,
                          cameras=config.encoder.cameras, costs=self.latencies.table,
                          seed=config.seed, duration_ns=recorded.stop_ns - recorded.start_ns),
            world=ReplayedWorld(recorded, is_recorded=config.is_arm_recorded), limits=limits,
            model=model, encoder=encoder,
        )
        # ROS time first: the bridge takes its epoch from it
        self.clock.step_stamp(recorded.start_stamp_ns - self.clock.stamp_ns())
        bridge = replace(config.bridge, instruction=self._first_instruction(),
                         uses_sim_time=recorded.uses_sim_time)
        self.bridge = _ReportingBridge(self.arm, bridge, self.clock)
        self.bridge.on_status = self._tell
        self.drops = FrameDrops(config.injections.drops, config.seed)
        self._publish, self._copy = publish, copy
        self._decode, self._read_truth = reader.decode, reader.sim_truth
        self._events: Iterator[BagMessage] = recorded.events(reader)
        self._topics = {topic: camera for camera, topic in recorded.cameras.items()}
        self._has_pixels = encoder is not None

    def start(self) -> None:
        """Connect and activate the arm and schedule the first events."""
        self.bridge.connect()
        self.bridge.activate()
        self.start_ns = self.clock.mono_ns()
        for axis_ns, text in self.recorded.instructions[1:]:
            self._at(axis_ns, partial(self._instruct, text), PRIORITY_CAMERA)
        self._schedule_event()
        self.timeline.at(self.start_ns, self._tick, priority=PRIORITY_TICK)
        self.timeline.at(self.start_ns, self._statuses, priority=PRIORITY_STAGE)

    def finish(self) -> RunLog:
        """Stop in good order; an arm that does not obey is not waited for without end."""
        self.bridge.request_stop(self.clock.now())
        until_ns = self.clock.mono_ns() + self.bridge.longest_stop_ns
        while not self.bridge.is_at_rest and self.clock.mono_ns() < until_ns:
            self.timeline.run_until(self.clock.mono_ns() + self.config.bridge.period_ns)
        self.publish(self.bridge.close(self.clock.now()))
        return self.log

    def durations_ns(self) -> dict[str, list[int]]:
        """Return the durations of every call by stage, transports included, ns."""
        found = {name: calls for name, calls in self.transports.items() if calls}
        calls = [stage for block in self.log.blocks for stage in block.stages]
        encoders = {stage.name for stage in calls}  # a chunk repeats those of its block
        calls += [stage for chunk in self.log.chunks for stage in chunk.stages
                  if stage.name not in encoders]
        for stage in calls:
            found.setdefault(stage.name, []).append(stage.end_ns - stage.start_ns)
        return found

    # ---- the bag -----------------------------------------------------------------------------

    def _axis_ns(self) -> int:
        return self.clock.mono_ns() - START_NS + self.recorded.start_ns

    def _at(self, axis_ns: int, call: Callable[[], None], priority: int) -> None:
        mono_ns = axis_ns - self.recorded.start_ns + START_NS
        if mono_ns >= self.clock.mono_ns():
            self.timeline.at(mono_ns, call, priority=priority)

    def _schedule_event(self) -> None:
        message = next(self._events, None)
        if message is not None:
            self._at(message.stamp_ns, lambda: self._event(message), PRIORITY_CAMERA)

    def _event(self, message: BagMessage) -> None:
        if message.topic == '/clock':
            self._take_clock(message)
        elif message.topic in self._topics:
            self._take_frame(message, self._topics[message.topic])
        else:
            self._take_truth(message)
        self._schedule_event()

    def _take_clock(self, message: BagMessage) -> None:
        self._keep(message)
        step_ns = values.stamp_of(self._decode(message).clock) - self.clock.stamp_ns()
        self.clock.step_stamp(step_ns)
        if step_ns < -JUMP_NS:
            self.encoder.restart_time()
            self.policy.restart_time()

    def _take_frame(self, message: BagMessage, camera: str) -> None:
        if self.drops.is_lost(camera):
            return
        self._keep(message)
        if camera not in self.config.cameras:
            return
        image = self._image(message) if self._has_pixels else None
        self._see(Frame(camera, values.header_stamp(message.data), self.clock.mono_ns(), image))

    def _image(self, message: BagMessage) -> ByteArray:
        image = values.image(self._decode(message))
        if image is None:
            raise ConfigError(
                f'image on {message.topic} cannot be used: got another encoding or damaged data, '
                'expected rgb8, bgr8, mono8, JPEG or PNG. Record it so.'
            )
        return image

    def _take_truth(self, message: BagMessage) -> None:
        self._keep(message)
        truth = self._read_truth(message)
        self.log.truths.append(truth)
        self.policy.on_truth(truth)
        if self._topics:
            return
        for camera in self.config.cameras:  # a run without images: the world was seen then
            if not self.drops.is_lost(camera):
                self._see(Frame(camera, truth.stamp_ns, self.clock.mono_ns()))

    def _see(self, frame: Frame) -> None:
        self.encoder.on_frame(frame)
        self.encoder_worker.poke()

    def _keep(self, message: BagMessage) -> None:
        if self._copy is not None:
            self._copy(message)

    def _first_instruction(self) -> str:
        found = self.recorded.instructions
        return found[0][1] if found else ''

    def _instruct(self, text: str) -> None:
        _, outputs = self.bridge.set_instruction(text, self.clock.now())
        self.publish(outputs)

    # ---- what is published -------------------------------------------------------------------

    def _deliver(self, value: object) -> None:
        self._tell(value)
        super()._deliver(value)

    def _tell(self, value: object) -> None:
        if self._publish is not None:
            self._publish(value, self._axis_ns())


def check_source(recorded: Recorded, *, policy: str, cameras: tuple[str, ...]) -> None:
    """Refuse a bag that lacks what a policy looks at.

    Raises:
        ConfigError: It has no images of a camera, or for ``oracle`` no true states.
    """
    if policy == 'oracle':
        if not recorded.has_truth:
            raise ConfigError(
                f'bag {recorded.folder} cannot be replayed with oracle: got no sim_truth, '
                'expected the true states of a simulation. Replay another policy.'
            )
        return
    missing = [camera for camera in cameras if camera not in recorded.cameras]
    if missing:
        raise ConfigError(
            f'bag {recorded.folder} cannot be replayed with {policy}: got no images of camera '
            f'{", ".join(missing)}, expected them of {", ".join(cameras)}. Record with '
            'recorder.images, or name the topics with camera.topics.'
        )


__all__ = ['Latencies', 'ReplayConfig', 'ReplayRun', 'ReplayedWorld', 'check_source']
