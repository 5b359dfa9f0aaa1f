"""Payload in device memory, on a stand-in of the driver whose streams are lazy."""

from __future__ import annotations

import ctypes
import gc
import os
from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import ManualClock
from reflex_ros.core.errors import LayoutError, StaleError
from reflex_ros.ring.cuda_errors import REMEDIES, CudaError
from reflex_ros.ring.cuda_memory import DeviceBlock, span_of
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.memory import create_memory
from reflex_ros.ring.ring import RingReader, RingWriter
from reflex_ros.ring.store_cpu import CpuStore, open_cpu_store
from reflex_ros.ring.store_cuda import CudaStore, open_cuda_store
from reflex_ros.ring.store_cuda_upload import UploadStore

LAYOUT = RingLayout.windowed((3, 5), 'bfloat16', pinned_shape=(7, 5), window=2, model_id='m')
FRAMES = RingLayout.snapshot((64,), 'float32', model_id='m')


@pytest.fixture(scope='module', autouse=True)
def collected():
    """Close what tests of other files left to the collector."""
    gc.collect()


def open_fds():
    return len(os.listdir('/proc/self/fd'))


def is_empty(api):
    """Return whether the device has neither memory nor events left."""
    def is_held():
        return any((api.handles, api.mapped, api.reserved, api.private, api.events, api.pinned))
    if is_held():  # collecting takes a tenth of a second beside torch
        gc.collect()
    return not is_held()


@pytest.fixture
def store(fake):
    made = CudaStore.create(LAYOUT, fake.driver, wrap=fake.as_array)
    yield made
    made.close()


class Rig:
    """Writer and reader of a ring in device memory; blocks are written as a kernel would."""

    def __init__(self, fake, create=CudaStore.create, layout=FRAMES):
        self.fake, self.clock = fake, ManualClock(10**9)
        self.writer = RingWriter.create(
            layout, clock=self.clock,
            create_store=lambda made: create(made, fake.driver, stream=lambda: 7))
        shared = self.writer.store.share()
        shared._stream = lambda: 8
        self.reader = RingReader(self.writer.control.duplicate(), shared, clock=self.clock)
        with fake.driver.current():
            self.staging = DeviceBlock.private(fake.driver, layout.payload_bytes).view(
                (layout.dtype, layout.shape))
        self.out = fake.as_array(self.staging)

    def enqueue(self, slot, value):
        """Enqueue a kernel that fills a slot; it runs when somebody waits for stream 7."""
        target = self.fake.as_array(slot.frame)
        self.fake.api.streams[7].append(lambda: target.fill(value))

    def publish(self, value):
        slot = self.writer.begin()
        self.enqueue(slot, value)
        return self.writer.commit(slot, stamp_ns=1, epoch=1, tokens=1)

    def close(self):
        self.reader.close()
        self.writer.close()


@pytest.fixture
def make_rig(fake):
    rigs = []

    def make(*arguments, **options):
        rigs.append(Rig(fake, *arguments, **options))
        return rigs[-1]
    yield make
    for rig in rigs:
        rig.close()


# ---- views and memory --------------------------------------------------------------------------


def test_views_of_a_slot_share_memory_and_slots_do_not(store):
    assert np.shares_memory(store.raw(0), store.frame(0))
    assert np.shares_memory(store.frame(0), store.pinned(0))
    assert not np.shares_memory(store.raw(0), store.raw(1))
    assert store.raw(0).shape == (LAYOUT.payload_bytes,)
    assert (store.frame(0).shape, store.pinned(0).shape) == ((3, 5), (7, 5))
    assert store.frame(1) is store.frame(1)


def test_view_tells_torch_where_it_lies_and_what_it_holds(fake):
    plain = CudaStore.create(LAYOUT, fake.driver)
    view = plain.raw(1)
    told = view.__cuda_array_interface__
    assert told['data'] == (plain.raw(0).address + LAYOUT.stride, False)
    assert (told['shape'], told['typestr'], told['strides']) == ((70,), '|u1', None)
    assert view.nbytes == LAYOUT.payload_bytes
    plain.close()


