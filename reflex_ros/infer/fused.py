"""A pass over an expert whose steps between the products are one kernel each.

The same layers, weights and cache as ``decoder.run``, for a batch of one: residual with its gate
and the next norm; split of the packed projections, rotation and storage; attention over parts of
the prefix and over the own rows, joined by their log-sum-exp; the gated activation. In float32 the
results differ by the order of summation; in bfloat16 the rotation is not rounded in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reflex_ros.infer.attention import attend_fused
from reflex_ros.infer.cache import StaticCache
from reflex_ros.infer.decoder import Layer, Modulation, Pass, cross_keys, gelu_tanh

if TYPE_CHECKING:
    from reflex_ros.kernels.choice import Kernels


def fits(layers: Sequence[Layer], block: Tensor, how: Pass,
         modulations: Sequence[Modulation]) -> bool:  # fmt: skip
    """Return whether the kernels can run a pass; else it is one operation after another."""
    is_plain = type(how.cache) is StaticCache and how.watch is None and not how.is_last_kv_only
    is_packed = layers[0].style.packed and layers[0].style.fused
    return is_plain and is_packed and len(block) == 1 and all(
        m.scale.shape[1] == 1 for m in modulations)


def run_fused(
    layers: Sequence[Layer], block: Tensor, how: Pass, modulations: Sequence[Modulation],
    kernels: Kernels,
) -> Tensor:  # fmt: skip
    """Return what ``decoder.run`` returns; see ``fits``."""
    norms = [norm for layer in layers for norm in layer.norms]
    given = modulations or [norm.fixed() for norm in norms]
    tables = [tuple(part[0] for part in (m.gate, m.scale, m.shift)) for m in given]
    eps, step = layers[0].style.eps, torch.zeros(1, dtype=torch.int32)
    places = _Places(layers[0], how, len(block[0]))
    x, branch, gate = block[0], None, None
    for index, layer in enumerate(layers):
        first, second = tables[2 * index : 2 * index + 2]
        x, normed = kernels.gate_norm(x, branch, gate, *first[1:], step, eps=eps)
        branch = layer.maps.out(places.attend(layer, normed, kernels))
        x, normed = kernels.gate_norm(x, branch, first[0], *second[1:], step, eps=eps)
        branch, gate = _feed(layer, normed, kernels), second[0]
    assert branch is not None
    return (x + (branch * gate).to(x.dtype))[None]


def _feed(layer: Layer, normed: Tensor, kernels: Kernels) -> Tensor:
    maps = layer.maps
    assert maps.gate_up is not None
    activation = 'gelu' if layer.style.activation is gelu_tanh else 'silu'
    return maps.down(kernels.glu(maps.gate_up(normed), activation))


class _Places:
    """Where the rows of a pass are and what is seen, for all layers.

    Args:
        layer: Any of them.
        how: Of the pass.
        tokens: Of the block.
    """

    def __init__(self, layer: Layer, how: Pass, tokens: int) -> None:
        assert isinstance(how.cache, StaticCache)
        self._how, self._kv, self._end = how, how.cache.kv, how.at + tokens
        self._at = torch.full((1,), how.at, dtype=torch.int32)
        self._phases = [x.float().reshape(tokens, -1).contiguous() for x in how.phases]
        dtype = self._kv.dtype
        self._mask = None if how.split else layer.see(how.mask, dtype)
        self._cross_mask = layer.see(how.cross_mask, dtype)

    def attend(self, layer: Layer, normed: Tensor, kernels: Kernels) -> Tensor:
        """Return ``[tokens, heads * head_dim]`` of the attention of one layer."""
        if layer.is_cross:
            return self._cross(layer, normed)
        joined = layer.maps.joined
        assert joined is not None
        key, value = self._kv[layer.slot, :, 0]
        query = kernels.split_rotate(joined(normed), *self._phases, key, value, self._at,
                                     heads=layer.style.heads)
        if self._how.split is not None:
            end = self._how.split.end
            own = slice(end, self._end)
            return kernels.attend(query, key[:end], value[:end], self._how.split.length,
                                  key[own], value[own])
        seen = (x[None, : self._end] for x in (key, value))
        return attend_fused(query.transpose(0, 1)[None], *seen, added=self._mask)[0].flatten(1)

    def _cross(self, layer: Layer, normed: Tensor) -> Tensor:
        assert self._how.cross_phases is not None
        seen = cross_keys(layer, self._how)
        query = layer.queries(normed[None], self._how.cross_phases)
        return attend_fused(query, *seen, added=self._cross_mask)[0].flatten(1)
