"""Rings small enough to be made for every test."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import pytest

from reflex_ros.core.clock import ManualClock
from reflex_ros.core.types import SlotRef
from reflex_ros.ring.control import ControlBlock
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.ring import LEASE_NS, RingReader, RingWriter, Slot
from reflex_ros.ring.store_cpu import CpuStore
from reflex_ros.ring.words import load_libatomic


@dataclass
class Rig:
    """A writer with readers in this process, on a manual clock."""

    layout: RingLayout
    library: ctypes.PyDLL | None = field(default_factory=load_libatomic)
    clock: ManualClock = field(default_factory=lambda: ManualClock(10**9))
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        control = ControlBlock.create(self.layout, library=self.library)
        self.writer = RingWriter(control, CpuStore.create(self.layout), clock=self.clock)
        self.stack.callback(self.writer.close)
        self.out = np.empty(self.layout.shape, self.writer.store.frame(0).dtype)

    def reader(self, lease_ns: int = LEASE_NS) -> RingReader:
        """Attach a reader; closed before the writer."""
        writer = self.writer
        reader = RingReader(writer.control.duplicate(), writer.store, clock=self.clock,
                            lease_ns=lease_ns, owns_store=False)
        self.stack.callback(reader.close)
        return reader

    def publish(self, value: int, *, epoch: int = 1) -> SlotRef:
        """Write one block filled with ``value``."""
        slot = self.writer.begin()
        slot.frame[...] = value
        return self.commit(slot, epoch=epoch)

    def publish_pinned(self, value: int) -> SlotRef:
        """Write one pinned block filled with ``value``."""
        slot = self.writer.begin()
        self.writer.pin(slot)
        slot.pinned[...] = value
        return self.commit(slot)

    def commit(self, slot: Slot, *, epoch: int = 1) -> SlotRef:
        """Commit with a stamp that tells blocks apart."""
        return self.writer.commit(slot, stamp_ns=1000 + slot.seq, epoch=epoch, tokens=4)


def snapshot_layout(**changes: int) -> RingLayout:
    """Return a small snapshot layout; ``slots`` may be too few on purpose."""
    readers, leases = changes.pop('readers', 1), changes.pop('leases', 1)
    slots = changes.pop('slots', readers * leases + 2)
    assert not changes
    return RingLayout(slots, readers, leases, 32, 'float32', (4, 2), 'test')


def windowed_layout(*, window: int = 4, readers: int = 1, leases: int = 1) -> RingLayout:
    """Return a small windowed layout."""
    return RingLayout.windowed((4, 2), 'float32', pinned_shape=(3,), window=window,
                               model_id='test', readers=readers, leases=leases)


@pytest.fixture(params=['libatomic', 'plain'])
def make_rig(request: pytest.FixtureRequest) -> Iterator[object]:
    """Build rigs from ``windowed=`` or the arguments of ``snapshot_layout``."""
    library = load_libatomic() if request.param == 'libatomic' else None
    if library is None and request.param == 'libatomic':
        pytest.skip('needs libatomic.so.1')
    with ExitStack() as stack:
        def make(*, windowed: bool = False, **changes: int) -> Rig:
            layout = windowed_layout(**changes) if windowed else snapshot_layout(**changes)
            rig = Rig(layout, library)
            stack.enter_context(rig.stack)
            return rig
        yield make
