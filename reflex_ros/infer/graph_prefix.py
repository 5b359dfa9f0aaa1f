"""Image tower and prefix over fixed buffers: one recording of the tower, one for each text length.

Texts of a bucket share a recording; what is behind the words is masked. Images of any size are
brought to that of the tower before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        with torch.inference_mode(), policy.placed():
            self._kv = network.new_cache(1, rows)
            self._valid = torch.zeros(1, rows, dtype=torch.bool)
            self._ids = torch.zeros(1, self._most, dtype=torch.long)
            side = network.sizes.image
            self._pixels = torch.zeros(1, 3, side, side, dtype=policy.wide)
            seen = network.embed_camera(self._pixels)
            self._tokens = torch.zeros_like(seen)
            self._views = torch.zeros_like(seen).repeat(1, len(policy.cameras), 1)

    @torch.inference_mode()
    def warm(self, cameras: int, lengths: Iterable[int]) -> None:
        """Record the tower, and prefixes of so many cameras and texts of so many tokens."""
        buckets = sorted({self._bucket(length) for length in lengths})
        self._valid.fill_(value=True)
        self.graphs.warm([
            ('image', self._see),
            *((('text', cameras, words), lambda words=words: self._encode(cameras, words))
              for words in buckets),
        ])  # fmt: skip

    @torch.inference_mode()
    def view(self, image: Tensor) -> Tensor:
        """Return the tokens ``[1, camera_tokens, width]`` of ``uint8[1, 3, height, width]``."""
        self._pixels.copy_(self._policy.pixels(image))
        self.graphs.run('image', self._see)
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

    def _see(self) -> None:
        with torch.inference_mode(), self._policy.placed():
            self._tokens.copy_(self._policy.network.embed_camera(self._pixels))

    def _encode(self, cameras: int, words: int) -> None:
        network = self._policy.network
        before = cameras * network.camera_tokens
        with torch.inference_mode(), self._policy.placed():
            text = network.embed_words(self._ids[:, :words])
            seen = self._views[:, :before]
            wide = torch.promote_types(seen.dtype, text.dtype)
            tokens = torch.cat((seen.to(wide), text.to(wide)), 1)
            network.encode(tokens, self._valid[:, : before + words], self._kv)
