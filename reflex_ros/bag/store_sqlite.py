"""One SQLite file of a bag, with the tables of rosbag2: what is committed is whole.

Not to be shared between threads: SQLite binds a connection to the thread that made it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from reflex_ros.bag.metadata import DISTRO, VERSION, BagTopic, profiles_text
from reflex_ros.bag.tally import Tally

COMMIT_BYTES = 2**19
"""Most bytes that one failed commit can lose."""
_TABLES = f"""
CREATE TABLE schema(schema_version INTEGER PRIMARY KEY, ros_distro TEXT NOT NULL);
CREATE TABLE metadata(id INTEGER PRIMARY KEY, metadata_version INTEGER NOT NULL,
  metadata TEXT NOT NULL);
CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
  serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL,
  type_description_hash TEXT NOT NULL);
CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT NOT NULL,
  encoding TEXT NOT NULL, encoded_message_definition TEXT NOT NULL,
  type_description_hash TEXT NOT NULL);
CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL,
  timestamp INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX timestamp_idx ON messages (timestamp ASC);
INSERT INTO schema(schema_version, ros_distro) VALUES (4, '{DISTRO}');
"""


class SqliteStore:
    """Writes one file.

    Args:
        path: The file; it must not exist.

    Attributes:
        stored: What is whole on the disk. ``pending``: what waits for the next flush.
        tail_bytes: Room that the end of the file needs, but for the metadata: pages and journal.
    """

    SUFFIX = '.db3'

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stored, self.pending = Tally(), Tally()
        self.tail_bytes = 64 * 1024
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))
        self._base: sqlite3.Connection | None = sqlite3.connect(path)
        self._topics: dict[str, int] = {}
        self._kinds: set[str] = set()
        self._waiting = 0
        self._run(lambda base: base.executescript(_TABLES))

    def register(self, topic: BagTopic) -> None:
        """Make a topic known; a second call does nothing.

        Raises:
            OSError: The disk is full; all that was pending is lost.
        """
        if topic.name in self._topics:
            return
        schema, number = topic.schema, len(self._topics) + 1
        if schema.type not in self._kinds:
            self._run(lambda base: base.execute(
                'INSERT INTO message_definitions (topic_type, encoding, '
                'encoded_message_definition, type_description_hash) VALUES (?, ?, ?, ?)',
                (schema.type, 'ros2msg', schema.text, schema.rihs01)))
            self._kinds.add(schema.type)
        self._run(lambda base: base.execute(
            'INSERT INTO topics VALUES (?, ?, ?, ?, ?, ?)',
            (number, topic.name, schema.type, 'cdr', profiles_text(topic.qos), schema.rihs01)))
        self._topics[topic.name] = number

    def write(self, topic: BagTopic, stamp_ns: int, data: bytes) -> None:
        """Insert a message.

        Raises:
            OSError: The disk is full; all that was pending is lost.
        """
        self.register(topic)
        number = self._topics[topic.name]
        self._run(lambda base: base.execute(
            'INSERT INTO messages (topic_id, timestamp, data) VALUES (?, ?, ?)',
            (number, stamp_ns, data)))
        self.pending.add(topic.name, stamp_ns)
        self._waiting += len(data)
        if self._waiting > COMMIT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Commit.

        Raises:
            OSError: The disk is full; all that was pending is lost.
        """
        self._run(lambda base: base.commit())
        self.stored.merge(self.pending)
        self.pending, self._waiting = Tally(), 0

    def close(self, metadata: Callable[[], str], *, may_give_up: bool = False) -> None:
        """Commit, add the metadata and close the file.

        Args:
            metadata: Gives the metadata of the bag for what is stored at that time.
            may_give_up: Whether the copy of the metadata in the file may be left out.

        Raises:
            OSError: The disk is full; the file is left open and may be closed again.
        """
        try:
            self.flush()
            text = metadata()
            self._run(lambda base: base.execute(
                'INSERT INTO metadata (metadata_version, metadata) VALUES (?, ?)',
                (VERSION, text)))
            self._run(lambda base: base.commit())
        except OSError:
            if not may_give_up:
                raise
        self.abandon()

    def abandon(self) -> None:
        """Close the file with what is committed; a second call does nothing."""
        base, self._base = self._base, None
        if base is not None:
            with suppress(sqlite3.Error):
                base.rollback()
            base.close()

    def _run(self, action: Callable[[sqlite3.Connection], object]) -> None:
        assert self._base is not None
        try:
            action(self._base)
        except sqlite3.Error as error:
            self.pending = Tally()
            with suppress(sqlite3.Error):
                self._base.rollback()
            self._forget()
            code = errno.ENOSPC if 'full' in str(error) else errno.EIO
            raise OSError(code, f'{os.strerror(code)} ({error})', str(self.path)) from error

    def _forget(self) -> None:
        """Know only those topics that are committed."""
        assert self._base is not None
        self._topics, self._kinds = {}, set()
        with suppress(sqlite3.Error):
            self._topics = dict(self._base.execute('SELECT name, id FROM topics'))
            self._kinds = {kind for (kind,) in self._base.execute(
                'SELECT topic_type FROM message_definitions')}
