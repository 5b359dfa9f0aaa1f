"""[ci] The fast path against full recomputation in float64, at sizes nobody chose by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.guidance import denoise_committed
from reflex_ros.infer.reuse import Reuse

TOLERANCE = 1e-12
SHAPES = st.fixed_dictionaries({
    'groups': st.integers(1, 4), 'kv_heads': st.integers(1, 3), 'half': st.integers(1, 5),
    'depth': st.integers(1, 4), 'width': st.integers(2, 9), 'mlp': st.integers(1, 20),
    'vision_heads': st.integers(1, 3),
})  # fmt: skip
SCENES = st.fixed_dictionaries({
    'cameras': st.integers(1, 4), 'words': st.integers(1, 9), 'chunk': st.integers(1, 12),
    'num_steps': st.integers(1, 6), 'seed': st.integers(0, 10_000),
})  # fmt: skip


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1))


def drawn_sizes(sizes_of, family: str, shape: dict[str, int]):
    return sizes_of(
        family, depth=shape['depth'], expert_depth=shape['depth'], kv_heads=shape['kv_heads'],
        heads=shape['kv_heads'] * shape['groups'], head_dim=2 * shape['half'],
        vlm_width=2 * shape['width'], expert_width=2 * shape['width'] + 2,
        vlm_mlp=shape['mlp'], expert_mlp=shape['mlp'] + 1, vision_heads=shape['vision_heads'],
        vision_width=4 * shape['vision_heads'],
    )  # fmt: skip


@settings(max_examples=25, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=SHAPES, scene=SCENES)
def test_prefix_and_velocity_equal_full_recomputation(case, family, sizes_of, shape, scene):
    sizes = drawn_sizes(sizes_of, family, shape)
    case = case(family, sizes=sizes, **scene)
    k = scene['seed'] % scene['num_steps']
    wanted = case.oracle().step(case.inputs, case.noise, 1 - k / scene['num_steps'])
    network = case.network(Reuse())
    with torch.inference_mode():
        prefix = case.prefix(network)
        denoiser = network.prepare(prefix, case.state(torch.float64), scene['num_steps'])
        found = denoiser.velocity(case.noise[None], k)[0]
    length = wanted.key.shape[2]
    kv = prefix.kv[:, :, 0, :length].transpose(2, 3)
    assert relative(kv[:, 0], wanted.key) <= TOLERANCE
    assert relative(kv[:, 1], wanted.value) <= TOLERANCE
    assert relative(found, wanted.velocity) <= TOLERANCE


def test_all_steps_together_equal_full_recomputation(case, family):
    case = case(family, seed=3, num_steps=10)
    network = case.network(Reuse())
    with torch.inference_mode():
        denoiser = network.prepare(case.prefix(network), case.state(torch.float64), 10)
        x = case.noise[None]
        for k in range(10):
            x = x - denoiser.velocity(x, k) / 10
    wanted = case.oracle().denoise(case.inputs, case.noise, 10)
    assert relative(x[0], wanted) <= TOLERANCE
    single = case.velocity(Reuse(), 4, torch.float32)
    exact = case.oracle().step(case.inputs, case.noise, 1 - 4 / 10).velocity
    assert relative(single.double(), exact) <= 5e-6


def test_equality_can_fail(case, family):
    """One token id, one pixel, or the state: each moves the velocity a million times further."""
    case = case(family, seed=5)
    wanted = case.oracle().step(case.inputs, case.noise, 1.0).velocity
    assert relative(case.velocity(Reuse()), wanted) <= TOLERANCE
    case.inputs.pixels[0][1, 3, 3] += 0.1
    assert relative(case.velocity(Reuse()), wanted) > 1e6 * TOLERANCE
    case.inputs.pixels[0][1, 3, 3] -= 0.1
    case.inputs.ids[2] = (case.inputs.ids[2] + 1) % case.sizes.vocab
    assert relative(case.velocity(Reuse()), wanted) > 1e6 * TOLERANCE


def test_the_state_reaches_the_actions_where_the_family_puts_it(case, family):
    case = case(family, seed=6)
    before = case.velocity(Reuse())
    case.inputs.state[3] += 0.1
    after = case.velocity(Reuse())
    # Pi0.5 has it in its text: the state's numbers must not change anything
    assert bool((before == after).all()) == (family == 'pi05')


@pytest.mark.parametrize('stride', [2, 4])
def test_an_expert_with_fewer_layers_reads_every_nth(case, sizes_of, stride):
    sizes = sizes_of('smolvla', depth=4, expert_depth=4 // stride)
    case = case('smolvla', sizes=sizes, seed=7)
    # every layer that the expert has is then a layer of self-attention in the language model
    for i in range(4 // stride):
        for part in 'kv':
            name = f'vlm_with_expert.lm_expert.layers.{i}.self_attn.{part}_proj.weight'
            wide = torch.randn(12, sizes.expert_width, dtype=torch.float64)
            case.weights[name] = wide / sizes.expert_width**0.5
    wanted = case.oracle().step(case.inputs, case.noise, 1.0).velocity
    assert relative(case.velocity(Reuse()), wanted) <= TOLERANCE


def test_committed_rows_have_a_flow_time_of_their_own(case):
    """Pi0.5 trained for real-time chunking: three clean rows, three noisy ones."""
    case = case('pi05', seed=8)
    case.config = dataclasses.replace(case.config, trained_delay=4)
    wanted = case.oracle().step(case.inputs, case.noise, 0.75, committed=3)
    with torch.inference_mode():
        denoiser = case.denoiser(Reuse())
        denoiser.commit(3)
        found = denoiser.velocity(case.noise[None], 1)[0]
        without = case.velocity(Reuse(), 1)
    assert relative(found, wanted.velocity) <= TOLERANCE
    assert relative(without, wanted.velocity) > 1e6 * TOLERANCE, 'the comparison can fail'


def test_a_chunk_with_committed_rows_repeats_them_exactly(case):
    case = case('pi05', seed=8)
    case.config = dataclasses.replace(case.config, trained_delay=4)
    rows = torch.full((3, 7), 0.25, dtype=torch.float64)
    with torch.inference_mode():
        chunk = denoise_committed(case.denoiser(Reuse()), case.noise[None], 4, rows)[0]
        free = denoise_committed(case.denoiser(Reuse()), case.noise[None], 4, rows[:0])[0]
    assert torch.equal(chunk[:3, :7], rows)
    assert not chunk[:3, 7:].any()
    assert float((chunk[3:] - free[3:]).abs().max()) > 1e-3, 'they are seen by the others'
    with pytest.raises(ConfigError, match='got 5, expected 0 to 4'):
        case.denoiser(Reuse()).commit(5)
