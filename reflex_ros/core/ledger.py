"""The ledger: one fixed record per due tick in a memory-mapped file that survives a kill -9.

File: a header of 4096 bytes (magic, CRC, JSON), then records of 128 bytes (seven joints). Bytes
lie in the page cache as soon as a record is written, so the death of the process loses nothing;
a record torn by it fails its CRC. The number of records is not stored: readers take the longest
prefix of whole records, also while a writer runs. A reopened ledger gets a gap record for the
ticks that were due meanwhile, so that the counts always add up to steady time / period.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from reflex_ros.core.clock import Instant
from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.core.types import JOINT_NAMES, ArmState, Cause, ControlTick, FloatArray, Verdict

MAGIC = b'RFXLEDG1'
HEADER_BYTES = 4096
BLOCK_RECORDS = 4096
"""The file grows by this many records at once: 512 KiB, 82 s at 50 Hz."""

SENT, IN_MOTION, COVERED, GAP = 1, 2, 4, 8
"""Bits of the field ``flags``."""

VERDICT_CODES = tuple(Verdict)
CAUSE_CODES = tuple(Cause)
ARM_STATE_CODES = tuple(ArmState)

_PREFIX = struct.Struct('<8sII')
_CHECK = struct.Struct('<I')
_HEAD = struct.Struct('<II4B6q')
"""A record from ``index`` to ``chunk_id``; numbers of 4 bytes follow to its end."""

RecordArray = npt.NDArray[np.void]


def record_dtype(joints: int) -> np.dtype[np.void]:
    """Return the little-endian record layout for a number of joints; 128 bytes for seven.

    Fields: ``check`` CRC-32 of the rest; ``index`` of the due instant; ``count`` of instants it
    stands for (1, or more in a gap); ``verdict``, ``cause``, ``arm_state`` codes; ``flags``;
    ``stamp_ns`` ROS time; ``due_ns`` steady; ``late_ns``; ``observation_age_ns`` (-1 none);
    ``epoch``; ``chunk_id`` (0 none); ``row`` (-1 none); ``tracking_error`` rad; ``command`` and
    ``measured`` rad and m, nan where none.
    """
    fields: list[tuple[Any, ...]] = [(name, '<u4') for name in ('check', 'index', 'count')]
    fields += [(name, 'u1') for name in ('verdict', 'cause', 'arm_state', 'flags')]
    fields += [(name, '<i8') for name in ('stamp_ns', 'due_ns', 'late_ns', 'observation_age_ns')]
    fields += [('epoch', '<i8'), ('chunk_id', '<i8'), ('row', '<f4'), ('tracking_error', '<f4')]
    fields += [('command', '<f4', (joints,)), ('measured', '<f4', (joints,))]
    return np.dtype(fields)


@dataclass(frozen=True, slots=True)
class LedgerHeader:
    """What the records mean.

    Attributes:
        period_ns: Control period.
        start_ns: Steady instant of tick 0. ``start_stamp_ns``: the same in ROS time.
        run_id: Identity of the run.
        joint_names: Order of ``command`` and ``measured``.
    """

    period_ns: int
    start_ns: int
    start_stamp_ns: int
    run_id: str = ''
    joint_names: tuple[str, ...] = JOINT_NAMES

    def due_ns(self, index: int) -> int:
        """Return the steady due instant of a tick."""
        return self.start_ns + index * self.period_ns

    def ticks_due(self, mono_ns: int) -> int:
        """Return how many ticks were due before ``mono_ns``: steady time over the period."""
        return max(0, -((self.start_ns - mono_ns) // self.period_ns))


class LedgerWriter:
    """The one writer of a ledger. Not thread-safe; use ``create`` or ``reopen``.

    Attributes:
        header: What the records mean.
        next_index: Index of the tick that the next record is for.
        lost: Ticks that found no room on the disk; the next record that does leaves a gap.
    """

    def __init__(self, file: int, header: LedgerHeader) -> None:
        self.header = header
        self.next_index = 0
        self.lost = 0
        self._file = file
        self._size = record_dtype(len(header.joint_names)).itemsize
        self._records = 0
        self._was_in_motion = False
        self._map = mmap.mmap(file, 0)

    @classmethod
    def create(
        cls,
        path: Path | str,
        *,
        period_ns: int,
        start: Instant,
        run_id: str = '',
        joint_names: Sequence[str] = JOINT_NAMES,
    ) -> LedgerWriter:
        """Create a ledger whose tick 0 is due at ``start``.

        Raises:
            ConfigError: The file exists, or the period is not positive.
        """
        if period_ns <= 0:
            raise ConfigError(
                f'ledger period is wrong: got {period_ns}, expected > 0 (ns). '
                'Set control.rate_hz.'
            )
        header = LedgerHeader(
            period_ns, start.mono_ns, start.stamp_ns, run_id, tuple(joint_names)
        )
        _write_new(Path(path), _pack_header(header))
        return cls(_open_locked(Path(path)), header)

    @classmethod
    def reopen(
        cls, path: Path | str, now: Instant, *, cause: Cause = Cause.NODE_DEAD
    ) -> LedgerWriter:
        """Continue a ledger after the death of its writer.

        What follows the last whole record is cleared, and a gap record covers the ticks that were
        due before ``now``.

        Raises:
            ConfigError: The file has another writer, or the steady clock has restarted.
            LayoutError: The file is no ledger of this version.
        """
        header = _read_header(Path(path))
        writer = cls(_open_locked(Path(path)), header)
        try:
            writer._recover(Path(path), now, cause)
        except BaseException:
            writer._release()
            raise
        return writer

    def append(self, tick: ControlTick) -> bool:
        """Write the record of one tick; ticks missing before it become a gap without cause.

        Returns:
            False if the disk is full; the tick is counted in ``lost``.

        Raises:
            ValueError: The tick is not newer than the last one.
        """
        if tick.index < self.next_index:
            raise ValueError(
                f'ledger tick {tick.index} is out of order: expected index >= {self.next_index}.'
            )
        missing = tick.index - self.next_index
        if missing and not self.gap(self.next_index, missing, Cause.NONE):
            return False
        self._was_in_motion = tick.in_motion
        return self._put(_pack(tick, len(self.header.joint_names)), tick.index + 1)

    def gap(self, first_index: int, count: int, cause: Cause) -> bool:
        """Write one record for ``count`` ticks nobody ran; in motion if the last tick was.

        Returns:
            False if the disk is full.
        """
        record = np.zeros(1, record_dtype(len(self.header.joint_names)))
        due_ns = self.header.due_ns(first_index)
        record['index'], record['count'] = first_index, count
        record['verdict'] = VERDICT_CODES.index(Verdict.STOPPED)
        record['cause'] = CAUSE_CODES.index(cause)
        record['flags'] = GAP | (IN_MOTION if self._was_in_motion else 0)
        record['due_ns'] = due_ns
        record['stamp_ns'] = self.header.start_stamp_ns + due_ns - self.header.start_ns
        record['observation_age_ns'] = record['row'] = -1
        record['tracking_error'] = record['command'] = record['measured'] = np.nan
        return self._put(record.tobytes()[_CHECK.size :], first_index + count)

    def close(self) -> None:
        """Cut the unused room off and close the file; a second call does nothing."""
        if self._map.closed:
            return
        self._map.flush()
        os.ftruncate(self._file, HEADER_BYTES + self._records * self._size)
        self._release()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()

    def _put(self, body: bytes, next_index: int) -> bool:
        start = HEADER_BYTES + self._records * self._size
        if start + self._size > len(self._map) and not self._grow():
            self.lost += 1
            return False
        self._map[start : start + self._size] = _CHECK.pack(zlib.crc32(body)) + body
        self._records += 1
        self.next_index = next_index
        return True

    def _grow(self) -> bool:
        # Reserving the blocks turns a full disk into an error here instead of a SIGBUS later.
        size = HEADER_BYTES + (self._records + BLOCK_RECORDS) * self._size
        try:
            os.posix_fallocate(self._file, 0, size)
        except OSError:
            return False
        self._map.close()
        self._map = mmap.mmap(self._file, 0)
        return True

    def _recover(self, path: Path, now: Instant, cause: Cause) -> None:
        records = _count_whole(self._map, self._size, 0)
        due = self.header.ticks_due(now.mono_ns)
        end = HEADER_BYTES + records * self._size
        if records:
            dtype = record_dtype(len(self.header.joint_names))
            last = np.frombuffer(self._map[end - self._size : end], dtype)[0]
            self.next_index = int(last['index']) + int(last['count'])
            self._was_in_motion = bool(last['flags'] & IN_MOTION)
        if due < self.next_index - 1:
            raise ConfigError(
                f'ledger {path} is of another boot: got tick {due} now, expected >= '
                f'{self.next_index - 1} (steady clock). Start a new run folder.'
            )
        # What follows a torn record must go, or it would come back as soon as that is rewritten.
        self._records = records
        self._map.close()
        os.ftruncate(self._file, end)
        self._map = mmap.mmap(self._file, 0)
        if due > self.next_index:
            self.gap(self.next_index, due - self.next_index, cause)

    def _release(self) -> None:
        self._map.close()
        os.close(self._file)


class LedgerReader:
    """Reads a ledger, also while it is written.

    Args:
        path: File.

    Raises:
        LayoutError: The file is no ledger of this version.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self.header = _read_header(self._path)
        self._dtype = record_dtype(len(self.header.joint_names))
        self._known = 0

    def records(self) -> RecordArray:
        """Return a copy of all whole records so far, oldest first."""
        with open(self._path, 'rb') as file:
            data = file.read()
        self._known = _count_whole(data, self._dtype.itemsize, self._known)
        return np.frombuffer(data, self._dtype, self._known, HEADER_BYTES).copy()


