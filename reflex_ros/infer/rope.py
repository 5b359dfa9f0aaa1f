"""Rotary positions in the half-split form, with angles always computed in float64.

A key is rotated once, at the position it was encoded at, and never touched again. A query is
rotated once per partition: since a logit depends on the difference of the two positions only,
moving the query by ``+age`` is the same as moving every key of that partition by ``-age``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def frequencies(head_dim: int, base: float) -> Tensor:
    """Return the angle per unit of position, float64[head_dim // 2], from 1 downwards."""
    return base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)


def phases(positions: Tensor, rates: Tensor, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return what ``rotate`` needs for every position.

    Args:
        positions: Any shape ``[...]``; converted to float64, fractions allowed.
        rates: ``float64[head_dim // 2]`` from ``frequencies``.
        dtype: Type of the result; only the final values are rounded to it.

    Returns:
        Cosine and signed sine, ``dtype[..., head_dim]``: the sine of the first half is negated.
    """
    angles = positions.to(torch.float64)[..., None] * rates
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return ``x[..., head_dim]`` rotated by the given phases; the halves form the pairs.

    Args:
        x: Heads, any leading shape.
        cos, sin: ``[..., head_dim]`` of ``phases``, broadcast against the leading shape of ``x``.
    """
    first, second = x.chunk(2, -1)
    swapped = torch.cat((second, first), -1)
    if x.dtype is torch.bfloat16:  # published checkpoints round each product
        return x * cos + swapped * sin
    return (x * cos).addcmul_(swapped, sin)
