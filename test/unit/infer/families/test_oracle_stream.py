"""[ci] Observation after observation through one buffer, with other words and other images.

What operation does: keys and values of the next observation are written over those of the last
one, shorter or longer than it. Nothing of the last one may be seen, in float64 and in float32.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reflex_ros.infer import flow
from reflex_ros.infer.cache import NAIVE, PARTITIONED
from reflex_ros.infer.reuse import Reuse

TOLERANCE = MappingProxyType({torch.float64: 1e-12, torch.float32: 5e-6})
ACTIONS = MappingProxyType({torch.float64: 1e-12, torch.float32: 2e-5})
MOST_WORDS, STEPS = 9, 10
SHAPES = st.fixed_dictionaries({
    'depth': st.integers(1, 3), 'kv_heads': st.integers(1, 2), 'groups': st.integers(1, 2),
    'half': st.integers(1, 4),
})  # fmt: skip


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted).abs().max() / wanted.abs().max().clamp_min(1))


class Stream:
    """One network in one type with one buffer for keys and values."""

    def __init__(self, case, dtype: torch.dtype, cameras: int) -> None:
        self.case, self.dtype = case, dtype
        self.network = case.network(Reuse(), dtype)
        self.generator = torch.Generator().manual_seed(5)
        tokens = cameras * self.network.camera_tokens + MOST_WORDS
        rows = tokens + self.network.state_rows + 1 + case.config.chunk_size
        self.kv = self.network.new_cache(1, rows)

    def observe(self, words: int) -> None:
        """Take in new images, an instruction of so many words, a state and noise."""
        old, draw = self.case.inputs, self.generator
        state = torch.zeros_like(old.state)
        state[:7] = torch.randn(7, generator=draw)
        self.case.inputs = dataclasses.replace(
            old,
            pixels=[torch.rand(p.shape, generator=draw).double() * 2 - 1 for p in old.pixels],
            ids=torch.randint(0, self.case.sizes.vocab, (words,), generator=draw).tolist(),
            state=state,
        )
        self.case.noise = torch.randn(self.case.noise.shape, generator=draw).double()
        with torch.inference_mode():
            self.prefix = self.case.prefix(self.network, self.kv)

    def velocity(self, cache: str = PARTITIONED) -> torch.Tensor:
        """Return v of the noise at the second step; the first one had other actions."""
        with torch.inference_mode():
            denoiser = self.network.prepare(
                self.prefix, self.case.state(self.dtype), STEPS, cache=cache)
            x = self.case.noise[None].to(self.dtype)
            denoiser.velocity(x + 1, 0)
            return denoiser.velocity(x, 1)[0]

    def actions(self) -> torch.Tensor:
        with torch.inference_mode():
            denoiser = self.network.prepare(self.prefix, self.case.state(self.dtype), STEPS)
            return flow.integrate(
                denoiser.velocity, self.case.noise[None].to(self.dtype), STEPS)[0]

    def wanted(self) -> torch.Tensor:
        return self.case.oracle().step(self.case.inputs, self.case.noise, 1 - 1 / STEPS).velocity


@pytest.mark.parametrize('dtype', TOLERANCE, ids=str)
@settings(max_examples=6, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 9999), shape=SHAPES, cameras=st.integers(1, 2),
       words=st.lists(st.integers(1, MOST_WORDS), min_size=2, max_size=4))
def test_every_observation_equals_full_recomputation(
    case, family, sizes_of, dtype, seed, shape, cameras, words
):
    sizes = sizes_of(
        family, depth=shape['depth'], expert_depth=shape['depth'], kv_heads=shape['kv_heads'],
        heads=shape['kv_heads'] * shape['groups'], head_dim=2 * shape['half'],
    )  # fmt: skip
    stream = Stream(case(family, sizes=sizes, seed=seed, cameras=cameras, num_steps=STEPS),
                    dtype, cameras)
    for count in words:
        stream.observe(count)
        assert relative(stream.velocity(), stream.wanted()) <= TOLERANCE[dtype]
    final = stream.case.oracle().denoise(stream.case.inputs, stream.case.noise, STEPS)
    assert relative(stream.actions(), final) <= ACTIONS[dtype]


@pytest.mark.parametrize('dtype', TOLERANCE, ids=str)
def test_equality_can_fail_with_the_naive_cache(case, family, dtype):
    stream = Stream(case(family, seed=2, num_steps=STEPS), dtype, 2)
    stream.observe(4)
    wanted = stream.wanted()
    assert relative(stream.velocity(), wanted) <= TOLERANCE[dtype]
    assert relative(stream.velocity(NAIVE), wanted) > 1e3 * TOLERANCE[dtype]


def test_equality_can_fail_when_the_last_words_stay(case, family):
    stream = Stream(case(family, seed=3, num_steps=STEPS), torch.float64, 2)
    stream.observe(6)
    longer = stream.prefix.length
    stream.observe(5)
    stream.prefix = dataclasses.replace(stream.prefix, length=longer)
    assert relative(stream.velocity(), stream.wanted()) > 1e-6
