"""Root-mean-square normalisation, plain and conditioned on flow time and state (eq. 2).

Statistics are accumulated in ``promote(dtype, float32)``: float32 for half-precision input, and
float64 for a float64 test plan.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def rms_normalise(x: Tensor, eps: float) -> Tensor:
    """Return ``x / sqrt(mean(x^2) + eps)`` over the last axis, in the dtype of ``x``."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return F.rms_norm(wide, wide.shape[-1:], eps=eps).to(x.dtype)


class RMSNorm(nn.Module):
    """``x / RMS(x) * (1 + weight)`` with a zero-centred weight."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised ``x[..., dim]``."""
        return rms_normalise(x, self.eps) * (1 + self.weight)


class AdaRMSNorm(nn.Module):
    """``x / RMS(x) * gamma(c)`` with ``gamma(c) = 1 + MLP(c)`` and ``c = [tau embedding, state]``.

    The MLP is Linear, SiLU, Linear; its last layer starts at zero, so gamma starts at one.
    """

    def __init__(self, dim: int, condition_dim: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.gate_in = nn.Linear(condition_dim, hidden)
        self.gate_out = nn.Linear(hidden, dim)
        nn.init.zeros_(self.gate_out.weight)
        nn.init.zeros_(self.gate_out.bias)
        self.eps = eps

    def gamma(self, condition: Tensor) -> Tensor:
        """Return the scale ``[..., dim]`` of one condition ``[..., condition_dim]``."""
        scale: Tensor = 1 + self.gate_out(F.silu(self.gate_in(condition)))
        return scale

    def forward(self, x: Tensor, gamma: Tensor) -> Tensor:
        """Return the normalised ``x[..., dim]`` scaled by ``gamma``, broadcast against it."""
        return rms_normalise(x, self.eps) * gamma.to(x.dtype)
