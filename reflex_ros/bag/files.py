"""The files of one bag, written by one thread: parts, flushing, metadata.

Parts are named as rosbag2 names them (``bag_0.mcap``, ``bag_1.mcap``), and the metadata has
version 8, which ROS 2 Humble and Jazzy both read. A part is written in a folder of its own and
moved beside the metadata when it is complete.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import StoragePlugin, Writer

from reflex_ros.bag.schema import Schema
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.yaml_text import parse_yaml

METADATA = 'metadata.yaml'
LOCK = '.writer'
STORAGES = ('mcap', 'sqlite3')
SUFFIXES = ('.mcap', '.db3')
_VERSION = 8
_ROOT = 'rosbag2_bagfile_information'
_FOREVER = QosTime(9_223_372_036, 854_775_807)


@dataclass(frozen=True, slots=True)
class BagTopic:
    """One topic of a bag.

    Attributes:
        name: Full topic name, e.g. ``/control_tick``.
        schema: Its type.
        qos: Profiles that its publishers offer.
        is_bulk: Whether it is images: these are given up first when the disk is slow.
    """

    name: str
    schema: Schema
    qos: tuple[Qos, ...] = ()
    is_bulk: bool = False


def offered_qos(*, is_reliable: bool, is_latched: bool, depth: int) -> Qos:
    """Return a profile as a bag stores it; deadline, lifespan and lease are infinite."""
    return Qos(
        QosHistory.KEEP_LAST,
        depth,
        QosReliability.RELIABLE if is_reliable else QosReliability.BEST_EFFORT,
        QosDurability.TRANSIENT_LOCAL if is_latched else QosDurability.VOLATILE,
        _FOREVER,
        _FOREVER,
        QosLiveliness.AUTOMATIC,
        _FOREVER,
        False,
    )


class BagFiles:
    """Writes one bag. Not thread-safe: open, write and close in one thread.

    Args:
        folder: Folder of the bag; it must not exist.
        topics: All its topics.
        storage: ``mcap`` or ``sqlite3``.

    Raises:
        ConfigError: The storage is unknown, or a topic is named twice.
    """

    def __init__(
        self, folder: Path | str, topics: Sequence[BagTopic], *, storage: str = 'mcap'
    ) -> None:
        _check(storage, topics)
        self.folder = Path(folder)
        self.part_bytes = 0
        self.part_start_ns = 0
        self._topics = tuple(topics)
        self._plugin = StoragePlugin[storage.upper()]
        self._parts: list[str] = []
        self._writer: Writer | None = None
        self._connections: dict[str, Any] = {}
        self._lock = -1

    def open(self) -> None:
        """Create the folder and the first part.

        Raises:
            ConfigError: The folder exists or cannot be created.
        """
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(
                f'bag {self.folder} cannot be created: got {error.strerror}, expected a new '
                'folder on a disk with room. Name another run folder.'
            ) from error
        self._lock = lock_bag(self.folder)
        self._begin()

    def write(self, topic: str, stamp_ns: int, data: bytes) -> None:
        """Write one serialized message.

        Args:
            topic: Full topic name.
            stamp_ns: ROS time of receipt.
            data: CDR with its encapsulation header.

        Raises:
            KeyError: The bag has no such topic.
            OSError: The disk is full or gone.
        """
        connection = self._connections[topic]
        assert self._writer is not None
        self._writer.write(connection, stamp_ns, data)
        self.part_start_ns = self.part_start_ns or stamp_ns
        self.part_bytes += len(data)

    def flush(self) -> None:
        """Hand everything to the operating system, so that the death of the process loses nothing.

        The writer alone would keep up to 1 MiB (MCAP) or all messages (SQLite) to itself.
        """
        storage: Any = self._writer and self._writer.storage
        if storage is None:
            return
        if self._plugin is StoragePlugin.SQLITE3:
            storage.conn.commit()
            return
        if storage.chunk.msgs:
            storage.close_chunk()
        storage.bio.flush()

    def split(self) -> None:
        """Complete the part and begin the next one."""
        self._end()
        self._begin()

    def close(self) -> None:
        """Complete the bag; a second call does nothing."""
        if self._lock < 0:
            return
        try:
            self._end()
            self._write_metadata()
        finally:
            os.close(self._lock)
            self._lock = -1
            (self.folder / LOCK).unlink(missing_ok=True)

    def _begin(self) -> None:
        part = self.folder / f'{self.folder.name}_{len(self._parts)}'
        self._parts.append(part.name)
        self.part_bytes = self.part_start_ns = 0
        self._writer = Writer(part, version=_VERSION, storage_plugin=self._plugin)
        self._writer.open()
        self._connections = {topic.name: self._connect(topic) for topic in self._topics}
        self.flush()

    def _connect(self, topic: BagTopic) -> Any:
        assert self._writer is not None
        return self._writer.add_connection(
            topic.name,
            topic.schema.type,
            msgdef=topic.schema.text,
            rihs01=topic.schema.rihs01,
            offered_qos_profiles=topic.qos,
        )

    def _end(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.close()
        for path in writer.path.iterdir():
            # The metadata of a part stays hidden until those of all parts are merged.
            name = f'.{writer.path.name}.yaml' if path.name == METADATA else path.name
            path.rename(self.folder / name)
        writer.path.rmdir()

    def _write_metadata(self) -> None:
        hidden = [self.folder / f'.{part}.yaml' for part in self._parts]
        loaded = [parse_yaml(path.read_text(encoding='utf-8'))[_ROOT] for path in hidden]
        merged = {_ROOT: merge_metadata(loaded)}
        partial = self.folder / f'.{METADATA}'
        partial.write_text(yaml.safe_dump(merged, sort_keys=False), encoding='utf-8')
        partial.rename(self.folder / METADATA)
        for path in hidden:
            path.unlink()


def merge_metadata(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the metadata of a bag from those of its parts (one or more, same topics)."""
    merged = dict(parts[0])
    filled = [part for part in parts if part['message_count']]
    starts = [p['starting_time']['nanoseconds_since_epoch'] for p in filled]
    ends = [s + p['duration']['nanoseconds'] for s, p in zip(starts, filled, strict=True)]
    start = min(starts, default=0)
    merged['starting_time'] = {'nanoseconds_since_epoch': start}
    merged['duration'] = {'nanoseconds': max(ends, default=start) - start}
    merged['message_count'] = sum(part['message_count'] for part in parts)
    merged['relative_file_paths'] = [name for p in parts for name in p['relative_file_paths']]
    merged['files'] = [entry for part in parts for entry in part['files']]
    merged['topics_with_message_count'] = [
        {
            'topic_metadata': dict(entries[0]['topic_metadata']),
            'message_count': sum(entry['message_count'] for entry in entries),
        }
        for entries in zip(*(part['topics_with_message_count'] for part in parts), strict=True)
    ]
    return merged


def lock_bag(folder: Path) -> int:
    """Lock a bag against a second writer; return the open file, whose closing unlocks.

    Raises:
        ConfigError: A living process writes the bag.
    """
    file = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise ConfigError(
            f'bag {folder} is in use: got a locked bag, expected a free one. '
            'Stop its recorder first.'
        ) from None
    return file


def _check(storage: str, topics: Sequence[BagTopic]) -> None:
    if storage not in STORAGES:
        raise ConfigError(
            f'bag storage is unknown: got {storage!r}, expected one of {", ".join(STORAGES)}. '
            'Set recorder.storage.'
        )
    names = [topic.name for topic in topics]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f'bag topics are not distinct: got {", ".join(twice)} twice, expected each once. '
            'Correct recorder.topics.'
        )
