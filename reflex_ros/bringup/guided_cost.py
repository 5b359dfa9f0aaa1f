"""What guidance costs: CPU time of a guided inference over that of a free one, on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from reflex_ros.bag import values
from reflex_ros.bag.read import BagReader
from reflex_ros.bringup.replay import parts
from reflex_ros.core.clock import SystemClock, cpu_ns
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.stats import quantiles
from reflex_ros.core.types import JOINT_NAMES, KvBlock, StateSource
from reflex_ros.stages.guide import Guide
from reflex_ros.stages.models import InferRequest

if TYPE_CHECKING:
    from reflex_ros.bringup.replay_input import Source
    from reflex_ros.core.types import ByteArray
    from reflex_ros.stages.models import ChunkModel, FrameEncoder
    from reflex_ros.stages.replay_source import Recorded

ROUNDS = 3
FROZEN_ROWS, SOFT_ROWS = 2, 2
"""How many rows are guided changes what the guidance is, not what it costs."""


def guided_cost(source: Source) -> float:
    """Return the median ratio of both, measured in turns; 1 for a policy that is not guided.

    The observation is the first one of the bag.

    Raises:
        ConfigError: The bag or the checkpoint cannot be used.
    """
    recorded = source.recorded
    with BagReader(recorded.folder) as reader, parts(source.values) as (encoder, policy):
        if not policy.model.guided_rows or encoder.encoder is None:
            return 1.0
        names = cast('tuple[str, ...]', source.values['camera.names'])
        images = _first_images(recorded, reader, names)
        if len(images) < len(names):
            return 1.0  # nothing to see: such a bag cannot be replayed with this policy either
        request = _request(recorded, encoder.encoder, images)
        free, guided = _rounds(policy.model, request)
    return float(np.median(guided)) / max(quantiles(free)['p50'], 1.0)


def _first_images(recorded: Recorded, reader: BagReader,
                  cameras: tuple[str, ...]) -> dict[str, tuple[int, ByteArray]]:
    """Return the first frame of each camera: its stamp and its pixels."""
    found: dict[str, tuple[int, ByteArray]] = {}
    by_topic = {recorded.cameras[name]: name for name in cameras if name in recorded.cameras}
    for message in recorded.events(reader):
        name = by_topic.get(message.topic)
        if name is None or name in found:
            continue
        msg = reader.decode(message)
        pixels = values.image(msg)
        if pixels is not None:
            found[name] = (values.stamp_of(msg.header.stamp), pixels)
        if len(found) == len(by_topic):
            break
    return found


def _request(recorded: Recorded, encoder: FrameEncoder,
             images: Mapping[str, tuple[int, ByteArray]]) -> InferRequest:
    """Return a free inference of the first observation."""
    probe = ClockProbe(SystemClock())
    text = recorded.instructions[0][1] if recorded.instructions else ''
    encoder.instruction(text, 1, probe)
    state, _ = recorded.states.at(recorded.start_ns)
    stamps = tuple(stamp_ns for stamp_ns, _ in images.values())
    block = KvBlock(
        number=1, stamp_ns=stamps[0], epoch=1, camera_names=tuple(images),
        camera_stamps_ns=stamps, state_source=StateSource.MEASURED, state_at_ns=stamps[0],
        state=state, joint_names=encoder.state_joints or JOINT_NAMES)
    block = encoder.encode(block, {name: pixels for name, (_, pixels) in images.items()}, probe)
    return InferRequest(block, 1, state, row0_stamp_ns=stamps[0])


def _rounds(model: ChunkModel, request: InferRequest) -> tuple[list[int], list[int]]:
    """Return CPU times of free and guided inferences in turns, ns; the first round warms up."""
    rows = np.repeat(request.state[None], model.guided_rows, axis=0)
    guide = Guide(rows, FROZEN_ROWS, FROZEN_ROWS + SOFT_ROWS)
    asked = (request, replace(request, guide=guide))
    times: tuple[list[int], list[int]] = ([], [])
    for number in range(ROUNDS + 1):
        for kept, one in zip(times, asked, strict=True):
            began_ns = cpu_ns()
            model.infer(one, ClockProbe(SystemClock()))
            if number:
                kept.append(cpu_ns() - began_ns)
    return times
