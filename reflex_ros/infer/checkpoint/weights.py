"""Weight files of a folder: shapes first, then the tensors that are needed, memory-mapped."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import read_json
from reflex_ros.infer.checkpoint.tensors import HINT, Shape, check_finite

WEIGHTS, INDEX = 'model.safetensors', 'model.safetensors.index.json'
DTYPES = ('F32', 'BF16', 'F16', 'F64')


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """Weights of a folder, in one file or in shards.

    Attributes:
        files: The files, first the index if there is one.
        shapes: Shape of every stored tensor. homes: File of every stored tensor.
    """

    files: tuple[Path, ...]
    shapes: Mapping[str, Shape]
    homes: Mapping[str, Path]

    def read(self, names: Mapping[str, str], *, finite: bool = True) -> dict[str, Tensor]:
        """Return tensors, mapped from the files and not copied, in their stored type.

        Args:
            names: Stored name by the name to deliver it under.
            finite: Whether values that are not finite are refused.

        Raises:
            ModelError: A tensor cannot be read, is no floating-point tensor, or is not finite.
        """
        found = {}
        with ExitStack() as stack:
            readers = {}
            for name, stored in names.items():
                file = self.homes[stored]
                try:
                    if file not in readers:
                        readers[file] = stack.enter_context(safe_open(file, 'pt'))
                    found[name] = readers[file].get_tensor(stored)
                except (SafetensorError, OSError, ValueError) as error:
                    raise _unreadable(file, f'{error} (tensor {stored})') from error
        for name, value in found.items() if finite else ():
            check_finite(self.homes[names[name]], name, value)
        return found


def open_weights(folder: Path) -> WeightFiles:
    """Return the weight files of a folder; only their headers are read.

    Raises:
        ModelError: No weights, a damaged or truncated file, a tensor of another type than
            floating point, or an index that names what is not there.
    """
    if (folder / WEIGHTS).is_file():
        return _collect((), (folder / WEIGHTS,))
    index = folder / INDEX
    if not index.is_file():
        raise ModelError(
            f'checkpoint is incomplete {folder / WEIGHTS}: got no file, expected the weights. '
            f'{HINT}'
        )
    homes = read_json(index).get('weight_map')
    if not isinstance(homes, dict) or not homes:
        raise _unreadable(index, 'no weight_map')
    names = sorted({str(name) for name in homes.values()})
    if bad := [name for name in names if Path(name).name != name]:
        raise _unreadable(index, f'a file outside the folder, {bad[0]!r}')
    weights = _collect((index,), tuple(folder / name for name in names))
    for tensor, file in homes.items():
        if weights.homes.get(tensor) != folder / file:
            raise ModelError(
                f'checkpoint is incomplete {folder / file} tensor {tensor}: got none, expected '
                f'the tensor that {INDEX} places there. {HINT}'
            )
    return weights


def _collect(before: tuple[Path, ...], files: tuple[Path, ...]) -> WeightFiles:
    shapes: dict[str, Shape] = {}
    homes: dict[str, Path] = {}
    for file in files:
        for name, shape in _header(file).items():
            if name in homes:
                raise _unreadable(file, f'tensor {name} a second time (first in {homes[name]})')
            shapes[name], homes[name] = shape, file
    return WeightFiles(before + files, shapes, homes)


def _header(file: Path) -> dict[str, Shape]:
    try:
        with safe_open(file, 'pt') as reader:
            slices = {name: reader.get_slice(name) for name in reader.keys()}  # noqa: SIM118
            types = {name: part.get_dtype() for name, part in slices.items()}
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(file, str(error)) from error
    for name, kind in types.items():
        if kind not in DTYPES and 'position_ids' not in name:
            raise ModelError(
                f'checkpoint does not fit {file} tensor {name}: got type {kind}, expected one of '
                f'{", ".join(DTYPES)}. {HINT}'
            )
    return shapes


def _unreadable(file: Path, got: str) -> ModelError:
    return ModelError(
        f'checkpoint cannot be read {file}: got {got}, expected a whole safetensors file. {HINT}'
    )
