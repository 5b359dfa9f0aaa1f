"""Transformer layers of the language models and of the action experts, and one pass over them.

A layer is ``y = x + gate * o(attention(norm(x)))``, ``z = y + gate * mlp(norm(y))``; gates exist
with conditioned norms only. Prefix, state token and actions run through the same pass: each
appends its keys and values to a cache and attends to everything that is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.infer.attention import attend_all, attend_fused, fold_mask
from reflex_ros.infer.cache import Cache, Watch
from reflex_ros.infer.rope import rotate
from reflex_ros.infer.weights import Linear, Weights

Activation = Callable[[Tensor], Tensor]
Phases = tuple[Tensor, Tensor]
FEW = 64
"""Most tokens of a block that counts as short."""


def gelu_tanh(x: Tensor) -> Tensor:
    """Return the tanh approximation of GELU."""
    return F.gelu(x, approximate='tanh')


@dataclass(frozen=True, slots=True)
class Style:
    """What the layers of one language model family have in common.

    Attributes:
        heads, kv_heads, head_dim: Of the attention; head ``h`` reads ``h // (heads / kv_heads)``.
        eps: Of the norms.
        weight_offset: 1 where norm weights are stored zero-centred, else 0.
        activation: Of the gated MLP.
        is_rope_wide: Rotation in float32; else in the type of the activations.
        packed, fused: See ``Reuse``.
    """

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    weight_offset: float
    activation: Activation
    is_rope_wide: bool
    packed: bool = True
    fused: bool = True


@dataclass(frozen=True, slots=True)
class Modulation:
    """Scale, shift and gate of one conditioned norm, each ``[batch, 1 or tokens, width]``."""

    scale: Tensor
    shift: Tensor
    gate: Tensor

    @classmethod
    def of(cls, dense: Tensor) -> Modulation:
        """Return the parts of ``dense``: scale, shift, gate in this order.

        Args:
            dense: ``[batch, 3 * width]`` for all tokens, or ``[batch, tokens, 3 * width]``.
        """
        return cls(*(dense if dense.ndim == 3 else dense[:, None]).chunk(3, -1))


class Norm:
    """Root-mean-square norm with its own weight, or conditioned by a ``Modulation``.

    Statistics and scale are float32 (float64 for float64 weights); the result has the type of
    the input.
    """

    def __init__(self, weights: Weights, style: Style) -> None:
        self.dense = weights.linear('dense') if 'dense.weight' in weights else None
        self._scale = None if self.dense else style.weight_offset + weights['weight']
        self._eps = style.eps
        self._fixed: Modulation | None = None

    def fixed(self) -> Modulation:
        """Return the norm's own weight as a modulation ``[1, 1, width]`` that never changes."""
        if self._fixed is None:
            assert self._scale is not None
            ones = torch.ones_like(self._scale)[None, None]
            self._fixed = Modulation(self._scale - ones, torch.zeros_like(ones), ones)
        return self._fixed

    def __call__(self, x: Tensor, modulation: Modulation | None = None) -> Tensor:
        """Return the normalised ``x[batch, tokens, width]``."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        power = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_() / wide.shape[-1]
        normed = wide * power.add_(self._eps).rsqrt_()
        if modulation is not None:
            return normed.mul_(1 + modulation.scale).add_(modulation.shift).to(x.dtype)
        assert self._scale is not None
        return normed.mul_(self._scale).to(x.dtype)


class Projections:
    """Several linear maps of the same input, as one product or one by one."""

    def __init__(self, weights: Weights, names: Sequence[str], packed: bool) -> None:
        maps = [weights.linear(name) for name in names]
        self._sizes = [m.weight.shape[0] for m in maps]
        self.maps: list[Linear] = [weights.packed(*names)] if packed else maps

    def __call__(self, x: Tensor) -> Sequence[Tensor]:
        """Return the outputs in the order of the names."""
        if len(self.maps) == len(self._sizes):
            return [m(x) for m in self.maps]
        return self.maps[0](x).split(self._sizes, -1)

    @property
    def joined(self) -> Linear | None:
        """Return the one map whose outputs lie side by side, None if there are several."""
        return self.maps[0] if len(self.maps) < len(self._sizes) else None


@dataclass(frozen=True, slots=True)
class Maps:
    """Linear maps of a layer, for who fuses what is between them; None where not packed.

    Attributes:
        joined: Queries, keys, values side by side. ``out``: Of the attention.
        gate_up: Gate and up side by side. ``down``: Of the MLP.
    """

    joined: Linear | None
    out: Linear
    gate_up: Linear | None
    down: Linear


class Mlp:
    """``down(act(gate(x)) * up(x))``."""

    def __init__(self, weights: Weights, style: Style) -> None:
        self._in = Projections(weights, ('gate_proj', 'up_proj'), style.packed)
        self._is_packed = style.packed
        self._down = weights.linear('down_proj')
        self._activation = style.activation

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output for ``x[batch, tokens, width]``."""
        is_few = x.dtype is torch.bfloat16 and len(x) == 1 and x.shape[1] <= FEW
        if is_few and self._is_packed and isinstance(self._down, Linear) and not x.is_cuda:
            return self._upright(x[0])[None]
        gate, up = self._in(x)
        return self._down(self._activation(gate).mul_(up))

    @property
    def maps(self) -> tuple[Linear | None, Linear]:
        """Return gate and up as one map, None if they are two, and down."""
        return self._in.joined, self._down

    def _upright(self, x: Tensor) -> Tensor:
        """Return the output for ``x[tokens, width]`` with tokens as columns.

        A bfloat16 product packs its right-hand matrix anew in each call: of few tokens that is
        much less work than of the weights.
        """
        gate, up = torch.mm(self._in.maps[0].weight, x.t()).chunk(2)
        return torch.mm(self._down.weight, self._activation(gate).mul_(up)).t()


