"""The writing process of the hand-off bench: one payload for each byte that it is sent.

Run by ``study.handoff`` as ``python -m reflex_ros.study.handoff_writer WAY NAME BYTES``.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from reflex_ros.core.clock import SystemClock
from reflex_ros.ring.handoff import RingServer
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.writer import RingWriter

RING, RING_COPIED, PIPE = WAYS = ('ring', 'ring, copied in', 'pipe')
HEADER = struct.Struct('<q')
"""Of a payload in the pipe: the instant at which it was ready, ns of the steady clock."""
Bytes = np.ndarray


def layout_of(size: int) -> RingLayout:
    """Return a ring whose slots hold so many bytes."""
    return RingLayout.snapshot((size,), 'uint8', model_id='handoff')


def mark(payload: Bytes, number: int) -> None:
    """Write what tells one payload from the others at both of its ends."""
    payload[0] = payload[-1] = number & 0xFF


class RingSender:
    """Hands payloads over in a ring.

    Args:
        name: Of the ring's socket. size: Of a payload, bytes.
        is_copied: The payload is made elsewhere and copied into the slot, which counts; else it is
            written where it is to lie, as the encoder does, and is ready then.
    """

    def __init__(self, name: str, size: int, *, is_copied: bool) -> None:
        self._clock = SystemClock()
        self._writer = RingWriter.create(layout_of(size), clock=self._clock)
        self._server = RingServer(name, self._writer, clock=self._clock)
        self._source = np.zeros(size, np.uint8) if is_copied else None

    def __call__(self, number: int) -> None:
        """Hand one payload over."""
        slot = self._writer.begin()
        if self._source is None:
            mark(slot.frame, number)
            ready_ns = self._clock.mono_ns()
        else:
            mark(self._source, number)
            ready_ns = self._clock.mono_ns()
            np.copyto(slot.frame, self._source)
        self._writer.commit(slot, stamp_ns=ready_ns, epoch=1, tokens=1)
        self._server.notify()

    def close(self) -> None:
        """End the ring."""
        self._server.close()
        self._writer.close()


class PipeSender:
    """Writes payloads to standard output: no pickle, no copy but the kernel's two."""

    def __init__(self, name: str, size: int) -> None:
        self._clock, self._payload = SystemClock(), np.zeros(size, np.uint8)

    def __call__(self, number: int) -> None:
        """Hand one payload over."""
        mark(self._payload, number)
        self._send(HEADER.pack(self._clock.mono_ns()))
        self._send(memoryview(self._payload))

    def _send(self, data: bytes | memoryview) -> None:
        while data:
            data = data[os.write(sys.stdout.fileno(), data):]

    def close(self) -> None:
        """Do nothing."""


MAKERS: MappingProxyType[str, Callable[[str, int], RingSender | PipeSender]] = MappingProxyType({
    RING: lambda name, size: RingSender(name, size, is_copied=False),
    RING_COPIED: lambda name, size: RingSender(name, size, is_copied=True),
    PIPE: PipeSender,
})


def main(args: Sequence[str]) -> int:
    """Send a payload for each byte on standard input, until it ends."""
    way, name, size = args
    send, number = MAKERS[way](name, int(size)), 0
    try:
        while os.read(sys.stdin.fileno(), 1):
            number += 1
            send(number)
    except (BrokenPipeError, KeyboardInterrupt):
        return 1
    finally:
        send.close()
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
