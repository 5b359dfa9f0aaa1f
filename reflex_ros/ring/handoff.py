"""Hands the ring to readers in other processes, over an abstract Unix socket.

The socket then stays open in both directions as a death notice: its end tells the reader that the
writer is gone, and the server that the reader's row is free. It ends with the process, also by
kill -9. A child that the writer forks without exec would keep it open: start children by exec.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from reflex_ros.core.clock import MS, Clock, S
from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.ring import handshake
from reflex_ros.ring.control import ControlBlock
from reflex_ros.ring.store import BlockStore
from reflex_ros.ring.writer import RingWriter

HELLO_NS = 1 * S
"""A peer that has not sent its greeting by then is dropped."""
MOST_PEERS = 64
_JOIN_S = 5.0


@dataclass(slots=True)
class _Peer:
    """One connection; ``wakeup`` is -1 until its greeting was right."""

    connection: socket.socket
    deadline_ns: int
    wakeup: int = -1
    row: int = -1
    owner: int = 0


@dataclass(frozen=True, slots=True)
class HandoffStats:
    """Peers served, and refused for another user, a bad message, silence or number."""

    served: int
    refused: int


class RingServer:
    """Serves one ring from a thread of the writer's process.

    Binds at once, so that a name in use fails in configure.

    Args:
        name: See ``handshake.ring_name``.
        writer: Writer of the ring; close the server first.
        clock: Clock of the deadlines.
        uid: The only user served, None = this process's.
        hello_ns: See ``HELLO_NS``.

    Raises:
        ConfigError: The name is in use.
    """

    def __init__(self, name: str, writer: RingWriter, *, clock: Clock, uid: int | None = None,
                 hello_ns: int = HELLO_NS) -> None:
        self.name = name
        self._control: ControlBlock = writer.control
        self._store: BlockStore = writer.store
        self._clock, self._hello_ns = clock, hello_ns
        self._uid = os.getuid() if uid is None else uid
        self._peers: dict[int, _Peer] = {}
        self._lock = threading.Lock()
        self._served = self._refused = 0
        self._closing = False
        self._listener = _listen(name)
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._ignore)
        self._thread = threading.Thread(target=self._run, name='ring_handoff', daemon=True)
        self._thread.start()

    @property
    def stats(self) -> HandoffStats:
        """Counts since the start."""
        return HandoffStats(self._served, self._refused)

    @property
    def readers(self) -> int:
        """Readers attached now."""
        with self._lock:
            return sum(peer.wakeup >= 0 for peer in self._peers.values())

    def notify(self) -> None:
        """Wake every attached reader; call after ``commit``. Never blocks.

        A lost wake-up costs nothing, since a reader always looks at ``latest`` itself.
        """
        with self._lock:
            for peer in self._peers.values():
                if peer.wakeup >= 0:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_write(peer.wakeup, 1)

    def close(self) -> None:
        """Stop the thread and end all connections, which readers take for the writer's end."""
        if self._closing:
            return
        self._closing = True
        self._waker.send(b'x')
        self._thread.join(_JOIN_S)
        for peer in tuple(self._peers.values()):
            self._drop(peer)
        self._selector.close()
        for end in (self._listener, self._waker, self._woken):
            end.close()

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(self._patience_s()):
                handle: Callable[[], None] = key.data
                handle()
            self._drop_silent()

    def _patience_s(self) -> float | None:
        is_waiting = any(peer.wakeup < 0 for peer in self._peers.values())
        return self._hello_ns / S / 4 if is_waiting else None

    def _drop_silent(self) -> None:
        now = self._clock.mono_ns()
        for peer in tuple(self._peers.values()):
            if peer.wakeup < 0 and now >= peer.deadline_ns:
                self._refuse(peer)

    def _ignore(self) -> None:
        self._woken.recv(64)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # Out of descriptors: the peer stays in the queue; do not spin on it.
            self._clock.sleep_until(self._clock.mono_ns() + 50 * MS)
            return
        connection.setblocking(False)
        peer = _Peer(connection, self._clock.mono_ns() + self._hello_ns)
        if handshake.peer_uid(connection) != self._uid or len(self._peers) >= MOST_PEERS:
            self._refuse(peer)
            return
        with self._lock:
            self._peers[connection.fileno()] = peer
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(peer))

    def _hear(self, peer: _Peer) -> None:
        try:
            message = peer.connection.recv(handshake.MOST_BYTES)
            if not message:
                self._drop(peer)
            elif peer.wakeup < 0:
                self._serve(peer, message)
            else:
                self._note_row(peer, message)
        except LayoutError as error:
            self._refuse(peer, str(error))
        except OSError:
            self._drop(peer)

    def _serve(self, peer: _Peer, message: bytes) -> None:
        handshake.require_hello(message)
        with self._lock:
            peer.wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        socket.send_fds(
            peer.connection,
            [handshake.offer(self._control.layout, self._control.ring_id,
                             self._store.description())],
            [self._control.handle, peer.wakeup, *self._store.handles()])
        self._served += 1

    def _note_row(self, peer: _Peer, message: bytes) -> None:
        data = handshake.decode(message)
        row, owner = data.get('row'), data.get('owner')
        if not isinstance(row, int) or not isinstance(owner, int):
            raise LayoutError('ring handshake failed: got no row, expected row and owner. '
                              'Only vision_encoder and policy may use this socket.')
        peer.row, peer.owner = row, owner

    def _refuse(self, peer: _Peer, reason: str = '') -> None:
        self._refused += 1
        if reason:
            with contextlib.suppress(OSError):
                peer.connection.send(handshake.refusal(reason))
        self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        """Forget a peer; its row is free from now on, whichever way it ended."""
        with self._lock:
            known = self._peers.pop(peer.connection.fileno(), None)
            if peer.wakeup >= 0:
                os.close(peer.wakeup)
                peer.wakeup = -1
        if known is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(peer.connection)
        self._control.free_row(peer.row, peer.owner)
        peer.connection.close()


def _listen(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(handshake.socket_address(name))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f'ring socket @{name} cannot be bound: got {error.strerror}, expected a free name. '
            'Stop the other vision_encoder of this domain and namespace.') from error
    listener.listen(MOST_PEERS)
    listener.setblocking(False)
    return listener
