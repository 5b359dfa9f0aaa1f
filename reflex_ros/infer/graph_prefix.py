"""Image tower and prefix over fixed buffers: a recording for each kind of image and text length.

Texts of a bucket share a recording; what is behind the words is masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.snapshot import TILE, Prefix

if TYPE_CHECKING:
    from reflex_ros.infer.graph import Graphs
    from reflex_ros.infer.policy import SnapshotPolicy

WORDS = TILE
"""Tokens by which the buckets of texts differ."""


class GraphedEncoder:
    """Views and prefixes of one checkpoint, batch of one. Not thread-safe.

    Args:
        policy: The checkpoint.
        graphs: Holds the recordings.
        words: Tokens by which the buckets of texts differ.
    """

    def __init__(self, policy: SnapshotPolicy, graphs: Graphs, *, words: int = WORDS) -> None:
        self.graphs, self._policy, self._words = graphs, policy, words
        network, most = policy.network, policy.processing.tokenizer.max_length
        self._most = -(-most // words) * words
        rows = len(policy.cameras) * network.camera_tokens + self._most
        self._images: dict[tuple[int, ...], Tensor] = {}
        with torch.inference_mode(), policy.placed():
            self._kv = network.new_cache(1, rows)
            self._valid = torch.zeros(1, rows, dtype=torch.bool)
            self._ids = torch.zeros(1, self._most, dtype=torch.long)
            seen = policy.view(self._image((3, network.sizes.image, network.sizes.image)))
            self._tokens = torch.zeros_like(seen)
            self._views = torch.zeros_like(seen).repeat(1, len(policy.cameras), 1)

    @torch.inference_mode()
    def warm(self, image_hw: Sequence[tuple[int, int]], lengths: Sequence[int]) -> None:
        """Record images of these heights and widths, and texts of these numbers of tokens."""
        images = sorted({(3, *hw) for hw in image_hw})
        cameras = len(self._policy.cameras)
        buckets = sorted({self._bucket(length) for length in lengths})
        self._valid.fill_(value=True)
        self.graphs.warm([
            *((('image', shape), lambda shape=shape: self._see(shape)) for shape in images),
            *((('text', cameras, words), lambda words=words: self._encode(cameras, words))
              for words in buckets),
        ])  # fmt: skip

    @torch.inference_mode()
    def view(self, image: Tensor) -> Tensor:
        """Return the tokens ``[1, camera_tokens, width]`` of ``uint8[1, 3, height, width]``."""
        shape = tuple(image.shape[1:])
        self._image(shape).copy_(image)
        self.graphs.run(('image', shape), lambda: self._see(shape))
        return self._tokens.clone()

    @torch.inference_mode()
    def encode(self, views: Mapping[str, Tensor], ids: Sequence[int], *, out: Tensor) -> Prefix:
        """Write the prefix of views and words into ``out`` and return it.

        Args:
            views: Of ``view``, by camera, in the checkpoint's order.
            ids: Token ids.
            out: ``[layers, 2, 1, rows, kv_heads, head_dim]``.
        """
        words = self._bucket(len(ids))
        seen = torch.cat(list(views.values()), 1)
        before = seen.shape[1]
        length = before + len(ids)
        self._views[:, :before].copy_(seen)
        self._ids[:, : len(ids)].copy_(torch.tensor(ids, dtype=torch.long)[None])
        self._ids[:, len(ids) :] = 0
        self._valid[:, :length] = True
        self._valid[:, length:] = False
        self.graphs.run(('text', len(views), words), lambda: self._encode(len(views), words))
        out[:, :, :, :length].copy_(self._kv[:, :, :, :length])
        return Prefix(out, length)

    def _bucket(self, tokens: int) -> int:
        if not 0 < tokens <= self._most:
            raise ConfigError(f'text cannot be encoded: got {tokens} tokens, expected 1 to '
                              f'{self._most} (tokens). Shorten it.')
        return -(-tokens // self._words) * self._words

    def _image(self, shape: tuple[int, ...]) -> Tensor:
        if shape not in self._images:
            with torch.inference_mode(), self._policy.placed():
                self._images[shape] = torch.zeros(1, *shape, dtype=torch.uint8)
        return self._images[shape]

    def _see(self, shape: tuple[int, ...]) -> None:
        with torch.inference_mode():
            self._tokens.copy_(self._policy.view(self._image(shape)))

    def _encode(self, cameras: int, words: int) -> None:
        network = self._policy.network
        before = cameras * network.camera_tokens
        with torch.inference_mode(), self._policy.placed():
            text = network.embed_words(self._ids[:, :words])
            seen = self._views[:, :before]
            wide = torch.promote_types(seen.dtype, text.dtype)
            tokens = torch.cat((seen.to(wide), text.to(wide)), 1)
            network.encode(tokens, self._valid[:, : before + words], self._kv)
