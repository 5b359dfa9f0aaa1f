"""Training state on disk: tensors as safetensors, the rest as JSON. No pickle.

The file appears under its name only when complete, so that a stop at any instant leaves the state
of the previous save readable.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from reflex_ros.core.errors import ModelError


def save_state(file: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write one state; ``meta`` must be JSON and travels in the header of the same file."""
    draft = file.with_suffix('.part')
    contiguous = {name: value.detach().contiguous() for name, value in tensors.items()}
    save_file(contiguous, draft, metadata={'state': json.dumps(meta)})
    draft.replace(file)


def load_state(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what ``save_state`` wrote.

    Raises:
        ModelError: The file is not a training state.
    """
    with safe_open(file, 'pt') as reader:
        meta = (reader.metadata() or {}).get('state')
        if meta is None:
            raise ModelError(
                f'training cannot be resumed {file}: got no state header, expected a file of '
                'save_state. Delete it to start afresh.'
            )
        names = list(reader.keys())
        return {name: reader.get_tensor(name) for name in names}, json.loads(meta)


def pack_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the moments and step counters of an optimizer as named tensors."""
    state = optimizer.state_dict()['state']
    return {
        f'optimizer.{index}.{name}': torch.as_tensor(value)
        for index, entries in state.items()
        for name, value in entries.items()
    }


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what ``pack_optimizer`` took."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith('optimizer.'):
            _, index, name = key.split('.')
            state.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()['param_groups']
    optimizer.load_state_dict({'state': state, 'param_groups': groups})


def pack_random(rng: np.random.Generator, generator: torch.Generator) -> dict[str, Any]:
    """Return both random states as JSON values."""
    return {'numpy': rng.bit_generator.state, 'torch': generator.get_state().tolist()}


def unpack_random(
    saved: dict[str, Any], rng: np.random.Generator, generator: torch.Generator
) -> None:
    """Put both random states back."""
    rng.bit_generator.state = saved['numpy']
    generator.set_state(torch.tensor(saved['torch'], dtype=torch.uint8))
