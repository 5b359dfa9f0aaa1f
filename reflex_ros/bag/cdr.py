"""Hand-written serialization of what runs publish, byte for byte as ``rosbags`` does it.

A virtual run publishes these faster than generic code can write them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from reflex_ros.bag.values import SCHEMA_VERSION
from reflex_ros.core.clock import S
from reflex_ros.core.types import (
    ActionChunk,
    ChunkTrace,
    ControlTick,
    FloatArray,
    KvBlock,
    Plan,
    SlotRef,
    StageStatus,
    StageTime,
)

_POINT = np.dtype([
    ('count', '<u4'), ('row', '<f8', 7), ('empty', '<u4', 3), ('sec', '<i4'), ('nanosec', '<u4'),
])
"""A trajectory point with seven positions, from its first length on; nothing is padded in it
when the one before it is of the same kind."""


_FLOAT = np.dtype('<f8')
_TIME = struct.Struct('<iI')
_HEAD = struct.Struct('<iIIB3xQH')
"""Header with an empty frame, number and schema version."""
_TICK_HEAD = struct.Struct('<iIIB3xQH6xqqq')
"""Header with an empty frame, number, schema version, index and times of a tick."""
_TICK_TAIL = struct.Struct('<QQd???5xqd')
"""What stands between the words and the arrays of a tick."""
_pack = lru_cache(maxsize=64)(lambda layout: struct.Struct(layout).pack)


class CdrWriter:
    """Appends little-endian CDR; padding is zero."""

    def __init__(self) -> None:
        self._data = bytearray(b'\x00\x01\x00\x00')

    def pack(self, align: int, layout: str, *values: Any) -> None:
        """Append fixed fields that are aligned at their first one alone."""
        data = self._data
        data += bytes((4 - len(data)) % align)
        data += _pack(layout)(*values)

    def align(self, size: int) -> None:
        """Pad to a multiple of ``size`` after the encapsulation header."""
        self._data += bytes((4 - len(self._data)) % size)

    def raw(self, data: bytes) -> None:
        """Append bytes whose alignment is that of the end."""
        self._data += data

    def text(self, text: str) -> None:
        """Append a string."""
        self.align(4)
        self._data += _text(text)

    def texts(self, texts: Sequence[str]) -> None:
        """Append a sequence of strings."""
        self.align(4)
        self._data += _names(tuple(texts))

    def floats(self, *arrays: FloatArray | None) -> None:
        """Append sequences of float64."""
        for values in arrays:
            count = 0 if values is None else len(values)
            self.pack(4, '<I', count)
            if values is not None and count:
                self.align(8)
                self._data += np.ascontiguousarray(values, _FLOAT).tobytes()

    def time(self, *stamps_ns: int) -> None:
        """Append instants."""
        self.align(4)
        for stamp_ns in stamps_ns:
            self._data += _TIME.pack(*divmod(stamp_ns, S))

    def head(self, stamp_ns: int, number: int) -> None:
        """Append header, number and schema version; they come first."""
        self._data += _HEAD.pack(*divmod(stamp_ns, S), 1, 0, number, SCHEMA_VERSION)

    def trajectory(self, names: Sequence[str], stamps_ns: Any, rows: FloatArray | None) -> None:
        """Append a ``JointTrajectory`` of seven joints whose header is its first instant."""
        start_ns = int(stamps_ns[0]) if len(stamps_ns) else 0
        self.time(start_ns)
        self.text('')
        self.texts(names)
        self.pack(4, '<I', len(stamps_ns))
        if not len(stamps_ns):
            return
        points = _points((np.asarray(stamps_ns, np.int64) - start_ns).tobytes()).copy()
        points['row'] = rows
        raw = points.tobytes()
        if (len(self._data) - 4) % 8 == 0:
            self._data += raw[:4] + b'\x00' * 4 + raw[4:]
        else:
            self._data += raw

    def slots(self, refs: Sequence[SlotRef]) -> None:
        """Append slots and their counters."""
        for ref in refs:
            self.pack(4, '<I', ref.slot)
            self.pack(8, '<Q', ref.seq)

    def stages(self, stages: Sequence[StageTime]) -> None:
        """Append timed stages."""
        self.pack(4, '<I', len(stages))
        for stage in stages:
            self.align(4)
            self._data += _text(stage.name)
            self.pack(8, '<qq', stage.start_ns, stage.end_ns)

    def bytes(self) -> bytes:
        """Return what was appended."""
        return bytes(self._data)


def can_write(value: object) -> bool:
    """Return whether ``write`` knows a value: seven joints, as every arm of ``core.types``."""
    if isinstance(value, ActionChunk):
        return value.positions.ndim == 2 and value.positions.shape[1] == 7
    if isinstance(value, Plan):
        rows = value.setpoints
        return rows is None or not len(rows) or rows.shape[1] == 7
    return type(value) in _WRITERS


def write(value: object) -> bytes:
    """Return a value that ``can_write`` knows as CDR with its encapsulation header."""
    out = CdrWriter()
    _WRITERS[type(value)](out, value)
    return out.bytes()


def write_joint_state(stamp_ns: int, names: Sequence[str], position: FloatArray) -> bytes:
    """Return a ``sensor_msgs/JointState`` of positions alone."""
    before, rest = b'\x00\x01\x00\x00', _joint_names(tuple(names), len(position))
    rows = np.ascontiguousarray(position, '<f8').tobytes()
    return before + struct.pack('<iI', *divmod(stamp_ns, S)) + rest + rows + b'\x00' * 8


@lru_cache(maxsize=1024)
def _text(text: str) -> bytes:
    """Return a string from an offset that 4 divides; most of them recur."""
    raw = text.encode() + b'\x00'
    return struct.pack('<I', len(raw)) + raw


@lru_cache(maxsize=64)
def _points(after_ns: bytes) -> Any:
    """Return points at ``int64[n]`` after the first one, without positions; grids recur."""
    after = np.frombuffer(after_ns, np.int64)
    points = np.zeros(len(after), _POINT)
    points['count'] = 7
    points['sec'], points['nanosec'] = np.divmod(after, S)
    return points


@lru_cache(maxsize=64)
def _names(names: tuple[str, ...]) -> bytes:
    """Return a sequence of strings from an offset that 4 divides; joints and cameras recur."""
    out = CdrWriter()
    out.pack(4, '<I', len(names))
    for name in names:
        out.text(name)
    return out.bytes()[4:]


@lru_cache(maxsize=1024)
def _words(verdict: str, cause: str, arm_state: str) -> bytes:
    """Return the words of a tick from an offset that 8 divides up to the next such one."""
    out = CdrWriter()
    for word in (verdict, cause, arm_state):
        out.text(word)
    out.align(8)
    return out.bytes()[4:]


@lru_cache(maxsize=64)
def _joint_names(names: tuple[str, ...], count: int) -> bytes:
    """Return what stands between stamp and positions of a ``JointState``; always the same."""
    out = CdrWriter()
    out.time(0)
    out.text('')
    out.texts(names)
    out.pack(4, '<I', count)
    out.align(8)
    return out.bytes()[12:]


def _block(out: CdrWriter, block: KvBlock) -> None:
    out.head(block.stamp_ns, block.number)
    out.pack(8, '<QI4xQQQ', block.ring_id, block.slot, block.seq, block.generation, block.epoch)
    out.text(block.layout_hash)
    out.pack(1, '<?', block.pinned is not None)
    out.slots((block.pinned or SlotRef(0, 0),))
    out.pack(4, '<I', len(block.window))
    out.slots(block.window)
    out.texts(block.camera_names)
    out.pack(4, '<I', len(block.camera_stamps_ns))
    out.time(*block.camera_stamps_ns)
    out.text(block.state_source.value)
    out.time(block.state_at_ns)
    out.texts(block.joint_names)
    out.floats(block.state)
    out.pack(4, '<I', block.valid_tokens)
    out.text(block.certificate_hash)
    out.stages(block.stages)


def _status(out: CdrWriter, status: StageStatus) -> None:
    out.head(status.stamp_ns, status.number)
    out.text(status.node)
    out.text(status.state)
    out.pack(8, '<qqqq?7xQQ', status.last_input_ns, status.last_output_ns, status.busy_since_ns,
             status.sent_ns, status.ring_ok, status.outputs, status.dropped)
    out.text(status.reason)
    out.text(status.text)
    out.pack(8, '<Q', status.epoch)
    out.pack(4, '<I', len(status.cameras))
    for camera in status.cameras:
        out.text(camera.camera)
        out.time(camera.last_stamp_ns)
        out.pack(8, '<qqI', camera.last_received_ns, camera.content_since_ns, camera.equal_frames)


def _trace(out: CdrWriter, trace: ChunkTrace) -> None:
    out.head(trace.stamp_ns, trace.number)
    out.pack(8, '<QQ', trace.chunk_id, trace.epoch)
    for word in (trace.fate.value, trace.reason.value, trace.text):
        out.text(word)
    out.pack(4, '<i', trace.entered_row)
    out.pack(8, '<dd', trace.seam_position, trace.seam_velocity)
    out.time(trace.observation_stamp_ns, trace.newest_stamp_ns, trace.first_command_stamp_ns)
    out.pack(8, '<qqqII', trace.accepted_ns, trace.inference_start_ns, trace.covered_ns,
             trace.stalled_ticks, trace.ticks)
    out.stages(trace.stages)


def _tick(out: CdrWriter, tick: ControlTick) -> None:
    out.raw(_TICK_HEAD.pack(*divmod(tick.stamp_ns, S), 1, 0, tick.number, SCHEMA_VERSION,
                            tick.index, tick.due_ns, tick.late_ns))
    out.raw(_words(tick.verdict.value, tick.cause.value, tick.arm_state.value))
    out.raw(_TICK_TAIL.pack(
        tick.epoch, tick.chunk_id, tick.row, tick.is_sent, tick.in_motion, tick.is_covered,
        tick.observation_age_ns, tick.tracking_error))
    out.floats(tick.setpoint, tick.command, tick.measured)


def _plan(out: CdrWriter, plan: Plan) -> None:
    out.head(plan.stamp_ns, plan.number)
    out.pack(8, '<Q', plan.epoch)
    out.text(plan.arm_state.value)
    out.pack(8, '<Q', plan.active_chunk_id)
    out.time(plan.active_since_ns)
    out.pack(4, '<i', plan.entered_row)
    out.time(plan.plan_end_ns, plan.hold_since_ns, plan.settled_since_ns)
    out.text(plan.last_reject)
    out.pack(8, '<qq', plan.latency_ns, plan.delta_ns)
    out.floats(plan.tracking_error, plan.measured)
    out.time(plan.measured_stamp_ns)
    stamps = () if plan.setpoint_stamps_ns is None else plan.setpoint_stamps_ns
    out.trajectory(plan.joint_names, stamps, plan.setpoints)


def _chunk(out: CdrWriter, chunk: ActionChunk) -> None:
    out.head(chunk.observation_stamp_ns, chunk.number)
    out.pack(8, '<QQQ', chunk.chunk_id, chunk.block_number, chunk.epoch)
    out.time(chunk.newest_stamp_ns, chunk.oldest_stamp_ns, chunk.step0_at_ns, chunk.state_at_ns)
    out.pack(8, '<qII', chunk.step_period_ns, chunk.execute_steps, chunk.frozen_steps)
    for word in (chunk.stitch, chunk.entry, chunk.state_source):
        out.text(word.value)
    out.floats(chunk.predicted_state)
    rows = len(chunk.positions)
    stamps = chunk.step0_at_ns + chunk.step_period_ns * np.arange(rows, dtype=np.int64)
    out.trajectory(chunk.joint_names, stamps, chunk.positions)
    out.pack(8, '<q', chunk.inference_start_ns)
    out.time(chunk.inference_start_stamp_ns)
    out.stages(chunk.stages)


_WRITERS: Mapping[type, Callable[[CdrWriter, Any], None]] = MappingProxyType({
    ActionChunk: _chunk, ChunkTrace: _trace, ControlTick: _tick, KvBlock: _block, Plan: _plan,
    StageStatus: _status,
})
