"""At most one bridge per CAN channel and user: an advisory file lock that a crash releases."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from pathlib import Path

from reflex_ros.core.errors import ArmError


def runtime_dir() -> Path:
    """Return the user's runtime folder, made if needed; private to the user.

    Raises:
        ArmError: The fallback folder belongs to somebody else.
    """
    given = os.environ.get('XDG_RUNTIME_DIR')
    if given and os.access(given, os.W_OK):
        return Path(given)
    folder = Path(tempfile.gettempdir()) / f'reflex-ros-{os.getuid()}'
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ArmError(
            f'Runtime folder {folder}: got owner {found.st_uid}, expected {os.getuid()}. '
            'Remove it or set XDG_RUNTIME_DIR.',
            code='runtime_dir',
        )
    return folder


class ChannelLock:
    """Exclusive use of one CAN channel.

    Args:
        bus_name: What identifies the bus, e.g. ``can0`` or ``can0@127.0.0.1:29536``.
        folder: Where the lock file lives, None = ``runtime_dir()``.
    """

    def __init__(self, bus_name: str, *, folder: Path | None = None) -> None:
        self._bus_name = bus_name
        self._folder = folder
        self._fd: int | None = None

    @property
    def is_held(self) -> bool:
        """Return whether this object holds the lock."""
        return self._fd is not None

    @property
    def path(self) -> Path:
        """Return the lock file; it stays after release, only the lock on it counts."""
        name = re.sub(r'[^A-Za-z0-9._-]', '_', self._bus_name)
        folder = runtime_dir() if self._folder is None else self._folder
        return folder / f'reflex_ros-arm-{os.getuid()}-{name}.lock'

    def acquire(self) -> None:
        """Take the lock; does nothing if this object holds it.

        Raises:
            ArmError: Another process, or another driver here, holds it (``channel_in_use``).
        """
        if self._fd is not None:
            return
        path = self.path
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode('ascii', 'replace').strip() or 'unknown'
            os.close(fd)
            raise ArmError(
                f'CAN channel {self._bus_name}: got it in use by process {holder}, expected it '
                f'free. Stop that bridge first (lock file {path}).',
                code='channel_in_use',
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f'{os.getpid()}\n'.encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Give the lock back; does nothing if it is not held."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
