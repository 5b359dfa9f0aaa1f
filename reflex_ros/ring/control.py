"""The control block: header, slot words and reader rows in shared host memory.

All words are unsigned, 64 bit, little endian; hot words of different writers never share a cache
line. Constants are written before the magic, and the magic last.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import struct
import threading
from collections.abc import Iterator

from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.ring.layout import PAGE, VERSION, RingLayout
from reflex_ros.ring.memory import create_memory, map_memory, reopen, unmap
from reflex_ros.ring.owner import FOREIGN, is_owner_alive, pid_namespace, process_owner
from reflex_ros.ring.words import load_libatomic, open_words

MAGIC = int.from_bytes(b'RFXRING1', 'little')

H_MAGIC, H_VERSION, H_BYTES = 0, 1, 2
H_DIGEST, H_RING_ID, H_GENERATION = 8, 12, 13
H_WRITER, H_NAMESPACE, H_HEARTBEAT, H_STEALS, H_REPAIRS, H_PINNED = 16, 17, 18, 19, 20, 21
H_LATEST = 24
HEADER_WORDS = 32

S_LOCK, S_SEQ, S_STAMP, S_EPOCH, S_TOKENS, S_CHECKSUM, S_IS_PINNED = range(7)
SLOT_WORDS = 16

R_OWNER, R_LEASES, R_EXPIRY = range(3)
READER_WORDS = 8


def control_bytes(layout: RingLayout) -> int:
    """Return the size of the control block, whole pages."""
    words = HEADER_WORDS + layout.slots * SLOT_WORDS + layout.readers * READER_WORDS
    return -(-8 * words // PAGE) * PAGE


class ControlBlock:
    """One mapping of the control block, with its own open file description for locks.

    Args:
        layout: Geometry.
        fd: Shared memory; the block takes it over, also when it raises.
        library: libatomic, None to use plain words (x86 only).

    Raises:
        LayoutError: The memory holds no ring, another version or another layout.
        ConfigError: See ``words.open_words``.
    """

    def __init__(self, layout: RingLayout, fd: int, *,
                 library: ctypes.PyDLL | None = None) -> None:
        self.layout = layout
        self.handle = fd
        """Descriptor to hand to a peer. Never locked: a peer that holds it would hold the lock."""
        self.slot_base = tuple(HEADER_WORDS + i * SLOT_WORDS for i in range(layout.slots))
        rows = HEADER_WORDS + layout.slots * SLOT_WORDS
        self.row_base = tuple(rows + i * READER_WORDS for i in range(layout.readers))
        self._library = library
        self._row_mutex = threading.Lock()
        self._lock_fd = -1
        with _closing_on_error(fd):
            self._memory = map_memory(fd, control_bytes(layout), is_writable=True)
            self.words = open_words(self._memory, library=library)
            self._require_layout()
            self._lock_fd = reopen(fd, os.O_RDWR)

    @classmethod
    def create(cls, layout: RingLayout, *,
               library: ctypes.PyDLL | None = None) -> ControlBlock:
        """Return the control block of a new, empty ring with a random identity."""
        fd = create_memory('reflex_ring', control_bytes(layout))
        with _closing_on_error(fd):
            memory = map_memory(fd, control_bytes(layout), is_writable=True)
            words = open_words(memory, library=library)
            words.put(H_VERSION, VERSION)
            words.put(H_BYTES, control_bytes(layout))
            for index, word in enumerate(struct.unpack('<4Q', layout.digest)):
                words.put(H_DIGEST + index, word)
            words.put(H_RING_ID, secrets.randbits(63) | 1)
            words.put(H_NAMESPACE, pid_namespace())
            words.store(H_MAGIC, MAGIC)
            words.close()
            unmap(memory)
        return cls(layout, fd, library=library)

    @classmethod
    def open(cls, layout: RingLayout, fd: int) -> ControlBlock:
        """Return the block of a ring that a peer created; takes ``fd`` over."""
        return cls(layout, fd, library=load_libatomic())

    def duplicate(self) -> ControlBlock:
        """Return a second mapping of the same ring, for a reader in this process."""
        return ControlBlock(self.layout, os.dup(self.handle), library=self._library)

    def _require_layout(self) -> None:
        words, layout = self.words, self.layout
        if words.load(H_MAGIC) != MAGIC:
            raise LayoutError('shared memory is no ring: got no magic word, expected RFXRING1. '
                              'Start vision_encoder first.')
        if (version := words.get(H_VERSION)) != VERSION:
            raise LayoutError(f'ring version differs: got {version}, expected {VERSION}. '
                              'Start both sides with the same version.')
        digest = b''.join(words.get(H_DIGEST + i).to_bytes(8, 'little') for i in range(4))
        if digest != layout.digest:
            raise LayoutError(f'ring layout hash differs: got {digest.hex()}, expected '
                              f'{layout.hash}. Start vision_encoder and policy with the same '
                              'checkpoint and ring parameters.')

    @property
    def ring_id(self) -> int:
        """Random identity of this memory, 1 to 2**63 - 1."""
        return self.words.get(H_RING_ID)

    @property
    def generation(self) -> int:
        """Writers this memory has had; 0 before the first."""
        return self.words.load(H_GENERATION)

    @property
    def is_writer_alive(self) -> bool:
        """Whether the writer has not closed the ring and, where /proc can tell, lives."""
        writer = self.words.load(H_WRITER)
        is_visible = self.words.get(H_NAMESPACE) == pid_namespace()
        return is_owner_alive(writer) if is_visible else writer != 0

    def lock_writer(self) -> None:
        """Become the only writer; the kernel ends this with the process, even by kill -9.

        Raises:
            ConfigError: Another writer lives.
        """
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f'ring {self.ring_id} cannot be written: got a second writer, expected one. '
                'Stop the other vision_encoder.') from error

    def unlock_writer(self) -> None:
        """Let another writer take over."""
        fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def leased(self, now_ns: int) -> int:
        """Return the bit mask of slots that a reader holds at ``now_ns`` (steady clock)."""
        words, mask = self.words, 0
        for row in self.row_base:
            if words.get(row + R_OWNER):
                held = words.load(row + R_LEASES)
                if held and words.get(row + R_EXPIRY) > now_ns:
                    mask |= held
        return mask

    def claim_row(self) -> tuple[int, int]:
        """Take a free reader row for this process; rows of dead processes count as free.

        Returns:
            Index of the row, and the owner word that ``free_row`` must be given.

        Raises:
            ConfigError: All rows belong to living readers.
        """
        owner = process_owner(os.getpid())
        if self.words.get(H_NAMESPACE) != pid_namespace():
            owner |= FOREIGN
        with self._rows_locked(wait=True):
            self._free_dead_rows()
            for index, row in enumerate(self.row_base):
                if self.words.swap(row + R_OWNER, 0, owner):
                    self.words.put(row + R_EXPIRY, 0)
                    self.words.store(row + R_LEASES, 0)
                    return index, owner
        raise ConfigError(
            f'ring {self.ring_id} cannot be read: got {self.layout.readers + 1} readers, expected '
            f'at most {self.layout.readers}. Raise ring.readers or stop a reader.')

    def free_row(self, index: int, owner: int) -> bool:
        """Give a row back if ``owner`` still has it; return whether it had."""
        if not 0 <= index < len(self.row_base) or not owner or self.handle < 0:
            return False
        with self._rows_locked(wait=True):
            return self.words.swap(self.row_base[index] + R_OWNER, owner, 0)

    def sweep(self) -> int:
        """Free the rows of readers whose process is gone; return how many.

        Skipped, to be tried at the next call, while a reader attaches. Reads /proc once per row.
        """
        with self._rows_locked(wait=False) as is_locked:
            return self._free_dead_rows() if is_locked else 0

    def _free_dead_rows(self) -> int:
        freed = 0
        if self.words.get(H_NAMESPACE) != pid_namespace():
            return 0
        for row in self.row_base:
            owner = self.words.get(row + R_OWNER)
            if owner and not is_owner_alive(owner):
                freed += self.words.swap(row + R_OWNER, owner, 0)
        return freed

    @contextlib.contextmanager
    def _rows_locked(self, *, wait: bool) -> Iterator[bool]:
        """Exclude others from the reader rows; only plain words need it, for want of a real swap.

        The file lock excludes other mappings, the mutex other threads on this one.
        """
        if not self.words.is_plain:
            yield True
            return
        if not self._row_mutex.acquire(blocking=wait):
            yield False
            return
        try:
            with self._region_locked(wait=wait) as is_locked:
                yield is_locked
        finally:
            self._row_mutex.release()

    @contextlib.contextmanager
    def _region_locked(self, *, wait: bool) -> Iterator[bool]:
        region = struct.pack('hhqqi4x', fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        try:
            fcntl.fcntl(self._lock_fd, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, region)
        except (BlockingIOError, PermissionError):
            yield False
            return
        try:
            yield True
        finally:
            release = struct.pack('hhqqi4x', fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(self._lock_fd, fcntl.F_OFD_SETLK, release)

    def close(self) -> None:
        """Unmap and close; a second call does nothing."""
        if self.handle < 0:
            return
        self.words.close()
        unmap(self._memory)
        os.close(self.handle)
        os.close(self._lock_fd)
        self.handle = self._lock_fd = -1


@contextlib.contextmanager
def _closing_on_error(fd: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(fd)
        raise
