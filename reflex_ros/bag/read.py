"""Reads a bag of either storage as a stream, with the message definitions that it carries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rosbags.interfaces import Qos
from rosbags.rosbag2 import Reader

from reflex_ros.bag import values
from reflex_ros.bag.cdr_read import can_read, read_truth
from reflex_ros.bag.files import METADATA
from reflex_ros.bag.schema import typestore_of
from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.core.types import SimTruth


@dataclass(frozen=True, slots=True)
class BagMessage:
    """One serialized message.

    Attributes:
        topic: Full topic name. ``type``: its type.
        stamp_ns: ROS time at which the recorder received it.
        data: CDR with its encapsulation header.
    """

    topic: str
    type: str
    stamp_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What a bag says about one topic: type, definition, messages, offered profiles."""

    type: str
    definition: str
    messages: int
    qos: tuple[Qos, ...]


class BagReader:
    """Streams a bag; use it as a context manager. Not thread-safe.

    Args:
        folder: Folder of the bag, or one storage file.

    Raises:
        ConfigError: There is no complete bag.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._reader = self._open()
        counts = self._counts()
        self.topics = {
            connection.topic: TopicInfo(
                connection.msgtype,
                connection.msgdef.data,
                counts[connection.topic],
                tuple(getattr(connection.ext, 'offered_qos_profiles', ())),
            )
            for connection in self._reader.connections
        }
        types = {info.type: info.definition for info in self.topics.values()}
        self._store = typestore_of(types.items())

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        if self._reader.is_open:
            self._reader.close()

    def find(self, name: str) -> str | None:
        """Return the full name of a topic, whatever its namespace; None if there is none.

        Raises:
            ConfigError: Several namespaces have the topic.
        """
        tail = '/' + name.strip('/')
        found = [topic for topic in self.topics if topic.endswith(tail)]
        if len(found) > 1:
            raise ConfigError(
                f'topic {name} of bag {self.folder.name} is ambiguous: got {", ".join(found)}, '
                'expected one. Give its full name.'
            )
        return found[0] if found else None

    def messages(
        self, *topics: str, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[BagMessage]:
        """Yield serialized messages in the order of their receipt.

        Args:
            topics: Full names; none = all.
            start_ns: First receipt, ROS time. ``stop_ns``: first one not wanted.

        Raises:
            ConfigError: The bag has no such topic.
        """
        self._check(topics)
        connections = [c for c in self._reader.connections if not topics or c.topic in topics]
        found = self._reader.messages(connections, start_ns, stop_ns)
        while True:
            try:
                connection, stamp_ns, data = next(found)
            except StopIteration:
                return
            except Exception as error:  # whatever damaged files make of the storage's reader
                raise ConfigError(
                    f'bag {self.folder} is damaged: got {type(error).__name__} ({_line(error)}), '
                    'expected whole files. Repair the bag, or give another.'
                ) from error
            yield BagMessage(connection.topic, connection.msgtype, stamp_ns, bytes(data))

    def decode(self, message: BagMessage) -> Any:
        """Return a message as an object with the fields of its definition.

        Raises:
            LayoutError: The bytes are no message of its type.
        """
        try:
            return self._store.deserialize_cdr(message.data, message.type)
        except Exception as error:  # whatever the generated code meets in damaged bytes
            raise LayoutError(
                f'message of {message.topic} at {message.stamp_ns} in bag {self.folder.name} '
                f'cannot be decoded: got {len(message.data)} bytes ({_line(error)}), expected a '
                f'{message.type}. Record it again.'
            ) from error

    def sim_truth(self, message: BagMessage) -> SimTruth:
        """Return a true state, see ``values.sim_truth``.

        Raises:
            LayoutError: The bytes are none, or of another schema version.
        """
        is_known = can_read(message.type, self.topics[message.topic].definition)
        truth = read_truth(message.data) if is_known else None
        return values.sim_truth(self.decode(message)) if truth is None else truth

    def canonical(self, message: BagMessage) -> bytes:
        """Return a message's decoded fields as CDR whose padding is zero."""
        return bytes(self._store.serialize_cdr(self.decode(message), message.type))

    def values(self, *topics: str) -> Iterator[tuple[str, int, Any]]:
        """Yield (topic, receipt in ROS time, message object), as ``messages`` does."""
        for message in self.messages(*topics):
            yield message.topic, message.stamp_ns, self.decode(message)

    def _counts(self) -> dict[str, int]:
        """Return the messages by topic; those of the files where the metadata cannot be true."""
        told = {c.topic: c.msgcount for c in self._reader.connections}
        if min(told.values(), default=0) >= 0 and (
                sum(told.values()) >= self._reader.message_count):
            return told
        found = dict.fromkeys(told, 0)
        with suppress(Exception):  # damaged files count as far as they can be read
            for connection, _, _ in self._reader.messages():
                found[connection.topic] += 1
        return found

    def _check(self, topics: tuple[str, ...]) -> None:
        unknown = [topic for topic in topics if topic not in self.topics]
        if unknown:
            raise ConfigError(
                f'bag {self.folder.name} has no topic {unknown[0]}: expected one of '
                f'{", ".join(sorted(self.topics))}. Record it, or name another.'
            )

    def _open(self) -> Reader:
        if self.folder.is_dir() and not (self.folder / METADATA).is_file():
            raise ConfigError(
                f'bag {self.folder} is incomplete: got no {METADATA}, expected it beside the '
                'data. If the recorder was killed, repair the bag.'
            )
        try:
            reader = Reader(self.folder)
            reader.open()
        except Exception as error:  # damaged metadata or files fail in many ways
            raise ConfigError(
                f'bag {self.folder} cannot be read: got {_line(error)}, expected a rosbag2 '
                'folder. Repair the bag, or give another.'
            ) from error
        return reader


def _line(error: BaseException) -> str:
    """Return what an error says, in one line."""
    return ' '.join(str(error).split())
