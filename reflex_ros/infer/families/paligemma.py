"""What Pi0 and Pi0.5 share: image tower, language model, action expert and the prefix pass."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reflex_ros.infer.compute import DEFAULT, Compute
from reflex_ros.infer.decoder import Layer, Norm, Style, gelu_tanh
from reflex_ros.infer.fp8 import prefix_weights
from reflex_ros.infer.passes import LayerPass, kernels_named
from reflex_ros.infer.snapshot import Positions, Prefix, empty_cache, run_prefix
from reflex_ros.infer.vision import Siglip
from reflex_ros.infer.weights import Linear, Weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reflex_ros.infer.checkpoint.sizes import Sizes
    from reflex_ros.infer.reuse import Reuse

EPS = 1e-6


class PaliGemma:
    """SigLIP, projector and the two Gemma stacks.

    Each part is built when it is first used: a process that only encodes, or only denoises, never
    converts or packs the other's weights.

    Args:
        tensors: Weights by canonical name, in the types of ``plan.CastWeights``.
        sizes: Of the checkpoint.
        reuse, compute: Switches.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], sizes: Sizes, reuse: Reuse,
        compute: Compute = DEFAULT,
    ) -> None:  # fmt: skip
        root = Weights(tensors, 'paligemma_with_expert.')
        vlm, expert = root.at('paligemma.model'), root.at('gemma_expert.model')
        style = Style(
            sizes.heads, sizes.kv_heads, sizes.head_dim, eps=EPS, weight_offset=1.0,
            activation=gelu_tanh, is_rope_wide=False, packed=reuse.packed, fused=reuse.fused,
        )  # fmt: skip
        self._parts, self._expert, self._style = vlm, expert, style
        self._words = vlm['language_model.embed_tokens.weight']
        self._scale = torch.tensor(self._words.shape[1] ** 0.5, dtype=self._words.dtype)
        self.sizes, self.reuse, self.compute = sizes, reuse, compute
        self.expert_pass = LayerPass(
            lambda: self.expert, traced=reuse.traced,
            kernels=kernels_named(compute.kernels, self._words),
        )  # fmt: skip
        self.camera_tokens = (sizes.image // sizes.patch) ** 2
        # the reference rounds its frequencies with the weights; trained so, they must stay so
        is_half = self._words.dtype is torch.bfloat16
        self.positions = Positions(
            sizes.head_dim, self._words.dtype,
            rate_dtype=torch.bfloat16 if is_half else torch.float64,
        )  # fmt: skip

    @cached_property
    def _camera(self) -> tuple[Siglip, Linear]:
        sizes, parts = self.sizes, self._parts
        tower = Siglip(
            parts.at('vision_tower.vision_model'),
            layers=sizes.vision_depth, heads=sizes.vision_heads, patch=sizes.patch,
        )  # fmt: skip
        return tower, parts.linear('multi_modal_projector.linear')

    @cached_property
    def vlm(self) -> tuple[Layer, ...]:
        """Layers of the language model."""
        parts = prefix_weights(
            self._parts.at('language_model'), is_fp8=self.compute.fp8_prefix)
        return _stack(parts, self.sizes.depth, self._style)

    @cached_property
    def expert(self) -> tuple[Layer, ...]:
        """Layers of the action expert."""
        return _stack(self._expert, self.sizes.expert_depth, self._style)

    @cached_property
    def expert_norm(self) -> Norm:
        """Last norm of the action expert."""
        return Norm(self._expert.at('norm'), self._style)

    @property
    def dtype(self) -> torch.dtype:
        """Type of activations, keys and values."""
        return self._words.dtype

    def embed_camera(self, pixels: Tensor) -> Tensor:
        """Return ``[batch, camera_tokens, width]``, in the type of the tower, not scaled."""
        tower, projector = self._camera
        return projector(tower(pixels))

    def embed_words(self, ids: Tensor) -> Tensor:
        """Return ``[batch, tokens, width]``: rows of the table times sqrt(width)."""
        return self._words[ids] * self._scale

    def new_cache(self, batch: int, rows: int) -> Tensor:
        """Return an empty cache."""
        return empty_cache(self.sizes, batch, rows, self.dtype)

    def encode(
        self, tokens: Tensor, valid: Tensor | None, kv: Tensor, state: Tensor | None = None
    ) -> Prefix:
        """Run images and language through the language model: one bidirectional block."""
        return run_prefix(
            self.vlm, tokens.to(self.dtype), valid, kv,
            positions=self.positions, reuse=self.reuse,
        )  # fmt: skip


def _stack(weights: Weights, depth: int, style: Style) -> tuple[Layer, ...]:
    return tuple(
        Layer(weights.at(f'layers.{i}'), style, slot=i, is_cross=False) for i in range(depth)
    )
