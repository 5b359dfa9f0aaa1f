"""Runs of the closed loop on the virtual clock, and their bags as a recorder would leave them.

Pictures are small and synthetic, blocks go through a ring in shared memory as between the nodes,
and whoever runs a scene may reach into it while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from reflex_ros.bag.encode import TOPICS, Encoder, header_stamp_ns
from reflex_ros.bag.encode_flow import FLOW_TOPICS, FlowEncoder
from reflex_ros.bag.files import BagFiles, BagTopic, offered_qos
from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.probe import LognormalCost, constant_costs
from reflex_ros.core.types import ActionChunk, KvBlock, SlotRef
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.writer import RingWriter
from reflex_ros.sim.experts import make_chunk_expert
from reflex_ros.sim.world import World
from reflex_ros.stages.base import ENCODER, POLICY
from reflex_ros.stages.build import bridge_config, limits_from, policy_config
from reflex_ros.stages.oracle import OraclePolicy
from reflex_ros.stages.ring_source import LocalRing
from reflex_ros.stages.virtual import START_NS, VirtualConfig, VirtualRun
from reflex_ros.study.episode import EpisodeSpec

if TYPE_CHECKING:
    from reflex_ros.bag.schema import Schema
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import ByteArray, FloatArray, StageStatus
    from reflex_ros.stages.models import InferRequest

IMAGE = 'sensor_msgs/msg/Image'
PICTURE = (12, 16, 3)
PUBLISHERS: Mapping[type, str] = MappingProxyType({KvBlock: ENCODER, ActionChunk: POLICY})
Row = tuple[str, int, bytes]
"""Topic, ROS time, serialized message."""


class RingEncoder:
    """``FrameEncoder`` that puts a digest of each picture into the ring.

    Args:
        writer: The ring.
    """

    state_joints: tuple[str, ...] = ()

    def __init__(self, writer: RingWriter) -> None:
        self._writer = writer

    def instruction(self, text: str, epoch: int, probe: Probe) -> None:
        """Take an instruction; it changes no digest."""

    def encode(self, block: KvBlock, images: Mapping[str, ByteArray], probe: Probe) -> KvBlock:
        """Write one block and return it with its slot."""
        with probe.span('encode'):
            slot = self._writer.begin()
            slot.frame[:] = [float(image.mean()) for image in images.values()]
        with probe.span('publish'):
            ref = self._writer.commit(slot, stamp_ns=block.stamp_ns, epoch=block.epoch, tokens=1)
        return replace(
            block, ring_id=self._writer.ring_id, slot=ref.slot, seq=ref.seq, valid_tokens=1,
            generation=self._writer.generation, layout_hash=self._writer.layout.hash)


class RingOracle(OraclePolicy):
    """The oracle, which makes a chunk only of a block that it could read from the ring."""

    def __init__(self, ring: LocalRing, cameras: int) -> None:
        super().__init__(make_chunk_expert)
        self._ring, self._staging = ring, np.zeros(cameras, np.float32)

    @property
    def ring_ok(self) -> bool:
        """Return whether the ring's writer lives."""
        return self._ring.is_alive

    def infer(self, request: InferRequest, probe: Probe) -> FloatArray | None:
        """Return the expert's chunk, None if the block is gone."""
        block = request.block
        with probe.span('stage_copy'):
            reader = self._ring.reader(block.ring_id)
            if reader is None or not reader.copy(SlotRef(block.slot, block.seq), self._staging):
                return None
        return super().infer(request, probe)


