"""Counts what arrives on a topic by the publisher's counter inside the messages.

Every message of ``reflex_msgs`` that is a topic starts with a header and ``uint64 number``, from 1
without gaps. Reading it from the serialized bytes costs no deserialisation.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

NUMBERED = 'reflex_msgs/msg/'
_STATUS = 'reflex_msgs/msg/StageStatus'
_FRAME_ID = 8
"""Offset of the header's frame id after its stamp."""


@dataclass(slots=True)
class NumberLog:
    """Numbers of one publisher.

    Attributes:
        messages: Messages seen. ``first``, ``last``: first and newest number, 0 if none.
        missing: Numbers skipped since the first one. ``gaps``: runs of them.
        restarts: Times the count went back, i.e. the publisher was started again.
    """

    messages: int = 0
    first: int = 0
    last: int = 0
    missing: int = 0
    gaps: int = 0
    restarts: int = 0

    def add(self, number: int) -> None:
        """Count one message."""
        self.messages += 1
        if self.messages == 1:
            self.first = number
        elif number <= self.last:
            self.restarts += 1
            self._miss(number - 1)
        else:
            self._miss(number - self.last - 1)
        self.last = number

    def _miss(self, count: int) -> None:
        self.missing += count
        self.gaps += count > 0


@dataclass(slots=True)
class TopicCounts:
    """Counts of one topic; call ``add`` from one thread.

    Attributes:
        type: Type of the topic.
        messages: Messages received. ``unnumbered``: those without a number that can be read.
        publishers: Numbers by publisher; its name is known for ``stage_status`` only, else ''.
            Empty for types without a counter.
    """

    type: str
    messages: int = 0
    unnumbered: int = 0
    publishers: dict[str, NumberLog] = field(default_factory=dict)

    def add(self, data: bytes) -> None:
        """Count one serialized message."""
        self.messages += 1
        if self.type.startswith(NUMBERED):
            try:
                publisher, number = read_number(self.type, data)
            except (IndexError, struct.error, UnicodeDecodeError):
                self.unnumbered += 1  # of a careless program; it is recorded all the same
                return
            self.publishers.setdefault(publisher, NumberLog()).add(number)

    def report(self) -> dict[str, Any]:
        """Return the counts for ``recorder.json``."""
        names = ('messages', 'first', 'last', 'missing', 'gaps', 'restarts')
        logs = {
            publisher: {name: getattr(log, name) for name in names}
            for publisher, log in sorted(self.publishers.items())
        }
        return {'type': self.type, 'received': self.messages, 'unnumbered': self.unnumbered,
                'publishers': logs}


def read_number(type_name: str, data: bytes) -> tuple[str, int]:
    """Return (publisher, number) of a serialized message of ``reflex_msgs``.

    Args:
        type_name: Its type.
        data: CDR with its encapsulation header.
    """
    order = '<' if data[1] & 1 else '>'
    body = memoryview(data)[4:]
    (length,) = struct.unpack_from(f'{order}I', body, _FRAME_ID)
    at = -(-(_FRAME_ID + 4 + length) // 8) * 8
    (number,) = struct.unpack_from(f'{order}Q', body, at)
    if type_name != _STATUS:
        return '', number
    at = -(-(at + 8 + 2) // 4) * 4
    (length,) = struct.unpack_from(f'{order}I', body, at)
    return bytes(body[at + 4 : at + 3 + length]).decode(), number
