"""Sizes that files beside the weights declare, and the known full sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import SMOLVLA, PretrainedConfig, read_json
from reflex_ros.infer.checkpoint.fields import LARGEST, MOST_LAYERS, Fields

SIZES, VLM = 'sizes.json', 'vlm/config.json'
HEADS = ('heads', 'kv_heads', 'head_dim', 'vision_heads')
ALIASES = MappingProxyType({'width': 'vlm_width', 'mlp': 'vlm_mlp'})
"""Keys of SmolVLA by their common names."""
KEYS = (
    'vlm_width', 'vlm_mlp', 'expert_width', 'expert_mlp', 'depth', 'vision_width', 'vision_mlp',
    'vision_depth', 'patch', 'image', 'scale_factor', 'vocab', *HEADS,
)  # fmt: skip
TEXT_KEYS = (
    ('heads', 'num_attention_heads'), ('kv_heads', 'num_key_value_heads'),
    ('head_dim', 'head_dim'), ('depth', 'num_hidden_layers'),
)  # fmt: skip
KNOWN_VISION_HEADS = MappingProxyType({1152: 16, 768: 12})
"""Heads of the full image encoders, by width."""
KNOWN_DEPTHS = MappingProxyType({(1152, 2048): (27, 18), (768, 960): (12, 0)})
"""Layers of image encoder and language model of the full networks, by the widths of both; 0 = the
configuration says. A file that lacks the last layers is then not taken for a smaller network."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What the files of a folder say of the sizes.

    Attributes:
        folder: Named in messages. family: Of the checkpoint.
        values: Sizes of ``sizes.json``, by their common names.
        model: Head counts and layers of ``vlm/config.json``, where there is one.
    """

    folder: Path
    family: str
    values: Mapping[str, int]
    model: Mapping[str, int]

    def get(self, name: str) -> int | None:
        """Return a size of ``sizes.json``."""
        return self.values.get(name)

    def contradicts(self, name: str, got: object, expected: object) -> ModelError:
        """Return the error for a size that the tensors do not have."""
        keys = set(name.split(' * '))
        file = SIZES if keys & set(self.values) else VLM if keys & set(self.model) else ''
        return ModelError(
            f'checkpoint contradicts itself {self.folder / file} {name}: got {got}, expected '
            f'{expected} (from the shapes of the tensors). Correct this file or use a complete '
            'checkpoint.'
        )

    def heads(self, queries: int, keys: int, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the head counts.

        Args:
            queries, keys: Rows of all query and of all key heads.
            sizes: Sizes found so far.

        Raises:
            ModelError: A count is neither declared nor known; names its key.
        """
        known = _known_attention(self.family, sizes['vlm_width'], queries, keys)
        found = dict(zip(HEADS, known, strict=False))
        if (vision := KNOWN_VISION_HEADS.get(sizes['vision_width'])) is not None:
            found['vision_heads'] = vision
        found |= self.model
        found |= {name: self.values[name] for name in HEADS if name in self.values}
        if missing := [name for name in HEADS if name not in found]:
            raise ModelError(
                f'head counts are not known {self.folder / SIZES} {missing[0]}: got no value, '
                f'expected the keys {", ".join(missing)}, since shapes give only products '
                f'({queries} query rows, {keys} key rows, vision width {sizes["vision_width"]}). '
                'Add this file with the keys.'
            )
        return {name: found[name] for name in HEADS}


def _known_attention(family: str, width: int, queries: int, keys: int) -> tuple[int, ...]:
    """Return heads, key heads and head size of a full size, else nothing."""
    if family == SMOLVLA:
        return (15, 5, 64) if (width, queries, keys) == (960, 960, 320) else ()
    return (8, 1, 256) if (queries, keys) == (2048, 256) else ()


def read_declared(folder: Path, config: PretrainedConfig) -> Declared:
    """Return what ``sizes.json`` and ``vlm/config.json`` of a folder say.

    Raises:
        ModelError: A file is no JSON object, or a size is no positive whole number.
    """
    values: dict[str, int] = {}
    file = folder / SIZES
    if file.is_file():
        fields = Fields(file, read_json(file))
        for key in fields.content:
            name = ALIASES.get(key, key)
            if name in KEYS:
                values[name] = fields.integer(key, 0, low=1, high=_most(name))
    model = _model(folder / VLM) if config.family == SMOLVLA else {}
    return Declared(folder, config.family, MappingProxyType(values), MappingProxyType(model))


def _most(name: str) -> int:
    return MOST_LAYERS if name.endswith('depth') else LARGEST


def _model(file: Path) -> dict[str, int]:
    """Return head counts and layers of the language model's own configuration."""
    if not file.is_file():
        return {}
    fields = Fields(file, read_json(file))
    text = Fields(file, fields.mapping('text_config'), 'text_config.')
    vision = Fields(file, fields.mapping('vision_config'), 'vision_config.')
    found = {n: text.integer(key, 0, low=1, high=_most(n))
             for n, key in TEXT_KEYS if text.has(key)}  # fmt: skip
    if vision.has('num_attention_heads'):
        found['vision_heads'] = vision.integer('num_attention_heads', 0, low=1)
    if 'head_dim' not in found and 'heads' in found and text.has('hidden_size'):
        found['head_dim'] = text.integer('hidden_size', 0, low=1) // found['heads']
    return found
