"""[ci] Denoise loop, prefix and image tower as recordings: what they compute, and out of what.

A recording is replayed by running the work again over the same buffers; the watch of
``ReplayRecorder`` fails every test here in which an address or an operation changes, something
waits for the device, or a tensor outlives the loop.
"""

from __future__ import annotations

import pytest
import torch

from reflex_ros.core.clock import ManualClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.graph import GraphError, Graphs, ReplayRecorder
from reflex_ros.infer.graph_loop import BUCKET, GraphedDenoiser, graph_room
from reflex_ros.infer.graph_prefix import GraphedEncoder
from reflex_ros.infer.guidance import Guidance, row_weights
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reuse import Reuse
from reflex_ros.infer.snapshot import TILE, Prefix, denoise
from reflex_ros.study.bench_subject import FAMILIES, random_subject

STEPS = 2
BOUND = {'float32': 2e-5, 'bfloat16': 6e-2}


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Loop:
    """A policy, prefixes of any length in a staging copy, and both ways to denoise."""

    def __init__(self, family, dtype='float32', *, bucket=BUCKET, reuse=None):
        subject = random_subject(family, 'tiny', seed=3)
        self.policy = SnapshotPolicy(subject.pretrained, dtype=dtype, reuse=reuse or Reuse())
        network, config = self.policy.network, self.policy.config
        self.config = config
        rows = 100 + graph_room(network.state_rows, config.chunk_size, bucket=bucket)
        with torch.inference_mode():
            self.kv = network.new_cache(1, rows)
        self.graphs = Graphs(ReplayRecorder(), clock=ManualClock())
        self.recorded = GraphedDenoiser(self.policy, self.kv, num_steps=STEPS, graphs=self.graphs,
                                        bucket=bucket)

    def inputs(self, seed):
        made = torch.Generator().manual_seed(seed)
        state = torch.rand(1, self.config.max_state_dim, generator=made) - 0.5
        shape = (1, self.config.chunk_size, self.config.max_action_dim)
        return state, torch.from_numpy(chunk_noise(seed, 0, shape=shape))

    def stage(self, length, seed):
        """Fill a staging copy; what is behind the prefix is not a number."""
        made = torch.Generator().manual_seed(seed)
        with torch.inference_mode():
            self.kv.fill_(torch.nan)
            drawn = torch.randn(self.kv[:, :, :, :length].shape, generator=made)
            self.kv[:, :, :, :length] = drawn.to(self.kv.dtype)

    @torch.inference_mode()
    def wanted(self, length, seed, guidance=None):
        self.stage(length, seed)
        state, noise = self.inputs(seed)
        denoiser = self.policy.prepare(Prefix(self.kv, length), state, STEPS)
        return denoise(denoiser, noise, STEPS, guidance=guidance)

    def got(self, length, seed, guidance=None):
        self.stage(length, seed)
        state, noise = self.inputs(seed)
        return self.recorded(length, state, noise, guidance=guidance).clone()


@pytest.mark.parametrize('dtype', BOUND)
def test_a_recorded_loop_computes_what_the_present_path_does(family, dtype):
    loop = Loop(family, dtype)
    for seed, length in enumerate((33, 70, 61)):
        torch.testing.assert_close(
            loop.got(length, seed), loop.wanted(length, seed), rtol=0, atol=BOUND[dtype])


@pytest.mark.parametrize('family', ['pi0', 'pi05'])
def test_with_the_same_rows_the_two_are_equal_bit_for_bit(family):
    """Buckets of one tile are where the present path starts its suffix, too."""
    loop = Loop(family, 'bfloat16', bucket=TILE)
    for seed, length in enumerate((33, 61)):
        assert torch.equal(loop.got(length, seed), loop.wanted(length, seed))


def test_equality_can_fail_where_a_masked_row_is_seen(monkeypatch):
    loop = Loop('pi05')
    seen = Prefix.seen
    monkeypatch.setattr(Prefix, 'seen', lambda self, end: torch.ones_like(seen(self, end)))
    got = loop.got(33, 0)
    monkeypatch.undo()
    assert float((got - loop.wanted(33, 0)).abs().max()) > 1e-3


def test_a_guided_chunk_is_a_recording_of_its_own(family):
    loop = Loop(family)
    rows, columns = loop.config.chunk_size, loop.config.action_dim
    loop.recorded.warm([40], is_guided=True)
    for shift in (0.2, -0.4):
        target = torch.linspace(0, 1, rows)[:, None].expand(-1, columns) + shift
        guidance = Guidance(target, row_weights(3, 8, rows), float(STEPS))
        torch.testing.assert_close(loop.got(40, 1, guidance), loop.wanted(40, 1, guidance),
                                   rtol=0, atol=2e-5)
    assert (loop.graphs.counts.recorded, loop.graphs.counts.late) == (2, 0)


