"""Writes a text file, or says in one line why it cannot."""

from __future__ import annotations

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
