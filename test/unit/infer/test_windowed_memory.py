"""[ci] A new frame costs the same whatever the window, and neither it nor a call leaves memory.

Counts are those of ``study.op_counts``; host memory is that of ``tracemalloc``, which sees what
numpy allocates; the memory of torch is that of all tensors that are alive.
"""

from __future__ import annotations

import dataclasses
import gc
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from reflex_ros.core.clock import MS, ManualClock
from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.stages.paper import StreamingInputManager
from reflex_ros.study.new_frame import WHOLE, Stream, count_new_frame
from reflex_ros.study.random_tiny import INSTRUCTION, random_network, random_tiny

SMALL = TinyConfig(
    image_size=16, vision_layers=1, layers=2, width=12, heads=2, kv_heads=1, head_dim=6,
    gate_hidden=8, horizon=6, rows_per_token=2, instruction_tokens=4, vocabulary=6, tau_dim=6,
)  # fmt: skip
WINDOWS = range(1, 17)
KIB, MIB = 1 << 10, 1 << 20


def counts(config: TinyConfig, variant: str | None = None):
    """Return the counts of one new frame for every window."""
    network, found = random_network(config, 0), []
    for window in WINDOWS:
        stream = Stream(random_tiny(dataclasses.replace(config, window=window), network=network))
        found.append(count_new_frame(stream, *([variant] if variant else [])).as_dict())
        stream.close()
    return found


@pytest.mark.parametrize('config', [SMALL, TinyConfig()], ids=['small', 'shipped sizes'])
def test_a_new_frame_costs_the_same_for_every_window_from_1_to_16(config):
    first, *others = counts(config)
    assert first['multiply_accumulates'] > 0 < first['operations']
    assert all(other == first for other in others), 'by name, not in the sum alone'


def test_equal_counts_can_fail_where_the_window_is_encoded_anew():
    macs = [found['multiply_accumulates'] for found in counts(SMALL, WHOLE)]
    assert macs == [macs[0] * window for window in WINDOWS]


# ---- ring, FIFO and merge allocate nothing -----------------------------------------------------


class Encoder:
    """A policy with large blocks that takes no memory of its own."""

    def __init__(self, window: int = 4) -> None:
        block = (1, 2, MIB // 64, 2, 4)  # one MiB of float32
        self.spec = SimpleNamespace(
            frame_shape=block, pinned_shape=block, window=window, model_id='large',
            step_period_ns=20 * MS,
        )  # fmt: skip

    def encode_instruction(self, text: str, out: np.ndarray) -> None:
        out.fill(len(text))

    def encode_frame(self, images: object, pinned: np.ndarray, out: np.ndarray) -> None:
        out.fill(pinned[0, 0, 0, 0, 0])


def peak_of(run, times: int) -> tuple[int, int]:
    """Return the most new host memory at once, and what is left of it, bytes."""
    run()
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for _ in range(times):
        run()
    gc.collect()
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - before, after - before


@pytest.fixture
def manager():
    with StreamingInputManager(Encoder(), clock=ManualClock(10**9)) as manager:
        manager.set_instruction('x')
        yield manager


def tick_of(manager, spoil=lambda caches: None):
    """Return what a tick does: a frame in, the oldest out, partitions split and merged."""
    stamps = iter(range(40 * MS, 10**9 * MS, 40 * MS))

    def tick():
        stamp_ns = next(stamps)
        manager.add_new_prefix({}, stamp_ns)
        manager.split_caches()
        spoil(manager.merge_caches(stamp_ns))

    for _ in range(6):
        tick()
    return tick


def test_ring_fifo_and_merge_allocate_nothing_in_a_thousand_ticks(manager):
    peak, kept = peak_of(tick_of(manager), 1000)
    assert peak < MIB / 4, 'references, stamps and ages, until they are collected; no block'
    assert kept < 64 * KIB, 'of 2 MiB that the blocks of a thousand frames would take'


def test_the_merged_partitions_are_the_memory_of_the_ring(manager):
    for number in range(6):
        manager.add_new_prefix({}, (number + 1) * 40 * MS)
    caches, (pinned, frames) = manager.merge_caches(0), manager.split_caches()
    assert np.shares_memory(caches.pinned, pinned)
    assert all(map(np.shares_memory, caches.frames, frames))
    frames[2].fill(7)
    assert (caches.frames[2] == 7).all()


def test_no_allocation_can_fail_where_the_partitions_are_joined(manager):
    tick = tick_of(manager, lambda caches: np.concatenate([caches.pinned, *caches.frames], 2))
    peak, _ = peak_of(tick, 3)
    assert peak > 4 * MIB


# ---- live tensors ------------------------------------------------------------------------------


def live_bytes() -> int:
    gc.collect()
    kinds = (t for t in gc.get_objects() if issubclass(type(t), torch.Tensor))
    storages = [t.untyped_storage() for t in kinds]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


def calls_of(policy, number: int, sink=lambda caches: None) -> None:
    """Make calls; every second one has a new frame, every hundredth a new instruction."""
    spec = policy.spec
    image = np.zeros((*spec.image_hw, 3), np.uint8)
    noise, state = np.zeros(spec.noise_shape, np.float32), np.zeros(7)
    with StreamingInputManager(policy, clock=ManualClock(10**9)) as manager:
        for call in range(number):
            if call % 100 == 0:
                manager.set_instruction(INSTRUCTION)
            if call % 2 == 0:
                manager.add_new_prefix(dict.fromkeys(spec.cameras, image), (call + 1) * 20 * MS)
            caches = manager.merge_caches((call + 1) * 20 * MS)
            policy.denoise(caches.pinned, caches.frames, caches.ages_steps, state=state,
                           noise=noise, num_steps=1)
            sink(caches)


@pytest.mark.timeout(600)  # seconds of CPU time, which a busy machine may stretch
def test_live_tensor_bytes_are_constant_over_a_thousand_calls():
    policy = random_tiny(SMALL)
    policy.trace_encoder()  # as the nodes run it
    policy.trace_denoiser(1)
    calls_of(policy, 10)
    before = live_bytes()
    calls_of(policy, 1000)
    assert live_bytes() == before > 0


def test_constant_bytes_can_fail_where_one_frame_is_kept():
    policy, kept = random_tiny(SMALL), []
    calls_of(policy, 10)
    before = live_bytes()
    calls_of(policy, 2, lambda caches: kept.append(torch.from_numpy(caches.frames[-1].copy())))
    assert live_bytes() == before + sum(t.nbytes for t in kept) > before