def to_records(ticks: Iterable[ControlTick], *, joints: int = len(JOINT_NAMES)) -> RecordArray:
    """Return ticks as records, without their CRC."""
    ticks = list(ticks)
    records = np.zeros(len(ticks), record_dtype(joints))
    for name in ('index', 'stamp_ns', 'due_ns', 'late_ns', 'observation_age_ns', 'epoch'):
        records[name] = [getattr(tick, name) for tick in ticks]
    for name in ('chunk_id', 'row', 'tracking_error'):
        records[name] = [getattr(tick, name) for tick in ticks]
    records['count'] = 1
    records['verdict'] = [VERDICT_CODES.index(tick.verdict) for tick in ticks]
    records['cause'] = [CAUSE_CODES.index(tick.cause) for tick in ticks]
    records['arm_state'] = [ARM_STATE_CODES.index(tick.arm_state) for tick in ticks]
    records['flags'] = [_flags(tick) for tick in ticks]
    for row, tick in zip(records, ticks, strict=True):
        row['command'] = _joints(tick.command, joints)
        row['measured'] = _joints(tick.measured, joints)
    return records


def _pack(tick: ControlTick, joints: int) -> bytes:
    """Return what ``to_records`` makes of a tick, without its CRC, in a third of the time."""
    head = _HEAD.pack(
        tick.index, 1, VERDICT_CODES.index(tick.verdict), CAUSE_CODES.index(tick.cause),
        ARM_STATE_CODES.index(tick.arm_state), _flags(tick), tick.stamp_ns, tick.due_ns,
        tick.late_ns, tick.observation_age_ns, tick.epoch, tick.chunk_id)
    rest = np.concatenate(((tick.row, tick.tracking_error), _joints(tick.command, joints),
                           _joints(tick.measured, joints)), dtype='<f4', casting='same_kind')
    return head + rest.tobytes()


