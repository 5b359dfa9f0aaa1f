"""Pieces that every conversion uses: times, enumerations, arrays, schema versions."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from copy import copy
from enum import Enum
from typing import Any, TypeVar

import numpy as np
from builtin_interfaces.msg import Duration, Time
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from reflex_ros.core.clock import S
from reflex_ros.core.errors import ReflexError
from reflex_ros.core.types import FloatArray

E = TypeVar('E', bound=Enum)
MAX_COUNT = 2**62
"""Largest identity or counter that is believed; half of what a signed number holds."""


class MessageError(ReflexError):
    """A received message contradicts itself or this version's definition; drop and count it."""


def time_from_msg(msg: Any) -> int:
    """Return ROS time in ns."""
    return int(msg.sec) * S + int(msg.nanosec)


def time_to_msg(stamp_ns: int) -> Any:
    """Return a ``builtin_interfaces/Time``; a new object, never shared."""
    sec, nanosec = divmod(int(stamp_ns), S)
    return Time(sec=sec, nanosec=nanosec)


def duration_to_msg(duration_ns: int) -> Any:
    """Return a ``builtin_interfaces/Duration``."""
    sec, nanosec = divmod(int(duration_ns), S)
    return Duration(sec=sec, nanosec=nanosec)


def new_message(kind: Any, value: Any, stamp_ns: int) -> Any:
    """Return an empty message of ``kind`` with the stamp and the publisher's number filled."""
    msg = kind()
    msg.header.stamp = time_to_msg(stamp_ns)
    msg.number = value.number
    return msg


def check_schema(msg: Any) -> None:
    """Refuse a message of another definition.

    Raises:
        MessageError: The version differs from the one this software was built with.
    """
    if msg.schema_version != msg.SCHEMA_VERSION:
        raise MessageError(
            f'message {type(msg).__name__} cannot be read: got schema {msg.schema_version}, '
            f'expected {msg.SCHEMA_VERSION}. Run the same release on every host.'
        )


def enum_from_msg(kind: type[E], text: str, where: str) -> E:
    """Return the member whose value is ``text``.

    Args:
        kind: Enumeration of ``core.types``.
        text: Value in the message.
        where: ``Message.field``, for the error.

    Raises:
        MessageError: There is no such member.
    """
    try:
        return kind(text)
    except ValueError:
        known = ', '.join(str(member.value) for member in kind)
        raise MessageError(
            f'field {where} is unknown: got {text!r}, expected one of {known}. '
            'Run the same release on every host.'
        ) from None


def count_from_msg(value: int, where: str) -> int:
    """Return a counter; one that the next increment or the ledger could not hold is refused.

    Raises:
        MessageError: It is larger than ``MAX_COUNT``.
    """
    if value > MAX_COUNT:
        raise MessageError(
            f'counter {where} is wrong: got {value}, expected at most {MAX_COUNT}. '
            'Correct the publisher.'
        )
    return int(value)


def floats_to_msg(values: FloatArray | None) -> array[float]:
    """Return the numbers as a typed array, which the message takes without looking at each."""
    out = array('d')
    if values is not None:
        out.frombytes(np.ascontiguousarray(values, dtype=np.float64).tobytes())
    return out


def floats_from_msg(values: Sequence[float]) -> FloatArray:
    """Return a copy as ``float64[N]``."""
    return np.array(values, dtype=np.float64)


def optional_floats_from_msg(values: Sequence[float]) -> FloatArray | None:
    """Return a copy as ``float64[N]``; None if empty."""
    return floats_from_msg(values) if len(values) else None


def trajectory_to_msg(
    joint_names: Sequence[str], stamps_ns: Sequence[int], rows: FloatArray | None
) -> Any:
    """Return positions as a ``JointTrajectory`` whose header is the first row's instant.

    Args:
        joint_names: Column names.
        stamps_ns: ROS time of each row; empty if there are no rows.
        rows: ``float64[N, J]`` rad and m, or None.
    """
    msg = JointTrajectory(joint_names=list(joint_names))
    if rows is None or not len(rows):
        return msg
    first = int(stamps_ns[0])
    msg.header.stamp = time_to_msg(first)
    empty = JointTrajectoryPoint()
    for stamp, row in zip(stamps_ns, rows, strict=True):
        point = copy(empty)  # a third of the time of its constructor, fifty times a message
        point.positions = floats_to_msg(row)
        point.time_from_start = duration_to_msg(int(stamp) - first)
        msg.points.append(point)
    return msg


def trajectory_from_msg(msg: Any, where: str) -> tuple[np.ndarray[Any, Any], FloatArray]:
    """Return the instants ``int64[N]`` (ROS time) and positions ``float64[N, J]``, both copies.

    Raises:
        MessageError: A point has another number of positions than there are joint names, or is
            not later than the one before.
    """
    first, joints = time_from_msg(msg.header.stamp), len(msg.joint_names)
    for index, point in enumerate(msg.points):
        if len(point.positions) != joints:
            raise MessageError(
                f'trajectory {where} has a wrong row {index}: got {len(point.positions)} '
                f'positions, expected {joints} (joint names). Correct the publisher.'
            )
    stamps = np.array([first + time_from_msg(p.time_from_start) for p in msg.points], np.int64)
    early = np.flatnonzero(np.diff(stamps) <= 0)
    if len(early):
        raise MessageError(
            f'trajectory {where} has a wrong row {int(early[0]) + 1}: got a time_from_start that '
            'is not larger than the one before, expected rising ones. Correct the publisher.'
        )
    rows = np.array([p.positions for p in msg.points], dtype=np.float64)
    return stamps, rows.reshape(len(msg.points), joints)
