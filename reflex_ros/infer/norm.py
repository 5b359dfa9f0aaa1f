"""Root-mean-square normalisation, plain and conditioned on flow time and state (eq. 2).

Statistics are accumulated in ``promote(dtype, float32)``: float32 for half-precision input, and
float64 for a float64 test plan. That is a matter of precision, not of range: float32 has the
exponents of bfloat16, so a sum of squares overflows in both at the same input.

``VARIANTS`` are the ways to norm in bfloat16 that ``study.stability`` compares; a policy uses
``ada``, eq. (2) of arXiv:2607.14695.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def rms_normalise(x: Tensor, eps: float) -> Tensor:
    """Return ``x / sqrt(mean(x^2) + eps)`` over the last axis, in the dtype of ``x``."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return F.rms_norm(wide, wide.shape[-1:], eps=eps).to(x.dtype)


def rms_normalise_narrow(x: Tensor, eps: float) -> Tensor:
    """Return the same with squares, mean, root and quotient each rounded to the dtype of ``x``.

    What plain tensor code without a cast computes: a reduction of torch keeps float32 partial
    sums and rounds the mean.
    """
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def rms_normalise_serial(x: Tensor, eps: float) -> Tensor:
    """Return the same with every partial sum in the dtype of ``x``, one element after another.

    The worst that a kernel with a narrow accumulator can do: the sum stops to grow once a square
    is less than half of its last digit.
    """
    squares = x.square().movedim(-1, 0).contiguous()
    total = torch.zeros_like(squares[0])
    for part in squares:
        total = total + part
    return x / (total[..., None] / x.shape[-1] + eps).sqrt()


Normalise = Callable[[Tensor, float], Tensor]
"""``(x[..., dim], eps) -> x / RMS(x)`` in the dtype of ``x``."""


@dataclass(frozen=True, slots=True)
class NormVariant:
    """One way to norm.

    Attributes:
        normalise: How the statistics are taken.
        is_conditioned: Whether ``gamma(c)`` scales the result; else gamma is one.
    """

    normalise: Normalise
    is_conditioned: bool

    def __call__(self, x: Tensor, gamma: Tensor, eps: float) -> Tensor:
        """Return the normalised ``x[..., dim]``; ``gamma`` is broadcast against it."""
        normed = self.normalise(x, eps)
        return normed * gamma.to(x.dtype) if self.is_conditioned else normed


VARIANTS = MappingProxyType({
    'bf16': NormVariant(rms_normalise_narrow, is_conditioned=False),
    'bf16_serial': NormVariant(rms_normalise_serial, is_conditioned=False),
    'fp32_norm_only': NormVariant(rms_normalise, is_conditioned=False),
    'ada': NormVariant(rms_normalise, is_conditioned=True),
})
"""For bfloat16 input, by name; only ``ada`` is used by a policy."""


class RMSNorm(nn.Module):
    """``x / RMS(x) * (1 + weight)`` with a zero-centred weight."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps
        self.normalise: Normalise = rms_normalise

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised ``x[..., dim]``."""
        return self.normalise(x, self.eps) * (1 + self.weight)


class AdaRMSNorm(nn.Module):
    """``x / RMS(x) * gamma(c)`` with ``gamma(c) = 1 + MLP(c)`` and ``c = [tau embedding, state]``.

    The MLP is Linear, SiLU, Linear; its last layer starts at zero, so gamma starts at one. It
    computes in the dtype of its weights, the statistics in at least float32.
    """

    def __init__(self, dim: int, condition_dim: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.gate_in = nn.Linear(condition_dim, hidden)
        self.gate_out = nn.Linear(hidden, dim)
        nn.init.zeros_(self.gate_out.weight)
        nn.init.zeros_(self.gate_out.bias)
        self.eps = eps
        self.normalise: Normalise = rms_normalise

    def gamma(self, condition: Tensor) -> Tensor:
        """Return the scale ``[..., dim]`` of one condition ``[..., condition_dim]``."""
        scale: Tensor = 1 + self.gate_out(F.silu(self.gate_in(condition)))
        return scale

    def forward(self, x: Tensor, gamma: Tensor) -> Tensor:
        """Return the normalised ``x[..., dim]`` scaled by ``gamma``, broadcast against it."""
        return self.normalise(x, self.eps) * gamma.to(x.dtype)


def set_statistics(network: nn.Module, normalise: Normalise) -> None:
    """Let every norm of a network take its statistics by ``normalise``; for comparisons only."""
    for module in network.modules():
        if isinstance(module, RMSNorm | AdaRMSNorm):
            module.normalise = normalise
