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
from reflex_ros.infer.checkpoint.declared import (
    KNOWN_DEPTHS,
    SIZES,
    Declared,
    read_declared,
)
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


@dataclass(frozen=True, slots=True)
class _Ballot:
    """How many dimensions of stored tensors give each value of each symbol.

    Attributes:
        votes: Count by value, by symbol.
        declared: Sizes of files, which win where the tensors are of two minds.
        missing: Tensors that are not stored, by symbol.
    """

    votes: Mapping[str, Counter[int]]
    declared: Declared
    missing: Mapping[str, tuple[str, ...]]

    def top(self, symbol: str) -> int:
        """Return what most tensors say.

        Raises:
            ModelError: No stored tensor has the size; names those that would.
        """
        if self.votes.get(symbol):
            return self.votes[symbol].most_common(1)[0][0]
        names = self.missing.get(symbol, ())
        raise ModelError(
            f'checkpoint is incomplete {self.declared.folder} tensor {", ".join(names[:4])}: got '
            'none, expected it, since its shape gives a size of the network. '
            'Use a complete checkpoint of this network.'
        )

    def elect(self, symbol: str, name: str) -> int:
        """Return the declared size, unless several tensors contradict it, else the top."""
        wanted = self.declared.get(name)
        if wanted is None:
            return self.top(symbol)
        votes = self.votes.get(symbol, Counter())
        if wanted not in votes and votes.total() > 2:
            raise self.declared.contradicts(name, wanted, self.top(symbol))
        return wanted


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
    ballot = _ballot(shapes, symbolic_tensors(config.family, stacks), declared)
    sizes = {name: ballot.elect(symbol, name) for symbol, name in SYMBOLS}
    found = Sizes(
        **sizes, **_heads(ballot, sizes), image=_image(ballot, sizes['patch'], config),
        scale_factor=_scale(ballot, sizes['vision_width'], config), depth=stacks.text,
        expert_depth=stacks.expert, vision_depth=stacks.vision,
    )  # fmt: skip
    _check_divisible(found, folder)
    return found


def _check_divisible(sizes: Sizes, folder: Path) -> None:
    """Refuse sizes that no network has: what is cut into equal parts must be a multiple."""
    for name, value, parts, why in (
        ('head_dim', sizes.head_dim, 2, 'a rotation turns pairs'),
        ('expert_width', sizes.expert_width, 2, 'a flow time is as many sines as cosines'),
        ('patches per side', sizes.image // sizes.patch, sizes.scale_factor,
         'scale_factor patches per side become one token'),
    ):  # fmt: skip
        if value % parts or not value:
            raise ModelError(
                f'checkpoint contradicts itself {folder} {name}: got {value}, expected a multiple '
                f'of {parts}, since {why}. Correct {SIZES} or use a complete checkpoint.'
            )


def _ballot(
    shapes: Mapping[str, Shape], symbolic: Mapping[str, Symbolic], declared: Declared
) -> _Ballot:
    votes: dict[str, Counter[int]] = {}
    missing: dict[str, tuple[str, ...]] = {}
    for name, dims in symbolic.items():
        plain = [(at, dim) for at, dim in enumerate(dims) if isinstance(dim, str) and len(dim) < 2]
        for at, dim in plain:
            if name not in shapes:
                missing[dim] = (*missing.get(dim, ()), name)
            elif len(shapes[name]) == len(dims) and shapes[name][at] > 0:
                votes.setdefault(dim, Counter())[shapes[name][at]] += 1
    return _Ballot(votes, declared, missing)


