from __future__ import annotations

import numpy as np
import pytest
import torch

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import flow


def test_flow_times_start_at_noise_and_are_computed_not_accumulated():
    assert flow.taus(10) == tuple(1.0 + k * -0.1 for k in range(10))
    total, accumulated = 1.0, []
    for _ in range(10):
        accumulated.append(total)
        total += -0.1
    assert tuple(accumulated) != flow.taus(10)


def test_a_straight_flow_reaches_the_actions_in_any_number_of_steps():
    noise, actions = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)).double()
    for steps in (1, 7, 10):
        reached = flow.integrate(lambda x, k: noise - actions, noise, steps)
        torch.testing.assert_close(reached, actions)


def test_integration_leaves_the_noise_untouched():
    noise = torch.ones(3)
    flow.integrate(lambda x, k: x, noise, 2)
    assert torch.equal(noise, torch.ones(3))


def test_zero_steps_are_refused():
    with pytest.raises(ConfigError, match='got 0 steps'):
        flow.taus(0)


def test_tau_embedding_has_the_stated_periods():
    tau = torch.tensor([0.3], dtype=torch.float64)
    embedded = flow.embed_tau(tau, dim=4, min_period=0.02, max_period=4.0)[0]
    angles = 2 * np.pi * 0.3 / np.array([0.02, 4.0])
    np.testing.assert_allclose(embedded, [*np.sin(angles), *np.cos(angles)], atol=1e-12)


def test_noise_is_a_function_of_seed_and_chunk_alone():
    first = flow.chunk_noise(1, 17, shape=(50, 7))
    flow.chunk_noise(1, 18, shape=(50, 7))
    assert np.array_equal(first, flow.chunk_noise(1, 17, shape=(50, 7)))
    assert not np.array_equal(first, flow.chunk_noise(1, 18, shape=(50, 7)))
    assert not np.array_equal(first, flow.chunk_noise(2, 17, shape=(50, 7)))
    assert first.dtype == np.float32
    assert abs(float(first.std()) - 1) < 0.1
