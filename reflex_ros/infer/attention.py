"""Partitioned attention (eq. 1): one softmax over keys that live in different places.

``softmax(q [K_pin ; K_slide ; K_dyn]^T / sqrt(d)) [V_pin ; V_slide ; V_dyn]`` does not care how
its inputs are split. Two exact forms are offered: ``attend`` writes the logits of all partitions
side by side and takes one softmax; ``merge`` joins partial results by their log-sum-exp, for
kernels that never see all keys at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Part:
    """One partition and the queries that have been rotated for it.

    Attributes:
        query: ``[batch, tokens, heads, head_dim]``.
        key, value: ``[batch, keys, kv_heads, head_dim]``; head ``h`` reads ``h // groups``.
    """

    query: Tensor
    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class Partial:
    """Softmax over one partition before normalisation.

    Attributes:
        peak: ``[batch, heads, tokens, 1]`` largest logit, -inf if the partition is empty.
        total: Same shape, sum of ``exp(logit - peak)``.
        output: ``[batch, heads, tokens, head_dim]`` sum of ``exp(logit - peak) * value``.
    """

    peak: Tensor
    total: Tensor
    output: Tensor


def logits(query: Tensor, key: Tensor) -> Tensor:
    """Return the scaled logits ``[batch, heads, tokens, keys]`` in ``promote(dtype, float32)``."""
    batch, tokens, heads, head_dim = query.shape
    keys, kv_heads = key.shape[1:3]
    groups = heads // kv_heads
    grouped = query.transpose(1, 2).reshape(batch, kv_heads, groups * tokens, head_dim)
    scores = grouped @ key.permute(0, 2, 3, 1)
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # a float of its own: in a trace the power of a size would be a float32 number
    return wide.view(batch, heads, tokens, keys) * float(head_dim) ** -0.5


def weigh(weights: Tensor, value: Tensor) -> Tensor:
    """Return ``weights[batch, heads, tokens, keys]`` applied to ``value``, head by head."""
    batch, heads, tokens, keys = weights.shape
    kv_heads, head_dim = value.shape[2:]
    grouped = weights.reshape(batch, kv_heads, (heads // kv_heads) * tokens, keys)
    return (grouped @ value.transpose(1, 2)).view(batch, heads, tokens, head_dim)


def attend(parts: Sequence[Part]) -> Tensor:
    """Return the attention output ``[batch, tokens, heads, head_dim]`` over all partitions."""
    scores = torch.cat([logits(part.query, part.key) for part in parts], -1)
    weights = torch.softmax(scores, -1).to(parts[0].value.dtype)
    sizes = [part.key.shape[1] for part in parts]
    pieces = zip(weights.split(sizes, -1), parts, strict=True)
    return sum_of([weigh(piece, part.value) for piece, part in pieces]).transpose(1, 2)


def attend_all(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, is_wide: bool = False
) -> Tensor:
    """Return the attention output ``[batch, tokens, heads, head_dim]`` over one set of keys.

    Args:
        query: ``[batch, tokens, heads, head_dim]``.
        key, value: ``[batch, keys, kv_heads, head_dim]``.
        mask: ``bool[batch or 1, tokens, keys]``, True = seen; None = all. A row that sees nothing
            (padding) becomes the mean of all values: finite, and read by nobody.
        is_wide: Logits from float32 queries and keys; else the product has their own type.
    """
    if is_wide:
        wide = torch.promote_types(query.dtype, torch.float32)
        query, key = query.to(wide), key.to(wide)
    scores = logits(query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], torch.finfo(scores.dtype).min)
    return weigh(torch.softmax(scores, -1).to(value.dtype), value).transpose(1, 2)


def fold_mask(mask: Tensor | None, groups: int, dtype: torch.dtype) -> Tensor | None:
    """Return a mask in the form that ``attend_fused`` adds to its logits.

    Args:
        mask: ``bool[batch or 1, tokens, keys]``, True = seen; None = all.
        groups: Query heads that read the same keys.
        dtype: Of the queries.

    Returns:
        ``dtype[batch or 1, 1, rows, keys]``: once for all heads of a group in bfloat16, where that
        is the cheaper form, else one row for each token.
    """
    if mask is None:
        return None
    added = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    return (added.repeat(1, groups, 1) if dtype is torch.bfloat16 else added)[:, None]


def attend_fused(
    query: Tensor, key: Tensor, value: Tensor, *, added: Tensor | None = None
) -> Tensor:
    """Return what ``attend_all`` returns, in one kernel that never stores the logits.

    Logits, softmax and sum are float32 for half-precision input, so this is the wide form; a row
    that sees nothing is finite.

    Args:
        query, key, value: See ``attend_all``.
        added: Of ``fold_mask``.
    """
    queries, keys, values = (x.transpose(1, 2) for x in (query, key, value))
    if added is not None and query.dtype is not torch.bfloat16:
        mixed = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=added, enable_gqa=True
        )
        return mixed.transpose(1, 2)
    batch, tokens, heads, head_dim = query.shape
    # heads of a group read the same keys: one tall product instead of several small ones
    tall = queries.reshape(batch, key.shape[2], -1, head_dim)
    mixed = F.scaled_dot_product_attention(tall, keys, values, attn_mask=added)
    return mixed.view(batch, heads, tokens, head_dim).transpose(1, 2)


def partial(part: Part) -> Partial:
    """Return the unnormalised softmax of one partition; an empty one weighs nothing."""
    if part.key.shape[1] == 0:
        return empty_partial(part)
    scores = logits(part.query, part.key)
    peak = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(peak.isinf(), torch.zeros_like(peak), peak))
    output = weigh(weights, part.value.to(scores.dtype))
    return Partial(peak, weights.sum(-1, keepdim=True), output)


def empty_partial(part: Part) -> Partial:
    """Return the neutral element of ``merge`` for the shape of this partition's queries."""
    batch, tokens, heads, head_dim = part.query.shape
    wide = torch.promote_types(part.query.dtype, torch.float32)
    peak = part.query.new_full((batch, heads, tokens, 1), -torch.inf, dtype=wide)
    total = torch.zeros_like(peak)
    return Partial(peak, total, total.expand(batch, heads, tokens, head_dim))


def merge(partials: Sequence[Partial]) -> Tensor:
    """Return ``[batch, tokens, heads, head_dim]``: partials joined by their log-sum-exp.

    Exact and independent of the order up to rounding; a row that no partition covers becomes 0.
    """
    peak = torch.stack([p.peak for p in partials]).amax(0)
    reference = torch.where(peak.isinf(), torch.zeros_like(peak), peak)
    factors = [torch.exp(p.peak - reference) for p in partials]
    total = sum_of([p.total * f for p, f in zip(partials, factors, strict=True)])
    output = sum_of([p.output * f for p, f in zip(partials, factors, strict=True)])
    return (output / torch.where(total == 0, torch.ones_like(total), total)).transpose(1, 2)


def sum_of(terms: Sequence[Tensor]) -> Tensor:
    """Return the sum of at least one tensor."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