def _stacks(shapes: Mapping[str, Shape], config: PretrainedConfig, declared: Declared) -> Stacks:
    at = prefixes(config.family)
    found = tuple(_layers(shapes, stack) for stack in (f'{at.vision}encoder.', at.text, at.expert))
    vision_width = _width(shapes, f'{at.vision}post_layernorm.weight')
    known = KNOWN_DEPTHS.get((vision_width, _width(shapes, f'{at.text}norm.weight')), (0, 0))
    vision = declared.get('vision_depth') or known[0] or found[0]
    if config.family == SMOLVLA:
        text = _smolvla_depth(found[1], config, declared)
        return Stacks(vision, text, _expert_depth(text, config, declared),
                      config.self_attn_every_n_layers)  # fmt: skip
    depth = declared.get('depth')
    if depth is None:
        depth = known[1] or max(found[1:])
    elif found[1] == found[2] != depth:
        raise declared.contradicts('depth', depth, found[1])
    return Stacks(vision, depth, depth)


def _smolvla_depth(found: int, config: PretrainedConfig, declared: Declared) -> int:
    """Return the layers of the language model: of those it has, as many as are kept."""
    whole = declared.get('depth') or declared.model.get('depth')
    kept = config.num_vlm_layers
    if whole is None:
        return kept if kept > 0 else found
    depth = min(kept, whole) if kept > 0 else whole
    if found != depth and declared.get('depth') is not None:
        if depth != whole:
            raise ModelError(
                f'checkpoint contradicts itself {declared.folder / "config.json"} num_vlm_layers: '
                f'got {kept}, expected {found} (from the shapes of the tensors). Use a complete '
                'checkpoint.'
            )
        raise declared.contradicts('depth', whole, found)
    return depth


def _expert_depth(text: int, config: PretrainedConfig, declared: Declared) -> int:
    if config.num_expert_layers <= 0:
        return text
    if text % config.num_expert_layers:
        raise ModelError(
            f'checkpoint contradicts itself {declared.folder / "config.json"} num_expert_layers: '
            f'got {config.num_expert_layers}, expected a divisor of the {text} layers of the '
            'language model. Use a complete checkpoint.'
        )
    return config.num_expert_layers


def _width(shapes: Mapping[str, Shape], name: str) -> int:
    return next(iter(shapes.get(name, ())), 0)


def _layers(names: Iterable[str], at: str) -> int:
    """Return the number of layers of a stack: one more than the largest index."""
    pattern = re.compile(re.escape(at) + r'layers\.(\d{1,4})\.')
    return max((int(m[1]) + 1 for name in names if (m := pattern.match(name))), default=0)


def _image(ballot: _Ballot, patch: int, config: PretrainedConfig) -> int:
    """Return the side of an image: declared, of the configuration, or of the position table."""
    wanted, folder = ballot.declared.get('image'), ballot.declared.folder
    if config.image_wh is not None:
        width, height = config.image_wh
        if width != height or wanted not in (None, width):
            raise ModelError(
                f'checkpoint contradicts itself {folder / "config.json"} image size: got '
                f'{width} x {height}, expected a square'
                f'{f" of {wanted} ({SIZES})" if wanted else ""} (pixels). '
                'Use a complete checkpoint.'
            )
        wanted = width
    image = wanted or patch * math.isqrt(ballot.top('N'))
    if image % patch:
        raise ModelError(
            f'checkpoint contradicts itself {folder} image size: got {image}, expected a '
            f'multiple of the patch of {patch} (pixels). Use a complete checkpoint.'
        )
    return image


def _scale(ballot: _Ballot, width: int, config: PretrainedConfig) -> int:
    """Return how many patches per side the connector joins."""
    if config.family != SMOLVLA:
        return 1
    return ballot.declared.get('scale_factor') or max(1, math.isqrt(ballot.top('C') // width))


def _heads(ballot: _Ballot, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the head counts, checked against the shapes."""
    declared = ballot.declared
    queries, keys = ballot.top('Q'), ballot.top('K')
    found = declared.heads(queries, keys, sizes)
    for name, rows in (('heads', queries), ('kv_heads', keys)):
        if found[name] * found['head_dim'] != rows:
            got = found[name] * found['head_dim']
            raise declared.contradicts(f'{name} * head_dim', got, rows)
    for name, whole in (('kv_heads', found['heads']), ('vision_heads', sizes['vision_width'])):
        if whole % found[name]:
            raise declared.contradicts(name, found[name], f'a divisor of {whole}')
    return found
