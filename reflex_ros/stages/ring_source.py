"""Where the policy's reader of the ring comes from: this process, or a socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from reflex_ros.core.clock import MS
from reflex_ros.core.errors import LayoutError, StaleError
from reflex_ros.ring.client import RingClient
from reflex_ros.ring.reader import RingReader
from reflex_ros.ring.store_cpu import open_cpu_store

if TYPE_CHECKING:
    from reflex_ros.core.clock import Clock
    from reflex_ros.ring.layout import RingLayout
    from reflex_ros.ring.store import StoreOpener
    from reflex_ros.ring.writer import RingWriter

RECONNECT_NS = 200 * MS
"""How long one inference waits for the ring of a new encoder."""


class RingSource(Protocol):
    """Where the policy's reader comes from."""

    @property
    def is_alive(self) -> bool:
        """Return whether the ring's writer lives."""

    def reader(self, ring_id: int) -> RingReader | None:
        """Return a reader of that ring, None if it cannot be had."""

    def close(self) -> None:
        """Give everything back."""


class LocalRing:
    """The ring of an encoder in the same process; follows it when it is configured anew.

    Args:
        find_writer: Returns the ring's writer; raises StaleError while there is none.
        clock: Steady clock.
        layout: Layout that the writer must have, None = take what it has.

    Raises:
        StaleError: The encoder is not configured.
        LayoutError: It has another layout.
    """

    def __init__(self, find_writer: Callable[[], RingWriter], *, clock: Clock,
                 layout: RingLayout | None = None) -> None:
        self._find_writer, self._clock, self._layout = find_writer, clock, layout
        self._reader = self._attach(find_writer())

    @property
    def is_alive(self) -> bool:
        """Return whether the writer lives."""
        return self._reader.is_writer_alive

    def reader(self, ring_id: int) -> RingReader | None:
        """Return a reader of that ring, attaching anew if the encoder made another."""
        if self._reader.ring_id != ring_id:
            try:
                writer = self._find_writer()
                if writer.ring_id != ring_id:
                    return None
                fresh = self._attach(writer)
            except (StaleError, OSError, ValueError):  # it is being cleaned up at this moment
                return None
            self._reader.close()
            self._reader = fresh
        return self._reader

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _attach(self, writer: RingWriter) -> RingReader:
        if self._layout is not None:
            _require_same(self._layout, writer.layout)
        # a mapping of its own: the encoder may be cleaned up while a block is being copied
        store = writer.store.share()
        return RingReader(writer.control.duplicate(), store, clock=self._clock)


class RemoteRing:
    """The ring of an encoder in another process; follows it to a new ring after its death.

    Args:
        name: Socket name, see ``ring.handshake.ring_name``.
        layout: Layout that the writer must have.
        clock: Steady clock.
        timeout_ns: How long the first connection may take.
        open_store: Opens the payload; in host memory by default.

    Raises:
        StaleError: No encoder answered in time.
        LayoutError: It has another layout.
    """

    def __init__(self, name: str, layout: RingLayout, *, clock: Clock, timeout_ns: int,
                 open_store: StoreOpener = open_cpu_store) -> None:
        self._name, self._layout, self._clock = name, layout, clock
        self._open_store = open_store
        self._client: RingClient | None = self._connect(timeout_ns)

    @property
    def is_alive(self) -> bool:
        """Return whether the writer lives."""
        return self._client is not None and self._client.is_writer_alive

    def reader(self, ring_id: int) -> RingReader | None:
        """Return a reader of that ring, connecting anew if the encoder was restarted."""
        if self._client is None or self._client.reader.ring_id != ring_id:
            self.close()
            try:
                self._client = self._connect(RECONNECT_NS)
            except StaleError:
                return None
        reader = self._client.reader
        return reader if reader.ring_id == ring_id else None

    def close(self) -> None:
        """Detach from the ring."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connect(self, timeout_ns: int) -> RingClient:
        client = RingClient.connect(self._name, timeout_ns=timeout_ns, clock=self._clock,
                                    open_store=self._open_store)
        try:
            _require_same(self._layout, client.layout)
        except LayoutError:
            client.close()
            raise
        return client


def _require_same(layout: RingLayout, found: RingLayout) -> None:
    """Refuse another layout; how many readers the encoder serves is its own business."""
    replace(layout, slots=found.slots, readers=found.readers, leases=found.leases).require(found)
