"""VL-Cache: a budget for the prefix that the action expert reads in its later denoise steps.

Tu et al., arXiv 2410.23317, made for text after images. The first denoise step sees the whole
prefix; its action rows score every row, each layer gets a share of the budget by the density of
its attention, and the later steps read the kept rows only. Position is in the keys already, so
rows may be left out anywhere. Query heads of a group are averaged and share their rows.

Ours: the scoring rows are the actions instead of the words behind the images; the dropped weight
is kept as a certificate, see ``budget``. A memory ablation: a prefix is small beside the weights
of the expert that each step reads, so no gain of time is to be expected.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from reflex_ros.infer.attention import attend_all, logits
from reflex_ros.infer.baselines.budget import (
    density,
    dropped_mass,
    error_bound,
    kept_rows,
    layer_budgets,
)
from reflex_ros.infer.baselines.options import VlOptions
from reflex_ros.infer.cache import VL_CACHE, StaticCache
from reflex_ros.infer.snapshot import Prefix


@dataclass(slots=True)
class _Layer:
    """One layer: what the first step saw, then what is kept."""

    weights: Tensor
    largest: Tensor
    index: Tensor | None = None
    compact: Tensor | None = None
    mass: float = 0.0
    bound: float = 0.0
    ratio: float = 0.0


class BudgetCache:
    """The prefix of one call with a budget; make a new one for each call.

    Args:
        prefix: Without padding; its buffer has free rows behind it and is not otherwise changed.
        options: Parameters.
    """

    name = VL_CACHE

    def __init__(self, prefix: Prefix, options: VlOptions) -> None:
        self._full, self._length, self._options = StaticCache(prefix.kv), prefix.length, options
        self._layers: dict[int, _Layer] = {}
        self._is_chosen = False

    def rows(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Return views of the whole prefix."""
        return self._full.rows(layer, end)

    def append(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of the prefix that a step may see, followed by the given ones."""
        if layer in self._layers and not self._is_chosen:
            self._choose(at + key.shape[1])
        found = self._layers.get(layer)
        if found is None or found.compact is None:
            return self._full.append(layer, at, key, value)
        if self._options.is_audited:
            self._full.append(layer, at, key, value)
        begin = found.compact.shape[2] - key.shape[1]
        found.compact[0, :, begin:] = key
        found.compact[1, :, begin:] = value
        return found.compact[0], found.compact[1]

    def watch(self, layer: int, query: Tensor, seen: tuple[Tensor, Tensor]) -> None:
        """Score the rows in the first step; compare with all rows later, if asked for."""
        found = self._layers.get(layer)
        if found is None:
            weights = torch.softmax(logits(query, seen[0]), -1)[..., : self._length]
            self._layers[layer] = _Layer(weights, seen[1].norm(dim=-1).amax())
        elif self._options.is_audited and found.compact is not None:
            self._audit(layer, found, query, seen)

    def report(self) -> dict[str, float]:
        """Return kept rows, bytes, and the largest dropped weight and bound over all layers."""
        layers = self._layers.values()
        kept = [self._length if la.index is None else la.index.shape[-1] for la in layers]
        row_bytes = 2 * self._full.kv[0, 0, :, 0].numel() * self._full.kv.element_size()
        return {
            'kept_ratio': sum(kept) / (len(kept) * self._length),
            'kept_bytes': float(sum(kept) * row_bytes),
            'prefix_bytes': float(len(kept) * self._length * row_bytes),
            'dropped_mass': max(la.mass for la in layers),
            'error_bound': max(la.bound for la in layers),
            'bound_used': max(la.ratio for la in layers),
        }

    # ---- the choice --------------------------------------------------------------------------

    def _choose(self, end: int) -> None:
        """Give each layer its budget and gather what it keeps, with room up to ``end``."""
        options, found = self._options, [self._layers[slot] for slot in sorted(self._layers)]
        budgets = layer_budgets([density(la.weights, options.threshold) for la in found], options)
        for slot, budget in zip(sorted(self._layers), budgets, strict=True):
            if budget < 1.0:
                self._keep(slot, self._layers[slot], budget, end)
            self._layers[slot].weights = self._layers[slot].weights[..., :0]
        self._is_chosen = True

    def _keep(self, slot: int, layer: _Layer, budget: float, end: int) -> None:
        kv = self._full.kv[slot]
        groups = kv.shape[3]
        by_group = layer.weights.unflatten(1, (groups, -1))
        index = kept_rows(by_group.mean(2).sum(2), budget, self._options.protect)
        mass = dropped_mass(by_group, index[:, :, None, None])
        layer.index, layer.mass = index, float(mass.max())
        layer.bound = float(2 * mass.max() * layer.largest)
        # the kept rows, what lies between the prefix and this block, and room for the block
        wanted = index.transpose(1, 2)[None, ..., None].expand(2, -1, -1, -1, kv.shape[-1])
        kept = kv[:, :, : self._length].gather(2, wanted)
        layer.compact = torch.cat((kept, kv[:, :, self._length : end]), 2)

    def _audit(
        self, slot: int, layer: _Layer, query: Tensor, seen: tuple[Tensor, Tensor]
    ) -> None:
        """Compare this step's output with that over all rows, and both with the bound."""
        end = self._length + seen[0].shape[1] - layer.index.shape[-1]
        key, value = self._full.rows(slot, end)
        weights = torch.softmax(logits(query, key), -1)[..., : self._length]
        by_group = weights.unflatten(1, (value.shape[2], -1))
        mass = dropped_mass(by_group, layer.index[:, :, None, None])
        bound = error_bound(mass, value.transpose(1, 2)[:, :, None, None].to(mass.dtype))
        apart = attend_all(query, *seen) - attend_all(query, key, value)
        error = apart.norm(dim=-1).transpose(1, 2).unflatten(1, (value.shape[2], -1))
        share = error / bound.clamp_min(torch.finfo(bound.dtype).tiny)
        layer.ratio = max(layer.ratio, float(share[bound > 0].max()) if (bound > 0).any() else 0.0)
        layer.mass = max(layer.mass, float(mass.max()))
        layer.bound = max(layer.bound, float(bound.max()))
