"""Action tokens of Pi0 and SmolVLA: noisy actions and flow time through a small MLP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.infer import flow
from reflex_ros.infer.weights import Linear, Weights

if TYPE_CHECKING:
    from reflex_ros.infer.checkpoint.config import PretrainedConfig


def embed_taus(taus: Sequence[float], dim: int, config: PretrainedConfig) -> Tensor:
    """Return the embedding ``float32[steps, dim]`` of flow times, computed in float64."""
    times = torch.tensor(taus, dtype=torch.float32)  # the reference rounds the time itself, too
    embedded = flow.embed_tau(
        times, dim=dim, min_period=config.min_period, max_period=config.max_period
    )
    return embedded.to(torch.float32)


class ActionTokens:
    """``out(silu(mix([in(x) | embedding])))``.

    Args:
        weights: Root of a checkpoint.
        config: Periods of the embedding.
    """

    def __init__(self, weights: Weights, config: PretrainedConfig) -> None:
        self._in = weights.linear('action_in_proj')
        self._mix = weights.linear('action_time_mlp_in')
        self._out = weights.linear('action_time_mlp_out')
        self._config = config
        self._width = self._in.weight.shape[0]
        self._action_half = Linear(self._mix.weight[:, : self._width])
        self._time_half = Linear(self._mix.weight[:, self._width :], self._mix.bias)
        self._tables: dict[tuple[float, ...], Tensor] = {}

    def table(self, taus: Sequence[float]) -> Tensor:
        """Return what the flow time adds before the activation, ``[steps, width]``; made once."""
        key = tuple(taus)
        if key not in self._tables:
            self._tables[key] = self._time_half(embed_taus(key, self._width, self._config))
        return self._tables[key]

    def __call__(self, x: Tensor, tau: float, added: Tensor | None) -> Tensor:
        """Return ``[batch, chunk, width]`` of noisy actions ``x[batch, chunk, action_dim]``.

        Args:
            x: Noisy actions.
            tau: Flow time.
            added: Row of ``table`` for this time; None = compute the time's part now.
        """
        actions = self._in(x)
        if added is not None:
            return self._out(F.silu(self._action_half(actions) + added))
        time = embed_taus([tau], self._width, self._config).to(actions.dtype)
        joined = torch.cat((actions, time.expand(*actions.shape[:-1], -1)), -1)
        return self._out(F.silu(self._mix(joined)))
