"""A bag writer that never blocks its caller: bounded queue, one thread, counted drops.

The thread opens, writes and closes the files, since SQLite objects belong to the thread that made
them. When the disk cannot keep up, images are given up at half of the queue, so that the small
messages, which explain a run, still fit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rosbags.interfaces import Qos

from reflex_ros.bag.compress import Squeezer
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
        written: Messages by topic; at the end exactly those that the bag holds.
        dropped: Messages that arrived and found no room, or no disk.
        error: Why writing ended early, '' if it did not.
        odd: What was stored as it came instead of compressed, in words, by topic.
    """

    written: dict[str, int]
    dropped: dict[str, int]
    error: str = ''
    odd: dict[str, str] = field(default_factory=dict)


class BagWriter:
    """Writes a bag from a thread of its own. ``write`` may be called from any thread.

    Args:
        folder: Folder of the bag; it must not exist.
        topics: All its topics.
        storage: ``mcap`` or ``sqlite3``.
        clock: Steady clock for flushing.
        capacity_bytes: Bytes that may wait for the disk.
        split: When a new file is begun.
        squeeze: Makes the stored message of an arrived one, in the writer's thread.
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
        squeeze: Squeezer | None = None,
    ) -> None:
        self._files = BagFiles(folder, topics, storage=storage)
        self._clock = clock or SystemClock()
        self._split = split or Split()
        self._queue = _Queue(capacity_bytes)
        self._bulk = frozenset(topic.name for topic in topics if topic.is_bulk)
        self._dropped = {topic.name: 0 for topic in topics}
        self._taken = dict(self._dropped)
        self._written = dict(self._dropped)
        self._refused = dict(self._dropped)
        self._squeeze = squeeze
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

    def offer(self, profiles: Mapping[str, tuple[Qos, ...]]) -> None:
        """Set the profiles of topics by name; before the first message only."""
        self._files.offer(profiles)

    @property
    def report(self) -> BagReport:
        """Return the counts so far; what waits for the disk is in none of them."""
        error = '' if self._error is None else f'{type(self._error).__name__}: {self._error}'
        written = self._written
        dropped = {name: n + self._refused[name] for name, n in self._dropped.items()}
        if self._error is not None:  # the disk gave back what was not yet whole
            dropped = {name: n + self._taken[name] - written[name] for name, n in dropped.items()}
        odd = {} if self._squeeze is None else dict(self._squeeze.odd)
        return BagReport(dict(written), dropped, error, odd)

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
        return replace(report, error=text)

    def _run(self) -> None:
        try:
            self._files.open()
            self._is_open.set()
            self._loop()
        except BaseException as error:  # a full disk must end the recording, not the process
            self._error = error
        finally:
            self._close()
            self._written = self._files.counts
            for topic, _, _ in self._queue.abandon():
                self._dropped[topic] += 1
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
                batch.popleft()  # from here on it is counted by what the files say
                self._store(topic, stamp_ns, data)
                self._queue.release(len(data))
            self._written = self._files.counts
            now_ns = self._clock.mono_ns()
            if now_ns - flushed_ns >= FLUSH_NS:
                self._files.flush()
                flushed_ns = now_ns

    def _store(self, topic: str, stamp_ns: int, data: bytes) -> None:
        if self._squeeze is not None:
            topic, data = self._squeeze(topic, data)
        self._taken[topic] += 1
        try:
            self._files.write(topic, stamp_ns, data)
        except OSError:
            raise
        except Exception:  # a message that no file can hold is no reason to end a recording
            self._taken[topic] -= 1
            self._refused[topic] += 1


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
            # a message of any size is taken when nothing else waits
            if self._is_closed or (size > room and self._bytes):
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
