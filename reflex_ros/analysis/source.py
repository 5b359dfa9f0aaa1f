"""Messages of a bag as far as they can be read: a damaged one gives what is whole, and says so.

Nothing is written: a bag whose recorder was killed is read beside its missing metadata.
"""

from __future__ import annotations

import mmap
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from reflex_ros.bag.check import check_bag, open_database
from reflex_ros.bag.files import METADATA, SUFFIXES
from reflex_ros.bag.mcap_scan import MAGIC, McapScan
from reflex_ros.bag.read import BagMessage, BagReader
from reflex_ros.bag.schema import find_schema, typestore_of
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.yaml_text import parse_yaml

NEWEST_METADATA = 9
"""Newest version of ``metadata.yaml`` that is understood: that of ROS 2 Jazzy."""


@dataclass(slots=True)
class Source:
    """One bag, opened once for every pass over it.

    Attributes:
        path: Folder of the bag, or one storage file.
        notes: What could not be read, in words; grows while messages are read.
        types: Type of each topic, known before the first pass where there is metadata.
        counts: Messages of each topic as the metadata say; empty without.
    """

    path: Path
    notes: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    _is_whole: bool = True
    _reader: BagReader | None = None
    _store: Any = None

    def note(self, text: str) -> None:
        """Remember what could not be read, once."""
        if text not in self.notes:
            self.notes.append(text)

    def messages(self, wanted: Callable[[str, str], bool], *, start_ns: int | None = None,
                 stop_ns: int | None = None) -> Iterator[BagMessage]:
        """Yield the messages of the topics for which ``wanted(topic, type)`` holds.

        Ends early where the file is damaged, with a note.

        Args:
            wanted: Which topics.
            start_ns, stop_ns: Receipt from and before, ROS time; a damaged bag is read whole.
        """
        rows = (self._read(wanted, start_ns, stop_ns) if self._is_whole
                else self._salvage(wanted))
        count = 0
        try:
            for message in rows:
                count += 1
                yield message
        except Exception as error:  # the libraries raise anything for damaged bytes
            self.note(f'{self.path.name}: reading ended after {count} messages: {_short(error)}')

    def decode(self, message: BagMessage) -> Any:
        """Return a message as an object with the fields of its definition.

        Raises:
            Exception: Whatever the library says of damaged bytes.
        """
        if self._reader is not None:
            return self._reader.decode(message)
        return self._store.deserialize_cdr(message.data, message.type)

    def close(self) -> None:
        """Close the files; the next pass opens them again."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _read(self, wanted: Callable[[str, str], bool], start_ns: int | None,
              stop_ns: int | None) -> Iterator[BagMessage]:
        if self._reader is None:
            self._reader = BagReader(self.path)
        names = [n for n, i in self._reader.topics.items() if wanted(n, i.type)]
        if names:
            yield from self._reader.messages(*names, start_ns=start_ns, stop_ns=stop_ns)

    def _salvage(self, wanted: Callable[[str, str], bool]) -> Iterator[BagMessage]:
        for path in _compressed(self.path):
            self.note(f'{path.name}: compressed as a whole, so that no part of it can be read')
        for path in storage_files(self.path):
            read = _scan_mcap if path.suffix == '.mcap' else _scan_sqlite
            try:
                for message in read(path, self):
                    if wanted(message.topic, message.type):
                        yield message
            except Exception as error:  # the libraries raise anything for damaged bytes
                self.note(f'{path.name}: reading ended early: {_short(error)}')

    def learn(self, definitions: dict[str, str]) -> None:
        """Take message definitions by type."""
        self._store = typestore_of(definitions.items())


def open_source(path: Path | str) -> Source:
    """Open a bag, whole or damaged.

    Raises:
        ConfigError: There is no bag, or a newer rosbag2 wrote it.
    """
    path = Path(path)
    if not has_data(path):
        raise ConfigError(
            f'bag {path} cannot be read: got {_what(path)}, expected a rosbag2 folder with '
            f'{METADATA}, or a {" or ".join(SUFFIXES)} file. Give the folder of a bag or run.'
        )
    _check_version(path)
    source = Source(path)
    try:
        checked = check_bag(path)
        source._reader = reader = BagReader(path)
        source.types = {name: info.type for name, info in reader.topics.items()}
        source.counts = {name: info.messages for name, info in reader.topics.items()}
        if checked.damage:
            # the library would stop at the first chunk or page that is damaged
            source._is_whole = False
            source.note(f'{path.name}: damaged, read as far as it is whole: '
                        f'{"; ".join(checked.damage):.400}')
            source.close()
    except Exception as error:  # damaged metadata or index: read what is whole
        source._is_whole = False
        source.note(f'{path.name}: damaged or incomplete, read as far as it is whole: '
                    f'{_short(error)}')
    return source


def storage_files(path: Path) -> list[Path]:
    """Return the storage files of a bag in the order of their parts."""
    if path.is_file():
        return [path] if path.suffix in SUFFIXES else []
    found = [file for suffix in SUFFIXES for file in path.rglob(f'*{suffix}')]
    return sorted(found, key=lambda file: (_part(file.stem), file.name))


def has_data(path: Path) -> bool:
    """Return whether there is a storage file, compressed or not."""
    return bool(storage_files(path) or _compressed(path))


def _compressed(path: Path) -> list[Path]:
    """Return the storage files that were compressed as a whole."""
    return [file for suffix in SUFFIXES for file in path.glob(f'*{suffix}.zstd')]


def _part(stem: str) -> int:
    tail = stem.rsplit('_', 1)[-1]
    return int(tail) if tail.isdecimal() else 0


def _check_version(path: Path) -> None:
    """Refuse a bag of a newer rosbag2; damaged metadata are another matter."""
    try:
        text = (path / METADATA).read_text(encoding='utf-8')
        version = parse_yaml(text)['rosbag2_bagfile_information']['version']
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return
    if isinstance(version, int) and version > NEWEST_METADATA:
        raise ConfigError(
            f'bag {path} is of a newer rosbag2: got metadata version {version}, expected at most '
            f'{NEWEST_METADATA}. Convert it with ros2 bag convert, or use a newer reflex_ros.'
        )


def _scan_mcap(path: Path, source: Source) -> Iterator[BagMessage]:
    if path.stat().st_size < len(MAGIC):
        source.note(f'{path.name}: empty file')
        return
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        scan = McapScan(view)
        known = 0
        try:
            for topic, stamp_ns, body in scan.messages():
                if len(scan.schemas) != known:
                    known = len(scan.schemas)
                    source.learn(dict(scan.schemas.values()))
                    source.types |= {c.topic: scan.schemas[c.schema][0]
                                     for c in scan.channels.values()}
                yield BagMessage(topic, source.types[topic], stamp_ns, body)
            for text in scan.damage:
                source.note(f'{path.name}: {text}')
            if scan.end < len(view):
                source.note(f'{path.name}: {len(view) - scan.end} bytes at the end are torn')
        finally:
            scan.data = memoryview(b'')
            view.release()


def _scan_sqlite(path: Path, source: Source) -> Iterator[BagMessage]:
    with closing(_open(path)) as base:
        rows = base.execute('SELECT id, name, type FROM topics').fetchall()
        texts: dict[str, str] = {}
        with suppress(sqlite3.DatabaseError):  # those that are lost are looked up
            texts = dict(base.execute(
                'SELECT topic_type, encoded_message_definition FROM message_definitions'))
        source.learn({kind: texts.get(kind) or find_schema(kind).text for _, _, kind in rows})
        names = {number: (name, kind) for number, name, kind in rows}
        source.types |= dict(names.values())
        for number, stamp_ns, data in base.execute(
                'SELECT topic_id, timestamp, data FROM messages ORDER BY id'):
            yield BagMessage(*names[number], stamp_ns, data)


def _open(path: Path) -> sqlite3.Connection:
    """Return a connection that changes nothing, also to a file whose writer was killed."""
    journal = path.with_name(f'{path.name}-journal')
    if not journal.exists():
        return open_database(path)
    # What the writer left half done must be undone, and not here: in a copy in memory.
    with TemporaryDirectory() as folder:
        for file in (path, journal):
            shutil.copy(file, Path(folder) / file.name)
        with closing(open_database(Path(folder) / path.name, is_read_only=False)) as base:
            copy = sqlite3.connect(':memory:')
            base.backup(copy)
    return copy


def _what(path: Path) -> str:
    if not path.exists():
        return 'no such file or folder'
    if (path / METADATA).is_file():
        return f'{METADATA} without the files that it names'
    return 'a folder without bag data' if path.is_dir() else f'a {path.suffix or "plain"} file'


def _short(error: Exception) -> str:
    text = ' '.join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + '...'
