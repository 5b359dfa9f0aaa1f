"""Pass the output of another process on, and drop what nobody takes; run as a script.

``ros.output`` starts it with Python's own modules only. It reads as fast as the other process
writes, and writes on threads of its own, which may wait for a stopped terminal as long as they
like. What was written before a crash is still in the pipe: it comes out here.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections import deque

MOST_BYTES = 2**20
"""What may wait for a sink, B; beyond that the oldest lines are dropped."""
BATCH_BYTES = 4096
"""Written at once, B: that much goes whole into a pipe beside other writers."""
LAST_S = 0.5
"""Longest wait for the sinks at the end."""
_READ_BYTES = 2**16


class Sink:
    """Writes to a descriptor that may not take anything, in order.

    Args:
        fd: Terminal, pipe or socket.
        most_bytes: What may wait.
    """

    def __init__(self, fd: int, *, most_bytes: int = MOST_BYTES) -> None:
        self._fd = fd
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._waiting_bytes = self._dropped_lines = self._dropped_bytes = 0
        self._is_ended = False
        self._last = b'\n'
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self, data: bytes) -> None:
        """Have data written soon; never waits."""
        with self._changed:
            self._pieces.extend(data.splitlines(keepends=True))
            self._waiting_bytes += len(data)
            while self._waiting_bytes > self._most_bytes:
                piece = self._pieces.popleft()
                self._waiting_bytes -= len(piece)
                self._dropped_bytes += len(piece)
                self._dropped_lines += piece.endswith(b'\n')
            self._changed.notify()

    def end(self) -> None:
        """Have the thread end once everything is written."""
        with self._changed:
            self._is_ended = True
            self._changed.notify()

    def join(self, wait_s: float = LAST_S) -> bool:
        """Return whether everything was written, after ``wait_s`` at most."""
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while batch := self._next():
            self._write(batch)

    def _next(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self._is_ended)
            batch = self._notice()
            while self._pieces and (not batch or len(batch) + len(self._pieces[0]) <= BATCH_BYTES):
                piece = self._pieces.popleft()
                self._waiting_bytes -= len(piece)
                batch += piece
            self._last = batch[-1:]
            return batch

    def _notice(self) -> bytes:
        lines, size = self._dropped_lines, self._dropped_bytes
        if not size:
            return b''
        self._dropped_lines = self._dropped_bytes = 0
        begin = '' if self._last == b'\n' else '\n'
        return (f'{begin}[output] {lines} lines ({size} B) were dropped: nobody read them in '
                'time\n').encode()

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._fd, data):]
            except BlockingIOError:  # whoever shares it made it so
                select.select([], [self._fd], [])
            except OSError:  # closed by its reader, as ever
                return


def drain(pairs: dict[int, int]) -> bool:
    """Pass on until all writers have closed; return whether all was written.

    Args:
        pairs: Sink descriptor by source descriptor.
    """
    sinks = {source: Sink(sink) for source, sink in pairs.items()}
    poll = select.poll()
    for source in sinks:
        poll.register(source, select.POLLIN)
    is_open = set(sinks)
    while is_open:
        for source, _ in poll.poll():
            data = os.read(source, _READ_BYTES)
            if data:
                sinks[source].take(data)
            else:
                poll.unregister(source)
                is_open.discard(source)
    for sink in sinks.values():
        sink.end()
    wait_s = LAST_S / len(sinks)
    stuck = [sink for sink in sinks.values() if not sink.join(wait_s)]
    return not stuck


def main(args: list[str]) -> None:
    """Drain ``SOURCE:SINK`` pairs; ends without waiting for a thread that is stuck.

    Only the end of the other process ends this one: its last words come after the signal.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pairs = (arg.split(':') for arg in args)
    is_whole = drain({int(source): int(sink) for source, sink in pairs})
    os._exit(0 if is_whole else 1)


if __name__ == '__main__':
    main(sys.argv[1:])
