"""Which rows VLA-Cache uses again: pure functions of patches, scores and entropies."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.infer.baselines.options import PUBLISHED_PATCHES, VlaOptions


def patch_cosines(now: Tensor, before: Tensor, patch: int) -> Tensor:
    """Return how alike the patches of two images are, ``float64[patches]``, row by row.

    The cosine of raw values: it does not see a change of brightness that scales a patch.

    Args:
        now, before: ``[3, side, side]``, 0 = black.
        patch: Side of a patch, pixels; it divides the image's.
    """
    new, old = (
        F.unfold(image[None].double(), patch, stride=patch)[0] for image in (now, before)
    )
    sizes = new.norm(dim=0) * old.norm(dim=0)
    cosines = (new * old).sum(0) / torch.where(sizes > 0, sizes, torch.ones_like(sizes))
    return torch.where((new == old).all(0), torch.ones_like(cosines), cosines)


def scaled(patches: int, camera_tokens: int) -> int:
    """Return a number of patches of the source as one of a camera with other patches."""
    return round(patches * camera_tokens / PUBLISHED_PATCHES)


def candidates(
    cosines: Sequence[Tensor], scores: Tensor | None, ages: Tensor, options: VlaOptions
) -> Tensor:
    """Return the rows that may be used again, the first to be taken first, ``int64[n]``.

    Args:
        cosines: ``[camera_tokens]`` of each camera.
        scores: ``[rows]`` how much the last call looked at each row; None = nothing is protected.
        ages: ``int64[rows]`` calls since the oldest part of a row was computed.
        options: Parameters.
    """
    kept, first = [], 0
    for alike in cosines:
        tokens = len(alike)
        is_static = alike >= options.static_cosine
        most = alike.topk(min(scaled(options.static_patches, tokens), tokens)).indices
        chosen = torch.zeros(tokens, dtype=torch.bool)
        chosen[most] = True
        chosen &= is_static & (ages[first : first + tokens] < options.max_age)
        if scores is not None:
            own = scores[first : first + tokens]
            chosen[own.topk(min(scaled(options.task_patches, tokens), tokens)).indices] = False
        kept.append(first + chosen.nonzero()[:, 0])
        first += tokens
    rows = torch.cat(kept)
    if options.order == 'index':
        return rows
    return rows[torch.cat(list(cosines))[rows].argsort(descending=True, stable=True)]


def layer_ratios(entropies: Sequence[float], damping: float) -> list[float]:
    """Return the share of reuse of each layer: more where the attention is narrow.

    Args:
        entropies: Mean entropy of the rows of each layer's attention, averaged over the heads.
        damping: Share of an upward jump that is taken.
    """
    low, high = min(entropies), max(entropies)
    spread = high - low
    found: list[float] = []
    for entropy in entropies:
        ratio = 1.0 - (entropy - low) / spread if spread > 0 else 0.0
        if found and ratio > found[-1]:
            ratio = found[-1] + damping * (ratio - found[-1])
        found.append(ratio)
    return found


def dropped_rows(
    rows: Tensor, ratios: Sequence[float], layers: Sequence[int], depth: int
) -> list[tuple[int, Tensor]]:
    """Return from which layer on which rows are used again; the set only grows.

    Args:
        rows: Of ``candidates``.
        ratios: Of ``layer_ratios``; a layer behind the last has that one's.
        layers: Layers at which the set may grow; those beyond ``depth`` do not count.
        depth: Number of layers.
    """
    found, count = [], 0
    for layer in layers:
        if layer < depth:
            count = max(count, int(ratios[min(layer, len(ratios) - 1)] * len(rows)))
            found.append((layer, rows[:count]))
    return found
