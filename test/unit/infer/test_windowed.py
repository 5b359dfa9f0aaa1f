"""The streaming fast path equals full recomputation; and the check goes red when it should."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import rope
from reflex_ros.infer.families.tiny_network import Context
from reflex_ros.infer.windowed import WindowedLayout

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6}

SHAPES = st.fixed_dictionaries({
    'heads_per_kv': st.integers(1, 3), 'kv_heads': st.integers(1, 2),
    'head_dim': st.sampled_from([2, 6, 8]), 'layers': st.integers(1, 3),
    'vision_layers': st.integers(0, 1), 'cameras': st.sampled_from([('a',), ('a', 'b')]),
    'rows_per_token': st.sampled_from([1, 2, 3]), 'instruction_tokens': st.integers(1, 4),
})  # fmt: skip


def sizes_of(shape):
    heads = shape.pop('heads_per_kv') * shape['kv_heads']
    return {**shape, 'heads': heads, 'width': 4 * heads}


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32], ids=['float64', 'float32'])
@settings(max_examples=25, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**20), frames=st.integers(1, 16), shape=SHAPES)
def test_streaming_equals_full_recomputation(make_case, error, dtype, seed, frames, shape):
    case = make_case(seed, frames=frames, dtype=dtype, **sizes_of(dict(shape)))
    assert error(case.fast(), case.full()) <= TOLERANCE[dtype]


@settings(max_examples=15, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**20), window=st.integers(1, 5))
def test_evicting_a_frame_equals_never_having_seen_it(make_case, error, seed, window):
    case = make_case(seed, frames=8)
    assert error(case.fast(window), case.full(window)) <= 1e-12


def test_a_new_instruction_equals_a_fresh_start(make_case, error):
    case = make_case(3, frames=4)
    case.fast()
    case.ids = [5, 6, 7]
    assert error(case.fast(), case.full(ids=[5, 6, 7])) <= 1e-12


def test_ten_denoise_steps_equal_full_recomputation_at_every_step(make_case, error):
    case = make_case(4, frames=3)
    reference = case.oracle().denoise(case.scene(), case.noisy.astype(np.float64), 10)
    assert error(case.denoise(10), reference) <= 1e-11


def test_the_order_of_the_frames_does_not_matter_only_their_ages(make_case, error):
    case = make_case(5, frames=4)
    pinned = case.pinned()
    frames = [case.frame(i, pinned) for i in range(4)]
    order = [2, 0, 3, 1]
    shuffled = case.velocity(pinned, [frames[i] for i in order], case.ages[order])
    assert error(shuffled, case.fast()) <= 1e-12


def test_encoding_a_frame_leaves_all_others_untouched(make_case):
    case = make_case(6, frames=2)
    pinned = case.pinned()
    first = case.frame(0, pinned)
    kept = first.clone()
    case.frame(1, pinned)
    case.velocity(pinned, [first], case.ages[:1])
    assert torch.equal(first, kept)


# Planted faults: each of these must leave the tolerance by orders of magnitude.


def test_equality_can_fail_when_an_age_is_wrong(make_case, error):
    case = make_case(7, frames=3)
    case.ages = case.ages + np.array([0.0, 0.5, 0.0])
    reference = case.full(ages_steps=(case.ages - np.array([0.0, 0.5, 0.0])).tolist())
    assert error(case.fast(), reference) > 1e-4


def test_equality_can_fail_when_the_age_turns_the_other_way(make_case, error, monkeypatch):
    case = make_case(8, frames=3)
    reference = case.full()
    right = WindowedLayout.query_positions
    monkeypatch.setattr(WindowedLayout, 'query_positions', lambda self, ages: right(self, -ages))
    assert error(case.fast(), reference) > 1e-4


def test_equality_can_fail_when_the_rotation_uses_float32_angles(make_case, error, monkeypatch):
    case = make_case(9, frames=3)
    case.ages = case.ages + 1e4
    exact = case.full()
    assert error(case.fast(), exact) <= 1e-11

    def coarse(positions, rates, *, dtype):
        angles = positions.to(torch.float32)[..., None] * rates.to(torch.float32)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)

    monkeypatch.setattr(rope, 'phases', coarse)
    assert error(case.fast(), exact) > 1e-9


def test_equality_can_fail_when_a_frame_sees_another(make_case, error):
    case = make_case(10, frames=2)
    pinned = case.pinned()
    first = case.frame(0, pinned)
    both = torch.cat((pinned, first[None]), 3)
    leaked = [first, case.frame(1, both)]
    assert error(case.velocity(pinned, leaked, case.ages), case.full()) > 1e-4


def test_equality_can_fail_when_the_pinned_block_is_stale(make_case, error):
    case = make_case(11, frames=2)
    pinned = case.pinned()
    frames = [case.frame(i, pinned) for i in range(2)]
    reference = case.full(ids=[9, 8, 7])
    fresh = case.pinned([9, 8, 7])
    assert error(case.velocity(pinned, frames, case.ages), reference) > 1e-4
    assert error(case.velocity(fresh, frames, case.ages), reference) > 1e-4
    renewed = [case.frame(i, fresh) for i in range(2)]
    assert error(case.velocity(fresh, renewed, case.ages), reference) <= 1e-12


def test_equality_can_fail_when_a_step_reuses_suffix_keys(make_case, error, monkeypatch):
    case = make_case(12, frames=2)
    reference = case.oracle().denoise(case.scene(), case.noisy.astype(np.float64), 4)
    right, first = Context.attend, {}

    def naive(self, layer, query, key, value):
        kept = first.setdefault(layer, (key.clone(), value.clone()))
        return right(self, layer, query, *kept)

    monkeypatch.setattr(Context, 'attend', naive)
    assert error(case.denoise(4), reference) > 1e-4


@pytest.mark.parametrize('frames', [0, 17])
def test_an_empty_or_overfull_window_is_refused(make_case, frames):
    layout = make_case(1).network.config.layout
    with pytest.raises(ConfigError, match='window cannot be used'):
        layout.check_ages(frames, torch.zeros(frames))


def test_ages_that_are_not_finite_are_refused(make_case):
    layout = make_case(1).network.config.layout
    with pytest.raises(ConfigError, match='ages cannot be used'):
        layout.check_ages(2, torch.tensor([1.0, torch.nan]))
