"""Observations in a file: the layout that ``predict``, ``inspect`` and ``verify`` read."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError

IMAGE_PREFIX = 'raw_u8/'
Arrays = Mapping[str, npt.NDArray[Any]]


def read_arrays(source: Path) -> Arrays:
    """Return the arrays of an ``.npz`` file with observations; no pickle is opened.

    Raises:
        ConfigError: The file cannot be read, or lacks ``raw_state`` or ``task``.
    """
    try:
        file = np.load(source, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError('a single array')
        with file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(
            f'input cannot be read {source}: got {error}, expected an .npz file of plain arrays. '
            'Write it with numpy.savez.'
        ) from error
    for name in ('raw_state', 'task'):
        if name not in arrays:
            raise ConfigError(
                f'input is incomplete {source}: got {sorted(arrays)}, expected {name}. Add it.'
            )
    return arrays


def numbers(arrays: Arrays, name: str, source: Path) -> npt.NDArray[Any]:
    """Return an array of the input that must hold numbers, in this machine's byte order.

    Raises:
        ConfigError: It holds something else.
    """
    if arrays[name].dtype.kind not in 'fiu':
        raise ConfigError(
            f'input cannot be used {source} {name}: got {arrays[name].dtype}, expected numbers. '
            'Correct it.'
        )
    return arrays[name].astype(arrays[name].dtype.newbyteorder('='), copy=False)


def single(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return numbers in single precision; what does not fit is infinite, to be refused later."""
    with np.errstate(over='ignore'):
        return values.astype(np.float32)


def tasks_of(arrays: Arrays, source: Path) -> tuple[str, ...]:
    """Return the instruction of each row.

    Raises:
        ConfigError: There is none, or it is no valid text.
    """
    tasks = np.atleast_1d(arrays['task'])
    if tasks.dtype.kind not in 'US' or tasks.ndim != 1 or not len(tasks):
        raise ConfigError(
            f'input cannot be used {source} task: got {tasks.dtype} {list(tasks.shape)}, expected '
            'one text for each row. Correct it.'
        )
    try:
        plain = [t if isinstance(t, bytes) else str(t).encode() for t in tasks.tolist()]
        return tuple(text.decode() for text in plain)
    except UnicodeError as error:
        raise ConfigError(
            f'input cannot be used {source} task: got {error}, expected text in UTF-8. Correct it.'
        ) from error


def images_of(arrays: Arrays, source: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the cameras by name, as they are stored.

    Raises:
        ConfigError: One holds no numbers.
    """
    return {
        name.removeprefix(IMAGE_PREFIX): numbers(arrays, name, source)
        for name in arrays
        if name.startswith(IMAGE_PREFIX)
    }
