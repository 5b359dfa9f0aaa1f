"""Whether a bag holds what its metadata promise, without decoding a message.

A file that was cut, or of which bytes were changed, may look complete from its metadata. Here the
checksums of the chunks, the end of each file and the counts of each topic are compared; of SQLite
its own check of the pages. What has no checksum, as other writers leave it, cannot be checked.
"""

from __future__ import annotations

import mmap
import sqlite3
import struct
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zlib import crc32

import yaml

from reflex_ros.bag.mcap_scan import (
    CHANNEL,
    CHUNK,
    FOOTER,
    HEAD,
    MAGIC,
    MESSAGE_INDEX,
    RECORD,
    Channel,
    parse_channel,
)
from reflex_ros.bag.metadata import METADATA, ROOT
from reflex_ros.core.yaml_text import parse_yaml

_PAGE_SIZE, _PAGES = struct.Struct('>16xH'), struct.Struct('>28xI')


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found.

    Attributes:
        damage: What is wrong with the files, in words.
        promised: Messages by topic as the metadata say; {} where they cannot be read.
        found: Messages by topic that are there; None where that cannot be told.
    """

    damage: tuple[str, ...]
    promised: dict[str, int]
    found: dict[str, int] | None

    @property
    def notes(self) -> list[str]:
        """Everything that is wrong, in words; [] for a whole bag."""
        return [*self.damage, *differences(self.promised, self.found or self.promised)]


def check_bag(path: Path | str) -> Checked:
    """Compare a bag, or one storage file, with what it promises. Reads every byte once."""
    path = Path(path)
    notes: list[str] = []
    if path.is_file():
        found = _counted(path, notes)
        return Checked(tuple(notes), {}, found)
    try:
        data = parse_yaml((path / METADATA).read_text(encoding='utf-8'))[ROOT]
        files = [path / Path(str(name)).name for name in data['relative_file_paths']]
        promised = {str(entry['topic_metadata']['name']): int(entry['message_count'])
                    for entry in data['topics_with_message_count']}
        if data.get('compression_mode'):
            return Checked((), promised, None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        return Checked((f'{METADATA} cannot be read: {_line(error)}',), {}, None)
    counts = [_counted(file, notes) for file in files]
    found = None
    if None not in counts:
        found = dict.fromkeys(promised, 0)
        for part in counts:
            for topic, count in (part or {}).items():
                found[topic] = found.get(topic, 0) + count
    return Checked(tuple(notes), promised, found)


def differences(promised: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """Return in words of which topics there are other numbers of messages than promised."""
    return [f'{topic}: {found.get(topic, 0)} of {count} messages are there'
            for topic, count in promised.items() if found.get(topic, 0) != count]


def is_torn(path: Path) -> bool:
    """Return whether a storage file has no end; looks at a few bytes only."""
    try:
        with open(path, 'rb') as file:
            head = file.read(64)
            size = file.seek(0, 2)
            if path.suffix == '.mcap':
                file.seek(max(0, size - len(MAGIC)))
                return bool(file.read() != MAGIC or size < 2 * len(MAGIC))
    except OSError:
        return True
    if len(head) < 64:
        return True
    (page,), (pages,) = _PAGE_SIZE.unpack_from(head), _PAGES.unpack_from(head)
    return bool(size < (65_536 if page == 1 else page) * pages)


def open_database(path: Path, *, is_read_only: bool = True) -> sqlite3.Connection:
    """Return a connection to a SQLite file, a cut one included.

    Args:
        path: The file.
        is_read_only: Nothing is changed; else what a killed writer left half done is undone.
    """
    name = quote(str(path.resolve()))
    base = sqlite3.connect(f'file:{name}?mode={"ro&immutable=1" if is_read_only else "rw"}',
                           uri=True)
    base.execute('PRAGMA writable_schema=ON')  # else a file shorter than it says is not opened
    return base


def _counted(path: Path, notes: list[str]) -> dict[str, int] | None:
    """Return the messages by topic of one file, None if that cannot be told."""
    if not path.is_file():
        notes.append(f'{path.name} is missing')
        return {}
    try:
        if path.suffix == '.mcap':
            with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0,
                                                     access=mmap.ACCESS_READ) as data:
                return _McapCheck(path.name, notes).run(data)
        return _sqlite_counts(path, notes)
    except (OSError, ValueError, LookupError, struct.error, sqlite3.Error) as error:
        notes.append(f'{path.name} cannot be checked: {_line(error)}')
        return None


class _McapCheck:
    def __init__(self, name: str, notes: list[str]) -> None:
        self._name, self._notes = name, notes
        self._channels: dict[int, Channel] = {}
        self._counts: dict[int, int] = {}
        self._chunks = self._indices = 0
        self._is_bad = False

    def run(self, data: Any) -> dict[str, int] | None:
        """Return the messages by topic; None without the index that tells them."""
        view = memoryview(data)
        try:
            broken = self._records(view)
            has_end = bytes(view[-len(MAGIC):]) == MAGIC
        finally:
            view.release()
        if broken:
            text = (f'a record at byte {broken} was changed' if has_end
                    else 'the end of the file is missing')
            self._notes.append(f'{self._name}: {text}')
            return None
        if self._chunks and not self._indices:
            return None
        counts: dict[str, int] = {}
        for number, count in self._counts.items():
            topic = self._channels[number].topic
            counts[topic] = counts.get(topic, 0) + count
        return counts

    def _records(self, view: memoryview) -> int:
        """Return where the file cannot be read on, 0 if it is whole up to its footer."""
        if bytes(view[:len(MAGIC)]) != MAGIC:
            raise ValueError('it does not begin as an MCAP file')
        at = len(MAGIC)
        while at + RECORD.size <= len(view):
            code, length = RECORD.unpack_from(view, at)
            body, stop = at + RECORD.size, at + RECORD.size + length
            if stop > len(view) or not 0 < code < 128:
                return at
            if code == CHUNK:
                self._chunk(view, body, at)
            elif code == MESSAGE_INDEX and not self._is_bad:
                (channel, size) = struct.unpack_from('<HI', view, body)
                self._counts[channel] = self._counts.get(channel, 0) + size // 16
                self._indices += 1
            elif code == CHANNEL:
                number, channel_ = parse_channel(view, body)
                self._channels[number] = channel_
            elif code == FOOTER:
                return 0 if bytes(view[stop:]) == MAGIC else at
            at = stop
        return at

    def _chunk(self, view: memoryview, body: int, at: int) -> None:
        self._chunks += 1
        _, _, size, crc = HEAD.unpack_from(view, body)
        (length,) = struct.unpack_from('<I', view, body + HEAD.size)
        start = body + HEAD.size + 4 + length + 8
        self._is_bad = bool(not length and crc and crc32(view[start:start + size]) != crc)
        if self._is_bad:
            self._notes.append(f'{self._name}: {size} bytes from byte {at} on were changed')


def _sqlite_counts(path: Path, notes: list[str]) -> dict[str, int] | None:
    if is_torn(path):
        notes.append(f'{path.name}: the end of the file is missing')
    with closing(open_database(path)) as base:
        try:
            found = [str(row[0]) for row in base.execute('PRAGMA quick_check(1)')]
            if found != ['ok']:
                notes.append(f'{path.name}: damaged pages: {_line(ValueError(found[0]))}')
            return dict(base.execute(
                'SELECT name, count(messages.id) FROM topics LEFT JOIN messages '
                'ON topics.id = messages.topic_id GROUP BY topics.id'))
        except sqlite3.DatabaseError as error:
            notes.append(f'{path.name}: damaged pages: {_line(error)}')
            return None


def _line(error: BaseException) -> str:
    text = ' '.join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + '...'
