"""The reading side of the ring protocol; the rules stand in ``ring``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reflex_ros.core.clock import MS, Clock
from reflex_ros.core.errors import LayoutError
from reflex_ros.core.types import SlotRef
from reflex_ros.ring import control as c
from reflex_ros.ring.control import ControlBlock
from reflex_ros.ring.store import BlockStore, Buffer
from reflex_ros.ring.writer import RingWriter

LEASE_NS = 200 * MS
"""How long a lease protects a slot from its last use; a copy takes microseconds."""


@dataclass(frozen=True, slots=True)
class BlockMeta:
    """What the writer said about a block; the stamp is ROS time of the observation."""

    stamp_ns: int
    epoch: int
    tokens: int
    checksum: int


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """Blocks accepted, found torn after use, and already gone when asked for."""

    accepted: int
    torn: int
    missed: int


class RingReader:
    """One reader of a ring; one per thread.

    Args:
        control, store: The ring; the reader takes ``control`` over, and ``store`` unless
            ``owns_store`` is False; also when it raises.
        clock: Steady clock, the same one as the writer's.
        lease_ns: How long a lease protects a slot.
        is_alive: Tells whether the writer lives; None = look its process up.

    Raises:
        ConfigError: All reader rows are taken.
        LayoutError: Control block and store have different layouts.
    """

    def __init__(self, control: ControlBlock, store: BlockStore, *, clock: Clock,
                 lease_ns: int = LEASE_NS, owns_store: bool = True,
                 is_alive: Callable[[], bool] | None = None) -> None:
        self.control, self.store, self.layout = control, store, control.layout
        self._clock, self._words, self._lease_ns = clock, control.words, lease_ns
        self._owns_store, self._is_alive = owns_store, is_alive
        self._held = self._accepted = self._torn = self._missed = 0
        try:
            self.layout.require(store.layout)
            self.row, self.owner = control.claim_row()
        except BaseException:
            self._close_memory()
            raise
        self._row_base = control.row_base[self.row]

    @classmethod
    def beside(cls, writer: RingWriter, *, clock: Clock) -> RingReader:
        """Return a reader in the writer's own process; close it before the writer."""
        return cls(writer.control.duplicate(), writer.store, clock=clock, owns_store=False)

    @property
    def ring_id(self) -> int:
        """Random identity of the memory; a block of another ring must not be asked for."""
        return self.control.ring_id

    @property
    def generation(self) -> int:
        """Which writer of this memory is the current one, from 1."""
        return self.control.generation

    @property
    def is_writer_alive(self) -> bool:
        """Whether the writer lives and has not closed the ring; never blocks."""
        if self._is_alive is not None:
            return self._is_alive()
        return self.control.is_writer_alive

    @property
    def stats(self) -> ReaderStats:
        """Counts since this reader was made."""
        return ReaderStats(self._accepted, self._torn, self._missed)

    def latest(self) -> SlotRef | None:
        """Return the newest complete block, None before the first."""
        return self._published(c.H_LATEST)

    def pinned(self) -> SlotRef | None:
        """Return the pinned block of the epoch (``windowed``), None if there is none."""
        return self._published(c.H_PINNED)

    def _published(self, word: int) -> SlotRef | None:
        value = self._words.load(word)
        return SlotRef(value & 0xFF, value >> 8) if value else None

    def copy(self, ref: SlotRef, out: Buffer) -> bool:
        """Copy a block to ``out``; False if it is gone or was overwritten meanwhile.

        After False the content of ``out`` is undefined. Blocks for the copy; allocates nothing.

        Raises:
            LayoutError: ``out`` does not fit.
        """
        return self.read(ref, out) is not None

    def read(self, ref: SlotRef, out: Buffer) -> BlockMeta | None:
        """Copy as ``copy`` does and return what the writer said about the block, or None."""
        if not self.hold(ref):
            return None
        is_intact = False
        try:
            self.store.copy_out(ref.slot, out)
            meta = self._meta(ref.slot)
        finally:
            is_intact = self.release(ref)
        return meta if is_intact else None

    def hold(self, ref: SlotRef) -> bool:
        """Lease a block for use in place; False if it is gone. ``release`` must follow.

        Raises:
            LayoutError: More leases at once than the layout has.
        """
        if not 0 <= ref.slot < self.layout.slots or ref.seq < 1:
            self._missed += 1
            return False
        mask = self._held | 1 << ref.slot
        if mask.bit_count() > self.layout.leases:
            raise LayoutError(f'ring slot {ref.slot} cannot be leased: got {mask.bit_count()} '
                              f'leases, expected <= {self.layout.leases}. Raise ring.leases.')
        self._lease(mask)
        if self._is_intact(ref):
            return True
        self._drop(ref.slot)
        self._missed += 1
        return False

    def release(self, ref: SlotRef) -> bool:
        """Give a held block back; return whether it stayed intact all the while.

        Only if so may anything read from it be used.
        """
        self._words.fence()
        is_intact = self._is_intact(ref)
        self._drop(ref.slot)
        self._accepted += is_intact
        self._torn += not is_intact
        return is_intact

    def _lease(self, mask: int) -> None:
        words, row = self._words, self._row_base
        words.put(row + c.R_EXPIRY, self._clock.mono_ns() + self._lease_ns)
        words.store(row + c.R_LEASES, mask)
        words.fence()
        self._held = mask

    def _drop(self, slot: int) -> None:
        self._held &= ~(1 << slot)
        self._words.store(self._row_base + c.R_LEASES, self._held)

    def _is_intact(self, ref: SlotRef) -> bool:
        return self._words.load(self.control.slot_base[ref.slot] + c.S_LOCK) == 2 * ref.seq

    def _meta(self, slot: int) -> BlockMeta:
        get, base = self._words.get, self.control.slot_base[slot]
        return BlockMeta(get(base + c.S_STAMP), get(base + c.S_EPOCH), get(base + c.S_TOKENS),
                         get(base + c.S_CHECKSUM))

    def close(self) -> None:
        """Give the row back and unmap; a second call does nothing."""
        if self.control.handle >= 0:
            self.control.free_row(self.row, self.owner)
            self._close_memory()

    def _close_memory(self) -> None:
        self.control.close()
        if self._owns_store:
            self.store.close()
