"""Writes files, or says in one line why it cannot: best before the work than after it."""

from __future__ import annotations

import os
from pathlib import Path

from reflex_ros.core.errors import ConfigError


def write_text(path: Path, text: str) -> None:
    """Write a file.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        path.write_text(text, encoding='utf-8')
    except OSError as error:
        raise ConfigError(
            f'file {path} cannot be written: got {error.strerror}, expected a folder with room '
            'that may be written. Name another file.'
        ) from error


def make_folder(path: Path) -> None:
    """Make a folder that files are to be written to, unless there is one.

    Raises:
        ConfigError: There is none and none can be made, or it must not be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(path, error.strerror) from error
    if not os.access(path, os.W_OK):
        raise _unusable(path, 'one that must not be written')


def check_file(path: Path) -> None:
    """Refuse a file that could not be written; nothing is changed.

    Raises:
        ConfigError: Its folder is missing or must not be written, or it is a folder itself.
    """
    if path.is_dir() or not path.name:
        raise _unusable(path, 'a folder', 'file')
    place = path if path.exists() else path.parent
    if not path.parent.is_dir() or not os.access(place, os.W_OK):
        raise _unusable(path, 'no place that may be written', 'file')


def _unusable(path: Path, got: object, kind: str = 'folder') -> ConfigError:
    return ConfigError(
        f'{kind} {path} cannot be written: got {got}, expected a {kind} that may be written. '
        'Name another one.'
    )
