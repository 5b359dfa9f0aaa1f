"""Hand-written reading of true states, field by field as ``values`` takes them from ``rosbags``.

A replay reads one with each frame; generic code takes four times as long.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np

from reflex_ros.bag.schema import hash_of
from reflex_ros.bag.values import SCHEMA_VERSION
from reflex_ros.core.clock import S
from reflex_ros.core.types import FloatArray, SimEvent, SimTruth

TRUTH = 'reflex_msgs/msg/SimTruth'
TRUTH_HASH = 'RIHS01_68b4ac059da7728f369a419abccf45eab8dfc7003ac51e8c56a9bda4ba78858c'
"""The definition that ``read_truth`` is written for."""

_LITTLE_ENDIAN = b'\x00\x01\x00\x00'
_COUNT, _TIME, _NUMBER = struct.Struct('<I'), struct.Struct('<iI'), struct.Struct('<QH')
_VECTORS, _POSE = struct.Struct('<9d'), struct.Struct('<7d')


@lru_cache(maxsize=32)
def can_read(type_name: str, definition: str) -> bool:
    """Return whether ``read_truth`` reads messages of a type with this concatenated text."""
    return type_name == TRUTH and hash_of(type_name, definition) == TRUTH_HASH


def read_truth(data: bytes) -> SimTruth | None:
    """Return a ``reflex_msgs/SimTruth``; None for whatever is not plain, damaged bytes too.

    Args:
        data: CDR with its encapsulation header.
    """
    if data[:4] != _LITTLE_ENDIAN:
        return None
    try:
        return _truth(data)
    except (struct.error, ValueError):
        return None


def _truth(data: bytes) -> SimTruth:
    stamp_ns = _stamp(data, 4)
    _, at = _text(data, 12)
    at = _aligned(at, 8)
    number, version = _NUMBER.unpack_from(data, at)
    task, at = _text(data, at + _NUMBER.size)
    position, at = _floats(data, at)
    velocity, at = _floats(data, at)
    at = _aligned(at, 8)
    vectors = _VECTORS.unpack_from(data, at)
    objects, at = _objects(data, at + _VECTORS.size)
    phase, at = _text(data, at)
    success = data[at:at + 1] != b'\x00'
    events, at = _events(data, at + 1)
    if version != SCHEMA_VERSION or not at <= len(data) <= at + 3:
        raise ValueError('another version, or another length')
    return SimTruth(
        number=number, stamp_ns=stamp_ns, task=task, joint_position=position,
        joint_velocity=velocity, tip_position=np.array(vectors[:3]),
        target_position=np.array(vectors[3:6]), target_velocity=np.array(vectors[6:]),
        objects=objects, phase=phase, success=success, events=events,
    )


def _objects(data: bytes, at: int) -> tuple[dict[str, FloatArray], int]:
    count, at = _count(data, at)
    found: dict[str, FloatArray] = {}
    for _ in range(count):
        name, at = _text(data, at)
        at = _aligned(at, 8)
        x, y, z, qx, qy, qz, qw = _POSE.unpack_from(data, at)
        found[name] = np.array((x, y, z, qw, qx, qy, qz))
        at += _POSE.size
    return found, at


def _events(data: bytes, at: int) -> tuple[tuple[SimEvent, ...], int]:
    count, at = _count(data, at)
    found = []
    for _ in range(count):
        name, at = _text(data, at)
        at = _aligned(at, 4)
        found.append(SimEvent(name, _stamp(data, at)))
        at += _TIME.size
    return tuple(found), at


def _stamp(data: bytes, at: int) -> int:
    sec, nanosec = _TIME.unpack_from(data, at)
    return int(sec * S + nanosec)


def _text(data: bytes, at: int) -> tuple[str, int]:
    size, at = _count(data, at)
    end = at + size
    if not size or data[end - 1:end] != b'\x00':
        raise ValueError('a text without its end')
    return data[at:end - 1].decode(), end


def _floats(data: bytes, at: int) -> tuple[FloatArray, int]:
    count, at = _count(data, at)
    if not count:
        return np.zeros(0), at
    at = _aligned(at, 8)
    return np.array(np.frombuffer(data, '<f8', count, at)), at + 8 * count


def _count(data: bytes, at: int) -> tuple[int, int]:
    at = _aligned(at, 4)
    return _COUNT.unpack_from(data, at)[0], at + _COUNT.size


def _aligned(at: int, size: int) -> int:
    """Return the next place that ``size`` divides, counted from the end of the header."""
    return at + (4 - at) % size
