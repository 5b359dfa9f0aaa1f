"""Plans, chunks, blocks and signs of life as recorded messages, beside those of ``encode``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reflex_ros.bag import cdr
from reflex_ros.bag.encode import TOPICS, Encoder, Recordable, same_fields
from reflex_ros.core.clock import S
from reflex_ros.core.types import (
    ActionChunk,
    FloatArray,
    KvBlock,
    Plan,
    SlotRef,
    StageStatus,
    StageTime,
    Task,
)

Published = Recordable | ActionChunk | KvBlock | Plan | StageStatus | Task

FLOW_TOPICS = (
    (ActionChunk, '/action_chunk'),
    (KvBlock, '/kv_block'),
    (Plan, '/plan'),
    (StageStatus, '/stage_status'),
    (Task, '/task'),
)
_PACKAGE = 'reflex_msgs/msg'
_NO_ARRAY = np.zeros(0)


class FlowEncoder(Encoder):
    """Serializes everything that a run publishes; joint states as well."""

    def __init__(self, *, shares: Sequence[Path] | None = None) -> None:
        super().__init__((*TOPICS, *FLOW_TOPICS), shares=shares, others=(
            'sensor_msgs/msg/JointState',))

    def fields(self, value: Any) -> dict[str, Any]:
        """Return the fields of a message beyond header, number and schema version."""
        if isinstance(value, ActionChunk):
            return self._chunk(value)
        if isinstance(value, KvBlock):
            return self._block(value)
        if isinstance(value, Plan):
            return self._plan(value)
        if isinstance(value, StageStatus):
            return self._status(value)
        if isinstance(value, Task):
            return same_fields(value, 'epoch', 'instruction')
        return super().fields(value)

    def encode(self, value: Any) -> bytes:
        """Return a value of one of the types as CDR with its encapsulation header."""
        return cdr.write(value) if cdr.can_write(value) else super().encode(value)

    def joint_state(self, stamp_ns: int, names: Sequence[str], position: FloatArray) -> bytes:
        """Return a ``sensor_msgs/JointState`` of positions alone."""
        return cdr.write_joint_state(stamp_ns, names, position)

    def generic_joint_state(self, stamp_ns: int, names: Sequence[str],
                            position: FloatArray) -> bytes:
        """Return the same by way of the message definition."""
        kind = 'sensor_msgs/msg/JointState'
        header = self.new('std_msgs/msg/Header', stamp=self.time(stamp_ns), frame_id='')
        return self.serialize(
            self.new(kind, header=header, name=list(names), position=_floats(position),
                     velocity=_NO_ARRAY, effort=_NO_ARRAY), kind)

    def _chunk(self, chunk: ActionChunk) -> dict[str, Any]:
        fields = same_fields(
            chunk, 'chunk_id', 'block_number', 'epoch', 'step_period_ns', 'execute_steps',
            'frozen_steps', 'stitch', 'entry', 'state_source', 'predicted_state',
            'inference_start_ns',
        )
        for name in ('newest_stamp', 'oldest_stamp', 'step0_at', 'state_at'):
            fields[name] = self.time(getattr(chunk, f'{name}_ns'))
        fields['inference_start'] = self.time(chunk.inference_start_stamp_ns)
        rows = len(chunk.positions)
        stamps = chunk.step0_at_ns + chunk.step_period_ns * np.arange(rows, dtype=np.int64)
        fields['trajectory'] = self._trajectory(chunk.joint_names, stamps, chunk.positions)
        fields['stages'] = self._stages(chunk.stages)
        return fields

    def _block(self, block: KvBlock) -> dict[str, Any]:
        fields = same_fields(
            block, 'ring_id', 'slot', 'seq', 'generation', 'epoch', 'layout_hash', 'state_source',
            'valid_tokens', 'certificate_hash',
        )
        fields['has_pinned'] = block.pinned is not None
        fields['pinned'] = self._slot(block.pinned or SlotRef(0, 0))
        fields['window'] = [self._slot(ref) for ref in block.window]
        fields['camera_names'] = list(block.camera_names)
        fields['camera_stamps'] = [self.time(stamp) for stamp in block.camera_stamps_ns]
        fields['state_at'] = self.time(block.state_at_ns)
        fields['joint_names'] = list(block.joint_names)
        fields['state'] = _floats(block.state)
        fields['stages'] = self._stages(block.stages)
        return fields

    def _plan(self, plan: Plan) -> dict[str, Any]:
        fields = same_fields(
            plan, 'epoch', 'arm_state', 'active_chunk_id', 'entered_row', 'last_reject',
            'latency_ns', 'delta_ns',
        )
        for name in ('active_since', 'plan_end', 'hold_since', 'settled_since', 'measured_stamp'):
            fields[name] = self.time(getattr(plan, f'{name}_ns'))
        fields['tracking_error'] = _floats(plan.tracking_error)
        fields['measured'] = _floats(plan.measured)
        stamps = np.zeros(0, np.int64) if plan.setpoint_stamps_ns is None else (
            plan.setpoint_stamps_ns)
        fields['trajectory'] = self._trajectory(plan.joint_names, stamps, plan.setpoints)
        return fields

    def _status(self, status: StageStatus) -> dict[str, Any]:
        fields = same_fields(
            status, 'node', 'state', 'last_input_ns', 'last_output_ns', 'busy_since_ns',
            'sent_ns', 'outputs', 'dropped', 'reason', 'text', 'epoch',
        )
        fields['ring_ok'] = bool(status.ring_ok)
        fields['cameras'] = [
            self.new(
                f'{_PACKAGE}/CameraStatus', last_stamp=self.time(camera.last_stamp_ns),
                **same_fields(camera, 'camera', 'last_received_ns', 'content_since_ns',
                              'equal_frames'),
            )
            for camera in status.cameras
        ]
        return fields

    def _trajectory(self, names: Sequence[str], stamps: Any, rows: FloatArray | None) -> Any:
        start_ns = int(stamps[0]) if len(stamps) else 0
        points = [self._point(int(stamp) - start_ns, row)
                  for stamp, row in zip(stamps, () if rows is None else rows, strict=True)]
        header = self.new('std_msgs/msg/Header', stamp=self.time(start_ns), frame_id='')
        return self.new('trajectory_msgs/msg/JointTrajectory', header=header,
                        joint_names=list(names), points=points)

    def _point(self, after_ns: int, row: FloatArray) -> Any:
        sec, nanosec = divmod(after_ns, S)
        after = self.new('builtin_interfaces/msg/Duration', sec=sec, nanosec=nanosec)
        return self.new(
            'trajectory_msgs/msg/JointTrajectoryPoint', positions=_floats(row),
            velocities=_NO_ARRAY, accelerations=_NO_ARRAY, effort=_NO_ARRAY,
            time_from_start=after,
        )

    def _stages(self, stages: Sequence[StageTime]) -> list[Any]:
        return [self.new(f'{_PACKAGE}/StageTime', name=s.name, start_ns=s.start_ns,
                         end_ns=s.end_ns) for s in stages]

    def _slot(self, ref: SlotRef) -> Any:
        return self.new(f'{_PACKAGE}/SlotRef', slot=ref.slot, seq=ref.seq)


def _floats(values: FloatArray | None) -> FloatArray:
    return _NO_ARRAY if values is None else np.ascontiguousarray(values, np.float64)
