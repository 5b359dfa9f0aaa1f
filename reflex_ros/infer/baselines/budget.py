"""VL-Cache's choice: how many rows of a prefix each layer keeps, which, and what that may cost.

For an attention output ``o`` over all rows and ``o'`` over the kept ones, where the dropped rows
had the weight ``m``: ``o' - o = m (o' - o_dropped)``, so ``|o' - o| <= 2 m max|v|``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from reflex_ros.infer.baselines.options import VlOptions


def density(weights: Tensor, threshold: float) -> float:
    """Return the share of weights that are not small beside the largest of their row.

    Args:
        weights: ``[..., rows]`` on the rows of the prefix.
        threshold: Share of the largest below which a weight is none.
    """
    return float((weights >= threshold * weights.amax(-1, keepdim=True)).double().mean())


def layer_budgets(densities: Sequence[float], options: VlOptions) -> list[float]:
    """Return the share of rows that each layer keeps: more where the attention is dense."""
    if options.retention >= 1.0:
        return [1.0] * len(densities)
    total = sum(densities)
    return [
        min(1.0, max(options.floor, options.retention * len(densities) * d / total))
        for d in densities
    ]


def kept_rows(scores: Tensor, budget: float, protect: float) -> Tensor:
    """Return the rows to keep, in order, ``int64[..., kept]``.

    Args:
        scores: ``[..., rows]``.
        budget: Share of the rows; at least one is kept.
        protect: Share of the kept rows that are the newest, whatever their score.
    """
    rows = scores.shape[-1]
    kept = max(1, min(rows, math.ceil(budget * rows)))
    newest = min(kept, int(protect * kept))
    ranked = scores.clone()
    ranked[..., rows - newest :] = torch.inf
    return ranked.topk(kept, -1).indices.sort(-1).values


def dropped_mass(weights: Tensor, kept: Tensor) -> Tensor:
    """Return how much weight the rows that are not kept had, ``[...]``.

    Args:
        weights: ``[..., rows]`` on the rows of the prefix.
        kept: ``int64[..., kept]``, broadcast against ``weights``.
    """
    is_dropped = torch.ones(*kept.shape[:-1], weights.shape[-1], dtype=torch.bool)
    is_dropped.scatter_(-1, kept, value=False)
    return (weights * is_dropped).sum(-1)


def error_bound(mass: Tensor, values: Tensor) -> Tensor:
    """Return what dropping rows may change an output by, Euclidean, ``[...]``.

    Args:
        mass: Of ``dropped_mass``.
        values: ``[..., rows, head_dim]`` of all rows that are seen, kept or not.
    """
    return 2 * mass * values.norm(dim=-1).amax(-1)
