"""Sizes that files beside the weights declare, and the known full sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import SMOLVLA, PretrainedConfig, read_json
from reflex_ros.infer.checkpoint.fields import Fields

SIZES, VLM = 'sizes.json', 'vlm/config.json'
HEADS = ('heads', 'kv_heads', 'head_dim')
ALIASES = MappingProxyType({'width': 'vlm_width', 'mlp': 'vlm_mlp'})
"""Keys of SmolVLA by their common names."""
KEYS = (
    'vlm_width', 'vlm_mlp', 'expert_width', 'expert_mlp', 'depth', 'heads', 'kv_heads', 'head_dim',
    'vision_width', 'vision_mlp', 'vision_depth', 'vision_heads', 'patch', 'image',
    'scale_factor', 'vocab',
)  # fmt: skip
TEXT_KEYS = (
    ('heads', 'num_attention_heads'), ('kv_heads', 'num_key_value_heads'),
    ('head_dim', 'head_dim'),
)  # fmt: skip
KNOWN_ATTENTION = MappingProxyType({
    (2048, 2048, 256): (8, 1, 256),
    (960, 960, 320): (15, 5, 64),
})
"""Heads, key heads and head size by width and rows of all query and all key heads."""
KNOWN_VISION = MappingProxyType({1152: 16, 768: 12})


@dataclass(frozen=True, slots=True)
class Declared:
    """What the files of a folder say of the sizes.

    Attributes:
        folder: Named in messages.
        values: Sizes of ``sizes.json``, by their common names.
        model: Head counts of ``vlm/config.json``, where there is one.
    """

    folder: Path
    values: Mapping[str, int]
    model: Mapping[str, int]

    def get(self, name: str) -> int | None:
        """Return a size of ``sizes.json``."""
        return self.values.get(name)

    def contradicts(self, name: str, expected: object, *, got: object = None) -> ModelError:
        """Return the error for a size that the tensors do not have."""
        value = self.values.get(name, self.model.get(name)) if got is None else got
        file = SIZES if set(self.values) & {name, *HEADS} else 'sizes'
        return ModelError(
            f'checkpoint contradicts itself {self.folder / file} {name}: got {value}, expected '
            f'{expected} (from the shapes of the tensors). Correct this file.'
        )

    def depth(self, name: str, found: int) -> int:
        """Return a number of layers: the declared one, else that of the tensors."""
        return self.values.get(name, found)

    def heads(self, queries: int, keys: int, values: Mapping[str, int]) -> dict[str, int]:
        """Return the head counts.

        Args:
            queries, keys: Rows of all query and of all key heads.
            values: Sizes found so far.

        Raises:
            ModelError: A count is neither declared nor known; names its key.
        """
        known = KNOWN_ATTENTION.get((values['vlm_width'], queries, keys))
        found = dict(zip(HEADS, known, strict=True)) if known else {}
        if (vision := KNOWN_VISION.get(values['vision_width'])) is not None:
            found['vision_heads'] = vision
        found |= self.model
        found |= {n: self.values[n] for n in (*HEADS, 'vision_heads') if n in self.values}
        for name in (*HEADS, 'vision_heads'):
            if name not in found:
                raise ModelError(
                    f'head counts are not known {self.folder}: got no {name}, expected the key '
                    f'{name} in {SIZES} (shapes give only products: {queries} query rows, {keys} '
                    f'key rows, vision width {values["vision_width"]}). Add the file.'
                )
        return {name: found[name] for name in (*HEADS, 'vision_heads')}


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
                values[name] = fields.integer(key, 0, low=1)
    model = _model(folder / VLM) if config.family == SMOLVLA else {}
    return Declared(folder, MappingProxyType(values), MappingProxyType(model))


def _model(file: Path) -> dict[str, int]:
    """Return the head counts of the language model's own configuration."""
    if not file.is_file():
        return {}
    fields = Fields(file, read_json(file))
    text = Fields(file, fields.mapping('text_config'), 'text_config.')
    vision = Fields(file, fields.mapping('vision_config'), 'vision_config.')
    found = {n: text.integer(key, 0, low=1) for n, key in TEXT_KEYS if _has(text, key)}
    if _has(vision, 'num_attention_heads'):
        found['vision_heads'] = vision.integer('num_attention_heads', 0, low=1)
    if 'head_dim' not in found and 'heads' in found and _has(text, 'hidden_size'):
        found['head_dim'] = text.integer('hidden_size', 0, low=1) // found['heads']
    return found


def _has(fields: Fields, name: str) -> bool:
    value: Any = fields.content.get(name)
    return value is not None
