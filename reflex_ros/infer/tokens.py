"""The token sequence of a prefix, compact or with every pad that the reference carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from reflex_ros.infer.checkpoint.config import PretrainedConfig
    from reflex_ros.infer.snapshot import SnapshotNetwork

ABSENT_PIXEL = -1.0


@dataclass(frozen=True, slots=True)
class Padding:
    """What the reference's layout adds to the tokens that count.

    Attributes:
        absent_cameras: Masked cameras behind the present ones.
        words: Tokens that the language block is padded to.
        total: Tokens that the whole prefix is padded to, 0 = none.
    """

    absent_cameras: int
    words: int
    total: int = 0


def reference_padding(
    config: PretrainedConfig, cameras: int, ids: Sequence[Sequence[int]]
) -> Padding:
    """Return the padding of the reference for a batch.

    A declared camera that is absent is a masked one, in every family.

    Args:
        config: Of the checkpoint.
        cameras: Cameras that are present.
        ids: Token ids of each row, without padding.
    """
    missing = len(config.cameras) - cameras
    longest = max(len(row) for row in ids)
    if config.family != 'smolvla':
        return Padding(missing, config.tokenizer_max_length)
    fixed = config.pad_language_to == 'max_length'
    words = config.tokenizer_max_length if fixed else longest
    return Padding(missing, words, max(0, config.prefix_length))


def compact_tokens(
    network: SnapshotNetwork, views: Mapping[str, Tensor], ids: Sequence[int]
) -> Tensor:
    """Return ``[1, tokens, width]`` of one observation: what counts and nothing else.

    Args:
        network: Embeds the words.
        views: ``[1, camera_tokens, width]`` of the cameras that are present, in order.
        ids: Token ids.
    """
    words = network.embed_words(torch.tensor([list(ids)], dtype=torch.long))
    return torch.cat([*views.values(), words.to(_common(views, words))], 1)


def padded_tokens(
    network: SnapshotNetwork,
    views: Mapping[str, Tensor],
    ids: Sequence[Sequence[int]],
    *,
    padding: Padding,
) -> tuple[Tensor, Tensor]:
    """Return tokens ``[batch, length, width]`` and which count, ``bool[batch, length]``."""
    lengths = torch.tensor([len(row) for row in ids])
    table = torch.zeros(len(ids), padding.words, dtype=torch.long)
    for row, values in enumerate(ids):
        table[row, : len(values)] = torch.tensor(list(values))
    words = network.embed_words(table)
    blocks = [*views.values(), *_absent(network, views, padding.absent_cameras)]
    tokens = torch.cat([*blocks, words.to(_common(views, words))], 1)
    return tokens, padded_valid(network.camera_tokens, len(views), lengths, padding=padding)


def padded_valid(
    camera_tokens: int, cameras: int, lengths: Tensor, *, padding: Padding
) -> Tensor:
    """Return which tokens of the reference's layout count, ``bool[batch, length]``.

    Args:
        camera_tokens: Tokens of one camera.
        cameras: Cameras that are present.
        lengths: ``int64[batch]`` words of each row.
        padding: Of the reference.
    """
    count = torch.arange(padding.words)[None] < lengths[:, None]
    shape = len(lengths), camera_tokens
    shown = torch.ones(shape, dtype=torch.bool).repeat(1, cameras)
    hidden = torch.zeros(shape, dtype=torch.bool).repeat(1, padding.absent_cameras)
    return torch.cat((shown, hidden, count), 1)


def _absent(network: SnapshotNetwork, views: Mapping[str, Tensor], count: int) -> list[Tensor]:
    if not count:
        return []
    batch = len(next(iter(views.values())))
    side = network.sizes.image
    black = torch.full((1, 3, side, side), ABSENT_PIXEL, dtype=next(iter(views.values())).dtype)
    return [network.embed_camera(black).expand(batch, -1, -1)] * count


def _common(views: Mapping[str, Tensor], words: Tensor) -> torch.dtype:
    """Return the type in which image and word tokens are joined."""
    return torch.promote_types(next(iter(views.values())).dtype, words.dtype)
