"""The socketcand text protocol, raw mode only, and one client that speaks it.

Rules that python-can 4.6 forces: the greeting and each ``< ok >`` must arrive alone in one
``recv``, so frames are held back for a while after ``rawmode``; and a client may never read (the
SDK opens a second connection for sending only), so nothing may ever wait for a client.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from reflex_ros.core.clock import MS
from reflex_ros.sim.can_codec import ERROR_ID, FRAME_BYTES, CanFrame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GREETING, OK = b'< hi >', b'< ok >'
HOLD_NS = 50 * MS
"""No frame before this long after ``rawmode``, or a slow client reads it together with the ok."""
RETRY_NS = 100 * MS
"""How often a client with a full buffer is tried again."""
SEND_BUFFER_BYTES = 64 * 1024
"""Kernel buffer asked for: a stalled client should lose frames, not read old ones later."""
MAX_MESSAGE_BYTES = 512
MAX_ID = 0x7FF
_ID_DIGITS = 3


def format_frames(frames: Iterable[CanFrame], stamp_ns: int) -> bytes:
    """Return frames as text, all with the same stamp (ROS time, ns)."""
    seconds, fraction = divmod(stamp_ns // 1000, 1_000_000)
    stamp = f'{seconds}.{fraction:06d}'
    return ''.join(
        [f'< frame {can_id:03X} {stamp} {data.hex()} >' if can_id != ERROR_ID
         else f'< error {can_id:03X} {stamp} >' for can_id, data in frames]
    ).encode('ascii')


def parse_send(words: Sequence[bytes]) -> CanFrame | None:
    """Return the frame of ``send <id> <length> <byte>...``, None if it is malformed.

    Extended ids (eight digits) count as malformed: the arm has none.
    """
    try:
        can_id, length = int(words[1], 16), int(words[2], 16)
        data = bytes([int(word, 16) for word in words[3:]])
    except (IndexError, ValueError):
        return None
    is_right = (len(words[1]) == _ID_DIGITS and 0 <= can_id <= MAX_ID
                and len(data) == length <= FRAME_BYTES)
    return CanFrame(can_id, data) if is_right else None


class Client:
    """One connection; never blocks.

    Args:
        sock: Accepted socket.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.sock = sock
        self.channel: str | None = None
        self.is_raw = False
        self.is_gone = False
        self.malformed = 0
        self.dropped_blobs = 0
        """Writes given up because the client does not read."""
        self._buffer = b''
        self._pending = b''
        self._wait_until_ns = 0
        self.write_now(GREETING)

    def read(self) -> list[list[bytes]]:
        """Return the complete messages that have arrived, split into words."""
        try:
            data = self.sock.recv(65536)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b''
        if not data:
            self.is_gone = True
            return []
        *texts, rest = (self._buffer + data).split(b'>')
        if len(rest) > MAX_MESSAGE_BYTES:
            self.malformed += 1
            rest = b''
        self._buffer = rest
        return [words for text in texts if (words := self._words(text))]

    def enter_raw(self, now_ns: int) -> None:
        """Answer ``rawmode``; frames follow after ``HOLD_NS``."""
        self.write_now(OK)
        self.is_raw = True
        self._wait_until_ns = now_ns + HOLD_NS

    def write_now(self, text: bytes) -> None:
        """Send a reply of the handshake at once, in a segment of its own."""
        try:
            self.sock.send(text)
        except OSError:
            self.is_gone = True

    def write(self, blob: bytes, now_ns: int) -> None:
        """Send frames; queued while held back, dropped while the client does not read."""
        if now_ns < self._wait_until_ns:
            if self.dropped_blobs or len(self._pending) > SEND_BUFFER_BYTES:
                self.dropped_blobs += 1
            else:
                self._pending += blob
            return
        if self._pending and not self._flush(now_ns):
            self.dropped_blobs += 1
            return
        self._pending = blob
        self._flush(now_ns)

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def _flush(self, now_ns: int) -> bool:
        try:
            sent = self.sock.send(self._pending)
        except (BlockingIOError, InterruptedError):
            self._wait_until_ns = now_ns + RETRY_NS
            return False
        except OSError:
            self.is_gone = True
            return False
        self._pending = self._pending[sent:]
        return not self._pending

    def _words(self, text: bytes) -> list[bytes]:
        _, opened, body = text.rpartition(b'<')
        words = body.split() if opened else []
        if not words:
            self.malformed += 1
        return words
