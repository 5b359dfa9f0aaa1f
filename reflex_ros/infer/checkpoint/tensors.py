"""Tensors of a checkpoint, accepted only if every one is there, shaped right and finite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from reflex_ros.core.errors import ModelError

Shape = tuple[int, ...]
HINT = 'Use a complete checkpoint of this network.'
PART = 1 << 22
"""Numbers that are checked at once."""


def read_tensors(file: Path, expected: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Return the tensors of ``file``, memory-mapped where the format allows.

    Raises:
        ModelError: The file cannot be read; a tensor is missing, unknown, mis-shaped or not
            finite. The message names the first one, in the order of ``expected``.
    """
    try:
        with safe_open(file, 'pt') as reader:
            names = list(reader.keys())
            found = {name: tuple(reader.get_slice(name).get_shape()) for name in names}
            _check_shapes(file, found, expected)
            tensors = {name: reader.get_tensor(name) for name in expected}
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f'checkpoint cannot be read {file}: got {error}, expected a safetensors file. {HINT}'
        ) from error
    for name, value in tensors.items():
        check_finite(file, name, value)
    return tensors


def _check_shapes(file: Path, found: Mapping[str, Shape], expected: Mapping[str, Shape]) -> None:
    for name, shape in expected.items():
        if name not in found:
            raise ModelError(
                f'checkpoint is incomplete {file} tensor {name}: got none, expected shape '
                f'{list(shape)}. {HINT}'
            )
        if found[name] != shape:
            raise ModelError(
                f'checkpoint does not fit {file} tensor {name}: got shape {list(found[name])}, '
                f'expected {list(shape)}. {HINT}'
            )
    if extra := sorted(set(found) - set(expected)):
        raise ModelError(
            f'checkpoint does not fit {file} tensor {extra[0]}: got {len(extra)} unknown tensors, '
            f'expected none. {HINT}'
        )


def check_finite(file: Path, name: str, value: Tensor) -> None:
    """Refuse a tensor that holds anything but finite floating-point numbers.

    Reads the tensor in parts, so that a large one needs no second copy's worth of memory.

    Raises:
        ModelError: Names the tensor.
    """
    if not value.is_floating_point():
        raise ModelError(
            f'checkpoint does not fit {file} tensor {name}: got {value.dtype}, expected a '
            f'floating-point type. {HINT}'
        )
    parts = value.reshape(-1).split(PART)
    if bad := sum(int((~torch.isfinite(part)).sum()) for part in parts):
        raise ModelError(
            f'checkpoint is damaged {file} tensor {name}: got {bad} of {value.numel()} values '
            f'that are not finite, expected none. {HINT}'
        )
