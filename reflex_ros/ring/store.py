"""Where the payload of a ring lives: one interface for host and device memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from reflex_ros.ring.layout import RingLayout

Buffer: TypeAlias = Any
"""A numpy array or a torch tensor; the ring passes it on and never looks inside."""


class BlockStore(Protocol):
    """Payload of all slots.

    Every view is made once, when the store is opened; the calls below only look it up, so that
    nothing is allocated per block.
    """

    layout: RingLayout

    def raw(self, slot: int) -> Buffer:
        """Return the view ``uint8[payload_bytes]`` of a slot."""

    def frame(self, slot: int) -> Buffer:
        """Return the view ``dtype[shape]`` of a slot."""

    def pinned(self, slot: int) -> Buffer:
        """Return the view ``dtype[pinned_shape]`` of a slot; ``frame`` if there is none."""

    def flush(self, slot: int) -> None:
        """Block until everything written to the slot has arrived in its memory.

        A device store waits here for its copy stream, so that a published block is complete.
        """

    def copy_out(self, slot: int, out: Buffer) -> None:
        """Copy a slot to ``out`` and block until the copy is complete.

        Raises:
            LayoutError: ``out`` has neither the form of ``raw``, ``frame`` nor ``pinned``.
        """

    def description(self) -> dict[str, object]:
        """Return what a peer needs to open the same memory, in JSON types; key ``kind`` first."""

    def handles(self) -> tuple[int, ...]:
        """Return the descriptors to hand to a peer; they stay this store's own."""

    def share(self) -> BlockStore:
        """Return a second store on the same memory for a reader in this process, to close alone.

        It has views of its own, so that either side may be closed while the other copies.
        """

    def close(self) -> None:
        """Let go of views and memory; views that others still hold stay readable."""


class StoreOpener(Protocol):
    """Opens a peer's store from what ``BlockStore.description`` and ``handles`` gave."""

    def __call__(self, layout: RingLayout, description: Mapping[str, object],
                 handles: tuple[int, ...]) -> BlockStore:
        """Return the store; the descriptors stay the caller's own."""
