"""A ring in device memory between two processes: stand-in of the driver and, marked, a GPU."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.errors import LayoutError
from reflex_ros.core.types import SlotRef
from reflex_ros.ring import handshake
from reflex_ros.ring.client import RingClient
from reflex_ros.ring.cuda_choice import StoreChoice, Stores, Way
from reflex_ros.ring.cuda_driver import BindingsDriver, load_driver
from reflex_ros.ring.cuda_memory import DeviceBlock
from reflex_ros.ring.cuda_torch import as_tensor, current_stream
from reflex_ros.ring.layout import RingLayout
from reflex_ros.stages.ring_source import RemoteRing

ROOT = Path(__file__).parents[3]
FAKE = ROOT / 'test' / 'unit' / 'ring' / 'fake_cuda.py'
CLOCK = SystemClock()
LAYOUT = RingLayout.snapshot((1 << 16,), 'float32', model_id='m')

pytestmark = pytest.mark.realtime

ENCODER = """
import sys
sys.path.insert(0, sys.argv[3])
from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.ring.cuda_choice import StoreChoice, Stores, Way
from reflex_ros.ring.handoff import RingServer
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.ring import RingWriter
if sys.argv[2] == 'gpu':
    from reflex_ros.ring.cuda_driver import load_driver
    from reflex_ros.ring.cuda_torch import as_tensor, current_stream
    stores = Stores(StoreChoice(Way.SHARED, 'test'), load_driver(), as_tensor, current_stream(0))
else:
    import fake_cuda
    from reflex_ros.ring.cuda_driver import BindingsDriver
    driver = BindingsDriver(fake_cuda.FakeApi())
    stores = Stores(StoreChoice(Way.SHARED, 'test'), driver, fake_cuda.as_array)
clock = SystemClock()
layout = RingLayout.snapshot((1 << 16,), 'float32', model_id='m')
writer = RingWriter.create(layout, clock=clock, create_store=stores.create)
server = RingServer(sys.argv[1], writer, clock=clock)
def publish():
    slot = writer.begin()
    slot.frame[...] = slot.seq
    writer.commit(slot, stamp_ns=slot.seq, epoch=1, tokens=1)
    server.notify()
for _ in range(20):
    publish()
if sys.argv[4] == 'run':
    print(0, 0, flush=True)
    while True:
        publish()
        clock.sleep_until(clock.mono_ns() + MS // 2)
slot = writer.begin()
slot.frame[: 1 << 15] = -1
print(slot.slot, slot.seq, flush=True)
clock.sleep_until(clock.mono_ns() + 600 * S)
"""


def start(name, kind, task):
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get('PYTHONPATH'))))}
    return subprocess.Popen([sys.executable, '-c', ENCODER, name, kind, str(FAKE.parent),
                             task],
                            env=environment, stdout=subprocess.PIPE, text=True)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def stand_in():
    pytest.importorskip('cuda.bindings.driver', reason='needs cuda-bindings')
    spec = importlib.util.spec_from_file_location('fake_cuda', FAKE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Stores(StoreChoice(Way.SHARED, 'test'), BindingsDriver(module.FakeApi()),
                  module.as_array)


@pytest.fixture(params=['stand-in', pytest.param('gpu', marks=pytest.mark.gpu)])
def stores(request):
    if request.param == 'gpu':
        return Stores(StoreChoice(Way.SHARED, 'test'), load_driver(), as_tensor,
                      current_stream(0))
    return stand_in()


@pytest.fixture
def encode(stores, request):
    """Return ``encode(task) -> (process, open slot)``; to ``hang`` in mid-write or to ``run``."""
    with ExitStack() as stack:
        def make(task='hang'):
            process = start(name_of_ring(), request.node.callspec.params['stores'], task)
            stack.callback(kill, process)
            slot, seq = process.stdout.readline().split()
            return process, SlotRef(int(slot), int(seq))
        yield make


def name_of_ring():
    return handshake.ring_name(f'/death_cuda_{os.getpid()}', domain_id=99)


def connect(stores, **options):
    return RingClient.connect(name_of_ring(), timeout_ns=30 * S, clock=CLOCK,
                              open_store=stores.open, **options)


def staging(stores):
    with stores.driver.current():
        block = DeviceBlock.private(stores.driver, LAYOUT.payload_bytes)
    view = block.view((LAYOUT.dtype, LAYOUT.shape))
    return view, stores.wrap(view)


def test_killed_producer_neither_stalls_nor_corrupts_the_reader(stores, encode):
    process, torn = encode()
    client = connect(stores, expected=LAYOUT)
    out, shown = staging(stores)
    last = client.reader.latest()
    assert client.reader.copy(last, out)
    kill(process)
    assert not client.is_writer_alive
    assert client.wait(5 * S)
    for _ in range(50):
        assert client.reader.latest() == last
        assert client.reader.copy(last, out)
        assert bool((shown == last.seq).all())
        assert not client.reader.copy(torn, out)
    host = np.zeros(LAYOUT.shape, np.float32)
    assert client.reader.copy(last, host)
    assert (host == last.seq).all()
    client.close()


def test_no_torn_block_is_accepted_from_a_producer_that_runs_until_it_is_killed(stores, encode):
    process, _ = encode('run')
    client = connect(stores, lease_ns=0)  # leases protect nothing: the check alone must do
    out, shown = staging(stores)
    seqs = []
    for turn in range(400):
        client.wait(20 * MS)
        ref = client.reader.latest()
        if client.reader.copy(ref, out):
            assert bool((shown == ref.seq).all())
            seqs.append(ref.seq)
        if turn == 300:
            kill(process)
    assert len(seqs) > 50 and seqs == sorted(seqs)
    assert not client.is_writer_alive
    client.close()


def test_successor_of_a_killed_producer_makes_a_new_ring(stores, encode):
    process, _ = encode()
    client = connect(stores)
    last = client.reader.latest()
    kill(process)
    encode()
    second = connect(stores)
    assert second.is_writer_alive and not client.is_writer_alive
    assert second.reader.ring_id != client.reader.ring_id
    assert second.reader.generation == 1
    out, shown = staging(stores)
    for ended in (client, second):
        assert ended.reader.copy(last, out)
        assert bool((shown == last.seq).all())
        ended.close()


def test_source_of_the_policy_reads_device_memory_of_another_process(stores, encode):
    process, torn = encode()
    source = RemoteRing(name_of_ring(), LAYOUT, clock=CLOCK, timeout_ns=30 * S,
                        open_store=stores.open)
    assert source.is_alive
    reader = source.reader(source._client.reader.ring_id)
    out, shown = staging(stores)
    last = reader.latest()
    assert reader.copy(last, out)
    assert bool((shown == last.seq).all())
    kill(process)
    assert not source.is_alive
    assert not reader.copy(torn, out)
    source.close()


def test_block_in_mid_write_holds_torn_bytes_can_fail(stores, encode):
    _, torn = encode()
    client = connect(stores)
    client.reader._is_intact = lambda _: True
    out, shown = staging(stores)
    assert client.reader.copy(torn, out)
    assert not bool((shown == torn.seq).all())
    client.close()


def test_other_layout_is_refused_before_the_memory_is_mapped(stores, encode):
    encode()
    other = RingLayout.snapshot((1 << 16,), 'float32', model_id='other')
    with pytest.raises(LayoutError, match=r"model_id: got 'm', expected 'other'"):
        connect(stores, expected=other)
