"""[ci] VL-Cache: exact with the whole budget, never further off than the dropped weight says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex_ros.infer.attention import attend_all, logits
from reflex_ros.infer.baselines.budget import (
    density,
    dropped_mass,
    error_bound,
    kept_rows,
    layer_budgets,
)
from reflex_ros.infer.baselines.options import VlOptions
from reflex_ros.infer.baselines.registry import open_prior
from reflex_ros.infer.baselines.vl_cache import BudgetCache
from reflex_ros.infer.cache import StaticCache, watch_of

HALF = VlOptions(retention=0.5, is_audited=True)


def run(stream, seen, options):
    prefix = stream.full(seen)
    cache = BudgetCache(prefix, options)
    return stream.velocities(prefix, seen, cache), cache


@pytest.mark.parametrize('family', ['pi0', 'pi05'])
@pytest.mark.parametrize('kv_heads', [1, 2])
def test_the_whole_budget_is_exact(stream, family, kv_heads):
    stream = stream(family, kv_heads=kv_heads)
    seen = stream.seen()
    found, cache = run(stream, seen, VlOptions(retention=1.0))
    assert torch.equal(found, stream.velocities(stream.full(seen), seen))
    report = cache.report()
    assert report['kept_ratio'] == 1 and report['dropped_mass'] == 0 == report['error_bound']


@pytest.mark.parametrize('family', ['pi0', 'pi05'])
@pytest.mark.parametrize('kv_heads', [1, 2])
def test_half_the_budget_can_fail_that_from_the_second_step_on(stream, family, kv_heads):
    stream = stream(family, kv_heads=kv_heads)
    seen = stream.seen()
    found, cache = run(stream, seen, HALF)
    exact = stream.velocities(stream.full(seen), seen)
    error = (found - exact).abs().amax((1, 2, 3))
    assert error[0] == 0 and error[1:].min() > 1e-4
    report = cache.report()
    assert 0.4 < report['kept_ratio'] < 0.6
    assert report['kept_bytes'] == pytest.approx(report['kept_ratio'] * report['prefix_bytes'])
    assert 0 < report['dropped_mass'] < 1


@pytest.mark.parametrize('kv_heads', [1, 2])
def test_no_output_of_the_network_is_further_off_than_the_bound(stream, kv_heads):
    stream = stream(kv_heads=kv_heads)
    _, cache = run(stream, stream.seen(), HALF)
    assert 0 < cache.report()['bound_used'] <= 1


def test_kept_rows_give_what_masking_the_others_gives(stream):
    """The compact buffer is what a mask over the whole prefix would be."""
    stream = stream()
    seen = stream.seen()
    prefix = stream.full(seen)
    cache = BudgetCache(prefix, HALF)
    stream.velocities(prefix, seen, cache)
    key, value = torch.randn(2, 1, 8, 1, 16, dtype=torch.float64)
    query = torch.randn(1, 8, 8, 16, dtype=torch.float64)
    with torch.inference_mode():
        compact = cache.append(2, prefix.length, key, value)
        whole = StaticCache(prefix.kv).append(2, prefix.length, key, value)
    matches = (compact[0][0, :, None] == whole[0][0, None]).all((-1, -2)).any(0)
    assert matches.sum() == compact[0].shape[1] < whole[0].shape[1]
    masked = attend_all(query, *whole, mask=matches[None, None].expand(1, 8, -1))
    assert torch.allclose(attend_all(query, *compact), masked, atol=1e-12)


def test_other_caches_want_to_see_no_queries(stream):
    stream = stream()
    prefix = stream.full(stream.seen())
    assert watch_of(StaticCache(prefix.kv)) is None
    assert watch_of(BudgetCache(prefix, HALF)) is not None


def test_it_is_opened_by_name(stream):
    stream = stream()
    seen = stream.seen()
    prior = open_prior('vl_cache', stream.policy, {'retention': '0.25'})
    prefix = prior.encode(seen)
    stream.velocities(prefix, seen, prior.suffix(prefix))
    assert prior.report()['kept_ratio'] == pytest.approx(0.25, abs=0.1)


def attention(seed: int, rows: int, sharpness: float):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(1, 3, 4, 8, generator=generator, dtype=torch.float64) * sharpness
    key, value = torch.randn(2, 1, rows, 2, 8, generator=generator, dtype=torch.float64)
    return query, key, value


def off_and_bound(query, key, value, kept):
    """Return how far the output is off with the kept rows only, and the bound."""
    weights = torch.softmax(logits(query, key), -1)
    bound = error_bound(dropped_mass(weights, kept), value.transpose(1, 2).repeat_interleave(2, 1)[
        :, :, None])
    apart = attend_all(query, key[:, kept], value[:, kept]) - attend_all(query, key, value)
    return apart.norm(dim=-1).transpose(1, 2), bound


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 30), st.floats(0, 8), st.data())
def test_the_dropped_weight_bounds_the_error(seed, rows, sharpness, data):
    query, key, value = attention(seed, rows, sharpness)
    kept = torch.tensor(sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1))))
    error, bound = off_and_bound(query, key, value, kept)
    assert bool((error <= bound + 1e-12).all())


def test_half_of_the_bound_can_fail():
    """Two opposite values of equal weight reach it."""
    query, key = torch.zeros(1, 1, 4, 4).double(), torch.zeros(1, 2, 2, 4).double()
    value = torch.ones(1, 2, 2, 4).double()
    value[:, 1] = -1
    error, bound = off_and_bound(query, key, value.clone(), torch.tensor([0]))
    assert bool((error > bound / 2).all()) and bool((error <= bound + 1e-12).all())


def test_dense_layers_get_more_and_no_layer_less_than_the_floor():
    assert layer_budgets([0.1, 0.3], VlOptions(retention=0.2)) == pytest.approx([0.1, 0.3])
    assert layer_budgets([0.0, 1.0], VlOptions(retention=0.8)) == [0.01, 1.0]
    assert layer_budgets([0.1, 0.3], VlOptions(retention=1.0)) == [1.0, 1.0]


def test_small_weights_do_not_count_as_dense():
    weights = torch.tensor([[0.9, 0.1, 0.005, 0.0]])
    assert density(weights, 0.01) == 0.5 and density(weights, 0.0) == 1.0


def test_the_best_rows_are_kept_and_the_newest_whatever_they_score():
    scores = torch.tensor([[5.0, 1.0, 4.0, 3.0, 0.0]])
    assert kept_rows(scores, 0.4, 0.0).tolist() == [[0, 2]]
    assert kept_rows(scores, 0.4, 0.5).tolist() == [[0, 4]]
    assert kept_rows(scores, 1e-6, 0.1).tolist() == [[0]]