class Layer:
    """One decoder layer.

    Args:
        weights: ``layers.N`` of a checkpoint.
        style: Shared properties.
        slot: Index of the layer's keys and values in the cache.
        is_cross: Queries only; keys and values are projections of the cache's own, see ``cross``.
    """

    def __init__(self, weights: Weights, style: Style, *, slot: int, is_cross: bool) -> None:
        attention = weights.at('self_attn')
        names = ('q_proj',) if is_cross else ('q_proj', 'k_proj', 'v_proj')
        self.norms = (
            Norm(weights.at('input_layernorm'), style),
            Norm(weights.at('post_attention_layernorm'), style),
        )
        self._in = Projections(attention, names, style.packed and not is_cross)
        self._key, self._value = attention.linear('k_proj'), attention.linear('v_proj')
        self._out, self._mlp = attention.linear('o_proj'), Mlp(weights.at('mlp'), style)
        self._style, self.slot, self.is_cross = style, slot, is_cross

    def attend(self, x: Tensor, phases: Phases, keys: KeysOf, mask: Tensor | None) -> Tensor:
        """Return the projected attention output of normalised ``x[batch, tokens, width]``.

        Args:
            x: Input of the projections.
            phases: Of the queries and, in a layer of self-attention, of the keys.
            keys: From the queries and the layer's own keys and values (None in a cross layer) to
                all that are visible, ``[batch, keys, kv_heads, head_dim]`` each.
            mask: Of what is seen, as ``see`` gives it; None = everything.
        """
        query, *own = self._project(x, phases)
        seen = keys(query, *(own or (None, None)))
        style = self._style
        if style.fused:
            mixed = attend_fused(query, *seen, added=mask)
        else:
            mixed = attend_all(query, *seen, mask=mask, is_wide=style.is_rope_wide)
        return self._out(mixed.flatten(2))

    @property
    def maps(self) -> Maps:
        """Return the layer's linear maps."""
        gate_up, down = self._mlp.maps
        return Maps(self._in.joined, self._out, gate_up, down)

    @property
    def style(self) -> Style:
        """Return what all layers have in common."""
        return self._style

    def see(self, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """Return ``bool[batch or 1, tokens, keys]`` as ``attend`` takes it, for all layers."""
        if not self._style.fused:
            return mask
        return fold_mask(mask, self._style.heads // self._style.kv_heads, dtype)

    def _project(self, x: Tensor, phases: Phases) -> Sequence[Tensor]:
        """Return the rotated queries and, in a layer of self-attention, keys and values."""
        style, joined = self._style, self._in.joined
        if joined is not None:  # queries and keys turn together
            heads = self._split(joined(x))
            turning = style.heads + style.kv_heads
            turned = self._rotate(heads[:, :, :turning], phases)
            return (*turned.split((style.heads, style.kv_heads), 2), heads[:, :, turning:])
        query, *own = (self._split(part) for part in self._in(x))
        if not own:
            return (self._rotate(query, phases),)
        return self._rotate(query, phases), self._rotate(own[0], phases), own[1]

    def queries(self, x: Tensor, phases: Phases) -> Tensor:
        """Return the rotated queries of a cross layer."""
        (query,) = self._project(x, phases)
        return query

    def key_value(self, x: Tensor, phases: Phases) -> tuple[Tensor, Tensor]:
        """Return the keys and values of normalised ``x`` without any query."""
        return self._rotate(self._split(self._key(x)), phases), self._split(self._value(x))

    def cross(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return cached keys and values projected for the queries of a cross layer."""
        return self._split(self._key(key.flatten(2))), self._split(self._value(value.flatten(2)))

    def feed(self, x: Tensor) -> Tensor:
        """Return the MLP's output for normalised ``x``."""
        return self._mlp(x)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self._style.head_dim))

    def _rotate(self, x: Tensor, phases: Phases) -> Tensor:
        wide = x.to(phases[0].dtype) if self._style.is_rope_wide else x
        return rotate(wide, *phases).to(x.dtype)


KeysOf = Callable[[Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor]]
Projected = dict[int, tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Pass:
    """How a block of tokens runs through the layers.

    Attributes:
        cache: Keys and values of what came before; the block's own are appended.
        at: Row of the cache at which the block starts.
        phases: Cosine and sine of the block's positions, ``[batch or 1, tokens, 1, head_dim]``.
        mask: ``bool[batch or 1, tokens, at + tokens]``; None = the block sees everything.
        cross_phases, cross_mask: The same for cross layers, whose keys are the rows before ``at``.
        projected: Keys and values of the cross layers by slot; what is missing is computed.
        is_last_kv_only: The last layer only adds to the cache; its output is not to be used.
        split: What counts, without a mask; None where a mask is needed to say it.
        watch: Sees the queries and keys of every layer of self-attention, see ``cache.Watch``.
    """

    cache: Cache
    at: int
    phases: Phases
    mask: Tensor | None = None
    cross_phases: Phases | None = None
    cross_mask: Tensor | None = None
    projected: Projected | None = None
    is_last_kv_only: bool = False
    watch: Watch | None = None
    split: Split | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of a cache that a block sees: the first ones up to a number, and all from a row on.

    Attributes:
        end: Row from which on all count; earlier ones are the prefix.
        length: ``int32[1]`` rows of the prefix that count, on the device.
    """

    end: int
    length: Tensor


def run(
    layers: Sequence[Layer],
    x: Tensor,
    how: Pass,
    modulations: Sequence[Modulation] = (),
) -> Tensor:
    """Return ``x[batch, tokens, width]`` after all layers.

    Args:
        layers: In order.
        x: The block's tokens.
        how: Cache, positions and masks.
        modulations: Two for each layer where the norms are conditioned, else none.
    """
    mask = layers[0].see(how.mask, x.dtype)
    cross_mask = layers[0].see(how.cross_mask, x.dtype)
    for index, layer in enumerate(layers):
        first, second = modulations[2 * index : 2 * index + 2] or (None, None)
        normed = layer.norms[0](x, first)
        if how.is_last_kv_only and index == len(layers) - 1:
            how.cache.append(layer.slot, how.at, *layer.key_value(normed, how.phases))
            return x
        seen = cross_mask if layer.is_cross else mask
        x = _add(x, _attention(layer, normed, how, seen), first)
        x = _add(x, layer.feed(layer.norms[1](x, second)), second)
    return x


def _attention(layer: Layer, normed: Tensor, how: Pass, mask: Tensor | None) -> Tensor:
    if layer.is_cross:
        assert how.cross_phases is not None
        seen = cross_keys(layer, how)
        return layer.attend(normed, how.cross_phases, lambda *_: seen, mask)

    def grow(
        query: Tensor, key: Tensor | None, value: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        assert key is not None
        assert value is not None
        seen = how.cache.append(layer.slot, how.at, key, value)
        if how.watch is not None:
            how.watch(layer.slot, query, seen)
        return seen

    return layer.attend(normed, how.phases, grow, mask)


def cross_keys(layer: Layer, how: Pass) -> tuple[Tensor, Tensor]:
    """Return what a cross layer attends to: kept from before, or projected now."""
    if how.projected is not None and layer.slot in how.projected:
        return how.projected[layer.slot]
    return layer.cross(*how.cache.rows(layer.slot, how.at))


def _add(x: Tensor, branch: Tensor, modulation: Modulation | None) -> Tensor:
    if modulation is None:
        return x + branch
    return x + branch * modulation.gate.to(branch.dtype)
