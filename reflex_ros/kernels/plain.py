"""The fused steps in plain PyTorch: what runs without Triton, and what the kernels are judged by.

Nothing here waits for a device: step, length and offset are tensors, and no shape depends on
them, so that these can be captured in a graph like the kernels. Sums, softmax and products are
computed in ``promote(dtype, float32)`` and rounded where the kernels round.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS = ('silu', 'gelu')
"""Gates of ``glu``; ``gelu`` is the tanh approximation."""


def wide(x: Tensor) -> Tensor:
    """Return ``x`` in at least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def gate_norm(
    x: Tensor,
    branch: Tensor | None,
    gate: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    step: Tensor,
    *,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return the residual ``x + gate * branch`` and its conditioned norm.

    The norm is ``r / sqrt(mean(r^2) + eps) * (1 + scale) + shift`` of the residual ``r`` as it is
    stored, that is, rounded.

    Args:
        x: ``[tokens, width]``.
        branch: Same shape; None for the first norm, whose residual is ``x`` itself.
        gate: ``[steps, width]`` table, None without a branch.
        scale, shift: ``[steps, width]`` tables, one row for each denoise step.
        step: ``int32[1]``, the row of the tables.
        eps: Of the norm.

    Returns:
        Both ``[tokens, width]`` in the type of ``x``; the first is ``x`` without a branch.
    """
    if branch is not None:
        assert gate is not None
        x = (wide(x) + wide(branch) * wide(gate[step.long()])).to(x.dtype)
    power = wide(x).square().mean(-1, keepdim=True)
    normed = wide(x) * torch.rsqrt(power + eps)
    row = step.long()
    return x, (normed * (1 + wide(scale[row])) + wide(shift[row])).to(x.dtype)


def glu(packed: Tensor, activation: str) -> Tensor:
    """Return ``activation(gate) * up`` for ``packed[tokens, gate | up]``."""
    gate, up = wide(packed).chunk(2, -1)
    active = F.silu(gate) if activation == 'silu' else F.gelu(gate, approximate='tanh')
    return (active * up).to(packed.dtype)


def split_rotate(
    packed: Tensor,
    cos: Tensor,
    sin: Tensor,
    key: Tensor,
    value: Tensor,
    at: Tensor,
    *,
    heads: int,
) -> Tensor:
    """Split packed projections, rotate queries and keys, store keys and values.

    Args:
        packed: ``[tokens, (heads + 2 * kv_heads) * head_dim]``: queries, keys, values.
        cos, sin: ``float32[tokens, head_dim]`` of ``infer.rope.phases``: the halves form the
            pairs, the sine of the first half is negated.
        key, value: ``[rows, kv_heads, head_dim]``; written from row ``at`` on.
        at: ``int32[1]``.
        heads: Of the queries.

    Returns:
        Rotated queries ``[heads, tokens, head_dim]``.
    """
    kv_heads, head_dim = key.shape[1:]
    split = packed.view(len(packed), -1, head_dim)
    turning = wide(split[:, : heads + kv_heads])
    first, second = turning.chunk(2, -1)
    swapped = torch.cat((second, first), -1)
    turned = (turning * cos[:, None] + swapped * sin[:, None]).to(packed.dtype)
    rows = at.long() + torch.arange(len(packed), device=packed.device)
    key.index_copy_(0, rows, turned[:, heads:])
    value.index_copy_(0, rows, split[:, heads + kv_heads :])
    return turned[:, :heads].transpose(0, 1).contiguous()


def attend(
    query: Tensor,
    prefix_key: Tensor,
    prefix_value: Tensor,
    length: Tensor,
    own_key: Tensor,
    own_value: Tensor,
    *,
    splits: int = 8,
) -> Tensor:
    """Return attention over the first ``length`` rows of a prefix and all own rows.

    Args:
        query: ``[heads, tokens, head_dim]``; head ``h`` reads ``h // (heads / kv_heads)``.
        prefix_key, prefix_value: ``[rows, kv_heads, head_dim]``; what lies behind ``length`` is
            not read into the result, whatever it is.
        length: ``int32[1]``.
        own_key, own_value: ``[own, kv_heads, head_dim]``, at least one row.
        splits: Taken by the kernels alone.

    Returns:
        ``[tokens, heads * head_dim]`` in the type of the queries.
    """
    del splits
    heads, tokens, head_dim = query.shape
    kv_heads = own_key.shape[1]
    rows = torch.arange(len(prefix_key), device=query.device)
    unseen = torch.cat((rows >= length, rows.new_zeros(len(own_key), dtype=torch.bool)))
    keys = wide(torch.cat((prefix_key, own_key))).permute(1, 2, 0)
    values = wide(torch.cat((prefix_value, own_value)))
    # a weight of zero does not silence what is not a number
    values = values.masked_fill(unseen[:, None, None], 0).transpose(0, 1)
    folded = wide(query).reshape(kv_heads, -1, head_dim)
    scores = (folded @ keys * head_dim**-0.5).masked_fill(unseen, -torch.inf)
    mixed = torch.softmax(scores, -1) @ values
    return mixed.view(heads, tokens, head_dim).transpose(0, 1).flatten(1).to(query.dtype)