@pytest.mark.parametrize('unit', [4096, 64 << 10, 2 << 20])
def test_memory_is_rounded_up_to_the_unit_of_the_device(fake, unit):
    fake.module.UNIT = unit
    layout = RingLayout.snapshot((unit // 2 + 1,), 'float32', model_id='m')
    made = CudaStore.create(layout, fake.driver)
    size = made.description()['bytes']
    assert size % unit == 0 and layout.store_bytes <= size < layout.store_bytes + unit
    made.close()


def test_size_that_is_not_rounded_is_refused_by_the_stand_in_can_fail(fake):
    with fake.driver.current(), pytest.raises(CudaError, match='INVALID_VALUE from cuMemCreate'):
        fake.driver.create(1)


def test_everything_is_given_back(fake):
    before = open_fds()
    for made in (CudaStore.create(LAYOUT, fake.driver), UploadStore.create(LAYOUT, fake.driver),
                 CudaStore.create(LAYOUT, fake.driver, is_private=True)):
        twin = made.share()
        made.close()
        made.close()
        twin.close()
        del twin
    del made
    assert is_empty(fake.api)
    assert open_fds() == before


def test_view_that_is_still_held_keeps_the_memory_can_fail(fake):
    made = CudaStore.create(LAYOUT, fake.driver, wrap=fake.as_array)
    view = made.frame(0)
    view[...] = 3
    made.close()
    assert not is_empty(fake.api)
    assert (view == 3).all()
    del view
    assert is_empty(fake.api)


def test_memory_is_unmapped_only_after_all_enqueued_work(fake):
    made = CudaStore.create(LAYOUT, fake.driver, wrap=fake.as_array)
    seen = []
    target = ctypes.addressof(ctypes.c_uint8.from_buffer(made.raw(0)))
    fake.api.streams[5].append(lambda: seen.append(ctypes.memset(target, 1, 1)))
    made.close()
    assert is_empty(fake.api) and seen


@pytest.mark.parametrize('call', ['cuMemCreate', 'cuMemExportToShareableHandle',
                                  'cuMemAddressReserve', 'cuMemMap', 'cuMemSetAccess',
                                  'cuEventCreate'])
def test_failed_call_of_creation_is_named_and_leaves_nothing(fake, call):
    before, code = open_fds(), 'CUDA_ERROR_NOT_SUPPORTED'
    fake.api.fail[call] = code
    with pytest.raises(CudaError, match=f'got {code} from {call}.*expected CUDA_SUCCESS') as found:
        RingWriter.create(LAYOUT, clock=ManualClock(),
                          create_store=lambda layout: CudaStore.create(layout, fake.driver))
    assert REMEDIES[code] in str(found.value)
    assert (found.value.call, found.value.code) == (call, code)
    del found
    assert is_empty(fake.api)
    assert open_fds() == before


@pytest.mark.parametrize('call', ['cuMemImportFromShareableHandle', 'cuMemAddressReserve',
                                  'cuMemMap', 'cuMemSetAccess', 'cuEventCreate'])
def test_failed_call_of_opening_is_named_and_leaves_nothing(fake, store, call):
    before, held = open_fds(), len(fake.api.mapped)
    fake.api.fail[call] = 'CUDA_ERROR_OPERATING_SYSTEM'
    with pytest.raises(CudaError, match=f'OPERATING_SYSTEM from {call}.*one process'):
        open_cuda_store(LAYOUT, store.description(), store.handles(), driver=fake.driver)
    assert (len(fake.api.mapped), open_fds()) == (held, before)
    assert not fake.api.handles


@pytest.mark.parametrize('is_private', [False, True])
def test_device_that_is_full_says_how_many_bytes_were_wanted(fake, is_private):
    fake.api.room = 4096
    with pytest.raises(CudaError, match=r'OUT_OF_MEMORY from cuMem\w+ for \d+ bytes.*nvidia-smi'):
        CudaStore.create(LAYOUT, fake.driver, is_private=is_private)
    assert is_empty(fake.api)


# ---- hand-off ----------------------------------------------------------------------------------


def test_peer_sees_the_same_memory(fake, store):
    peer = open_cuda_store(LAYOUT, store.description(), store.handles(), driver=fake.driver,
                           wrap=fake.as_array)
    store.frame(2)[...] = 77
    assert (peer.frame(2) == 77).all()
    assert peer.raw(2).ctypes.data != store.raw(2).ctypes.data
    store.close()
    assert (peer.frame(2) == 77).all()
    peer.close()


def test_descriptor_is_not_inherited(store):
    assert not os.get_inheritable(store.handles()[0])


def test_descriptor_that_is_no_device_memory_is_refused(fake, store):
    fd = create_memory('test', 1 << 20)
    with pytest.raises(CudaError, match='OPERATING_SYSTEM from cuMemImportFromShareableHandle'):
        open_cuda_store(LAYOUT, store.description(), (fd,), driver=fake.driver)
    os.close(fd)


def test_descriptor_of_less_memory_than_told_is_refused(fake, store):
    told = {**store.description(), 'bytes': store.description()['bytes'] * 2}
    with pytest.raises(CudaError, match='INVALID_VALUE from cuMemMap'):
        open_cuda_store(LAYOUT, told, store.handles(), driver=fake.driver)


@pytest.mark.parametrize(('change', 'text'), [
    ({'kind': 'cpu'}, "kind 'cpu'.*same ring.store"),
    ({'kind': 'cuda-private'}, 'belongs to one process'),
    ({'bytes': 4096}, 'too small: got 4096'),
    ({'bytes': 'x'}, 'cannot be opened'),
    ({'device': 'ff' * 16}, 'another GPU: got ffff.*CUDA_VISIBLE_DEVICES'),
])
def test_offer_that_cannot_be_used_is_refused(fake, store, change, text):
    with pytest.raises(LayoutError, match=text):
        open_cuda_store(LAYOUT, {**store.description(), **change}, store.handles(),
                        driver=fake.driver)


def test_private_store_offers_nothing_and_is_shared_by_threads(fake):
    made = CudaStore.create(LAYOUT, fake.driver, is_private=True, wrap=fake.as_array)
    assert made.handles() == ()
    assert made.description()['kind'] == 'cuda-private'
    twin = made.share()
    made.frame(1)[...] = 5
    made.close()
    assert (twin.frame(1) == 5).all()
    twin.close()
    with pytest.raises(StaleError, match='closed'):
        made.share()
    assert 'cuMemCreate' not in fake.api.log


def test_reader_without_a_gpu_is_told_what_to_do(store):
    with pytest.raises(LayoutError, match="got kind 'cuda'.*ring.store"):
        open_cpu_store(LAYOUT, store.description(), store.handles())


def test_control_block_and_store_of_different_layouts_are_refused(fake):
    other = replace(LAYOUT, model_id='other')
    with pytest.raises(LayoutError, match="model_id: got 'm', expected 'other'"):
        RingWriter.create(other, clock=ManualClock(),
                          create_store=lambda _: CudaStore.create(LAYOUT, fake.driver))
    assert is_empty(fake.api)


# ---- order of copies and publication -----------------------------------------------------------


def creates():
    return [
        pytest.param(CudaStore.create, id='shared'),
        pytest.param(lambda layout, driver, **options: CudaStore.create(
            layout, driver, is_private=True, **options), id='private'),
        pytest.param(UploadStore.create, id='upload')]


@pytest.mark.parametrize('create', creates())
def test_block_is_published_only_after_its_work_is_done(make_rig, create):
    rig, seen = make_rig(create), []
    slot = rig.writer.begin()
    rig.enqueue(slot, 4)
    rig.fake.api.streams[7].append(lambda: seen.append(rig.reader.latest()))
    ref = rig.writer.commit(slot, stamp_ns=1, epoch=1, tokens=1)
    assert seen == [None]
    assert rig.reader.copy(ref, rig.staging)
    assert (rig.out == 4).all()


def test_block_that_is_published_without_waiting_holds_old_bytes_can_fail(make_rig):
    rig = make_rig()
    rig.writer.store.flush = lambda slot: None
    ref = rig.publish(4)
    assert rig.reader.copy(ref, rig.staging)
    assert not (rig.out == 4).any()


def test_copy_is_complete_before_the_counter_is_checked(make_rig):
    rig = make_rig()
    ref = rig.publish(4)
    assert rig.reader.copy(ref, rig.staging)
    assert not rig.fake.api.streams[8]
    assert (rig.out == 4).all()


@pytest.mark.parametrize('create', creates())
def test_block_overwritten_before_its_copy_has_run_is_rejected(make_rig, create):
    rig = make_rig(create, layout=replace(FRAMES, slots=2))
    ref = rig.publish(1)
    rig.fake.api.before_wait = once(rig.fake.api, lambda: [rig.publish(v) for v in (2, 3)])
    assert not rig.reader.copy(ref, rig.staging)
    assert rig.reader.stats.torn == 1


def test_block_overwritten_before_its_copy_is_taken_without_the_check_can_fail(make_rig):
    rig = make_rig(layout=replace(FRAMES, slots=2))
    ref = rig.publish(1)
    rig.fake.api.before_wait = once(rig.fake.api, lambda: [rig.publish(v) for v in (2, 3)])
    rig.reader._is_intact = lambda _: True
    assert rig.reader.copy(ref, rig.staging)
    assert not (rig.out == 1).all()


def once(api, action):
    """Return a hook that runs ``action`` at the first wait only."""
    def hook():
        api.before_wait = lambda: None
        action()
    return hook


@pytest.mark.parametrize('create', creates())
def test_block_whose_work_failed_is_not_published(make_rig, create):
    rig = make_rig(create)
    first = rig.publish(1)
    slot = rig.writer.begin()
    rig.fake.api.fail['cuEventSynchronize'] = 'CUDA_ERROR_LAUNCH_FAILED'
    with pytest.raises(CudaError, match='did not finish.*Restart the node'):
        rig.writer.commit(slot, stamp_ns=2, epoch=1, tokens=1)
    rig.fake.api.fail.clear()
    assert rig.reader.latest() == first
    assert rig.publish(3).seq == slot.seq + 1


def test_failed_copy_releases_the_lease(make_rig):
    rig = make_rig()
    ref = rig.publish(1)
    rig.fake.api.fail['cuMemcpyDtoDAsync'] = 'CUDA_ERROR_ILLEGAL_ADDRESS'
    with pytest.raises(CudaError):
        rig.reader.copy(ref, rig.staging)
    assert rig.writer.control.leased(rig.clock.mono_ns()) == 0


def test_each_call_runs_in_the_context_and_leaves_none_behind(make_rig):
    rig = make_rig()
    ref = rig.publish(1)
    assert rig.reader.copy(ref, rig.staging)
    assert rig.fake.api._contexts == []


def test_call_without_a_context_is_refused_by_the_stand_in_can_fail(fake):
    with pytest.raises(CudaError, match='INVALID_CONTEXT'):
        fake.driver.granularity()


# ---- buffers -----------------------------------------------------------------------------------


@pytest.mark.parametrize('view', ['raw', 'frame', 'pinned'])
def test_each_form_can_be_copied_to_device_and_host(fake, store, view):
    source = getattr(store, view)(1)
    source[...] = 9
    out = np.zeros_like(source)
    store.copy_out(1, out)
    assert (out == 9).all()
    with fake.driver.current():
        dtype = 'uint8' if view == 'raw' else 'bfloat16'
        staging = DeviceBlock.private(fake.driver, source.nbytes).view((dtype, source.shape))
    store.copy_out(1, staging)
    assert (fake.as_array(staging) == 9).all()


@pytest.mark.parametrize('out', [
    np.zeros((3, 6), np.uint16), np.zeros((3, 5), np.float32), np.zeros((5, 3), np.uint16).T,
    [1, 2]])
def test_buffer_that_does_not_fit_is_refused(store, out):
    with pytest.raises(LayoutError, match='staging buffer from the layout|from the layout'):
        store.copy_out(0, out)


def test_read_only_array_is_refused():
    out = np.zeros(4)
    out.flags.writeable = False
    with pytest.raises(LayoutError, match='writable'):
        span_of(out)


def test_tensor_is_understood_without_a_copy():
    torch = pytest.importorskip('torch')
    tensor = torch.zeros((3, 5), dtype=torch.bfloat16)
    span = span_of(tensor)
    assert (span.address, span.nbytes) == (tensor.data_ptr(), 30)
    assert span.forms == (('bfloat16', (3, 5)),) and not span.is_device
    with pytest.raises(LayoutError):
        span_of(tensor.T)


def test_upload_reader_shows_host_memory_and_cannot_publish(fake):
    writer = UploadStore.create(FRAMES, fake.driver, wrap=fake.as_array)
    writer.frame(0)[...] = 6
    writer.flush(1)
    reader = UploadStore(open_cpu_store(FRAMES, writer.description(), writer.handles()),
                         fake.driver, is_writer=False)
    assert (reader.frame(1) == 6).all()
    assert not reader.frame(1).flags.writeable
    with pytest.raises(LayoutError, match='is_writer'):
        reader.flush(1)
    assert sorted(flags for _, flags in fake.api.pinned.values()) == [0, 8]
    reader.close()
    writer.close()


def test_memory_that_cannot_be_pinned_is_copied_all_the_same(fake):
    fake.api.fail['cuMemHostRegister'] = 'CUDA_ERROR_NOT_SUPPORTED'
    writer = UploadStore.create(FRAMES, fake.driver, wrap=fake.as_array)
    assert not writer.is_pinned
    writer.frame(0)[...] = 6
    writer.flush(2)
    out = np.zeros(64, np.float32)
    writer.copy_out(2, out)
    assert (out == 6).all()
    writer.close()


def test_block_of_an_upload_writer_is_read_by_an_ordinary_reader(fake):
    writer = UploadStore.create(FRAMES, fake.driver, wrap=fake.as_array)
    writer.frame(0)[...] = 8
    writer.flush(0)
    reader = open_cpu_store(FRAMES, writer.description(), writer.handles())
    assert (reader.frame(0) == 8).all()
    reader.close()
    writer.close()


def test_upload_store_that_lacks_device_memory_leaves_nothing(fake):
    before = open_fds()
    fake.api.room = 0
    with pytest.raises(CudaError, match='OUT_OF_MEMORY from cuMemAlloc'):
        UploadStore(CpuStore.create(FRAMES), fake.driver, is_writer=True)
    assert open_fds() == before and is_empty(fake.api)
