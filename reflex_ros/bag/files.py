"""The files of one bag, written by one thread: parts, flushing, metadata, room for the end.

Parts are named as rosbag2 names them (``bag_0.mcap``, ``bag_1.mcap``). Room for the end of a part
and for the metadata is taken before the first message, so that a full disk still leaves a bag
that is complete and counts exactly what it holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from rosbags.interfaces import Qos

from reflex_ros.bag.metadata import (
    METADATA,
    ROOT,
    BagTopic,
    file_name,
    metadata_of,
    offered_qos,
)
from reflex_ros.bag.room import Room
from reflex_ros.bag.store_mcap import McapStore
from reflex_ros.bag.store_sqlite import SqliteStore
from reflex_ros.bag.tally import Tally, sum_of
from reflex_ros.core.errors import ConfigError

__all__ = ['METADATA', 'BagFiles', 'BagTopic', 'lock_bag', 'offered_qos']

LOCK = '.writer'
TAIL = 'tail'
STORAGES = ('mcap', 'sqlite3')
SUFFIXES = ('.mcap', '.db3')
_DUMPER = getattr(yaml, 'CSafeDumper', yaml.SafeDumper)
"""The same text from C, where PyYAML was built with it: a tenth of the time."""
_WIDTH = 2**20
"""Profiles stay on one line, as rosbag2 writes them."""
_TOPIC_BYTES = 1024
"""Room in the metadata for one topic: names, type, profiles of a few publishers, hash."""
_PART_BYTES = 256


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
        self._topics = {topic.name: topic for topic in topics}
        self._storage = storage
        self._done: dict[str, Tally] = {}
        self._store: McapStore | SqliteStore | None = None
        self._tail: Room | None = None
        self._metadata: Room | None = None
        self._lock = -1

    @property
    def counts(self) -> dict[str, int]:
        """Messages by topic: those on the disk, and those that wait for the next flush."""
        total = sum_of(self._done.values())
        if self._store is not None:
            total.merge(self._store.stored)
            total.merge(self._store.pending)
        return {name: total.counts.get(name, 0) for name in self._topics}

    def open(self) -> None:
        """Create the folder and the first part, and take the room for their end.

        Raises:
            ConfigError: The folder exists or cannot be created.
            OSError: The disk has no room for the end.
        """
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(
                f'bag {self.folder} cannot be created: got {error.strerror}, expected a new '
                'folder on a disk with room. Name another run folder.'
            ) from error
        self._lock = lock_bag(self.folder)
        self._metadata = Room(self.folder / METADATA, self._metadata_bytes)
        self._begin()

    def offer(self, profiles: Mapping[str, tuple[Qos, ...]]) -> None:
        """Set the profiles of topics by name, before the first message."""
        for name, qos in profiles.items():
            self._topics[name] = replace(self._topics[name], qos=qos)

    def write(self, topic: str, stamp_ns: int, data: bytes) -> None:
        """Write one serialized message.

        Args:
            topic: Full topic name.
            stamp_ns: ROS time of receipt.
            data: CDR with its encapsulation header.

        Raises:
            KeyError: The bag has no such topic.
            OSError: The disk is full or gone: what was not flushed is lost, and ``counts`` says
                so. Close the bag.
        """
        entry, store = self._topics[topic], self._store
        assert store is not None
        if not self.part_start_ns:
            self._register()
        store.write(entry, stamp_ns, data)
        if not self.part_start_ns:
            self.part_start_ns = stamp_ns
        self.part_bytes += len(data)

    def flush(self) -> None:
        """Hand everything to the operating system, so that the death of the process loses nothing.

        Raises:
            OSError: As for ``write``.
        """
        if self._store is None:
            return
        self._store.flush()
        if self._tail is not None:
            self._tail.grow(self._tail_bytes)

    def split(self) -> None:
        """Complete the part and begin the next one.

        Raises:
            OSError: As for ``write``; the part is complete.
        """
        self._end()
        if self._tail is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))
        self._begin()

    def close(self) -> None:
        """Complete the bag; a second call does nothing.

        Raises:
            OSError: The disk is gone. What could be written is there.
        """
        if self._lock < 0:
            return
        try:
            try:
                self._end()
            finally:
                if self._metadata is not None:
                    topics = [*self._topics.values()]
                    self._metadata.fill(
                        _dump({ROOT: metadata_of(self._done, topics, self._storage)}))
        finally:
            self._release()

    def _begin(self) -> None:
        kind = McapStore if self._storage == 'mcap' else SqliteStore
        assert self._metadata is not None
        self._metadata.grow(self._metadata_bytes)
        path = self.folder / file_name(self.folder, len(self._done), kind.SUFFIX)
        self._store = kind(path)
        self.part_bytes = self.part_start_ns = 0
        if self._tail is None:
            self._tail = Room(self.folder / TAIL, self._tail_bytes)

    def _register(self) -> None:
        assert self._store is not None
        for topic in self._topics.values():
            if not topic.is_optional:
                self._store.register(topic)

    @property
    def _metadata_bytes(self) -> int:
        return _TOPIC_BYTES * (len(self._topics) + 4) + _PART_BYTES * (len(self._done) + 1)

    @property
    def _tail_bytes(self) -> int:
        store = 0 if self._store is None else self._store.tail_bytes
        return store + self._metadata_bytes

    def _end(self) -> None:
        """Complete the part, in the room that was taken for it if there is no other."""
        store = self._store
        if store is None:
            return
        name, topics = store.path.name, [*self._topics.values()]

        def metadata() -> str:
            return _dump(metadata_of({name: store.stored}, topics, self._storage))

        try:
            try:
                if not self.part_start_ns:
                    self._register()
                store.close(metadata)
            except OSError:
                if self._tail is not None:
                    self._tail.release()
                    self._tail = None
                store.close(metadata, may_give_up=True)
        finally:
            store.abandon()
            self._done[name], self._store = store.stored, None

    def _release(self) -> None:
        for room in (self._tail, self._metadata):
            if room is not None:
                room.release()
        os.close(self._lock)
        self._lock = -1
        (self.folder / LOCK).unlink(missing_ok=True)


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


def _dump(metadata: dict[str, Any]) -> str:
    return str(yaml.dump(metadata, Dumper=_DUMPER, sort_keys=False, width=_WIDTH))


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
