"""Which slot the writer takes next: pure functions over write counters and bit masks."""

from __future__ import annotations

from collections.abc import Sequence


def kept_slots(seqs: Sequence[int], *, frames: int, newest: int, pinned: int, window: int) -> int:
    """Return the bit mask of slots that are never recycled, leased or not.

    Args:
        seqs: Write counter per slot; 0 = holds nothing.
        frames: Bit mask of slots that hold a frame (not a pinned block).
        newest: Slot of the newest frame, -1 if none.
        pinned: Slot of the epoch's pinned block, -1 if none.
        window: How many of the newest frames are kept.
    """
    kept = (1 << newest if newest >= 0 else 0) | (1 << pinned if pinned >= 0 else 0)
    if window:
        held = [slot for slot, seq in enumerate(seqs) if seq and frames >> slot & 1]
        held.sort(key=seqs.__getitem__, reverse=True)
        for slot in held[:window]:
            kept |= 1 << slot
    return kept


def choose_slot(seqs: Sequence[int], *, kept: int, leased: int) -> tuple[int, bool]:
    """Return the slot to overwrite, and whether a lease is broken by it.

    The oldest slot that is neither kept nor leased; if every one is leased, the oldest that is
    not kept, since the writer never waits for a reader. ``RingLayout`` allows no ring in which all
    slots can be kept at once.
    """
    free = -1
    stolen = -1
    for slot, seq in enumerate(seqs):
        if kept >> slot & 1:
            continue
        if stolen < 0 or seq < seqs[stolen]:
            stolen = slot
        if not leased >> slot & 1 and (free < 0 or seq < seqs[free]):
            free = slot
    return (free, False) if free >= 0 else (stolen, True)
