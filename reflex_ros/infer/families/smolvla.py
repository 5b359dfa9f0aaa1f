"""SmolVLA: a causal expert that reads the language model in alternate ways, layer by layer."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.core.errors import ModelError
from reflex_ros.infer import flow
from reflex_ros.infer.cache import PARTITIONED, StaticCache
from reflex_ros.infer.compute import DEFAULT, Compute
from reflex_ros.infer.decoder import Layer, Norm, Pass, Projected, Style
from reflex_ros.infer.families.action_tokens import ActionTokens
from reflex_ros.infer.fp8 import prefix_weights
from reflex_ros.infer.passes import LayerPass, kernels_named
from reflex_ros.infer.snapshot import (
    Positions,
    Prefix,
    empty_cache,
    is_aligned,
    run_prefix,
    suffix_cache,
    whole_tiles,
)
from reflex_ros.infer.vision import Siglip, pixel_shuffle
from reflex_ros.infer.weights import Linear, Weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reflex_ros.infer.checkpoint.config import PretrainedConfig
    from reflex_ros.infer.checkpoint.sizes import Sizes
    from reflex_ros.infer.reuse import Reuse

EPS = 1e-5


class SmolVla:
    """Network of a SmolVLA checkpoint, see ``snapshot.SnapshotNetwork``.

    Each part is built when it is first used, as in ``PaliGemma``.

    Args:
        tensors: Weights by canonical name, in the types of ``plan.CastWeights``.
        sizes: Of the checkpoint.
        reuse, compute: Switches.
        config: Configuration of the checkpoint.

    Raises:
        ModelError: The layers of expert and language model cannot be paired.
    """

    state_rows = 1
    is_state_in_prefix = True

    def __init__(
        self, tensors: Mapping[str, Tensor], sizes: Sizes, reuse: Reuse, config: PretrainedConfig,
        compute: Compute = DEFAULT,
    ) -> None:  # fmt: skip
        root, weights = Weights(tensors, 'vlm_with_expert.'), Weights(tensors)
        vlm, expert = root.at('vlm.model'), root.at('lm_expert')
        style = Style(
            sizes.heads, sizes.kv_heads, sizes.head_dim, eps=EPS, weight_offset=0.0,
            activation=F.silu, is_rope_wide=True, packed=reuse.packed, fused=reuse.fused,
        )  # fmt: skip
        self._parts, self._expert, self._style = vlm, expert, style
        self._every = config.self_attn_every_n_layers
        self._words = vlm['text_model.embed_tokens.weight']
        check_pairs(sizes)
        check_projections(expert, sizes, self._every)
        self.state_in = weights.linear('state_proj')
        self.tokens = ActionTokens(weights, config)
        self.velocity_out = weights.linear('action_out_proj')
        self.sizes, self.reuse, self.compute = sizes, reuse, compute
        self.chunk = config.chunk_size
        side = sizes.image // sizes.patch
        self.expert_pass = LayerPass(
            lambda: self.expert, traced=reuse.traced,
            kernels=kernels_named(compute.kernels, self._words),
        )  # fmt: skip
        self._state_pass = LayerPass(lambda: self._vlm, traced=reuse.traced)
        self.camera_tokens = (side // sizes.scale_factor) ** 2
        self.positions = Positions(
            sizes.head_dim, torch.promote_types(self._words.dtype, torch.float32)
        )

    @cached_property
    def _camera(self) -> tuple[Siglip, Linear]:
        sizes, parts = self.sizes, self._parts
        tower = Siglip(
            parts.at('vision_model'),
            layers=sizes.vision_depth, heads=sizes.vision_heads, patch=sizes.patch,
        )  # fmt: skip
        return tower, parts.linear('connector.modality_projection.proj')

    @cached_property
    def _vlm(self) -> tuple[Layer, ...]:
        style = self._style
        parts = prefix_weights(self._parts.at('text_model'), is_fp8=self.compute.fp8_prefix)
        return tuple(
            Layer(parts.at(f'layers.{i}'), style, slot=i, is_cross=False)
            for i in range(self.sizes.depth)
        )

    @cached_property
    def expert(self) -> tuple[Layer, ...]:
        """Layers of the action expert, each with the language model's layer that it reads."""
        stride = self.sizes.depth // self.sizes.expert_depth
        slots = range(0, self.sizes.depth, stride)
        return tuple(
            Layer(
                self._expert.at(f'layers.{i}'), self._style, slot=slot,
                is_cross=self._every <= 0 or slot % self._every > 0,
            )
            for i, slot in enumerate(slots)
        )  # fmt: skip

    @cached_property
    def expert_norm(self) -> Norm:
        """Last norm of the action expert."""
        return Norm(self._expert.at('norm'), self._style)

    @property
    def dtype(self) -> torch.dtype:
        """Type of activations, keys and values."""
        return self._words.dtype

    def embed_camera(self, pixels: Tensor) -> Tensor:
        """Return ``[batch, camera_tokens, width]``, scaled by sqrt(width)."""
        tower, connector = self._camera
        tokens = connector(pixel_shuffle(tower(pixels), self.sizes.scale_factor))
        return tokens * tokens.shape[-1] ** 0.5

    def embed_words(self, ids: Tensor) -> Tensor:
        """Return ``[batch, tokens, width]``: rows of the table times sqrt(width)."""
        return self._words[ids] * self._words.shape[1] ** 0.5

    def new_cache(self, batch: int, rows: int) -> Tensor:
        """Return an empty cache."""
        return empty_cache(self.sizes, batch, rows, self.dtype)

    def encode(
        self, tokens: Tensor, valid: Tensor | None, kv: Tensor, state: Tensor | None = None
    ) -> Prefix:
        """Run images and language through the language model: one bidirectional block.

        Without ``state_once`` the state's token follows in the same pass, as a block of its own.
        """
        opens = None
        if state is not None and not self.reuse.state_once:
            tokens = torch.cat((tokens, self.state_in(state)[:, None].to(tokens.dtype)), 1)
            valid = None if valid is None else F.pad(valid, (0, 1), value=True)
            opens = torch.arange(tokens.shape[1]) == tokens.shape[1] - 1
        return run_prefix(
            self._vlm, tokens.to(self.dtype), valid, kv,
            positions=self.positions, reuse=self.reuse, opens=opens,
        )  # fmt: skip

    def add_state(self, prefix: Prefix, state: Tensor) -> Prefix:
        """Return the prefix with the state's row behind it: it sees all, nothing before sees it.

        One token through the language model; images and language stay as they are.
        """
        how = Pass(
            StaticCache(prefix.kv), prefix.length,
            self.positions(prefix.counts()[:, None], below=prefix.length + 1),
            mask=prefix.seen_by(1, None), is_last_kv_only=self.reuse.last_layer_kv,
        )  # fmt: skip
        self._state_pass(self.state_in(state)[:, None].to(self.dtype), how)
        valid = None if prefix.valid is None else F.pad(prefix.valid, (0, 1), value=True)
        return Prefix(prefix.kv, prefix.length + 1, valid, has_state=True)

    def prepare(
        self, prefix: Prefix, state: Tensor, num_steps: int, *, cache: str = PARTITIONED
    ) -> SmolVlaDenoiser:
        """Return the velocity field on a prefix; the state's block is added if it lacks it."""
        whole = prefix if prefix.has_state else self.add_state(prefix, state)
        return SmolVlaDenoiser(self, whole, num_steps, cache=cache)


