"""The run folder that a replay writes: whole under its name, or not there."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from reflex_ros.bag.files import METADATA
from reflex_ros.bag.run_folder import BAG, RunFolder
from reflex_ros.core.errors import ConfigError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def require_new(path: Path) -> None:
    """Refuse an output that exists, that lies within a bag, or would be one of a recorded run.

    Raises:
        ConfigError: It is one of these.
    """
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f'output {path} cannot be made: got File exists, expected a new folder. '
            'Name another.'
        )
    place = path.resolve()
    bag = next((p for p in place.parents if (p / METADATA).is_file()), None)
    is_run = any((p / METADATA).is_file() for p in RunFolder(place.parent).bags)
    if bag is not None or (is_run and re.fullmatch(rf'{BAG}(_\d+)?', place.name)):
        got = f'a place in the bag {bag}' if bag else f'the name of a bag of {place.parent}'
        raise ConfigError(
            f'output {path} cannot be made: got {got}, expected a folder beside recorded runs. '
            'Name another.'
        )


@contextmanager
def new_output(path: Path) -> Iterator[RunFolder]:
    """Yield a hidden folder beside ``path``, which gets that name if nothing is raised.

    Whatever ends it early, Ctrl-C too, removes it. A killed process leaves it, under its hidden
    name.

    Raises:
        ConfigError: The folder exists or cannot be made, or the disk is full.
    """
    require_new(path)
    try:
        made = _make_parents(path.parent)
        part = Path(mkdtemp(prefix=f'.{path.name[:200]}.', suffix='.part', dir=path.parent))
    except OSError as error:
        raise ConfigError(
            f'output {path} cannot be made: got {error.strerror}, expected a new folder. '
            'Name another.'
        ) from error
    try:
        part.chmod(0o777 & ~_umask())
        yield RunFolder(part)
        part.rename(path)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):  # somebody else has put something there
            for folder in made:
                folder.rmdir()
        if isinstance(error, OSError) and (error.errno in _FULL or _is_in(part, error)):
            raise ConfigError(
                f'output {path} cannot be written: got {error.strerror}, expected a disk with '
                'room. Nothing was kept; name another place, or make room and try again.'
            ) from error
        raise


def _make_parents(folder: Path) -> list[Path]:
    """Make a folder; return what was made for it, the deepest first."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _is_in(folder: Path, error: OSError) -> bool:
    names = (error.filename, error.filename2)
    return any(isinstance(name, str) and name.startswith(str(folder)) for name in names)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
