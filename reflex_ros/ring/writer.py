"""The writing side of the ring protocol; the rules stand in ``ring``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from reflex_ros.core.clock import Clock
from reflex_ros.core.errors import LayoutError, StaleError
from reflex_ros.core.types import SlotRef
from reflex_ros.ring import control as c
from reflex_ros.ring.choice import choose_slot, kept_slots
from reflex_ros.ring.control import ControlBlock
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.owner import pid_namespace, process_owner
from reflex_ros.ring.store import BlockStore, Buffer
from reflex_ros.ring.store_cpu import CpuStore
from reflex_ros.ring.words import load_libatomic


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot being written; the views were made when the store was opened.

    Attributes:
        slot: Index. ``seq``: write counter that the block will carry.
        frame: ``dtype[shape]``. ``pinned``: ``dtype[pinned_shape]``. ``raw``: ``uint8[bytes]``.
    """

    slot: int
    seq: int
    frame: Buffer
    pinned: Buffer
    raw: Buffer


class RingWriter:
    """The only writer of a ring. Not thread-safe.

    On memory that a dead writer left it takes over: torn slots are emptied and counted, the write
    counter goes on, the generation rises by one and complete blocks stay readable.

    Args:
        control, store: The ring; the writer takes both over, also when it raises.
        clock: Steady clock, the same one as the readers' (leases expire by it).

    Raises:
        ConfigError: Another writer lives.
        LayoutError: Control block and store have different layouts.
    """

    def __init__(self, control: ControlBlock, store: BlockStore, *, clock: Clock) -> None:
        self.control, self.store, self.layout = control, store, control.layout
        self._clock, self._words = clock, control.words
        self._open: Slot | None = None
        self._pins_open = False
        self._seqs, self._frames = [0] * self.layout.slots, 0
        try:
            self.layout.require(store.layout)
            control.lock_writer()
            self._take_over()
        except BaseException:
            control.close()
            store.close()
            raise

    @classmethod
    def create(cls, layout: RingLayout, *, clock: Clock,
               create_store: Callable[[RingLayout], BlockStore] = CpuStore.create) -> RingWriter:
        """Return the writer of a new ring; allocates all of its memory.

        Args:
            layout: Geometry.
            clock: Steady clock, the same one as the readers'.
            create_store: Makes the payload; in host memory by default.
        """
        control = ControlBlock.create(layout, library=load_libatomic())
        try:
            store = create_store(layout)
        except BaseException:
            control.close()
            raise
        return cls(control, store, clock=clock)

    def _take_over(self) -> None:
        self._seq = self._repair()
        self._newest, self._pinned = self._published(c.H_LATEST), self._published(c.H_PINNED)
        self._words.put(c.H_NAMESPACE, pid_namespace())
        self._words.put(c.H_WRITER, process_owner(os.getpid()))
        self._words.store(c.H_GENERATION, self.control.generation + 1)

    def _repair(self) -> int:
        words, seq, torn = self._words, 0, 0
        for slot, base in enumerate(self.control.slot_base):
            lock = words.load(base + c.S_LOCK)
            seq = max(seq, lock + 1 >> 1)
            if lock & 1:
                torn += 1
                self._empty(slot)
            else:
                self._seqs[slot] = lock >> 1
                self._frames |= (not words.get(base + c.S_IS_PINNED)) << slot
        words.put(c.H_REPAIRS, words.get(c.H_REPAIRS) + torn)
        return max(seq, words.load(c.H_LATEST) >> 8, words.load(c.H_PINNED) >> 8)

    def _published(self, word: int) -> int:
        value = self._words.load(word)
        slot = value & 0xFF
        return slot if value and self._seqs[slot] == value >> 8 else -1

    def _empty(self, slot: int) -> None:
        base = self.control.slot_base[slot]
        self._words.put(base + c.S_SEQ, 0)
        self._words.store(base + c.S_LOCK, 0)
        self._seqs[slot] = 0

    @property
    def ring_id(self) -> int:
        """Random identity of the memory."""
        return self.control.ring_id

    @property
    def generation(self) -> int:
        """Which writer of this memory this is, from 1."""
        return self.control.generation

    @property
    def steals(self) -> int:
        """Leases broken because there were fewer slots than leases need."""
        return self._words.get(c.H_STEALS)

    @property
    def repairs(self) -> int:
        """Torn slots that this and earlier writers found at take-over."""
        return self._words.get(c.H_REPAIRS)

    def begin(self) -> Slot:
        """Take a slot for writing; never blocks. A slot still open is emptied and given up."""
        if self._open is not None:
            self.abandon(self._open)
        kept = kept_slots(self._seqs, frames=self._frames, newest=self._newest,
                          pinned=self._pinned, window=self.layout.window)
        slot, is_steal = choose_slot(self._seqs, kept=kept,
                                     leased=self.control.leased(self._clock.mono_ns()))
        if is_steal:
            self._words.put(c.H_STEALS, self.steals + 1)
        self._seq += 1
        self._words.store(self.control.slot_base[slot] + c.S_LOCK, 2 * self._seq - 1)
        self._words.fence()
        self._seqs[slot] = 0
        self._open = Slot(slot, self._seq, self.store.frame(slot), self.store.pinned(slot),
                          self.store.raw(slot))
        return self._open

    def pin(self, slot: Slot) -> None:
        """Make the open slot the epoch's pinned block: ``commit`` publishes it as such.

        It replaces the previous pinned block, is never recycled and does not become ``latest``.

        Raises:
            LayoutError: The layout has no pinned block. StaleError: The slot is not open.
        """
        self._require_open(slot)
        if not self.layout.window:
            raise LayoutError('ring slot cannot be pinned: got a snapshot layout, expected a '
                              'windowed one. Use RingLayout.windowed.')
        self._pins_open = True

    def commit(self, slot: Slot, *, stamp_ns: int, epoch: int, tokens: int,
               checksum: int = 0) -> SlotRef:
        """Publish the open slot. Blocks until its payload has arrived in memory.

        Args:
            slot: What ``begin`` returned.
            stamp_ns: Observation stamp, ROS time, >= 0.
            epoch: Epoch the block was encoded under, >= 0.
            tokens: Valid prefix tokens, >= 0.
            checksum: Checksum of the payload for tests, 64 bits.

        Raises:
            StaleError: The slot is not the open one.
        """
        self._require_open(slot)
        self.store.flush(slot.slot)
        words, base = self._words, self.control.slot_base[slot.slot]
        words.put(base + c.S_SEQ, slot.seq)
        words.put(base + c.S_STAMP, stamp_ns)
        words.put(base + c.S_EPOCH, epoch)
        words.put(base + c.S_TOKENS, tokens)
        words.put(base + c.S_CHECKSUM, checksum)
        words.put(base + c.S_IS_PINNED, self._pins_open)
        words.store(base + c.S_LOCK, 2 * slot.seq)
        self._publish(slot)
        words.put(c.H_HEARTBEAT, self._clock.mono_ns())
        return SlotRef(slot.slot, slot.seq)

    def _publish(self, slot: Slot) -> None:
        self._seqs[slot.slot] = slot.seq
        value = slot.seq << 8 | slot.slot
        if self._pins_open:
            self._pinned = slot.slot
            self._frames &= ~(1 << slot.slot)
            self._words.store(c.H_PINNED, value)
        else:
            self._newest = slot.slot
            self._frames |= 1 << slot.slot
            self._words.store(c.H_LATEST, value)
        self._open, self._pins_open = None, False

    def abandon(self, slot: Slot) -> None:
        """Give the open slot up, empty, e.g. because encoding failed.

        Raises:
            StaleError: The slot is not the open one.
        """
        self._require_open(slot)
        self._empty(slot.slot)
        self._open, self._pins_open = None, False

    def _require_open(self, slot: Slot) -> None:
        if slot is not self._open:
            seq = self._open.seq if self._open is not None else 'none'
            raise StaleError(f'ring slot {slot.slot} is not open: got seq {slot.seq}, '
                             f'expected {seq}. Use what the last begin() returned, once.')

    def sweep(self) -> int:
        """Free the rows of dead readers; for about once per second. Returns how many."""
        return self.control.sweep()

    def close(self) -> None:
        """End the ring for this writer; blocks stay readable where they are mapped."""
        if self.control.handle < 0:
            return
        if self._open is not None:
            self.abandon(self._open)
        self._words.store(c.H_WRITER, 0)
        self.control.unlock_writer()
        self.control.close()
        self.store.close()
