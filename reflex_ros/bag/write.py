"""A bag writer that never blocks its caller: bounded queue, one thread, counted drops.

The thread opens, writes and closes the files, since SQLite objects belong to the thread that made
them. When the disk cannot keep up, images are given up at half of the queue, so that the small
messages, which explain a run, still fit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.core.clock import MS, Clock, S, SystemClock
from reflex_ros.core.errors import ConfigError, ReflexError

CAPACITY_BYTES = 64 * 2**20
"""Bytes that may wait for the disk."""
FLUSH_NS = 500 * MS
"""Longest time that a message is kept from the operating system."""


@dataclass(frozen=True, slots=True)
class Split:
    """When a new file is begun; 0 = never.

    Attributes:
        after_ns: Recorded time of a file. ``after_bytes``: its message bytes.
    """

    after_ns: int = 0
    after_bytes: int = 0

    def is_due(self, files: BagFiles, stamp_ns: int) -> bool:
        """Return whether a message of ``stamp_ns`` belongs into a new file."""
        if not files.part_bytes:
            return False
        is_long = 0 < self.after_ns <= stamp_ns - files.part_start_ns
        return is_long or 0 < self.after_bytes <= files.part_bytes


@dataclass(frozen=True, slots=True)
class BagReport:
    """What became of the messages.

    Attributes:
        written, dropped: Messages by topic; dropped ones found no room, no disk or no encoder.
        error: Why writing ended early, '' if it did not.
    """

    written: dict[str, int]
    dropped: dict[str, int]
    error: str = ''


class BagWriter:
    """Writes a bag from a thread of its own. ``write`` may be called from any thread.

    Args:
        folder: Folder of the bag; it must not exist.
        topics: All its topics.
        storage: ``mcap`` or ``sqlite3``.
        clock: Steady clock for flushing.
        capacity_bytes: Bytes that may wait for the disk.
        split: When a new file is begun.
        encode: By topic, what makes the stored message of an arrived one; in the writer's thread.
    """

    def __init__(
        self,
        folder: Path | str,
        topics: Sequence[BagTopic],
        *,
        storage: str = 'mcap',
        clock: Clock | None = None,
        capacity_bytes: int = CAPACITY_BYTES,
        split: Split | None = None,
        encode: Mapping[str, Callable[[bytes], bytes]] | None = None,
    ) -> None:
        self._files = BagFiles(folder, topics, storage=storage)
        self._clock = clock or SystemClock()
        self._split = split or Split()
        self._queue = _Queue(capacity_bytes)
        self._bulk = frozenset(topic.name for topic in topics if topic.is_bulk)
        self._written = {topic.name: 0 for topic in topics}
        self._dropped = dict(self._written)
        self._refused = dict(self._written)
        self._encode = encode or {}
        self._error: BaseException | None = None
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, name='bag_writer', daemon=True)

    def start(self) -> None:
        """Open the bag; returns once messages can be written.

        Raises:
            ConfigError: The folder exists or cannot be written.
        """
        self._thread.start()
        self._is_open.wait()
        if self._error is not None:
            self._thread.join()
            if isinstance(self._error, ReflexError):
                raise self._error
            raise ConfigError(
                f'bag {self._files.folder} cannot be opened: got {self._error}, expected a '
                'writable disk. Name another run folder.'
            ) from self._error

    def write(self, topic: str, stamp_ns: int, data: bytes) -> bool:
        """Hand one serialized message over; never waits for the disk.

        Args:
            topic: Full name of a topic of the bag.
            stamp_ns: ROS time of receipt.
            data: CDR with its encapsulation header.

        Returns:
            False if the message was dropped and counted.

        Raises:
            KeyError: The bag has no such topic.
        """
        dropped = self._dropped[topic]
        if self._queue.put((topic, stamp_ns, data), is_bulk=topic in self._bulk):
            return True
        # One caller per topic, so this needs no lock.
        self._dropped[topic] = dropped + 1
        return False

    @property
    def report(self) -> BagReport:
        """Return the counts so far."""
        error = '' if self._error is None else f'{type(self._error).__name__}: {self._error}'
        dropped = {name: n + self._refused[name] for name, n in self._dropped.items()}
        return BagReport(dict(self._written), dropped, error)

    def close(self, *, timeout_s: float = 30.0) -> BagReport:
        """Write what waits, complete the bag and return the final counts. Blocks; repeatable.

        Args:
            timeout_s: Longest wait for the disk, s; what it misses is in ``error``.
        """
        self._queue.close()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        report = self.report
        if not self._thread.is_alive() or report.error:
            return report
        text = f'the disk did not take the rest within {timeout_s:g} s'
        return BagReport(report.written, report.dropped, text)

    def _run(self) -> None:
        try:
            self._files.open()
            self._is_open.set()
            self._loop()
        except BaseException as error:  # a full disk must end the recording, not the process
            self._error = error
        finally:
            for topic, _, _ in self._queue.abandon():
                self._dropped[topic] += 1
            self._close()
            self._is_open.set()

    def _close(self) -> None:
        try:
            self._files.close()
        except BaseException as error:  # as above; the first error is the cause
            self._error = self._error or error

    def _loop(self) -> None:
        flushed_ns = self._clock.mono_ns()
        while (batch := self._queue.take(FLUSH_NS / S)) is not None:
            while batch:
                topic, stamp_ns, data = batch[0]
                if self._split.is_due(self._files, stamp_ns):
                    self._files.split()
                self._store(topic, stamp_ns, data)
                batch.popleft()
                self._queue.release(len(data))
            now_ns = self._clock.mono_ns()
            if now_ns - flushed_ns >= FLUSH_NS:
                self._files.flush()
                flushed_ns = now_ns

    def _store(self, topic: str, stamp_ns: int, data: bytes) -> None:
        encode = self._encode.get(topic)
        if encode is not None:
            try:
                data = encode(data)
            except ReflexError:  # one odd image is no reason to end a recording
                self._refused[topic] += 1
                return
        self._files.write(topic, stamp_ns, data)
        self._written[topic] += 1


_Item = tuple[str, int, bytes]


class _Queue:
    """Messages in order, bounded by their bytes; one taker."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._bytes = 0
        self._items: deque[_Item] = deque()
        self._taken: deque[_Item] = deque()
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, item: _Item, *, is_bulk: bool) -> bool:
        """Return whether there was room."""
        size = len(item[2])
        with self._changed:
            room = (self._capacity // 2 if is_bulk else self._capacity) - self._bytes
            if self._is_closed or size > room:
                return False
            self._bytes += size
            self._items.append(item)
            self._changed.notify()
        return True

    def take(self, timeout_s: float) -> deque[_Item] | None:
        """Return all that waits, perhaps nothing; None once closed and empty.

        The taker removes what it has dealt with, so that ``abandon`` finds the rest.
        """
        with self._changed:
            if not self._items and not self._is_closed:
                self._changed.wait(timeout_s)
            if not self._items and self._is_closed:
                return None
            self._taken, self._items = self._items, deque()
        return self._taken

    def release(self, size: int) -> None:
        """Give the room of a written message back."""
        with self._changed:
            self._bytes -= size

    def close(self) -> None:
        """Refuse further messages."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def abandon(self) -> deque[_Item]:
        """Refuse further messages; return those that were never written."""
        with self._changed:
            self._is_closed = True
            rest = deque([*self._taken, *self._items])
            self._items = self._taken = deque()
        return rest
