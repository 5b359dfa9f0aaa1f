"""When something begins that deserves a snapshot, from serialized ticks alone."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from reflex_ros.core.clock import S
from reflex_ros.core.types import Cause

TICK = 'reflex_msgs/msg/ControlTick'
STALL, FAULT = 'stall', 'arm_fault'
REST_NS = 10 * S
"""Trouble that pauses for less is still the same."""
ASKED = frozenset(cause.value for cause in (
    Cause.OPERATOR, Cause.INSTRUCTION, Cause.SYNC_WAIT, Cause.WARMUP, Cause.LIMIT))
"""Causes that somebody asked for."""
_FRAME_ID, _NUMBERS = 8, 40
"""Offset of the frame id in the header; bytes from the number to the words of a tick."""


@dataclass(frozen=True, slots=True)
class TickState:
    """What a tick says of trouble: its cause, whether the arm was in motion, and covered."""

    cause: str
    in_motion: bool
    is_covered: bool

    @property
    def event(self) -> str:
        """Return what is the matter, '' if nothing is."""
        if self.cause == Cause.ARM_FAULT.value:
            return FAULT
        is_stall = self.in_motion and not self.is_covered and self.cause not in ASKED
        return STALL if is_stall else ''


def tick_state(data: bytes) -> TickState:
    """Return the state in a serialized ``ControlTick``.

    Raises:
        ValueError: The bytes are no tick.
    """
    try:
        order = '<' if data[1] & 1 else '>'
        body = memoryview(data)[4:]
        (length,) = struct.unpack_from(f'{order}I', body, _FRAME_ID)
        at = -(-(_FRAME_ID + 4 + length) // 8) * 8 + _NUMBERS
        words = []
        for _ in range(3):  # verdict, cause, arm_state
            at = -(-at // 4) * 4
            (length,) = struct.unpack_from(f'{order}I', body, at)
            words.append(bytes(body[at + 4: at + 3 + length]).decode())
            at += 4 + length
        flags = struct.unpack_from(f'{order}QQd???', body, -(-at // 8) * 8)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f'no tick: {error}') from error
    return TickState(words[1], flags[4], flags[5])


class EventWatch:
    """Tells the begin of an event from its going on; trouble that flickers is one event.

    Attributes:
        is_on: Whether the newest tick was one of an event.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._newest_ns: dict[str, int] = {}

    def take(self, data: bytes, stamp_ns: int) -> str:
        """Take a serialized tick; return the event that begins with it, '' if none does."""
        try:
            event = tick_state(data).event
        except ValueError:  # of another program on the same topic
            return ''
        self.is_on = bool(event)
        if not event:
            return ''
        before_ns = self._newest_ns.get(event)
        self._newest_ns[event] = stamp_ns
        return event if before_ns is None or stamp_ns - before_ns >= REST_NS else ''
