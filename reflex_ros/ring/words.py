"""64-bit words in shared memory with acquire loads, release stores, compare-and-swap and a fence.

Plain aligned loads and stores keep their order on x86 only. Everywhere else the words go through
``libatomic``; without it the ring refuses to start, since no Python lock or system call is a
formal substitute for a memory barrier between processes.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from reflex_ros.core.errors import ConfigError

LIBRARY = 'libatomic.so.1'
X86 = ('x86_64', 'AMD64', 'i686')
_ACQUIRE, _RELEASE, _SEQ_CST = 2, 3, 5


class Words(Protocol):
    """View of shared memory as unsigned 64-bit words; index = word, not byte.

    ``get`` and ``put`` are ordinary accesses, to be ordered by a ``load``, ``store`` or ``fence``.
    """

    is_plain: bool
    """True where order rests on x86 alone and ``swap`` is not atomic."""

    def get(self, index: int) -> int:
        """Return the word without ordering."""

    def put(self, index: int, value: int) -> None:
        """Write the word without ordering."""

    def load(self, index: int) -> int:
        """Return the word; later accesses stay after it (acquire)."""

    def store(self, index: int, value: int) -> None:
        """Write the word; earlier accesses stay before it (release)."""

    def swap(self, index: int, expected: int, value: int) -> bool:
        """Write ``value`` if the word equals ``expected``; return whether it did."""

    def fence(self) -> None:
        """Order every earlier access before every later one (sequentially consistent)."""

    def close(self) -> None:
        """Let go of the memory so that it can be unmapped."""


class PlainWords:
    """Words over plain aligned accesses: correct on x86 up to one retry per lost lease.

    x86 may let a load overtake an earlier store, so a lease can become visible late; the reader's
    final check catches the consequence. ``swap`` needs a lock of the caller's.
    """

    is_plain = True

    def __init__(self, memory: mmap.mmap) -> None:
        self._bytes = memoryview(memory)
        self._view = self._bytes.cast('Q')

    def get(self, index: int) -> int:
        """Return the word."""
        return self._view[index]

    def put(self, index: int, value: int) -> None:
        """Write the word."""
        self._view[index] = value

    def load(self, index: int) -> int:
        """Return the word."""
        return self._view[index]

    def store(self, index: int, value: int) -> None:
        """Write the word."""
        self._view[index] = value

    def swap(self, index: int, expected: int, value: int) -> bool:
        """Compare and write, not atomically."""
        if self._view[index] != expected:
            return False
        self._view[index] = value
        return True

    def fence(self) -> None:
        """Do nothing: loads and stores of x86 keep their order, but for store before load."""

    def close(self) -> None:
        """Release the view."""
        self._view.release()
        self._bytes.release()


class AtomicWords(PlainWords):
    """Words through ``libatomic``; right on every CPU."""

    is_plain = False

    def __init__(self, memory: mmap.mmap, library: ctypes.PyDLL) -> None:
        super().__init__(memory)
        self._base = int(np.frombuffer(memory, np.uint8).ctypes.data)
        self._load = _bind(library, '__atomic_load_8', ctypes.c_uint64, 'pi')
        self._store = _bind(library, '__atomic_store_8', None, 'pui')
        self._swap = _bind(library, '__atomic_compare_exchange_8', ctypes.c_bool, 'ppuii')
        self._fence = _bind(library, 'atomic_thread_fence', None, 'i')

    def load(self, index: int) -> int:
        """Return the word (acquire)."""
        value: int = self._load(self._base + 8 * index, _ACQUIRE)
        return value

    def store(self, index: int, value: int) -> None:
        """Write the word (release)."""
        self._store(self._base + 8 * index, value, _RELEASE)

    def swap(self, index: int, expected: int, value: int) -> bool:
        """Compare and swap in one step."""
        wanted = ctypes.c_uint64(expected)
        address = self._base + 8 * index
        return bool(self._swap(address, ctypes.addressof(wanted), value, _SEQ_CST, _SEQ_CST))

    def fence(self) -> None:
        """Issue a full memory barrier."""
        self._fence(_SEQ_CST)


def _bind(library: ctypes.PyDLL, name: str, result: Any, arguments: str) -> Callable[..., Any]:
    kinds: dict[str, Any] = {'p': ctypes.c_void_p, 'u': ctypes.c_uint64, 'i': ctypes.c_int}
    function = library[name]
    function.restype = result
    function.argtypes = [kinds[letter] for letter in arguments]
    return function


def load_libatomic(name: str = LIBRARY) -> ctypes.PyDLL | None:
    """Return the loaded library, None if this machine has none.

    It is opened so that calls keep the interpreter lock: each takes nanoseconds, and giving the
    lock away would let another thread run for up to 5 ms between two words.
    """
    try:
        library = ctypes.PyDLL(name)
        for symbol in ('__atomic_load_8', '__atomic_store_8', '__atomic_compare_exchange_8'):
            library[symbol]
    except (OSError, AttributeError):
        return None
    return library


def open_words(memory: mmap.mmap, *, library: ctypes.PyDLL | None, machine: str = '') -> Words:
    """Return the words of a shared mapping.

    Args:
        memory: Writable shared mapping, length a multiple of 8 bytes.
        library: Result of ``load_libatomic``; None falls back to plain words on x86.
        machine: CPU family as ``platform.machine()`` names it, '' = this one.

    Raises:
        ConfigError: No libatomic on a CPU that reorders stores, or a big-endian CPU.
    """
    if sys.byteorder != 'little':
        raise ConfigError('ring cannot be opened on this CPU: got byte order big, expected '
                          'little. Use an x86 or ARM machine.')
    if library is not None:
        return AtomicWords(memory, library)
    machine = machine or platform.machine()
    if machine not in X86:
        raise ConfigError(
            f'ring cannot be opened on CPU {machine}: got no {LIBRARY}, expected it on every CPU '
            'but x86, whose stores keep their order. Install the package libatomic1.')
    return PlainWords(memory)
