"""What the ring adds to a prefix: publishing it, and copying it to where the policy reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from reflex_ros.core.clock import SystemClock
from reflex_ros.infer.lanes import HostLane, Lane, make_lanes
from reflex_ros.ring.client import RingClient
from reflex_ros.ring.cuda_choice import Stores, Way, select_stores
from reflex_ros.ring.handoff import RingServer
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.reader import RingReader
from reflex_ros.ring.writer import RingWriter
from reflex_ros.stages.snapshot import tensor_of
from reflex_ros.stages.staging import Staging
from reflex_ros.study.gpu_measure import spread
from reflex_ros.study.gpu_models import ALL_SIZES, COMPACT

WAYS = (('auto', True), ('auto', False), ('cpu', False))
"""``ring.store`` and whether encoder and policy are one process, for a model on a GPU."""
ROWS = 560
TIMEOUT_NS = 5_000_000_000


def measure_handoff(size: str, *, device: str, calls: int) -> Iterator[dict[str, Any]]:
    """Yield publish and staging times of a prefix of Pi0.5, for each way there is, ms."""
    sizes = ALL_SIZES[size]['pi05']
    rows = 64 if size == COMPACT else ROWS
    shape = (sizes.depth, 2, rows, sizes.kv_heads, sizes.head_dim)
    layout = RingLayout.snapshot(shape, 'bfloat16', model_id='handoff')
    seen: set[Way] = set()
    for wanted, is_one in WAYS:
        stores = select_stores(wanted, model_device=device, is_one_process=is_one) \
            if device != 'cpu' else select_stores('auto', model_device='cpu', is_one_process=True)
        if stores.choice.way in seen:
            continue
        seen.add(stores.choice.way)
        yield {'way': stores.choice.way.value, 'reason': stores.choice.reason,
               'megabytes': layout.payload_bytes / 1e6,
               **_measure(layout, stores, device=device, calls=calls)}


def _measure(layout: RingLayout, stores: Stores, *, device: str, calls: int) -> dict[str, Any]:
    clock = SystemClock()
    writer = RingWriter.create(layout, clock=clock, create_store=stores.create)
    try:
        reader, close = _reader(writer, layout, stores)
        try:
            lane = HostLane('handoff') if device == 'cpu' else make_lanes(device)['policy']
            with lane.entered():
                return _times(writer, reader, lane, device=device, calls=calls)
        finally:
            close()
    finally:
        writer.close()


def _reader(writer: RingWriter, layout: RingLayout, stores: Stores):
    """Return a reader, over the socket where the memory can be handed on, and its end."""
    clock = SystemClock()
    if stores.choice.way is Way.PRIVATE:
        reader = RingReader(writer.control.duplicate(), writer.store.share(), clock=clock)
        return reader, reader.close
    name = f'reflex-gpu-{os.getpid()}-{stores.choice.way.value}'
    server = RingServer(name, writer, clock=clock)
    client = RingClient.connect(name, timeout_ns=TIMEOUT_NS, clock=clock, open_store=stores.open)

    def close() -> None:
        client.close()
        server.close()

    return client.reader, close


def _times(writer: RingWriter, reader: RingReader, lane: Lane, *, device: str,
           calls: int) -> dict[str, Any]:
    clock, shape = SystemClock(), writer.layout.shape
    made = torch.zeros(shape, dtype=torch.bfloat16, device=device)
    staging = Staging(torch.zeros_like(made), row_axis=2, lane=lane)
    publish, stage = [], []
    for number in range(calls):
        slot = writer.begin()
        start_ns = clock.mono_ns()
        tensor_of(slot.frame).copy_(made)
        ref = writer.commit(slot, stamp_ns=number + 1, epoch=1, tokens=shape[2])
        done_ns = clock.mono_ns()
        if not reader.hold(ref):
            continue
        staging.fill(reader.store, ref.slot, shape[2])
        is_intact = reader.release(ref)
        if is_intact:
            publish.append((done_ns - start_ns) / 1e6)
            stage.append((clock.mono_ns() - done_ns) / 1e6)
    return {'publish_ms': spread(publish), 'stage_ms': spread(stage), 'lost': calls - len(stage)}
