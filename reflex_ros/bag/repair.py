"""Makes a complete bag of one whose recorder was killed; the damaged one is kept beside it."""

from __future__ import annotations

import mmap
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rosbags.rosbag2.metadata import parse_qos

from reflex_ros.bag.check import check_bag, differences, is_torn, open_database
from reflex_ros.bag.files import LOCK, METADATA, SUFFIXES, BagFiles, BagTopic, lock_bag
from reflex_ros.bag.mcap_scan import McapScan
from reflex_ros.bag.schema import Schema, find_schema, hash_of
from reflex_ros.core.errors import ConfigError, LayoutError

Rows = Iterator[tuple[str, int, bytes]]


@dataclass(frozen=True, slots=True)
class Repaired:
    """Result of a repair.

    Attributes:
        folder: The complete bag. ``kept``: the damaged one, None if nothing was damaged.
        messages: Saved messages by topic.
        lost_bytes: Bytes after the last whole record of each file, all files together.
        missing: What was damaged, in words.
    """

    folder: Path
    kept: Path | None
    messages: dict[str, int]
    lost_bytes: int
    missing: tuple[str, ...] = ()


def needs_repair(folder: Path | str) -> bool:
    """Return whether a folder holds bag data without metadata, or files without an end."""
    folder = Path(folder)
    files = _data_files(folder)
    return bool(files) and (not (folder / METADATA).is_file() or any(map(is_torn, files)))


def repair(folder: Path | str) -> Repaired:
    """Rewrite a bag that has no metadata, or less than they promise; nothing is deleted.

    The new bag takes the name of the old one, which is renamed to ``<name>.damaged``. A whole bag
    is left as it is.

    Raises:
        ConfigError: There is no bag data, its recorder still runs, or ``<name>.damaged`` exists.
        LayoutError: A file is of another kind.
    """
    folder = Path(folder).resolve()
    missing: list[str] = []
    promised: dict[str, int] = {}
    if (folder / METADATA).is_file():
        checked = check_bag(folder)
        if not checked.notes:
            return Repaired(folder, None, {}, 0)
        missing, promised = [*checked.damage], checked.promised
    files = _data_files(folder)
    kept = folder.with_name(f'{folder.name}.damaged')
    if not files or kept.exists():
        found = f'an existing {kept.name}' if files else 'no .mcap or .db3 file'
        raise ConfigError(
            f'bag {folder} cannot be repaired: got {found}, expected bag data that was not '
            'repaired before. Give the folder of the bag.'
        )
    with _locked(folder):
        work = folder.with_name(f'.{folder.name}.repair')
        shutil.rmtree(work, ignore_errors=True)
        try:
            messages, lost = _rewritten(files, work / folder.name, missing)
            _keep_reports(folder, work / folder.name)
            folder.rename(kept)
            (work / folder.name).rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    (kept / LOCK).unlink(missing_ok=True)
    missing += differences(promised, messages)
    return Repaired(folder, kept, messages, lost, tuple(dict.fromkeys(missing)))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = lock_bag(folder)
    try:
        yield
    finally:
        os.close(lock)


def _data_files(folder: Path) -> list[Path]:
    """Return the storage files in the order of their parts.

    Those of the folder itself, and of the part that was being written, which has a folder of its
    own with the name of the bag and a number. What lies deeper or beside it is another bag.
    """
    if not folder.is_dir():
        return []
    own = [path for suffix in SUFFIXES for path in folder.glob(f'*{suffix}')]
    names = {folder.name, *(path.stem.rsplit('_', 1)[0] for path in own)}
    parts = [sub for sub in folder.iterdir() if sub.is_dir() and _digits(sub.name)
             and sub.name.rsplit('_', 1)[0] in names and not (sub / METADATA).is_file()]
    files = [*own, *(path for part in parts for suffix in SUFFIXES
                     for path in part.glob(f'*{suffix}'))]
    return sorted(files, key=lambda path: (int(_digits(path.stem) or 0), path.name))


def _digits(stem: str) -> str:
    tail = stem.rsplit('_', 1)[-1]
    return tail if tail.isdigit() else ''


def _keep_reports(old: Path, new: Path) -> None:
    for path in old.glob('[!.]*.json'):
        shutil.copy2(path, new / path.name)


def _rewritten(files: list[Path], target: Path,
               missing: list[str]) -> tuple[dict[str, int], int]:
    try:
        return _rewrite(files, target, missing)
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        raise LayoutError(
            f'bag {files[0].parent} cannot be repaired: got {type(error).__name__}: {error}, '
            'expected whole records. Its bytes were changed, not only cut; it is left as it is.'
        ) from error


