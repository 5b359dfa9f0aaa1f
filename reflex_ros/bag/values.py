"""Recorded messages as values of ``core.types``, where no ROS is installed.

Takes the objects of ``BagReader.decode``; gives values that share no memory with them.
"""

from __future__ import annotations

import io
import math
import struct
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from reflex_ros.core.clock import S
from reflex_ros.core.errors import LayoutError
from reflex_ros.core.grid import MAX_INDEX, MAX_NS
from reflex_ros.core.types import (
    ArmState,
    ByteArray,
    Cause,
    ChunkTrace,
    ControlTick,
    Fate,
    FloatArray,
    RejectReason,
    SimEvent,
    SimTruth,
    StageTime,
    StallEvent,
    Verdict,
)

E = TypeVar('E', bound=Enum)
SCHEMA_VERSION = 1
_MAX_COUNT = 1 << 63
"""Identities and epochs are counted from 1; no count comes so far."""


def stamp_of(time: Any) -> int:
    """Return a ``builtin_interfaces/Time`` in ns."""
    return int(time.sec) * S + int(time.nanosec)


def header_stamp(data: bytes) -> int:
    """Return the stamp of a message that begins with a header, ns, without reading the rest.

    Raises:
        LayoutError: The bytes end before it.
    """
    try:
        sec, nanosec = struct.unpack_from('<iI' if data[1:2] == b'\x01' else '>iI', data, 4)
    except struct.error as error:
        raise LayoutError(
            f'recorded header cannot be read: got {len(data)} bytes, expected at least 12. '
            'Record it again.'
        ) from error
    return int(sec * S + nanosec)


def control_tick(msg: Any) -> ControlTick:
    """Return a ``reflex_msgs/ControlTick``.

    Raises:
        LayoutError: Other schema version, an unknown verdict, cause or arm state, or numbers that
            no tick has.
    """
    _check(msg)
    tick = ControlTick(
        number=int(msg.number), stamp_ns=stamp_of(msg.header.stamp), index=int(msg.index),
        due_ns=int(msg.due_ns), late_ns=int(msg.late_ns), verdict=_member(Verdict, msg.verdict),
        cause=_member(Cause, msg.cause), arm_state=_member(ArmState, msg.arm_state),
        epoch=int(msg.epoch), chunk_id=int(msg.chunk_id), row=float(msg.row),
        is_sent=bool(msg.is_sent), in_motion=bool(msg.in_motion),
        is_covered=bool(msg.is_covered), observation_age_ns=int(msg.observation_age_ns),
        tracking_error=float(msg.tracking_error), setpoint=_floats(msg.setpoint),
        command=_floats(msg.command), measured=_floats(msg.measured),
    )
    _require(msg, 'index', tick.index, 0 <= tick.index < MAX_INDEX)
    for name in ('due_ns', 'late_ns', 'stamp_ns', 'observation_age_ns'):
        _require_instant(msg, name, getattr(tick, name))
    _require_counts(msg, tick)
    return tick


def chunk_trace(msg: Any) -> ChunkTrace:
    """Return a ``reflex_msgs/ChunkTrace``.

    Raises:
        LayoutError: Other schema version, an unknown fate or reason, or numbers that no trace has.
    """
    _check(msg)
    trace = ChunkTrace(
        number=int(msg.number), stamp_ns=stamp_of(msg.header.stamp), chunk_id=int(msg.chunk_id),
        epoch=int(msg.epoch), fate=_member(Fate, msg.fate),
        reason=_member(RejectReason, msg.reason), text=str(msg.text),
        entered_row=int(msg.entered_row), seam_position=float(msg.seam_position),
        seam_velocity=float(msg.seam_velocity),
        observation_stamp_ns=stamp_of(msg.observation_stamp),
        newest_stamp_ns=stamp_of(msg.newest_stamp),
        first_command_stamp_ns=stamp_of(msg.first_command_stamp),
        accepted_ns=int(msg.accepted_ns), inference_start_ns=int(msg.inference_start_ns),
        covered_ns=int(msg.covered_ns), stalled_ticks=int(msg.stalled_ticks),
        ticks=int(msg.ticks),
        stages=tuple(StageTime(s.name, int(s.start_ns), int(s.end_ns)) for s in msg.stages),
    )
    for name in ('seam_position', 'seam_velocity'):
        _require(msg, name, getattr(trace, name), math.isfinite(getattr(trace, name)))
    for name in ('accepted_ns', 'inference_start_ns', 'newest_stamp_ns'):
        _require_instant(msg, name, getattr(trace, name))
    _require(msg, 'covered_ns', trace.covered_ns, 0 <= trace.covered_ns <= MAX_NS)
    for stage in trace.stages:
        _require_instant(msg, f'start of {stage.name[:20]!r}', stage.start_ns)
        _require_instant(msg, f'end of {stage.name[:20]!r}', stage.end_ns)
    _require_counts(msg, trace)
    return trace