def _flags(tick: ControlTick) -> int:
    return SENT * tick.is_sent | IN_MOTION * tick.in_motion | COVERED * tick.is_covered


def _joints(values: FloatArray, joints: int) -> FloatArray:
    return values if values.size == joints else np.full(joints, np.nan)


def _count_whole(data: bytes | mmap.mmap, size: int, known: int) -> int:
    """Return the number of whole records from the start, ``known`` of which were seen before."""
    count, end = known, HEADER_BYTES + (known + 1) * size
    while end <= len(data):
        check = _CHECK.unpack_from(data, end - size)[0]
        if zlib.crc32(data[end - size + _CHECK.size : end]) != check:
            break
        count, end = count + 1, end + size
    return count


def _pack_header(header: LedgerHeader) -> bytes:
    tables = {
        'verdicts': [item.value for item in VERDICT_CODES],
        'causes': [item.value for item in CAUSE_CODES],
        'arm_states': [item.value for item in ARM_STATE_CODES],
    }
    text = json.dumps(asdict(header) | tables).encode()
    if _PREFIX.size + len(text) > HEADER_BYTES:
        raise ConfigError(
            f'ledger header is too long: got {len(text)} bytes, expected <= '
            f'{HEADER_BYTES - _PREFIX.size} (bytes). Shorten the run id.'
        )
    return (_PREFIX.pack(MAGIC, len(text), zlib.crc32(text)) + text).ljust(HEADER_BYTES, b'\0')


def _read_header(path: Path) -> LedgerHeader:
    with open(path, 'rb') as file:
        data = file.read(HEADER_BYTES)
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        raise LayoutError(
            f'ledger {path} cannot be read: got a file that starts with {data[:8]!r}, expected '
            f'{MAGIC!r}. Give the ledger file of a run folder.'
        )
    _, length, check = _PREFIX.unpack_from(data)
    text = data[_PREFIX.size : _PREFIX.size + length]
    if zlib.crc32(text) != check:
        raise LayoutError(
            f'ledger {path} has a damaged header: got CRC {zlib.crc32(text):#x}, expected '
            f'{check:#x}. Take the recorded bag of the run instead.'
        )
    fields = json.loads(text)
    return _header_from_fields(path, fields)


def _header_from_fields(path: Path, fields: dict[str, Any]) -> LedgerHeader:
    tables = (
        ('verdicts', VERDICT_CODES),
        ('causes', CAUSE_CODES),
        ('arm_states', ARM_STATE_CODES),
    )
    for name, codes in tables:
        if fields.pop(name) != [item.value for item in codes]:
            raise LayoutError(
                f'ledger {path} has other {name}: expected those of this version. '
                'Read it with the version that wrote it.'
            )
    return LedgerHeader(**{**fields, 'joint_names': tuple(fields['joint_names'])})


def _write_new(path: Path, header: bytes) -> None:
    """Make the file appear with its whole header, or not at all."""
    partial = path.with_name(f'.{path.name}.{os.getpid()}')
    partial.write_bytes(header)
    try:
        os.link(partial, path)
    except FileExistsError:
        raise ConfigError(
            f'ledger {path} cannot be created: got an existing file, expected none. '
            'Reopen it, or start a new run folder.'
        ) from None
    finally:
        partial.unlink()


def _open_locked(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise ConfigError(
            f'ledger {path} has a writer: got a locked file, expected a free one. '
            'Stop the other bridge first.'
        ) from None
    return file
