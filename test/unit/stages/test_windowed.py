"""Blocks through a real ring: with a policy that shows what it was given, and with a small one."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.errors import LayoutError, StaleError
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.types import JOINT_NAMES, KvBlock, SlotRef
from reflex_ros.infer.spec import PolicySpec
from reflex_ros.ring.handoff import RingServer
from reflex_ros.ring.writer import RingWriter
from reflex_ros.stages.assemble import Shared
from reflex_ros.stages.guide import Guide
from reflex_ros.stages.models import InferRequest
from reflex_ros.stages.windowed import (
    LocalRing,
    RemoteRing,
    WindowedEncoder,
    WindowedModel,
    ring_layout,
)

CLOCK = SystemClock()
T0 = 1_700_000_000 * S
PERIOD = 40 * MS
SPEC = PolicySpec(
    family='fake', model_id='fake-1', cameras=('main',), image_hw=(2, 2), joint_names=JOINT_NAMES,
    horizon=6, step_period_ns=20 * MS, execute_steps=2, window=4, frame_period_ns=PERIOD,
    pinned_shape=(1, 2, 3, 1, 2), frame_shape=(1, 2, 4, 1, 2),
)


class FakePolicy:
    """Writes the value of the picture into the frame, and keeps what it is asked to denoise."""

    spec = SPEC

    def __init__(self):
        self.calls = []

    def encode_instruction(self, text, out):
        out[:] = len(text)

    def encode_frame(self, images, pinned, out):
        out[:] = images['main'][0, 0, 0]

    def denoise(self, pinned, frames, ages, *, state, noise, num_steps, guidance=None):
        self.calls.append(([float(f.flat[0]) for f in frames], list(ages), float(pinned.flat[0])))
        self.noise = noise
        return np.tile(state, (6, 1)).astype(np.float32)


def probe():
    return ClockProbe(CLOCK)


class Spy:
    """A ring source that counts the copies of its reader."""

    def __init__(self, ring):
        self._ring = ring
        self.read = []

    is_alive = property(lambda self: self._ring.is_alive)

    def reader(self, ring_id):
        reader = self._ring.reader(ring_id)
        if reader is None:
            return None
        spy = self

        class Counting:
            layout = reader.layout
            copy = staticmethod(reader.copy)

            @staticmethod
            def read(ref, out):
                spy.read.append(ref.seq)
                return reader.read(ref, out)

        return Counting

    def close(self):
        self._ring.close()


class Bench:
    def __init__(self, policy=None):
        self.policy = policy or FakePolicy()
        self.shared = Shared()
        self.writers = []
        self.new_ring()
        self.ring = Spy(LocalRing(self.shared.writer, clock=CLOCK))
        self.model = WindowedModel(self.policy, self.ring)
        self.number = 0

    def new_ring(self):
        self.shared.put(None)
        for writer in self.writers:
            writer.close()
        self.writers.append(RingWriter.create(ring_layout(self.policy.spec), clock=CLOCK))
        self.shared.put(self.writers[-1])
        self.encoder = WindowedEncoder(self.policy, self.writers[-1])
        self.encoder.instruction('go', 1, probe())

    def frame(self, value, *, at_ns=None):
        self.number += 1
        stamp = T0 + self.number * PERIOD if at_ns is None else at_ns
        block = KvBlock(number=self.number, stamp_ns=stamp, epoch=1, camera_names=('main',),
                        camera_stamps_ns=(stamp,))
        side = self.policy.spec.image_hw[0]
        image = np.full((side, side, 3), value, np.uint8)
        return self.encoder.encode(block, {'main': image}, probe())

    def infer(self, block, *, row0_ns=None, state=0.0, chunk_id=1):
        row0_ns = block.stamp_ns if row0_ns is None else row0_ns
        return self.model.infer(
            InferRequest(block, chunk_id, np.full(7, state), row0_ns), probe())

    def close(self):
        self.ring.close()
        for writer in self.writers:
            writer.close()


@pytest.fixture
def bench():
    made = []

    def make(policy=None):
        made.append(Bench(policy))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_only_missing_frames_are_copied(bench):
    b = bench()
    for value in range(1, 8):
        b.infer(b.frame(value))
    assert b.policy.calls[-1][0] == [4.0, 5.0, 6.0, 7.0]
    assert len(b.ring.read) == 7 == len(set(b.ring.read))


def test_frames_missed_by_the_policy_are_copied_later(bench):
    b = bench()
    b.infer(b.frame(1))
    b.frame(2)
    b.infer(b.frame(3))
    assert b.policy.calls[-1][0] == [1.0, 2.0, 3.0] and len(b.ring.read) == 3


def test_ages_count_from_row_0_in_control_steps(bench):
    b = bench()
    b.frame(1)
    b.frame(2)
    block = b.frame(3)
    b.infer(block)
    b.infer(block, row0_ns=block.stamp_ns + 100 * MS)
    assert b.policy.calls[0][1] == [4.0, 2.0, 0.0]
    assert b.policy.calls[1][1] == [9.0, 7.0, 5.0]


def test_a_recycled_frame_makes_no_chunk(bench):
    b = bench()
    old = b.frame(1)
    for value in range(2, 20):
        b.frame(value)
    assert b.infer(old) is None and b.policy.calls == []


def test_a_recycled_frame_does_not_spoil_the_next_block(bench):
    b = bench()
    old = b.frame(1)
    for value in range(2, 20):
        b.frame(value)
    b.infer(old)
    assert b.infer(b.frame(20)) is not None
    assert b.policy.calls[-1][0] == [17.0, 18.0, 19.0, 20.0]


def test_the_instruction_is_pinned_and_follows_the_epoch(bench):
    b = bench()
    b.infer(b.frame(1))
    b.encoder.instruction('another', 2, probe())
    b.infer(b.frame(2))
    assert [call[2] for call in b.policy.calls] == [2.0, 7.0]
    assert b.policy.calls[1][0] == [2.0]  # frames of the epoch before are dead with it


def test_frames_after_a_gap_stand_alone(bench):
    b = bench()
    b.frame(1)
    b.number += 20
    b.infer(b.frame(2))
    assert b.policy.calls[-1][0] == [2.0]


def test_frames_from_before_a_step_back_of_time_are_left_out(bench):
    b = bench()
    b.frame(1, at_ns=T0 + 100 * S)
    b.infer(b.frame(2, at_ns=T0))
    assert b.policy.calls[-1][0] == [2.0]


def test_a_new_ring_is_followed(bench):
    b = bench()
    old = b.frame(1)
    b.infer(old)
    b.new_ring()
    assert b.infer(b.frame(5)) is not None
    assert b.policy.calls[-1][0] == [5.0]
    assert b.infer(old) is None  # of the ring that is gone


def test_a_copy_survives_the_end_of_the_ring_beside_it(bench):
    b = bench()
    block = b.frame(1)
    reader = b.ring._ring.reader(block.ring_id)
    b.shared.put(None)
    b.writers[-1].close()
    out = np.zeros(SPEC.frame_shape, np.float32)
    assert reader.copy(block.window[-1], out) and out.flat[0] == 1.0
    assert not b.model.ring_ok


def test_a_ring_that_ends_while_it_is_looked_up_makes_no_chunk(bench):
    b = bench()
    block = b.frame(1)
    b.writers[-1].close()  # between the look-up and the attachment
    assert b.infer(replace(block, ring_id=77)) is None


def test_without_an_encoder_there_is_no_ring():
    with pytest.raises(StaleError, match='vision_encoder'):
        LocalRing(Shared().writer, clock=CLOCK)


@pytest.mark.parametrize('changes', [
    {'layout_hash': '0' * 64}, {'window': tuple(SlotRef(0, i + 1) for i in range(5))},
])
def test_a_block_of_another_layout_is_an_error_that_says_so(bench, changes):
    b = bench()
    with pytest.raises(LayoutError, match='same'):
        b.infer(replace(b.frame(1), **changes))


@pytest.mark.parametrize('changes', [
    {'pinned': None}, {'window': ()}, {'ring_id': 77}, {'window': (SlotRef(99, 1),)},
    {'window': (SlotRef(0, 0),)}, {'pinned': SlotRef(1, 12345)},
])
def test_a_block_that_points_nowhere_makes_no_chunk(bench, changes):
    b = bench()
    assert b.infer(replace(b.frame(1), **changes)) is None


def test_noise_depends_on_the_chunk_and_on_nothing_else(bench):
    b = bench()
    block, noises = b.frame(1), []
    for chunk_id in (1, 2, 1):
        b.infer(block, chunk_id=chunk_id)
        noises.append(b.policy.noise)
    assert np.array_equal(noises[0], noises[2]) and not np.array_equal(noises[0], noises[1])


# ---- another process -------------------------------------------------------------------------


@pytest.fixture
def serve(tmp_path):
    open_ends = []
    name = f'reflex-test-{os.getpid()}-{tmp_path.name}'

    def make(spec=SPEC, **sizes):
        writer = RingWriter.create(ring_layout(spec, **sizes), clock=CLOCK)
        server = RingServer(name, writer, clock=CLOCK)
        open_ends.append((server, writer))
        return server, writer

    def end():
        for server, writer in open_ends:
            server.close()
            writer.close()
        open_ends.clear()

    make.name, make.end = name, end
    yield make
    end()


def remote(serve, spec=SPEC):
    return RemoteRing(serve.name, ring_layout(spec), clock=CLOCK, timeout_ns=2 * S)


def test_a_restarted_encoder_is_followed_to_its_new_ring(serve):
    first_id = serve()[1].ring_id
    ring = remote(serve)
    assert ring.is_alive and ring.reader(first_id).ring_id == first_id
    serve.end()
    assert not ring.is_alive
    assert ring.reader(first_id + 1) is None  # nobody there yet
    _, second = serve()
    assert ring.reader(second.ring_id).ring_id == second.ring_id and ring.is_alive
    ring.close()


def test_an_encoder_of_other_weights_is_refused(serve):
    serve(replace(SPEC, model_id='fake-2'))
    with pytest.raises(LayoutError, match='model_id'):
        remote(serve)


def test_how_many_readers_the_encoder_serves_is_its_own_business(serve):
    _, writer = serve(readers=3, leases=2)
    ring = remote(serve)
    assert ring.reader(writer.ring_id) is not None
    ring.close()


def test_fifty_rings_leave_no_descriptor_behind(serve):
    def cycle():
        _, writer = serve()
        ring = remote(serve)
        assert ring.reader(writer.ring_id) is not None
        ring.close()
        serve.end()

    cycle()
    files = len(os.listdir('/proc/self/fd'))
    for _ in range(50):
        cycle()
    assert abs(len(os.listdir('/proc/self/fd')) - files) <= 1


# ---- with weights ----------------------------------------------------------------------------


@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
    torch = pytest.importorskip('torch')
    from reflex_ros.infer.checkpoint import Scaling, Scalings
    from reflex_ros.infer.families import tiny
    from reflex_ros.infer.families.tiny_network import TinyConfig, TinyNetwork
    from reflex_ros.train.instructions import build_tokenizer

    torch.set_num_threads(1)
    network = TinyNetwork(TinyConfig(
        image_size=16, vision_layers=1, layers=2, width=12, heads=2, kv_heads=1, head_dim=6,
        gate_hidden=8, horizon=6, rows_per_token=2, instruction_tokens=8, vocabulary=64,
        tau_dim=6, window=4))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    unit = Scaling(np.zeros(7), np.ones(7))
    folder = tmp_path_factory.mktemp('tiny')
    tiny.save(
        folder, network.eval().requires_grad_(False),
        scalings=Scalings(unit, Scaling(np.zeros((6, 7)), np.ones((6, 7)))),
        tokenizer=build_tokenizer(8),
        config={'joint_names': list(JOINT_NAMES), 'step_period_ns': 20 * MS,
                'frame_period_ns': PERIOD, 'n_action_steps': 2, 'num_inference_steps': 4,
                'instruction': 'follow the pink ball', 'dh': 'new'})
    return tiny.TinyPolicy.load(folder)


def test_denoising_leaves_the_staged_prefix_as_it_was(bench, tiny):
    b = bench(tiny)
    block = [b.frame(value) for value in (10, 60, 200)][-1]
    first = b.infer(block)
    prefix = [b.model._context.copy(), *(buffer.copy() for buffer in b.model._staging)]
    second = b.infer(block)
    now = [b.model._context, *b.model._staging]
    assert all(np.array_equal(x, y) for x, y in zip(prefix, now, strict=True))
    assert np.array_equal(first, second)


def test_the_chunk_through_the_ring_is_that_of_direct_calls(bench, tiny):
    from reflex_ros.infer.flow import chunk_noise

    b = bench(tiny)
    values = (10, 60, 200)
    block = [b.frame(value) for value in values][-1]
    through = b.infer(block, row0_ns=block.stamp_ns + 60 * MS, state=0.1, chunk_id=9)
    pinned = np.zeros(tiny.spec.pinned_shape, np.float32)
    tiny.encode_instruction('go', pinned)
    frames = [np.zeros(tiny.spec.frame_shape, np.float32) for _ in values]
    for value, frame in zip(values, frames, strict=True):
        tiny.encode_frame({'main': np.full((16, 16, 3), value, np.uint8)}, pinned, frame)
    direct = tiny.denoise(
        pinned, frames, [7.0, 5.0, 3.0], state=np.full(7, 0.1),
        noise=chunk_noise(0, 9, shape=tiny.spec.noise_shape))
    assert through.dtype == np.float64 and np.array_equal(through, np.asarray(direct))


def test_the_chunk_depends_on_picture_age_and_state(bench, tiny):
    b = bench(tiny)
    block = b.frame(10)
    base = b.infer(block)
    assert not np.array_equal(base, b.infer(block, row0_ns=block.stamp_ns + 200 * MS))
    assert not np.array_equal(base, b.infer(block, state=0.5))
    assert not np.array_equal(base, b.infer(b.frame(200, at_ns=block.stamp_ns + S)))


def test_the_naive_cache_makes_another_chunk_and_the_exact_one_the_same(bench, tiny):
    b = bench(tiny)
    block = b.frame(7)
    exact = b.infer(block)
    chunks = {name: WindowedModel(tiny, b.ring, cache=name).infer(
        InferRequest(block, 1, np.zeros(7), block.stamp_ns), probe())
        for name in ('partitioned', 'naive')}
    assert np.array_equal(chunks['partitioned'], exact)
    assert np.isfinite(chunks['naive']).all() and not np.allclose(chunks['naive'], exact)


def test_a_naive_cache_follows_a_guide_as_well(bench, tiny):
    b = bench(tiny)
    block = b.frame(10)
    guide = Guide(np.full((4, 7), 0.3), 3, 4)
    found = {}
    for cache in ('partitioned', 'naive'):
        model = WindowedModel(tiny, b.ring, cache=cache)
        found[cache] = [model.infer(InferRequest(block, 1, np.zeros(7), block.stamp_ns, one),
                                    probe()) for one in (None, guide)]
        free, guided = found[cache]
        assert np.abs(guided - 0.3)[:3].max() < 0.5 * np.abs(free - 0.3)[:3].max()
    assert not np.array_equal(found['naive'][0], found['partitioned'][0])


def test_following_a_guide_can_fail(bench, tiny, monkeypatch):
    monkeypatch.setattr(WindowedModel, '_guidance', lambda self, request: None)
    with pytest.raises(AssertionError):
        test_a_naive_cache_follows_a_guide_as_well(bench, tiny)
