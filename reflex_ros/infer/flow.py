"""Flow matching: noise at tau = 1, actions at tau = 0, fixed Euler steps in between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError

LARGEST_SEED = 1 << 63
MOST_STEPS = 1000
"""Euler steps; everything that depends on the flow time alone is tabulated for them."""


def taus(num_steps: int) -> tuple[float, ...]:
    """Return the flow time at which each step starts: ``1 - k / n``, each computed afresh."""
    if not 1 <= num_steps <= MOST_STEPS:
        raise ConfigError(
            f'denoising cannot start: got {num_steps} steps, expected 1 to {MOST_STEPS}. '
            'Correct num_steps.'
        )
    return tuple(1.0 + k * (-1.0 / num_steps) for k in range(num_steps))


def integrate(velocity: Callable[[Tensor, int], Tensor], noise: Tensor, num_steps: int) -> Tensor:
    """Return the actions that ``num_steps`` Euler steps make of ``noise``.

    Args:
        velocity: ``(x, k) -> v`` with ``k`` the index into ``taus(num_steps)``; shape of ``x``.
        noise: Start point at tau = 1. Not modified.
        num_steps: Number of steps, see ``taus``.
    """
    x = noise
    for k in range(len(taus(num_steps))):
        x = x + (-1.0 / num_steps) * velocity(x, k)
    return x


def embed_tau(tau: Tensor, *, dim: int, min_period: float, max_period: float) -> Tensor:
    """Return the sinusoidal embedding ``float64[..., dim]`` of flow times, sines first."""
    spread = torch.linspace(0, 1, dim // 2, dtype=torch.float64, device=tau.device)
    period = min_period * (max_period / min_period) ** spread
    angle = 2 * torch.pi * tau.to(torch.float64)[..., None] / period
    return torch.cat((angle.sin(), angle.cos()), -1)


def chunk_noise(seed: int, chunk_id: int, *, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return standard normal noise that depends on the run's seed and the chunk alone.

    A replay of chunk 17 therefore needs neither the 16 before it nor the random state of a node.

    Raises:
        ConfigError: The seed has more than 64 bits.
    """
    if not -LARGEST_SEED <= seed < LARGEST_SEED:
        raise ConfigError(
            f'noise cannot be drawn, seed: got {seed}, expected a whole number of 64 bits. '
            'Choose a smaller one.'
        )
    generator = np.random.Generator(np.random.Philox(key=[seed, chunk_id]))
    return generator.standard_normal(shape, dtype=np.float32)
