"""[ci] Graphs and gaps: a traced pass equals an untraced one, with or without a gap."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from reflex_ros.infer import passes, snapshot, trace
from reflex_ros.infer.flow import integrate
from reflex_ros.infer.passes import LayerPass
from reflex_ros.infer.reuse import Reuse

STEPS = 4
FLOATS = (torch.float32, torch.bfloat16)


def wide(dtype):
    return torch.float64 if dtype is torch.float64 else torch.float32


def run(case, network, dtype, kv=None):
    """Return the actions of one call."""
    with torch.inference_mode():
        prefix = case.prefix(network, kv)
        denoiser = network.prepare(prefix, case.state(wide(dtype)), STEPS)
        return integrate(denoiser.velocity, case.noise[None].to(wide(dtype)), STEPS)


@pytest.fixture
def traces(monkeypatch):
    """List the shapes that were traced."""
    seen, right = [], passes._trace

    def noted(layers, shape, inputs):
        seen.append(shape)
        return right(layers, shape, inputs)

    monkeypatch.setattr(passes, '_trace', noted)
    return seen


@pytest.mark.parametrize('dtype', FLOATS)
def test_a_traced_pass_equals_an_untraced_one(case, family, dtype, traces):
    case = case(family, seed=3, num_steps=STEPS)
    has_gap = dtype is torch.bfloat16
    plain, traced = (case.network(Reuse(traced=on, aligned=has_gap), dtype)
                     for on in (False, True))
    for _ in range(3):
        assert torch.equal(run(case, traced, dtype), run(case, plain, dtype))
    # SmolVLA: the state through the language model, too; Pi0: the state through the expert
    assert len(traces) == (1 if family == 'pi05' else 2)


def test_another_prompt_is_another_graph_and_an_old_one_is_used_again(case, family, traces):
    dtype = torch.float32
    first, second = (case(family, seed=3, words=n, num_steps=STEPS) for n in (5, 9))
    network = first.network(Reuse(traced=True, aligned=False), dtype)
    for one in (first, second, first, second):
        got = run(one, network, dtype)
        wanted = run(one, first.network(Reuse(), dtype), dtype)
        assert torch.equal(got, wanted)
    assert len(traces) == 2 * (1 if family == 'pi05' else 2)


def test_prompts_of_a_tile_share_a_graph(case, family, traces):
    """Pi0.5 has the state in its text: its length changes from chunk to chunk."""
    cases = [case(family, seed=3, words=n, num_steps=STEPS) for n in (5, 9, 12)]
    network = cases[0].network(Reuse(traced=True, state_once=family != 'smolvla'), torch.float32)
    plain = cases[0].network(Reuse(), torch.float32)
    for one in cases:
        torch.testing.assert_close(run(one, network, torch.float32),
                                   run(one, plain, torch.float32), rtol=0, atol=2e-5)
    suffixes = {shape.at for shape in traces if shape.sizes[0][1] > 1}
    assert len(suffixes) == 1


def test_the_number_of_graphs_is_bounded(case, monkeypatch, traces):
    monkeypatch.setattr(passes, 'MOST_GRAPHS', 1)
    cases = [case('pi05', seed=3, words=n, num_steps=STEPS) for n in (5, 9)]
    network = cases[0].network(Reuse(traced=True, aligned=False), torch.float32)
    for one in (*cases, *cases):
        run(one, network, torch.float32)
    assert len(traces) == 4
    assert len(network.expert_pass._graphs) == 1


def weights_are_let_go(case):
    """Return whether the weights of a network that has run as graphs go with it."""
    case = case('pi05', seed=3, num_steps=STEPS)
    network = case.network(Reuse(traced=True), torch.float32)
    run(case, network, torch.float32)
    weight = weakref.ref(network.expert[0]._in.maps[0].weight)
    assert weight() is not None
    del network
    gc.collect()
    return weight() is None


def test_graphs_that_nobody_uses_keep_no_weights(case):
    assert weights_are_let_go(case)


def test_graphs_that_are_kept_would_be_seen_can_fail(case, monkeypatch):
    monkeypatch.setattr(
        trace, '_graph', lambda f, inputs: torch.jit.trace(f, inputs, check_trace=False))
    assert not weights_are_let_go(case)


def test_free_rows_behind_the_block_make_no_new_graph(case, traces):
    case = case('pi05', seed=3, num_steps=STEPS)
    network = case.network(Reuse(traced=True), torch.float32)
    wanted = run(case, network, torch.float32)
    length = case.prefix(network).length
    more = network.new_cache(1, length + case.config.chunk_size + 200)
    assert torch.equal(run(case, network, torch.float32, more), wanted)
    assert len(traces) == 1


def test_tracing_does_not_write_into_the_cache_in_use(case):
    """The first call, which traces, leaves the cache as a call without tracing does."""
    case = case('pi0', seed=3, num_steps=STEPS)
    caches = []
    for traced in (False, True):
        network = case.network(Reuse(traced=traced, aligned=False), torch.float32)
        with torch.inference_mode():
            prefix = case.prefix(network)
            denoiser = network.prepare(prefix, case.state(torch.float32), STEPS)
            denoiser.velocity(case.noise[None], 0)
        caches.append(prefix.kv)
    assert torch.equal(*caches)


@pytest.mark.parametrize('cache', ['naive', 'joined'])
def test_other_caches_run_untraced(case, traces, cache):
    case = case('pi05', seed=3, num_steps=STEPS)
    network = case.network(Reuse(traced=True, static_rows=cache == 'naive'), torch.float32)
    assert isinstance(network.expert_pass, LayerPass)
    with torch.inference_mode():
        name = 'naive' if cache == 'naive' else 'partitioned'
        denoiser = network.prepare(case.prefix(network), case.state(torch.float32), STEPS,
                                   cache=name)
        denoiser.velocity(case.noise[None], 0)
    assert not traces


def test_equality_of_graphs_can_fail(case):
    case = case('pi05', seed=3, num_steps=STEPS)
    network = case.network(Reuse(traced=True), torch.float32)
    before = run(case, network, torch.float32)
    network.expert_pass._graphs.update(
        dict.fromkeys(network.expert_pass._graphs, lambda block, *_: block))
    assert not torch.equal(run(case, network, torch.float32), before)


@pytest.fixture
def tiled(monkeypatch):
    monkeypatch.setattr(snapshot, 'TILED', (torch.float64,))


@pytest.mark.parametrize('words', [1, 5, 20, 33])
def test_a_gap_before_the_suffix_changes_nothing(case, family, tiled, words):
    case = case(family, seed=5, words=words, num_steps=STEPS)
    with_gap, without = (case.network(Reuse(aligned=on)) for on in (True, False))
    dtype = torch.float64
    got, wanted = run(case, with_gap, dtype), run(case, without, dtype)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize('rest', [float('nan'), 1e4])
def test_what_an_older_prefix_left_in_the_gap_does_not_matter(case, family, tiled, rest):
    case = case(family, seed=5, num_steps=STEPS)
    network = case.network(Reuse())
    wanted = run(case, network, torch.float64)
    length = case.prefix(network).length
    kv = network.new_cache(1, length + snapshot.room(network.state_rows, case.config.chunk_size))
    kv += rest
    got = run(case, network, torch.float64, kv)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_the_gap_can_fail_where_it_is_seen(case, family, tiled, monkeypatch):
    case = case(family, seed=5, num_steps=STEPS)
    network = case.network(Reuse())
    wanted = run(case, network, torch.float64)
    right = snapshot.Prefix.seen

    def all_seen(self, end):
        found = right(self, end)
        return None if found is None else torch.ones_like(found)

    monkeypatch.setattr(snapshot.Prefix, 'seen', all_seen)
    assert float((run(case, network, torch.float64) - wanted).abs().max()) > 1e-6


def test_the_suffix_fills_whole_tiles(case, family, tiled):
    case = case(family, seed=5, num_steps=STEPS)
    network = case.network(Reuse())
    rows = case.config.chunk_size + (1 if family == 'pi0' else 0)
    with torch.inference_mode():
        prefix = case.prefix(network)
        at = prefix.start(rows, is_aligned=True)
    assert (at + rows) % snapshot.TILE == 0
    assert prefix.length <= at < prefix.length + snapshot.TILE
    assert prefix.start(rows, is_aligned=False) == prefix.length


def test_a_cache_without_room_for_a_gap_has_none(case, family, tiled):
    case = case(family, seed=5, num_steps=STEPS)
    network = case.network(Reuse())
    with torch.inference_mode():
        length = case.prefix(network).length
        rows = length + network.state_rows + case.config.chunk_size
        kv = network.new_cache(1, rows)
        prefix = case.prefix(network, kv)
        assert prefix.start(rows - length, is_aligned=True) == length
    torch.testing.assert_close(run(case, network, torch.float64, kv),
                               run(case, network, torch.float64), rtol=0, atol=1e-12)