def stall_event(msg: Any) -> StallEvent:
    """Return a ``reflex_msgs/StallEvent``.

    Raises:
        LayoutError: Other schema version, or an unknown cause.
    """
    _check(msg)
    return StallEvent(
        number=int(msg.number), stamp_ns=stamp_of(msg.header.stamp),
        first_index=int(msg.first_index), ticks=int(msg.ticks), duration_ns=int(msg.duration_ns),
        cause=_member(Cause, msg.cause), text=str(msg.text),
    )


def sim_truth(msg: Any) -> SimTruth:
    """Return a ``reflex_msgs/SimTruth``.

    Raises:
        LayoutError: Other schema version.
    """
    _check(msg)
    return SimTruth(
        number=int(msg.number), stamp_ns=stamp_of(msg.header.stamp), task=str(msg.task),
        joint_position=_floats(msg.joint_position), joint_velocity=_floats(msg.joint_velocity),
        tip_position=_xyz(msg.tip_position), target_position=_xyz(msg.target_position),
        target_velocity=_xyz(msg.target_velocity),
        objects={item.name: _pose(item.pose) for item in msg.objects},
        phase=str(msg.phase), success=bool(msg.success),
        events=tuple(SimEvent(str(e.name), stamp_of(e.stamp)) for e in msg.events),
    )


def image(msg: Any) -> ByteArray | None:
    """Return an ``Image`` (rgb8, bgr8, mono8) or ``CompressedImage`` as ``uint8[H, W, 3]`` RGB.

    None where the encoding is another one or the data do not fit the size.
    """
    if not hasattr(msg, 'encoding'):
        return _decompressed(bytes(msg.data))
    channels = {'rgb8': 3, 'bgr8': 3, 'mono8': 1}.get(msg.encoding, 0)
    row, data = msg.width * channels, np.asarray(msg.data, np.uint8)
    if not row or row > msg.step or len(data) != msg.step * msg.height:
        return None
    pixels = data.reshape(msg.height, msg.step)[:, :row].reshape(msg.height, msg.width, channels)
    if msg.encoding == 'bgr8':
        pixels = pixels[..., ::-1]
    return np.array(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def _decompressed(data: bytes) -> ByteArray | None:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=('JPEG', 'PNG')) as picture:
            return np.array(picture.convert('RGB'), np.uint8)
    except (UnidentifiedImageError, OSError, ValueError):
        return None


def _check(msg: Any) -> None:
    if msg.schema_version != SCHEMA_VERSION:
        raise LayoutError(
            f'recorded {msg.__msgtype__} cannot be read: got schema {msg.schema_version}, '
            f'expected {SCHEMA_VERSION}. Read it with the version that recorded it.'
        )


def _require(msg: Any, name: str, value: object, is_possible: bool) -> None:
    if not is_possible:
        raise LayoutError(
            f'recorded {msg.__msgtype__} is damaged: got {name} {value}, expected a number that '
            'can be true. Record it again.'
        )


def _require_instant(msg: Any, name: str, ns: int) -> None:
    _require(msg, name, ns, abs(ns) <= MAX_NS)


def _require_counts(msg: Any, value: ControlTick | ChunkTrace) -> None:
    for name in ('chunk_id', 'epoch'):
        _require(msg, name, getattr(value, name), getattr(value, name) < _MAX_COUNT)


def _member(kind: type[E], text: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise LayoutError(
            f'recorded {kind.__name__} is unknown: got {text!r}, expected one of '
            f'{", ".join(str(item.value) for item in kind)}. '
            'Read it with the version that recorded it.'
        ) from None


def _floats(values: Any) -> FloatArray:
    return np.array(values, dtype=np.float64)


def _xyz(point: Any) -> FloatArray:
    return np.array([point.x, point.y, point.z], dtype=np.float64)


def _pose(pose: Any) -> FloatArray:
    p, q = pose.position, pose.orientation
    return np.array([p.x, p.y, p.z, q.w, q.x, q.y, q.z], dtype=np.float64)
