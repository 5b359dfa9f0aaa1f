"""Writes files, or says in one line why it cannot: best before the work than after it.

A file is whole or it is not there: it is written beside its place and then put there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from reflex_ros.core.errors import ConfigError

RECORDED = ('.mcap', '.db3', '.zstd', '.bin', 'metadata.yaml', 'recorder.json')
"""Ends of the names of what was recorded: whoever names one for a text has mixed up files."""


def write_text(path: Path, text: str) -> None:
    """Write a file.

    Raises:
        ConfigError: It cannot be written, or it would take the place of a recording; what was
            there before stays.
    """
    if path.name.endswith(RECORDED):
        raise ConfigError(
            f'file {path} is not written: got a name that recordings have, expected one of a '
            'text, so that no recording is overwritten. Name another file.'
        )
    data = text.encode('utf-8')
    write_file(path, lambda file: file.write(data))


def write_file(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file with a function that gets it open.

    Raises:
        ConfigError: It cannot be written; what was there before stays.
    """
    try:
        with _replacing(Path(path)) as file:
            fill(file)
    except OSError as error:
        raise ConfigError(
            f'file {path} cannot be written: got {error.strerror or error}, expected a folder '
            'with room that may be written. Name another file.'
        ) from error


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield an open file that takes the place of ``path`` if nothing is raised."""
    if _is_stream(path):
        with path.open('wb') as stream:
            yield stream
        return
    target = path.resolve()  # of a link, what it names
    part = target.with_name(f'.{target.name[:200]}.{os.getpid()}.part')
    try:
        with part.open('wb') as file:
            yield file
        if target.exists():
            part.chmod(target.stat().st_mode & 0o7777)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Return whether a path is no plain file: a device, a pipe, an open file, or a folder."""
    if path.exists() and not path.is_file():
        return True
    named = (os.readlink(path), str(path.parent.resolve())) if path.is_symlink() else ()
    return any(name.startswith('/proc/') for name in named)


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
    if not path.parent.is_dir() or not _may_write(path):
        raise _unusable(path, 'no place that may be written', 'file')


def _may_write(path: Path) -> bool:
    """Return whether a file may be written, and whether its folder takes a new one."""
    if _is_stream(path):
        return os.access(path, os.W_OK)
    is_free = not path.exists() or os.access(path, os.W_OK)
    return is_free and os.access(path.resolve().parent, os.W_OK)


def _unusable(path: Path, got: object, kind: str = 'folder') -> ConfigError:
    return ConfigError(
        f'{kind} {path} cannot be written: got {got}, expected a {kind} that may be written. '
        'Name another one.'
    )
