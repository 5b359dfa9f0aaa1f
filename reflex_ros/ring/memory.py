"""Sealed anonymous memory that can be handed to another process."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os

from reflex_ros.core.errors import ConfigError, LayoutError

_POPULATE_READ, _POPULATE_WRITE = 22, 23
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def create_memory(name: str, size: int) -> int:
    """Return the descriptor of new shared memory whose pages exist and whose size is sealed.

    Pages are allocated now, so that a full machine is an error here and not a SIGBUS at the first
    write; the seal keeps a peer from truncating the memory under a reader.

    Raises:
        ConfigError: The machine has not got ``size`` bytes.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(fd)
        raise ConfigError(
            f'shared memory {name} cannot be allocated: got {error.strerror}, expected {size} '
            'bytes. Free memory or lower the readers of the ring.') from error
    return fd


def map_memory(fd: int, size: int, *, is_writable: bool) -> mmap.mmap:
    """Map shared memory and touch every page, so that the first block costs no page faults.

    Raises:
        LayoutError: The memory is smaller than ``size`` bytes or may still be truncated.
    """
    got = os.fstat(fd).st_size
    if got < size:
        raise LayoutError(f'shared memory is too small: got {got}, expected {size} (bytes). '
                          'Start both sides with the same version.')
    if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise LayoutError('shared memory can be truncated: got no shrink seal, expected one. '
                          'Start both sides with the same version.')
    access = mmap.ACCESS_WRITE if is_writable else mmap.ACCESS_READ
    memory = mmap.mmap(fd, size, access=access)
    with contextlib.suppress(OSError):
        memory.madvise(_POPULATE_WRITE if is_writable else _POPULATE_READ)
    return memory


def reopen(fd: int, flags: int) -> int:
    """Return a second open file description of ``fd``, with its own access mode and locks."""
    return os.open(f'/proc/self/fd/{fd}', flags | os.O_CLOEXEC)


def unmap(memory: mmap.mmap) -> None:
    """Unmap now, or when the last view that a caller still holds is gone."""
    with contextlib.suppress(BufferError):
        memory.close()
