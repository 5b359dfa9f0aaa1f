"""The image tower of the three families: SigLIP, and SmolVLA's pixel shuffle behind it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.infer.weights import Weights

LAYER_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Layer normalisation with weight and bias over the last axis."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weights: Weights) -> LayerNorm:
        """Return the norm of ``weight`` and ``bias`` below ``weights``."""
        return cls(weights['weight'], weights['bias'])

    def __call__(self, x: Tensor) -> Tensor:
        """Return the normalised ``x[..., width]``."""
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, LAYER_NORM_EPS)


class SiglipLayer:
    """Pre-norm encoder layer with full attention; ``x[batch, patches, width]``."""

    def __init__(self, weights: Weights, heads: int) -> None:
        attention, mlp = weights.at('self_attn'), weights.at('mlp')
        names = ('layer_norm1', 'layer_norm2')
        self._first, self._second = (LayerNorm.of(weights.at(name)) for name in names)
        self._qkv = attention.packed('q_proj', 'k_proj', 'v_proj')
        self._out = attention.linear('out_proj')
        self._in, self._down = mlp.linear('fc1'), mlp.linear('fc2')
        self._heads = heads

    def __call__(self, x: Tensor) -> Tensor:
        """Return the layer's output, same shape."""
        x = x + self._attend(self._first(x))
        return x + self._down(F.gelu(self._in(self._second(x)), approximate='tanh'))

    def _attend(self, x: Tensor) -> Tensor:
        batch, patches, width = x.shape
        qkv = self._qkv(x).view(batch, patches, 3, self._heads, width // self._heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self._out(mixed.transpose(1, 2).reshape(batch, patches, width))


class Siglip:
    """SigLIP without its pooling head.

    Args:
        weights: ``vision_model`` of a checkpoint.
        layers, heads: Depth and heads per layer.
        patch: Side of a patch, pixels.
    """

    def __init__(self, weights: Weights, *, layers: int, heads: int, patch: int) -> None:
        embeddings = weights.at('embeddings')
        self._kernel = embeddings.linear('patch_embedding')
        self._positions = embeddings['position_embedding.weight']
        self._layers = tuple(
            SiglipLayer(weights.at(f'encoder.layers.{i}'), heads) for i in range(layers)
        )
        self._norm = LayerNorm.of(weights.at('post_layernorm'))
        self._patch = patch

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return ``[batch, patches, width]`` of ``pixels[batch, 3, side, side]`` in [-1, 1].

        Patches are numbered row by row.
        """
        kernel = self._kernel
        tiles = F.conv2d(pixels, kernel.weight, kernel.bias, stride=self._patch)
        x = tiles.flatten(2).transpose(1, 2) + self._positions
        for layer in self._layers:
            x = layer(x)
        return self._norm(x)


def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    """Return ``[batch, patches / factor^2, width * factor^2]``: blocks of patches become channels.

    Channels of a token: row in the block first, then column in the block, then ``width``.
    """
    batch, patches, width = x.shape
    blocks = round(patches**0.5) // factor
    tiles = x.reshape(batch, blocks, factor, blocks, factor, width).permute(0, 1, 3, 2, 4, 5)
    return torch.reshape(tiles, (batch, blocks * blocks, factor * factor * width))