def _rewrite(files: list[Path], target: Path,
             missing: list[str]) -> tuple[dict[str, int], int]:
    storage = 'mcap' if files[0].suffix == '.mcap' else 'sqlite3'
    read: Callable[[Path, _Bag], int] = _read_mcap if storage == 'mcap' else _read_sqlite
    bag = _Bag(target, storage, missing)
    try:
        # Topics must be known before the first message is written: one pass for each.
        lost = sum(_first_read(read, path, bag, is_alone=len(files) == 1) for path in files)
        files = [path for path in files if path not in bag.unreadable]
        bag.begin()
        for path in files:
            read(path, bag)
    finally:
        bag.close()
    return bag.counts, lost


def _first_read(read: Callable[[Path, _Bag], int], path: Path, bag: _Bag, *,
                is_alone: bool) -> int:
    """Read a file; one of several that is none at all costs the others nothing."""
    try:
        return read(path, bag)
    except (LayoutError, ArithmeticError, LookupError, TypeError, ValueError,
            struct.error) as error:
        if is_alone:
            raise
        bag.unreadable.append(path)
        bag.missing.append(f'{path.name}: cannot be read: {" ".join(str(error).split()):.200}')
        return path.stat().st_size


class _Bag:
    """The new bag: collects topics until ``begin``, messages from then on."""

    def __init__(self, folder: Path, storage: str, missing: list[str]) -> None:
        self.counts: dict[str, int] = {}
        self.missing = missing
        self.unreadable: list[Path] = []
        self.texts: dict[str, str] = {}
        self._folder, self._storage = folder, storage
        self._topics: dict[str, BagTopic] = {}
        self._files: BagFiles | None = None

    def add_topic(self, name: str, schema: tuple[str, str], qos: str) -> None:
        """Note a topic with (type, definition) and the YAML text of its profiles."""
        if name not in self._topics:
            kind, text = schema
            full = Schema(kind, text, hash_of(kind, text))
            self._topics[name] = BagTopic(name, full, tuple(parse_qos(qos)))

    def begin(self) -> None:
        """Open the bag with the topics so far.

        Raises:
            LayoutError: No file could be read.
        """
        if self.unreadable and not self._topics:
            raise LayoutError(
                f'bag cannot be repaired: got {"; ".join(self.missing):.400}, expected a file '
                'that can be read. Give another bag.'
            )
        self._files = BagFiles(self._folder, list(self._topics.values()), storage=self._storage)
        self._files.open()
        self.counts = dict.fromkeys(self._topics, 0)

    def add(self, rows: Rows) -> None:
        """Write the messages; before ``begin`` only look at them."""
        for topic, stamp_ns, data in rows:
            if self._files is not None:
                self._files.write(topic, stamp_ns, data)
                self.counts[topic] += 1

    def close(self) -> None:
        """Complete the bag, if it was opened."""
        if self._files is not None:
            self._files.close()


def _read_mcap(path: Path, bag: _Bag) -> int:
    size = path.stat().st_size
    if size == 0:
        return 0
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        try:
            scan = McapScan(view)
            bag.add(scan.messages())
            bag.missing += [f'{path.name}: {text}' for text in scan.damage]
            for channel in scan.channels.values():
                bag.add_topic(channel.topic, scan.schemas[channel.schema], channel.qos)
            return size - scan.end if scan.end < size else 0
        finally:
            scan.data = memoryview(b'')
            view.release()


def _read_sqlite(path: Path, bag: _Bag) -> int:
    """Read a database as far as its pages are whole; SQLite itself rolls back what was torn."""
    try:
        with closing(open_database(path, is_read_only=False)) as base:
            with suppress(sqlite3.DatabaseError):  # another part may have what is lost here
                bag.texts |= dict(base.execute(
                    'SELECT topic_type, encoded_message_definition FROM message_definitions'))
            rows = base.execute('SELECT id, name, type, offered_qos_profiles FROM topics')
            names = {}
            for number, name, kind, qos in rows:
                names[number] = name
                text = bag.texts.get(kind) or find_schema(kind).text
                bag.add_topic(name, (kind, text), qos)
            bag.add(_sqlite_rows(base, path, names, bag.missing))
    except (sqlite3.DatabaseError, ConfigError) as error:
        raise LayoutError(
            f'bag file {path} cannot be read: got {error}, expected a SQLite database of a bag. '
            'Give another file.'
        ) from error
    return 0


def _sqlite_rows(base: sqlite3.Connection, path: Path, names: dict[int, str],
                 missing: list[str]) -> Rows:
    count = 0
    try:
        found = base.execute('SELECT topic_id, timestamp, data FROM messages ORDER BY id')
        for number, stamp_ns, data in found:
            if number in names and isinstance(stamp_ns, int) and isinstance(data, bytes):
                count += 1
                yield names[number], stamp_ns, data
    except sqlite3.DatabaseError as error:
        missing.append(f'{path.name}: what follows message {count} cannot be read: {error}')
