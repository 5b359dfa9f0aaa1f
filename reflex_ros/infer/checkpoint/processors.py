"""Normalisation and the two processor files that carry it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file

from reflex_ros.core.errors import ModelError
from reflex_ros.core.yaml_text import parse_json
from reflex_ros.infer.checkpoint.tensors import Shape, read_tensors

Array = npt.NDArray[np.float64]
STATE, ACTION = 'observation.state', 'action'
PREPROCESSOR, POSTPROCESSOR = 'policy_preprocessor', 'policy_postprocessor'
NORMALIZER, UNNORMALIZER = 'normalizer_processor', 'unnormalizer_processor'
NORMALIZER_STEP = 4


@dataclass(frozen=True, slots=True)
class Scaling:
    """Mean and spread of one feature (``MEAN_STD``).

    Attributes:
        mean, std: float64, the feature's shape; an action may have one row per step of a chunk.
    """

    mean: Array
    std: Array

    def normalise(self, values: Array) -> Array:
        """Return ``(values - mean) / std``."""
        scaled: Array = (values - self.mean) / self.std
        return scaled

    def restore(self, values: Array) -> Array:
        """Return ``values * std + mean``."""
        restored: Array = values * self.std + self.mean
        return restored


@dataclass(frozen=True, slots=True)
class Scalings:
    """Scaling of the state and of the actions relative to it."""

    state: Scaling
    action: Scaling


def write_processors(folder: Path, scalings: Scalings, *, steps: Mapping[str, Any]) -> None:
    """Write both processor files and their statistics.

    Args:
        folder: Checkpoint folder.
        scalings: Statistics; both files get the same.
        steps: ``features``, ``max_length``, ``joint_names``, ``absolute_joints``.
    """
    tensors = {
        f'{feature}.{name}': torch.from_numpy(np.asarray(getattr(scaling, name), np.float32))
        for feature, scaling in ((STATE, scalings.state), (ACTION, scalings.action))
        for name in ('mean', 'std')
    }
    normalise = {
        'eps': 0.0,
        'features': steps['features'],
        'norm_map': {'VISUAL': 'IDENTITY', 'STATE': 'MEAN_STD', 'ACTION': 'MEAN_STD'},
    }
    tokenize = {
        'tokenizer_name': 'tokenizer', 'max_length': steps['max_length'], 'padding': 'max_length',
        'padding_side': 'right', 'truncation': False, 'task_key': 'task',
    }  # fmt: skip
    relative = {
        'enabled': True, 'exclude_joints': list(steps['absolute_joints']),
        'action_names': list(steps['joint_names']),
    }  # fmt: skip
    before = [
        {'registry_name': 'rename_observations_processor', 'config': {'rename_map': {}}},
        {'registry_name': 'to_batch_processor', 'config': {}},
        {'registry_name': 'tokenizer_processor', 'config': tokenize, 'artifacts': 'tokenizer'},
        {'registry_name': 'relative_actions_processor', 'config': relative},
        {'registry_name': NORMALIZER, 'config': normalise},
    ]
    after = [
        {'registry_name': UNNORMALIZER, 'config': normalise},
        {'registry_name': 'absolute_actions_processor', 'config': {'enabled': True}},
    ]
    for name, chain, at in ((PREPROCESSOR, before, NORMALIZER_STEP), (POSTPROCESSOR, after, 0)):
        state_file = f'{name}_step_{at}_{chain[at]["registry_name"]}.safetensors'
        chain[at]['state_file'] = state_file
        save_file(tensors, folder / state_file, metadata={'format': 'pt'})
        text = json.dumps({'name': name, 'steps': chain}, indent=2)
        (folder / f'{name}.json').write_text(text + '\n')


def read_processors(folder: Path, shapes: Mapping[str, Shape]) -> Scalings:
    """Return the statistics of a folder.

    Args:
        folder: Checkpoint folder.
        shapes: Shape of the statistics of ``observation.state`` and ``action``.

    Raises:
        ModelError: A file or statistic is missing, mis-shaped, not finite or not positive, or
            the two files disagree.
    """
    expected = {f'{f}.{s}': tuple(shape) for f, shape in shapes.items() for s in ('mean', 'std')}
    pair = [
        read_tensors(folder / _state_file(folder, name, step), expected)
        for name, step in ((PREPROCESSOR, NORMALIZER), (POSTPROCESSOR, UNNORMALIZER))
    ]
    for name in expected:
        if not torch.equal(pair[0][name], pair[1][name]):
            raise ModelError(
                f'statistics disagree {folder} {name}: got other values after the network than '
                'before it, expected the same. Use a complete checkpoint.'
            )
        if name.endswith('.std') and not bool((pair[0][name] > 0).all()):
            raise ModelError(
                f'statistics cannot be used {folder} {name}: got a minimum of '
                f'{float(pair[0][name].min())}, expected > 0. Use a complete checkpoint.'
            )
    values = {name: tensor.numpy().astype(np.float64) for name, tensor in pair[0].items()}
    state, action = (Scaling(values[f'{f}.mean'], values[f'{f}.std']) for f in (STATE, ACTION))
    return Scalings(state, action)


def _state_file(folder: Path, name: str, registry_name: str) -> str:
    """Return the file that the processor names; a computed name would miss older folders."""
    file = folder / f'{name}.json'
    if not file.is_file():
        raise ModelError(
            f'checkpoint is incomplete {file}: got no file, expected the processor with the '
            'statistics. Use a complete checkpoint.'
        )
    try:
        steps: Sequence[Mapping[str, Any]] = parse_json(file.read_text()).get('steps', ())
        files = [step.get('state_file') for step in steps
                 if step.get('registry_name') == registry_name]
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelError(
            f'checkpoint is damaged {file}: got {error}, expected a list of steps. '
            'Copy the checkpoint again.'
        ) from error
    if len(files) != 1 or not isinstance(files[0], str) or Path(files[0]).name != files[0]:
        raise ModelError(
            f'checkpoint is incomplete {file} step {registry_name}: got state files {files}, '
            'expected one file name. Use a complete checkpoint.'
        )
    return files[0]
