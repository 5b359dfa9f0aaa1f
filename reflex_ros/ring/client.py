"""The reader's end of the ring hand-off: connects, maps, and knows when the writer dies."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator, Mapping

from reflex_ros.core.clock import MS, Clock, S
from reflex_ros.core.errors import ConfigError, LayoutError, StaleError
from reflex_ros.ring import handshake
from reflex_ros.ring.control import ControlBlock
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.reader import LEASE_NS, RingReader
from reflex_ros.ring.store import StoreOpener
from reflex_ros.ring.store_cpu import open_cpu_store

_RETRY_NS = 20 * MS
_LEAST_S = 0.01


class RingClient:
    """A ring of another process. Not thread-safe.

    After the writer's death the mapping and the last good block stay readable; a new writer makes
    a new ring, to which ``connect`` again.

    Attributes:
        reader: The reader. ``layout``: Geometry as the writer described it.
    """

    def __init__(self, connection: socket.socket, reader: RingReader, wakeup: int) -> None:
        self.reader, self.layout = reader, reader.layout
        self._connection, self._wakeup = connection, wakeup

    @classmethod
    def connect(cls, name: str, *, timeout_ns: int, clock: Clock,
                expected: RingLayout | None = None, lease_ns: int = LEASE_NS,
                uid: int | None = None, open_store: StoreOpener = open_cpu_store) -> RingClient:
        """Attach to the ring of a name. Blocks until there is a writer, at most ``timeout_ns``.

        Args:
            name: See ``handshake.ring_name``.
            timeout_ns: How long to wait for the writer.
            clock: Steady clock, the same one as the writer's.
            expected: Layout that the writer must have, None = take what it has.
            lease_ns: How long a lease protects a slot.
            uid: User that the writer must belong to, None = this process's.
            open_store: Opens the payload.

        Raises:
            StaleError: No writer answered in time.
            LayoutError: The layouts differ (the text says in what) or the answer is garbage.
            ConfigError: The writer belongs to another user, or all reader rows are taken.
        """
        deadline_ns = clock.mono_ns() + timeout_ns
        uid = os.getuid() if uid is None else uid
        while True:
            connection = _dial(name, max(_LEAST_S, (deadline_ns - clock.mono_ns()) / S))
            if connection is not None:
                with _closing_on_error(connection):
                    _require_uid(name, connection, uid)
                    client = cls._attach(connection, expected, clock, lease_ns, open_store)
                if client is not None:
                    return client
                connection.close()
            if clock.mono_ns() >= deadline_ns:
                raise StaleError(
                    f'ring @{name} cannot be opened: got no answer, expected a writer within '
                    f'{timeout_ns // MS} ms. Start vision_encoder with the same namespace.')
            clock.sleep_until(min(deadline_ns, clock.mono_ns() + _RETRY_NS))

    @classmethod
    def _attach(cls, connection: socket.socket, expected: RingLayout | None, clock: Clock,
                lease_ns: int, open_store: StoreOpener) -> RingClient | None:
        """Return the client; None if the writer ended or fell silent during the handshake."""
        try:
            connection.send(handshake.hello())
            message, fds = handshake.receive(connection)
        except OSError:
            return None
        if not message:
            return None
        try:
            layout, store = _check_offer(message, fds, expected)
            block_store = open_store(layout, store, fds[2:])
            try:
                control = ControlBlock.open(layout, os.dup(fds[0]))
            except BaseException:
                block_store.close()
                raise
            reader = RingReader(control, block_store, clock=clock, lease_ns=lease_ns,
                                is_alive=lambda: _is_open(connection))
            client = cls(connection, reader, os.dup(fds[1]))
        finally:
            handshake.close_all(fds)
        with contextlib.suppress(OSError):
            connection.send(handshake.row_notice(reader.row, reader.owner))
        connection.setblocking(False)
        return client

    @property
    def is_writer_alive(self) -> bool:
        """Whether the writer's end of the socket is open; never blocks."""
        return _is_open(self._connection)

    def wait(self, timeout_ns: int) -> bool:
        """Block until the writer calls ``notify`` or ends, at most ``timeout_ns`` of real time.

        Returns:
            Whether something happened; look at ``latest`` either way.
        """
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        poll.register(self._connection, select.POLLIN)
        if not poll.poll(max(0, timeout_ns) / MS):
            return False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wakeup)
        return True

    def close(self) -> None:
        """Give the row back, unmap and hang up; a second call does nothing."""
        if self._wakeup < 0:
            return
        self.reader.close()
        self._connection.close()
        os.close(self._wakeup)
        self._wakeup = -1


def _dial(name: str, timeout_s: float) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(timeout_s)
    try:
        connection.connect(handshake.socket_address(name))
    except OSError:
        connection.close()
        return None
    return connection


def _require_uid(name: str, connection: socket.socket, uid: int) -> None:
    """Abstract names have no owner: refuse a stranger who took ours."""
    if (got := handshake.peer_uid(connection)) != uid:
        raise ConfigError(f'ring @{name} cannot be trusted: got a writer of user {got}, expected '
                          f'{uid}. Run vision_encoder and policy as the same user.')


def _check_offer(message: bytes, fds: tuple[int, ...],
                 expected: RingLayout | None) -> tuple[RingLayout, Mapping[str, object]]:
    data = handshake.decode(message)
    if 'refused' in data:
        raise LayoutError(str(data['refused']))
    handshake.require_hello(message)
    layout, store = data.get('layout'), data.get('store')
    if not isinstance(layout, dict) or not isinstance(store, dict) or len(fds) < 2:
        raise LayoutError(f'ring handshake failed: got fields {sorted(data)} and {len(fds)} '
                          'descriptor(s), expected layout, store and at least 2. '
                          'Start both sides with the same version.')
    found = RingLayout.from_dict(layout)
    if expected is not None:
        expected.require(found)
    return found, store


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b''
    except BlockingIOError:
        return True
    except OSError:
        return False


@contextlib.contextmanager
def _closing_on_error(connection: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise
