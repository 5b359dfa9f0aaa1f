"""Room on the disk that is taken before it is needed, so that a full disk still leaves an end."""

from __future__ import annotations

import os
from pathlib import Path

STEP_BYTES = 64 * 1024
"""Room grows in steps of this size."""


class Room:
    """A hidden file beside ``path`` that holds its place until the contents are known.

    The contents are written over the reserved bytes, so no other program can take them first.

    Args:
        path: The file to be; ``.<name>`` beside it holds the room.
        size: Bytes to reserve.

    Raises:
        OSError: The disk has not that much room.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._hidden = path.with_name(f'.{path.name}')
        self.size = 0
        self._file = os.open(self._hidden, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            self.grow(size)
        except OSError:
            self.release()
            raise

    def grow(self, size: int) -> None:
        """Reserve at least so many bytes.

        Raises:
            OSError: The disk is full; what was reserved stays so.
        """
        if size > self.size:
            wanted = -(-size // STEP_BYTES) * STEP_BYTES
            os.posix_fallocate(self._file, 0, wanted)
            self.size = wanted

    def fill(self, text: str) -> None:
        """Make the room the file, with these contents.

        Raises:
            OSError: They are larger than the room, and the disk is full.
        """
        data = memoryview(text.encode())
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, data[done:], done)
        os.ftruncate(self._file, len(data))
        self._hidden.rename(self._path)
        os.close(self._file)
        self._file = -1

    def release(self) -> None:
        """Give the room back; a second call does nothing, nor one after ``fill``."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._hidden.unlink(missing_ok=True)
        self.size = 0