def check_pairs(sizes: Sizes) -> None:
    """Refuse stacks whose layers cannot be paired.

    Raises:
        ModelError: The depth of the language model is no multiple of the expert's.
    """
    if sizes.expert_depth < 1 or sizes.depth % sizes.expert_depth:
        raise ModelError(
            f'layers cannot be paired: got {sizes.expert_depth} of the expert, expected a divisor '
            f'of {sizes.depth}. Use a complete checkpoint.'
        )


def check_projections(expert: Weights, sizes: Sizes, every: int) -> None:
    """Refuse an expert layer that is to read its own input and has no projection for it.

    The exporter replaces projections by the number of the expert's layer, and chooses the kind of
    attention by that of the language model: with fewer layers in the expert the two may differ.

    Args:
        expert: Weights of the expert. sizes: Of the checkpoint.
        every: Every n-th layer of the language model is read by self-attention.

    Raises:
        ModelError: Names the layer.
    """
    stride = sizes.depth // sizes.expert_depth
    for i in range(sizes.expert_depth) if every > 0 else ():
        if i % every == 0 or i * stride % every:
            continue
        columns = expert[f'layers.{i}.self_attn.k_proj.weight'].shape[1]
        if columns != sizes.expert_width:
            raise ModelError(
                f'layers cannot be paired, layer {i} of {sizes.expert_depth} of the expert: got a '
                f'key projection of {columns} columns, expected {sizes.expert_width} for '
                f'self-attention (self_attn_every_n_layers {every}, {sizes.depth} layers in the '
                'language model). Use a checkpoint that its exporter can run.'
            )


class SmolVlaDenoiser:
    """Velocity field of one call, see ``snapshot.Denoiser``. Actions see earlier actions only."""

    def __init__(self, network: SmolVla, prefix: Prefix, num_steps: int, *, cache: str) -> None:
        self._network, self._taus = network, flow.taus(num_steps)
        self._table = network.tokens.table(self._taus) if network.reuse.time_table else None
        rows = torch.arange(network.chunk)
        causal = rows[:, None] >= rows[None, :]
        aligned = is_aligned(network.reuse, cache, network.dtype)
        at = prefix.start(network.chunk, is_aligned=aligned)
        end = at
        if network.reuse.cross_kv and at > prefix.length:
            end = whole_tiles(prefix.length)
        seen = prefix.seen(end)
        self._how = Pass(
            suffix_cache(prefix, network.reuse, cache), at,
            network.positions(prefix.counts()[:, None] + rows,
                              below=prefix.length + network.chunk),
            mask=prefix.seen_by(network.chunk, causal, at),
            cross_phases=network.positions(rows[None], below=network.chunk),
            cross_mask=None if seen is None else seen[:, None].expand(-1, network.chunk, -1),
            projected=self._project(prefix, end) if network.reuse.cross_kv else None,
        )  # fmt: skip

    def _project(self, prefix: Prefix, end: int) -> Projected:
        cache = StaticCache(prefix.kv)
        return {
            layer.slot: layer.cross(*cache.rows(layer.slot, end))
            for layer in self._network.expert
            if layer.is_cross
        }

    def velocity(self, x: Tensor, k: int) -> Tensor:
        """Return the velocity of noisy actions ``x[batch, chunk, max_action_dim]`` at step k."""
        network = self._network
        added = None if self._table is None else self._table[k]
        block = network.tokens(x, self._taus[k], added).to(network.dtype)
        out = network.expert_norm(network.expert_pass(block, self._how))
        return network.velocity_out(out)
