"""A whole checkpoint folder, written and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from reflex_ros.core.errors import ModelError
from reflex_ros.core.yaml_text import parse_json
from reflex_ros.infer.checkpoint import manifest, processors
from reflex_ros.infer.checkpoint.processors import Scalings
from reflex_ros.infer.checkpoint.tensors import Shape, read_tensors

CONFIG, WEIGHTS, TOKENIZER = 'config.json', 'model.safetensors', 'tokenizer/tokenizer.json'


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a folder held, all of it checked.

    Attributes:
        config: Content of ``config.json``.
        tensors: Weights by name. scalings: Statistics. tokenizer: Of the instructions.
        model_id: One hash over all files.
    """

    config: Mapping[str, Any]
    tensors: dict[str, Tensor]
    scalings: Scalings
    tokenizer: Tokenizer
    model_id: str


@dataclass(frozen=True, slots=True)
class Expected:
    """What a family expects of its folder: shapes of the weights and of the statistics."""

    tensors: Mapping[str, Shape]
    statistics: Mapping[str, Shape]


def save_folder(
    folder: Path,
    *,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    scalings: Scalings,
    tokenizer: Tokenizer,
    steps: Mapping[str, Any],
) -> None:
    """Write a complete folder; existing files of the same names are replaced.

    Args:
        folder: Created if it does not exist.
        config, tensors, scalings, tokenizer: See ``Checkpoint``.
        steps: See ``processors.write_processors``.
    """
    (folder / TOKENIZER).parent.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + '\n')
    weights = {name: value.detach().contiguous() for name, value in tensors.items()}
    save_file(weights, folder / WEIGHTS, metadata={'format': 'pt'})
    processors.write_processors(folder, scalings, steps=steps)
    (folder / TOKENIZER).write_text(tokenizer.to_str(pretty=True) + '\n')
    manifest.write_manifest(folder)


def read_config(folder: Path, family: str) -> dict[str, Any]:
    """Return ``config.json`` of a folder of this family.

    Raises:
        ModelError: No such file, not JSON, or of another family.
    """
    file = folder / CONFIG
    try:
        config = parse_json(file.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(
            f'checkpoint cannot be read {file}: got {error}, expected a JSON file. '
            'Give the folder of a checkpoint.'
        ) from error
    if not isinstance(config, dict) or config.get('type') != family:
        got = config.get('type') if isinstance(config, dict) else type(config).__name__
        raise ModelError(
            f'checkpoint does not fit {file} type: got {got!r}, expected {family!r}. '
            'Choose the family of this checkpoint.'
        )
    return config


def load_folder(
    folder: Path, family: str, expect: Callable[[Mapping[str, Any]], Expected]
) -> Checkpoint:
    """Return a folder's content after every check.

    Args:
        folder: Checkpoint folder.
        family: Value of ``type`` in ``config.json``.
        expect: From the configuration to what the rest must look like.

    Raises:
        ModelError: Anything is missing, damaged, unknown, mis-shaped or not finite.
    """
    config = read_config(folder, family)
    hashes = manifest.verify_manifest(folder)
    expected = expect(config)
    tensors = read_tensors(folder / WEIGHTS, expected.tensors)
    scalings = processors.read_processors(folder, expected.statistics)
    return Checkpoint(config, tensors, scalings, _tokenizer(folder), manifest.model_id(hashes))


def _tokenizer(folder: Path) -> Tokenizer:
    file = folder / TOKENIZER
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises its base class for every cause
        raise ModelError(
            f'checkpoint is incomplete {file}: got {error}, expected a tokenizer. '
            'Use a complete checkpoint.'
        ) from error
