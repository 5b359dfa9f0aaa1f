"""Conversion of what flows forward: timed stages, slots, blocks and chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
from reflex_msgs import msg as reflex_msg

from reflex_ros.core.types import (
    ActionChunk,
    Entry,
    KvBlock,
    SlotRef,
    StageTime,
    StateSource,
    Stitch,
)
from reflex_ros.ros.convert_basic import (
    MessageError,
    check_schema,
    count_from_msg,
    enum_from_msg,
    floats_from_msg,
    floats_to_msg,
    new_message,
    optional_floats_from_msg,
    time_from_msg,
    time_to_msg,
    trajectory_from_msg,
    trajectory_to_msg,
)


def stage_time_from_msg(msg: Any) -> StageTime:
    """Return one timed stage."""
    return StageTime(msg.name, msg.start_ns, msg.end_ns)


def stage_time_to_msg(stage: StageTime) -> Any:
    """Return a ``reflex_msgs/StageTime``."""
    return reflex_msg.StageTime(name=stage.name, start_ns=stage.start_ns, end_ns=stage.end_ns)


def stages_from_msg(msgs: Any) -> tuple[StageTime, ...]:
    """Return timed stages in the order of the message."""
    return tuple(stage_time_from_msg(msg) for msg in msgs)


def stages_to_msg(stages: tuple[StageTime, ...]) -> list[Any]:
    """Return a list of ``reflex_msgs/StageTime``."""
    return [stage_time_to_msg(stage) for stage in stages]


def slot_ref_from_msg(msg: Any) -> SlotRef:
    """Return a slot and its write counter."""
    return SlotRef(msg.slot, msg.seq)


def slot_ref_to_msg(ref: SlotRef) -> Any:
    """Return a ``reflex_msgs/SlotRef``."""
    return reflex_msg.SlotRef(slot=ref.slot, seq=ref.seq)


def kv_block_to_msg(block: KvBlock) -> Any:
    """Return a ``reflex_msgs/KvBlock``."""
    msg = new_message(reflex_msg.KvBlock, block, block.stamp_ns)
    msg.ring_id, msg.slot, msg.seq = block.ring_id, block.slot, block.seq
    msg.generation, msg.epoch = block.generation, block.epoch
    msg.layout_hash = block.layout_hash
    msg.has_pinned = block.pinned is not None
    if block.pinned is not None:
        msg.pinned = slot_ref_to_msg(block.pinned)
    msg.window = [slot_ref_to_msg(ref) for ref in block.window]
    msg.camera_names = list(block.camera_names)
    msg.camera_stamps = [time_to_msg(stamp) for stamp in block.camera_stamps_ns]
    msg.state_source = block.state_source.value
    msg.state_at = time_to_msg(block.state_at_ns)
    msg.joint_names = list(block.joint_names)
    msg.state = floats_to_msg(block.state)
    msg.valid_tokens = block.valid_tokens
    msg.certificate_hash = block.certificate_hash
    msg.stages = stages_to_msg(block.stages)
    return msg


def kv_block_from_msg(msg: Any) -> KvBlock:
    """Return a block descriptor.

    Raises:
        MessageError: Other schema, unknown state source, lists of unequal length, or an
            impossible counter.
    """
    check_schema(msg)
    _check_lengths('camera_stamps', msg.camera_stamps, 'camera_names', msg.camera_names)
    _check_lengths('state', msg.state, 'joint_names', msg.joint_names)
    return KvBlock(
        number=count_from_msg(msg.number, 'KvBlock.number'),
        stamp_ns=time_from_msg(msg.header.stamp),
        epoch=count_from_msg(msg.epoch, 'KvBlock.epoch'),
        camera_names=tuple(msg.camera_names),
        camera_stamps_ns=tuple(time_from_msg(stamp) for stamp in msg.camera_stamps),
        ring_id=msg.ring_id,
        slot=msg.slot,
        seq=msg.seq,
        generation=msg.generation,
        layout_hash=msg.layout_hash,
        pinned=slot_ref_from_msg(msg.pinned) if msg.has_pinned else None,
        window=tuple(slot_ref_from_msg(ref) for ref in msg.window),
        state_source=enum_from_msg(StateSource, msg.state_source, 'KvBlock.state_source'),
        state_at_ns=time_from_msg(msg.state_at),
        joint_names=tuple(msg.joint_names),
        state=optional_floats_from_msg(msg.state),
        valid_tokens=msg.valid_tokens,
        certificate_hash=msg.certificate_hash,
        stages=stages_from_msg(msg.stages),
    )


def action_chunk_to_msg(chunk: ActionChunk) -> Any:
    """Return a ``reflex_msgs/ActionChunk``."""
    msg = new_message(reflex_msg.ActionChunk, chunk, chunk.observation_stamp_ns)
    msg.chunk_id, msg.block_number, msg.epoch = chunk.chunk_id, chunk.block_number, chunk.epoch
    msg.newest_stamp = time_to_msg(chunk.newest_stamp_ns)
    msg.oldest_stamp = time_to_msg(chunk.oldest_stamp_ns)
    msg.step0_at = time_to_msg(chunk.step0_at_ns)
    msg.state_at = time_to_msg(chunk.state_at_ns)
    msg.step_period_ns = chunk.step_period_ns
    msg.execute_steps, msg.frozen_steps = chunk.execute_steps, chunk.frozen_steps
    msg.stitch, msg.entry = chunk.stitch.value, chunk.entry.value
    msg.state_source = chunk.state_source.value
    msg.predicted_state = floats_to_msg(chunk.predicted_state)
    stamps = [chunk.step0_at_ns + i * chunk.step_period_ns for i in range(len(chunk.positions))]
    msg.trajectory = trajectory_to_msg(chunk.joint_names, stamps, chunk.positions)
    msg.inference_start_ns = chunk.inference_start_ns
    msg.inference_start = time_to_msg(chunk.inference_start_stamp_ns)
    msg.stages = stages_to_msg(chunk.stages)
    return msg


def action_chunk_from_msg(msg: Any) -> ActionChunk:
    """Return a chunk; numbers that are not finite pass, the bridge rejects and counts them.

    Raises:
        MessageError: Other schema, unknown word, impossible counter, no rows, uneven rows, or
            rows that are not at ``step0_at + i * step_period_ns``.
    """
    check_schema(msg)
    stamps, positions = trajectory_from_msg(msg.trajectory, 'ActionChunk.trajectory')
    _check_grid(msg, stamps)
    return ActionChunk(
        number=msg.number,
        chunk_id=count_from_msg(msg.chunk_id, 'ActionChunk.chunk_id'),
        block_number=count_from_msg(msg.block_number, 'ActionChunk.block_number'),
        epoch=count_from_msg(msg.epoch, 'ActionChunk.epoch'),
        observation_stamp_ns=time_from_msg(msg.header.stamp),
        newest_stamp_ns=time_from_msg(msg.newest_stamp),
        oldest_stamp_ns=time_from_msg(msg.oldest_stamp),
        step0_at_ns=time_from_msg(msg.step0_at),
        state_at_ns=time_from_msg(msg.state_at),
        step_period_ns=msg.step_period_ns,
        execute_steps=msg.execute_steps,
        joint_names=tuple(msg.trajectory.joint_names),
        positions=positions,
        predicted_state=floats_from_msg(msg.predicted_state),
        frozen_steps=msg.frozen_steps,
        stitch=enum_from_msg(Stitch, msg.stitch, 'ActionChunk.stitch'),
        entry=enum_from_msg(Entry, msg.entry, 'ActionChunk.entry'),
        state_source=enum_from_msg(StateSource, msg.state_source, 'ActionChunk.state_source'),
        inference_start_ns=msg.inference_start_ns,
        inference_start_stamp_ns=time_from_msg(msg.inference_start),
        stages=stages_from_msg(msg.stages),
    )


def _check_grid(msg: Any, stamps_ns: Any) -> None:
    start, period = time_from_msg(msg.step0_at), msg.step_period_ns
    if period <= 0 or not len(stamps_ns):
        raise MessageError(
            f'chunk {msg.chunk_id} has no rows: got {len(stamps_ns)} rows of {period} ns, '
            'expected both > 0. Correct the publisher.'
        )
    wrong = np.flatnonzero(stamps_ns != start + period * np.arange(len(stamps_ns)))
    if len(wrong):
        row = int(wrong[0])
        raise MessageError(
            f'chunk {msg.chunk_id} has row {row} off its grid: got {int(stamps_ns[row])}, '
            f'expected {start + row * period} (step0_at + row * step_period_ns, ns). '
            'Correct the publisher.'
        )


def _check_lengths(name: str, values: Any, by: str, names: Any) -> None:
    if len(values) != len(names):
        raise MessageError(
            f'field KvBlock.{name} has a wrong length: got {len(values)}, expected {len(names)} '
            f'(as {by}). Correct the publisher.'
        )
