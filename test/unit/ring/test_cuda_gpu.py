"""What only a GPU can show of the ring; the rest runs there too, see ``make_rig``."""

from __future__ import annotations

import gc

import pytest

from reflex_ros.core.clock import ManualClock
from reflex_ros.ring.cuda_choice import Way, probe_cuda, select_stores
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.ring import RingReader, RingWriter

LAYOUT = RingLayout.snapshot((2, 1 << 20), 'bfloat16', model_id='m')
BUSY_CYCLES = 200_000_000
"""A tenth of a second or more on any GPU."""

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch():
    return pytest.importorskip('torch')


@pytest.fixture(params=['auto-two', 'auto-one', 'cpu-two'])
def stores(request):
    wanted, _, processes = request.param.partition('-')
    return select_stores(wanted, model_device='cuda', is_one_process=processes == 'one')


def test_device_that_says_that_it_can_share_memory_can():
    found = probe_cuda()
    assert not found.problem
    assert (found.obstacle == '') == (found.facts.has_vmm and found.facts.has_fd)
    assert len(found.facts.uuid) == 32 and found.facts.name


def test_block_is_complete_although_its_kernels_were_slow(torch, stores):
    clock = ManualClock(10**9)
    writer = RingWriter.create(LAYOUT, clock=clock, create_store=stores.create)
    reader = RingReader(writer.control.duplicate(), writer.store.share(), clock=clock)
    out = torch.zeros(LAYOUT.shape, dtype=torch.bfloat16, device='cuda')
    for value in (1, 2, 3):
        with torch.cuda.stream(torch.cuda.Stream()):
            slot = writer.begin()
            torch.cuda._sleep(BUSY_CYCLES)
            slot.frame.fill_(value)
            ref = writer.commit(slot, stamp_ns=1, epoch=1, tokens=1)
        with torch.cuda.stream(torch.cuda.Stream()):
            assert reader.copy(ref, out)
            assert bool((out == value).all())
    reader.close()
    writer.close()


def test_block_without_waiting_is_incomplete_can_fail(torch):
    stores = select_stores('auto', model_device='cuda', is_one_process=True)
    store = stores.create(LAYOUT)
    store.frame(0).zero_()
    torch.cuda.synchronize()
    out = torch.zeros(LAYOUT.shape, dtype=torch.bfloat16, device='cuda')
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(BUSY_CYCLES)
        store.frame(0).fill_(1)
    with torch.cuda.stream(torch.cuda.Stream()):
        store.copy_out(0, out)
    assert not bool((out == 1).any())
    torch.cuda.synchronize()
    store.close()


def test_tensor_keeps_the_memory_after_close_and_gives_it_back(torch, stores):
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    big = RingLayout.snapshot((1 << 28,), 'uint8', model_id='m')
    store = stores.create(big)
    kept = store.frame(0)
    kept.fill_(7)
    store.close()
    assert bool((kept == 7).all())
    del kept
    gc.collect()
    torch.cuda.empty_cache()
    assert before - torch.cuda.mem_get_info()[0] < 1 << 28


def test_way_is_shared_where_the_device_can(stores):
    found = probe_cuda()
    if stores.choice.way is Way.UPLOAD and not found.obstacle:
        assert stores.choice.reason == 'ring.store is cpu'
    assert stores.choice.device == found.facts.name
