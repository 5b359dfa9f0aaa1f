"""Makes a complete bag of one whose recorder was killed; the damaged one is kept beside it."""

from __future__ import annotations

import mmap
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rosbags.rosbag2.metadata import parse_qos

from reflex_ros.bag.files import LOCK, METADATA, SUFFIXES, BagFiles, BagTopic, lock_bag
from reflex_ros.bag.mcap_scan import McapScan
from reflex_ros.bag.schema import Schema, hash_of
from reflex_ros.core.errors import ConfigError, LayoutError

Rows = Iterator[tuple[str, int, bytes]]


@dataclass(frozen=True, slots=True)
class Repaired:
    """Result of a repair.

    Attributes:
        folder: The complete bag. ``kept``: the damaged one, None if nothing was damaged.
        messages: Saved messages by topic.
        lost_bytes: Bytes after the last whole record of each file, all files together.
    """

    folder: Path
    kept: Path | None
    messages: dict[str, int]
    lost_bytes: int


def needs_repair(folder: Path | str) -> bool:
    """Return whether a folder holds bag data without metadata."""
    folder = Path(folder)
    return not (folder / METADATA).is_file() and bool(_data_files(folder))


def repair(folder: Path | str) -> Repaired:
    """Rewrite a bag that has no metadata; nothing is deleted.

    The new bag takes the name of the old one, which is renamed to ``<name>.damaged``. A bag with
    metadata is left as it is.

    Raises:
        ConfigError: There is no bag data, its recorder still runs, or ``<name>.damaged`` exists.
        LayoutError: A file is of another kind.
    """
    folder = Path(folder).resolve()
    if (folder / METADATA).is_file():
        return Repaired(folder, None, {}, 0)
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
            messages, lost = _rewritten(files, work / folder.name)
            _keep_reports(folder, work / folder.name)
            folder.rename(kept)
            (work / folder.name).rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    (kept / LOCK).unlink(missing_ok=True)
    return Repaired(folder, kept, messages, lost)


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


def _rewritten(files: list[Path], target: Path) -> tuple[dict[str, int], int]:
    try:
        return _rewrite(files, target)
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        raise LayoutError(
            f'bag {files[0].parent} cannot be repaired: got {type(error).__name__}: {error}, '
            'expected whole records. Its bytes were changed, not only cut; it is left as it is.'
        ) from error


def _rewrite(files: list[Path], target: Path) -> tuple[dict[str, int], int]:
    storage = 'mcap' if files[0].suffix == '.mcap' else 'sqlite3'
    read: Callable[[Path, _Bag], int] = _read_mcap if storage == 'mcap' else _read_sqlite
    bag = _Bag(target, storage)
    try:
        # Topics must be known before the first message is written: one pass for each.
        lost = sum(read(path, bag) for path in files)
        bag.begin()
        for path in files:
            read(path, bag)
    finally:
        bag.close()
    return bag.counts, lost


class _Bag:
    """The new bag: collects topics until ``begin``, messages from then on."""

    def __init__(self, folder: Path, storage: str) -> None:
        self.counts: dict[str, int] = {}
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
        """Open the bag with the topics so far."""
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
            for channel in scan.channels.values():
                bag.add_topic(channel.topic, scan.schemas[channel.schema], channel.qos)
            return size - scan.end if scan.end < size else 0
        finally:
            scan.data = memoryview(b'')
            view.release()


def _read_sqlite(path: Path, bag: _Bag) -> int:
    """Read a database; SQLite itself rolls back what was torn."""
    try:
        with closing(sqlite3.connect(path)) as base:
            texts = {
                kind: (kind, text)
                for kind, text in base.execute(
                    'SELECT topic_type, encoded_message_definition FROM message_definitions'
                )
            }
            rows = base.execute('SELECT id, name, type, offered_qos_profiles FROM topics')
            names = {}
            for number, name, kind, qos in rows:
                names[number] = name
                bag.add_topic(name, texts[kind], qos)
            found = base.execute('SELECT topic_id, timestamp, data FROM messages ORDER BY id')
            bag.add((names[number], stamp_ns, data) for number, stamp_ns, data in found)
    except sqlite3.DatabaseError as error:
        raise LayoutError(
            f'bag file {path} cannot be read: got {error}, expected a SQLite database of a bag. '
            'Give another file.'
        ) from error
    return 0