class Scene:
    """One run, whose timeline can be reached into.

    Args:
        seed: Of world, pictures, costs and the phase of the camera.
        duration_s: Length. ``cameras``: names, primary first.
        shares: Where message definitions are, see ``bag.schema.find_schema``.
        spec: Further fields of ``study.episode.EpisodeSpec``.

    Attributes:
        rng: For whoever reaches into it. ``writer``: of the ring.
        picture: Returns the picture of a camera now; may be replaced.
        images: (ROS time, camera, picture). ``statuses``: what encoder and policy said and the
            bridge heard.
    """

    def __init__(self, *, seed: int = 1, duration_s: float = 4.0,
                 cameras: tuple[str, ...] = ('main',), shares: Sequence[Path] | None = None,
                 **spec: Any) -> None:
        spec = {'task': 'follow', **spec}
        params = EpisodeSpec(seed=seed, **spec).parameters()
        self.rng = rng = np.random.default_rng((seed, 11))
        costs = {**constant_costs(encode=5.0, denoise=15.0, instruction=5.0, publish=0.1,
                                  stage_copy=0.1, decode=0.1),
                 'denoise': LognormalCost(15 * MS, 0.1), 'encode': LognormalCost(5 * MS, 0.1)}
        config = VirtualConfig(
            bridge=replace(bridge_config(params, policy='tiny'), instruction='follow the target'),
            policy=policy_config(params), cameras=cameras, costs=costs, seed=seed,
            camera_phase_ns=int(rng.integers(0, 40)) * MS, duration_ns=round(duration_s * S))
        self.images: list[tuple[int, str, ByteArray]] = []
        self.statuses: list[StageStatus] = []
        self.picture: Callable[[str], ByteArray] = self._fresh_picture
        self._shares, self._silent = shares, set[str]()
        clock = SystemClock()  # leases of the ring are bound by it; nothing here lasts as long
        self.writer = RingWriter.create(
            RingLayout.snapshot((len(cameras),), 'float32', model_id='digest'), clock=clock)
        self._ring = LocalRing(lambda: self.writer, clock=clock)
        self.run = VirtualRun(
            config, world=World(spec['task'], seed=seed), limits=limits_from(params),
            model=RingOracle(self._ring, len(cameras)), encoder=RingEncoder(self.writer),
            render=self._render)
        self._hear, self._deliver = self.run.bridge.status, self.run._deliver
        self.run.bridge.status = self._status  # type: ignore[method-assign]
        self.run._deliver = self._pass_on  # type: ignore[method-assign]

    def _fresh_picture(self, camera: str) -> ByteArray:
        return self.rng.integers(0, 256, PICTURE, dtype=np.uint8)

    def _render(self, camera: str) -> ByteArray:
        image = self.picture(camera)
        self.images.append((self.run.clock.stamp_ns(), camera, image))
        return image

    # ---- what may happen -----------------------------------------------------------------------

    def at(self, time_s: float, action: Callable[[Scene], object]) -> None:
        """Call ``action(self)`` at a time of the run."""
        self.run.timeline.at(START_NS + round(time_s * S), lambda: action(self))

    def silence(self, node: str) -> None:
        """Let nothing that a node publishes arrive any more, neither outputs nor signs of life."""
        self._silent.add(node)

    def close_ring(self) -> None:
        """End the ring as an encoder that is cleaned up does: it writes no further block."""
        self.run.encoder_worker._due = lambda: None
        self.writer.close()

    def _status(self, status: StageStatus, now: Any) -> None:
        if status.node not in self._silent:
            self.statuses.append(status)
            self._hear(status, now)

    def _pass_on(self, value: object) -> None:
        if PUBLISHERS.get(type(value)) not in self._silent:
            self._deliver(value)

    def finish(self) -> Scene:
        """Run to the end and give the ring back."""
        self.run.run()
        self._ring.close()
        self.writer.close()
        return self

    # ---- its bag -------------------------------------------------------------------------------

    def messages(self, *, images: bool = True,
                 is_brief: bool = False) -> tuple[dict[str, Schema], list[Row]]:
        """Return the types by topic, and everything that was published, in order."""
        log, (encoder, pictures) = self.run.log, encoders(self._shares)
        names: dict[type, str] = dict((*TOPICS, *FLOW_TOPICS))
        values: list[Any] = [*log.ticks, *log.traces, *log.stalls, *self.statuses]
        if not is_brief:
            values += [*log.truths, *log.plans, *log.tasks, *log.chunks, *log.blocks]
        found = [(names[type(v)], header_stamp_ns(v), encoder.encode(v)) for v in values]
        types = {name: encoder.schemas[kind.__name__] for kind, name in names.items()}
        for stamp_ns, camera, pixels in self.images if images else ():
            topic = f'/camera/{camera}/image_raw'
            types[topic] = pictures.schemas['Image']
            found.append((topic, stamp_ns, _image(pictures, stamp_ns, camera, pixels)))
        return types, sorted(found, key=lambda row: row[1])

    def write(self, folder: Path, *, keep: Callable[[int, str], bool] | None = None,
              images: bool = True, is_brief: bool = False, storage: str = 'mcap') -> Path:
        """Write the bag; with ``keep(index, topic)`` only some of the messages.

        A brief bag lacks what the figures do not need: it is quick to write.
        """
        types, rows = self.messages(images=images, is_brief=is_brief)
        return write_messages(folder, types, [
            row for index, row in enumerate(rows) if keep is None or keep(index, row[0])],
            storage=storage)


def encoders(shares: Sequence[Path] | None) -> tuple[FlowEncoder, Encoder]:
    """Return the encoders of the suite's messages and of images; making them takes a while."""
    return _encoders(None if shares is None else tuple(shares))


@cache
def _encoders(shares: tuple[Path, ...] | None) -> tuple[FlowEncoder, Encoder]:
    return FlowEncoder(shares=shares), Encoder((), shares=shares, others=(IMAGE,))


def write_messages(folder: Path, types: Mapping[str, Schema], rows: Sequence[Row], *,
                   storage: str = 'mcap') -> Path:
    """Write serialized messages as a bag."""
    qos = (offered_qos(is_reliable=True, is_latched=False, depth=100),)
    files = BagFiles(folder, [BagTopic(name, schema, qos) for name, schema in types.items()],
                     storage=storage)
    files.open()
    for topic, stamp_ns, data in rows:
        files.write(topic, stamp_ns, data)
    files.close()
    return folder


def _image(encoder: Encoder, stamp_ns: int, camera: str, pixels: ByteArray) -> bytes:
    header = encoder.new('std_msgs/msg/Header', stamp=encoder.time(stamp_ns), frame_id=camera)
    height, width, _ = pixels.shape
    return encoder.serialize(encoder.new(
        IMAGE, header=header, height=height, width=width, encoding='rgb8', is_bigendian=0,
        step=3 * width, data=pixels.ravel()), IMAGE)


def delay_once(stage: Any, delay_ns: int) -> None:
    """Let the next step of a stage last longer."""
    step = stage.step

    def slow(now: Any) -> Any:
        stage.step = step
        outputs, probe = step(now)
        return tuple(replace(o, not_before_ns=now.mono_ns + delay_ns) for o in outputs), probe

    stage.step = slow