def test_each_bucket_is_recorded_once_and_none_after_the_warm_up(family):
    loop = Loop(family)
    lengths = (10, 33, 34, 90, 10, 61)
    loop.recorded.warm(lengths)
    buckets = len({loop.recorded.bucket_of(length) for length in lengths})
    assert buckets == 3
    for seed, length in enumerate(lengths):
        loop.got(length, seed)
    counts = loop.graphs.counts
    assert (counts.recorded, counts.late, counts.replayed) == (buckets, 0, len(lengths))


def test_a_second_bucket_is_recorded_once_where_nothing_was_warmed():
    loop = Loop('pi05')
    recorded = []
    for seed, length in enumerate((33, 34, 90, 91, 33)):
        loop.got(length, seed)
        recorded.append(loop.graphs.counts.recorded)
    assert recorded == [1, 1, 2, 2, 2]


def test_a_length_that_was_not_warmed_is_a_late_recording_can_fail():
    loop = Loop('pi05')
    loop.recorded.warm([33])
    loop.got(90, 0)
    assert loop.graphs.counts.late == 1


def test_a_moved_staging_copy_is_noticed_can_fail():
    loop = Loop('pi05')
    loop.got(33, 0)
    with torch.inference_mode():
        loop.kv = loop.recorded.kv = loop.kv.clone()
    with pytest.raises(GraphError, match='addresses'):
        loop.got(33, 0)


@pytest.mark.parametrize('switch', ['static_rows', 'time_table'])
def test_switches_that_no_recording_can_hold_are_refused(switch):
    with pytest.raises(ConfigError, match='cannot be recorded'):
        Loop('pi05', reuse=Reuse(**{switch: False}))


def test_flow_times_without_a_table_would_be_noticed_can_fail(monkeypatch):
    loop = Loop('pi05')
    network = loop.policy.network
    monkeypatch.setattr(network, 'modulation_table', network.condition)
    with pytest.raises(GraphError, match='cannot be recorded'):
        loop.got(33, 0)


def test_a_prefix_beyond_the_staging_copy_is_refused():
    loop = Loop('pi05')
    for length in (0, 500):
        with pytest.raises(ConfigError, match='prefix cannot be denoised'):
            loop.recorded.bucket_of(length)


class Sight:
    """A policy with images, and both ways to encode them."""

    def __init__(self, family):
        self.subject = random_subject(family, 'tiny', seed=4)
        self.policy = SnapshotPolicy(self.subject.pretrained)
        self.graphs = Graphs(ReplayRecorder(), clock=ManualClock())
        self.recorded = GraphedEncoder(self.policy, self.graphs)
        with torch.inference_mode():
            self.out = self.policy.network.new_cache(1, 400)

    def ids(self, words):
        return [5 + at for at in range(words)]


@pytest.mark.parametrize('words', [3, 18])
def test_a_recorded_prefix_is_the_prefix(family, words):
    sight = Sight(family)
    images = list(sight.subject.images.items())
    for cameras in (3, 2):
        plain = {name: sight.policy.view(image) for name, image in images[:cameras]}
        views = {name: sight.recorded.view(image) for name, image in images[:cameras]}
        for name, tokens in plain.items():
            assert torch.equal(views[name], tokens)
        wanted = sight.policy.encode(plain, [sight.ids(words)])
        got = sight.recorded.encode(views, sight.ids(words), out=sight.out)
        assert got.length == wanted.length
        torch.testing.assert_close(got.kv[:, :, :, : got.length],
                                   wanted.kv[:, :, :, : got.length], rtol=0, atol=2e-5)


def test_image_and_texts_of_a_bucket_share_recordings():
    sight = Sight('pi05')
    sight.recorded.warm(3, [10, 20, 40])
    views = {name: sight.recorded.view(image) for name, image in sight.subject.images.items()}
    for words in (10, 20, 40, 11):
        sight.recorded.encode(views, sight.ids(words), out=sight.out)
    counts = sight.graphs.counts
    assert (counts.recorded, counts.late, counts.replayed) == (3, 0, 7)


def test_a_view_is_not_overwritten_by_the_next_one():
    sight = Sight('pi05')
    first, second, _ = sight.subject.images.values()
    kept = sight.recorded.view(first)
    sight.recorded.view(second)
    assert torch.equal(kept, sight.policy.view(first))


def test_masked_words_can_fail_where_they_are_seen(monkeypatch):
    sight = Sight('pi05')
    views = {name: sight.policy.view(image) for name, image in sight.subject.images.items()}
    wanted = sight.policy.encode(views, [sight.ids(10)])
    right = type(sight.policy.network).encode
    monkeypatch.setattr(type(sight.policy.network), 'encode',
                        lambda self, tokens, valid, kv: right(self, tokens, None, kv))
    got = sight.recorded.encode(views, sight.ids(10), out=sight.out)
    rows = slice(0, got.length)
    assert float((got.kv[:, :, :, rows] - wanted.kv[:, :, :, rows]).abs().max()) > 1e-3


def test_a_text_beyond_the_policy_s_is_refused():
    sight = Sight('pi05')
    with pytest.raises(ConfigError, match='text cannot be encoded'):
        sight.recorded.encode({}, sight.ids(0), out=sight.out)
