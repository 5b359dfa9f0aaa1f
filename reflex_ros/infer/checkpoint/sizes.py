"""Sizes of a network: from the shapes of its tensors, never from a variant's name.

Head counts are only products in the shapes; they come from ``sizes.json``, ``vlm/config.json`` or
the known full sizes, and are checked against the shapes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import SMOLVLA, PretrainedConfig
from reflex_ros.infer.checkpoint.declared import SIZES, Declared, read_declared
from reflex_ros.infer.checkpoint.layout import Stacks, Symbolic, prefixes, symbolic_tensors
from reflex_ros.infer.checkpoint.tensors import Shape


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a network of any family.

    Attributes:
        vlm_width, vlm_mlp, depth, vocab: Of the language model.
        expert_width, expert_mlp, expert_depth: Of the action expert.
        heads, kv_heads, head_dim: Of the attention that both share.
        vision_width, vision_mlp, vision_depth, vision_heads: Of the image encoder.
        patch, image: Side of a patch and of an image, pixels.
        scale_factor: Patches joined to one token per side; 1 for pi0 and pi05.
    """

    vlm_width: int
    vlm_mlp: int
    expert_width: int
    expert_mlp: int
    depth: int
    expert_depth: int
    heads: int
    kv_heads: int
    head_dim: int
    vision_width: int
    vision_mlp: int
    vision_depth: int
    vision_heads: int
    patch: int
    image: int
    scale_factor: int
    vocab: int


SYMBOLS = (
    ('V', 'vision_width'), ('U', 'vision_mlp'), ('P', 'patch'), ('W', 'vlm_width'),
    ('M', 'vlm_mlp'), ('E', 'expert_width'), ('F', 'expert_mlp'), ('T', 'vocab'),
)  # fmt: skip
"""Symbols of the layout that are a size by themselves."""


def infer_sizes(shapes: Mapping[str, Shape], config: PretrainedConfig, folder: Path) -> Sizes:
    """Return the sizes of a network.

    A size is what most tensors say, so that one wrong tensor is reported by its own name later.

    Args:
        shapes: Shape of every stored tensor, by canonical name.
        config: Of the checkpoint.
        folder: Its folder, for ``sizes.json`` and ``vlm/config.json``.

    Raises:
        ModelError: A head count cannot be known (names the key to add), a declared size
            contradicts the tensors, or a part of the network is missing altogether.
    """
    declared = read_declared(folder, config)
    stacks = _stacks(shapes, config, declared)
    votes = _votes(shapes, symbolic_tensors(config.family, stacks))
    values = {name: _elected(votes, symbol, name, declared) for symbol, name in SYMBOLS}
    image = _image(votes, values['patch'], config, declared)
    scale = _scale(votes, values['vision_width'], config, declared)
    heads = _heads(votes, values, declared)
    return Sizes(
        **values, **heads, image=image, scale_factor=scale, depth=stacks.text,
        expert_depth=stacks.expert, vision_depth=stacks.vision,
    )  # fmt: skip


def _stacks(
    shapes: Mapping[str, Shape], config: PretrainedConfig, declared: Declared
) -> Stacks:
    at = prefixes(config.family)
    vision = declared.depth('vision_depth', _layers(shapes, f'{at.vision}encoder.'))
    text = declared.depth('depth', _layers(shapes, at.text))
    if config.family != SMOLVLA:
        return Stacks(vision, text, declared.depth('depth', text))
    if config.num_vlm_layers > 0:
        text = config.num_vlm_layers
    expert = config.num_expert_layers if config.num_expert_layers > 0 else text
    return Stacks(vision, text, expert, config.self_attn_every_n_layers)


def _layers(names: Iterable[str], at: str) -> int:
    """Return the number of layers of a stack: one more than the largest index."""
    pattern = re.compile(re.escape(at) + r'layers\.(\d+)\.')
    return max((int(m[1]) + 1 for name in names if (m := pattern.match(name))), default=0)


def _votes(
    shapes: Mapping[str, Shape], symbolic: Mapping[str, Symbolic]
) -> dict[str, Counter[int]]:
    """Return how many dimensions of stored tensors give each value of each symbol."""
    votes: dict[str, Counter[int]] = {}
    for name, dims in symbolic.items():
        for dim, size in zip(dims, shapes.get(name, ()), strict=False):
            if isinstance(dim, str) and len(dim) == 1:
                votes.setdefault(dim, Counter())[size] += 1
    return votes


def _top(votes: Mapping[str, Counter[int]], symbol: str, name: str, declared: Declared) -> int:
    if not votes.get(symbol):
        raise ModelError(
            f'checkpoint is incomplete {declared.folder} {name}: got no tensor that has this '
            'size, expected the tensors of a whole policy. Use a complete checkpoint.'
        )
    return votes[symbol].most_common(1)[0][0]


def _elected(
    votes: Mapping[str, Counter[int]], symbol: str, name: str, declared: Declared
) -> int:
    """Return a size: the declared one, unless several tensors agree and none has it."""
    top = _top(votes, symbol, name, declared)
    wanted = declared.get(name)
    if wanted is None:
        return top
    if wanted not in votes[symbol] and votes[symbol].total() > 2:
        raise declared.contradicts(name, top)
    return wanted


def _image(
    votes: Mapping[str, Counter[int]], patch: int, config: PretrainedConfig, declared: Declared
) -> int:
    """Return the side of an image: declared, of the configuration, or of the position table."""
    wanted = declared.get('image')
    if config.image_wh is not None:
        width, height = config.image_wh
        if width != height or wanted not in (None, width):
            raise ModelError(
                f'checkpoint contradicts itself {declared.folder} image size of config.json: got '
                f'{list(config.image_wh)}, expected a square of '
                f'{wanted or "one side"} (pixels). Use a complete checkpoint.'
            )
        wanted = width
    positions = _top(votes, 'N', 'image', declared)
    image = wanted or patch * math.isqrt(positions)
    if image % patch:
        raise ModelError(
            f'checkpoint contradicts itself {declared.folder} image: got {image}, expected a '
            f'multiple of the patch of {patch} (pixels). Use a complete checkpoint.'
        )
    return image


def _scale(
    votes: Mapping[str, Counter[int]], width: int, config: PretrainedConfig, declared: Declared
) -> int:
    """Return how many patches per side the connector joins."""
    if config.family != SMOLVLA:
        return 1
    wanted = declared.get('scale_factor')
    inputs = _top(votes, 'C', 'scale_factor', declared)
    return wanted or max(1, math.isqrt(inputs // width))


def _heads(
    votes: Mapping[str, Counter[int]], values: Mapping[str, int], declared: Declared
) -> dict[str, int]:
    queries, keys = (_top(votes, s, n, declared) for s, n in (('Q', 'heads'), ('K', 'kv_heads')))
    found = declared.heads(queries, keys, values)
    for size, width, name in (
        (found['heads'] * found['head_dim'], queries, 'heads * head_dim'),
        (found['kv_heads'] * found['head_dim'], keys, 'kv_heads * head_dim'),
    ):
        if size != width:
            raise declared.contradicts(name, width, got=size)
    for part, whole in (('kv_heads', found['heads']), ('vision_heads', values['vision_width'])):
        if whole % found[part]:
            raise declared.contradicts(part, f'a divisor of {whole}')
    return found


__all__ = ['SIZES', 'Sizes', 'infer_sizes']
