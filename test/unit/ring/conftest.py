"""Rings small enough to be made for every test."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from reflex_ros.core.clock import ManualClock
from reflex_ros.core.types import SlotRef
from reflex_ros.ring.control import ControlBlock
from reflex_ros.ring.cuda_driver import BindingsDriver, load_driver
from reflex_ros.ring.cuda_memory import DeviceBlock
from reflex_ros.ring.cuda_torch import as_tensor, current_stream
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.ring import LEASE_NS, RingReader, RingWriter, Slot
from reflex_ros.ring.store import BlockStore
from reflex_ros.ring.store_cpu import CpuStore, numpy_dtype
from reflex_ros.ring.store_cuda import CudaStore, default_stream
from reflex_ros.ring.store_cuda_upload import UploadStore
from reflex_ros.ring.words import load_libatomic

FAKE = Path(__file__).parent / 'fake_cuda.py'


def load_fake() -> object:
    """Return the module with the stand-in of the CUDA driver."""
    pytest.importorskip('cuda.bindings.driver', reason='needs cuda-bindings')
    spec = importlib.util.spec_from_file_location('fake_cuda', FAKE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Kind:
    """Stores of one kind: how to make one, and a successor's on the memory of a dead writer."""

    create: Callable[[RingLayout], BlockStore] = CpuStore.create
    succeed: Callable[[CpuStore], BlockStore] = lambda store: CpuStore(
        store.layout, os.dup(store._fd), is_writable=True)


def cuda_kind(driver: object, name: str, **views: object) -> Kind:
    """Return a kind on a device: ``shared``, ``private`` or ``upload``."""
    if name == 'upload':
        return Kind(lambda layout: UploadStore.create(layout, driver, **views),
                    lambda store: UploadStore(Kind().succeed(store._host), driver, is_writer=True,
                                              **views))
    if name == 'private':
        return Kind(lambda layout: CudaStore.create(layout, driver, is_private=True, **views),
                    CudaStore.share)

    def succeed(store: CudaStore) -> CudaStore:
        fd, size = store.handles()[0], store.description()['bytes']
        with driver.current():
            block = DeviceBlock.imported(driver, fd, size)
        return CudaStore(store.layout, block, os.dup(fd), **views)
    return Kind(lambda layout: CudaStore.create(layout, driver, **views), succeed)


def make_kind(name: str) -> Kind:
    """Return a kind by ``host``, ``shared``, ``private`` or ``upload``, real with ``gpu_``."""
    if name == 'host':
        return Kind()
    if name.startswith('gpu_'):
        return cuda_kind(load_driver(), name.removeprefix('gpu_'), wrap=as_tensor,
                         stream=current_stream(0))
    fake = load_fake()
    return cuda_kind(BindingsDriver(fake.FakeApi()), name, wrap=fake.as_array)


@pytest.fixture
def fake() -> SimpleNamespace:
    """Return ``api`` (stand-in of the driver), ``driver`` over it, ``as_array``, ``module``."""
    module = load_fake()
    api = module.FakeApi()
    return SimpleNamespace(api=api, driver=BindingsDriver(api), as_array=module.as_array,
                           module=module, stream=default_stream)


@dataclass
class Rig:
    """A writer with readers in this process, on a manual clock."""

    layout: RingLayout
    library: ctypes.PyDLL | None = field(default_factory=load_libatomic)
    clock: ManualClock = field(default_factory=lambda: ManualClock(10**9))
    stack: ExitStack = field(default_factory=ExitStack)
    kind: Kind = field(default_factory=Kind)

    def __post_init__(self) -> None:
        control = ControlBlock.create(self.layout, library=self.library)
        self.writer = RingWriter(control, self.kind.create(self.layout), clock=self.clock)
        self.stack.callback(self.writer.close)
        self.out = np.empty(self.layout.shape, numpy_dtype(self.layout.dtype))

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


@pytest.fixture(params=[
    'libatomic-host', 'plain-host', 'libatomic-shared', 'libatomic-private', 'libatomic-upload',
    *(pytest.param(f'libatomic-gpu_{way}', marks=pytest.mark.gpu)
      for way in ('shared', 'private', 'upload'))])
def make_rig(request: pytest.FixtureRequest) -> Iterator[object]:
    """Build rigs from ``windowed=`` or the arguments of ``snapshot_layout``."""
    words, _, name = request.param.partition('-')
    library = load_libatomic() if words == 'libatomic' else None
    if library is None and words == 'libatomic':
        pytest.skip('needs libatomic.so.1')
    kind = make_kind(name)
    with ExitStack() as stack:
        def make(*, windowed: bool = False, **changes: int) -> Rig:
            layout = windowed_layout(**changes) if windowed else snapshot_layout(**changes)
            rig = Rig(layout, library, kind=kind)
            stack.enter_context(rig.stack)
            return rig
        yield make
