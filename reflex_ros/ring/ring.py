"""The ring protocol: one writer that never waits, readers that accept only what stayed intact.

Writer: lock word odd, fence, payload, meta, lock word even (release), ``latest`` (release).
Reader: lease, fence, lock word as expected, use, fence, lock word still as expected.
Leases only make retries rare; that no torn block is accepted rests on the lock word alone. A write
counter is never used twice, so an equal lock word means an untouched slot.

The two sides are in ``writer`` and ``reader``; this module is what other packages import.
"""

from __future__ import annotations

from reflex_ros.ring.reader import LEASE_NS, BlockMeta, ReaderStats, RingReader
from reflex_ros.ring.writer import RingWriter, Slot

__all__ = ['LEASE_NS', 'BlockMeta', 'ReaderStats', 'RingReader', 'RingWriter', 'Slot']
