"""The last seconds in memory, written when something happened: a recording that costs no disk.

Takes messages as ``Recording`` does. Small messages are kept for the whole time, images as long as
they fit; of latched topics the message in force at the start is kept as well. Writing is done by a
thread of its own.
"""

from __future__ import annotations

import shlex
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from reflex_ros.bag.counts import TopicCounts
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.bag.write import BagReport
from reflex_ros.core.clock import S

AFTER_NS = 2 * S
"""So much of what follows an event belongs to its snapshot."""
COMMAND = 'replay.sh'
_Row = tuple[int, str, bytes]


class SnapshotRing:
    """Keeps what arrived in the last seconds and writes it on request.

    ``take`` and ``trigger`` belong to one thread.

    Args:
        folder: Run folder; snapshots become ``snapshot_1`` … in it.
        topics: All topics.
        length_ns: How long messages are kept. ``capacity_bytes``: most bytes of images.
        storage: ``mcap`` or ``sqlite3``.
        latched: Topics of which the message in force at its start belongs into every snapshot.
        encode: By topic, what makes the stored message of an arrived one.
        said: Gets a line about each snapshot, from the writing thread.
    """

    def __init__(
        self,
        folder: Path,
        topics: Sequence[BagTopic],
        *,
        length_ns: int,
        capacity_bytes: int,
        storage: str = 'mcap',
        latched: Iterable[str] = (),
        encode: dict[str, Callable[[bytes], bytes]] | None = None,
        said: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = folder
        self.is_on = False
        self._topics, self._storage = tuple(topics), storage
        self._length_ns, self._capacity = length_ns, capacity_bytes
        self._bulk = frozenset(topic.name for topic in topics if topic.is_bulk)
        self._counts = {topic.name: TopicCounts(topic.schema.type) for topic in topics}
        self._small: deque[_Row] = deque()
        self._large: deque[_Row] = deque()
        self._large_bytes = 0
        self._latched = frozenset(latched)
        self._held: dict[str, _Row] = {}
        self._encode, self._said = encode or {}, said or (lambda _: None)
        self._reason = ''
        self._due_ns = self._quiet_until_ns = 0
        self._threads: list[threading.Thread] = []
        self._number = 0
        self._lock = threading.Lock()
        self._written = dict.fromkeys(self._counts, 0)
        self._dropped = dict.fromkeys(self._counts, 0)

    def start(self) -> None:
        """Do nothing: there is no file yet."""

    def begin(self) -> None:
        """Keep messages from now on."""
        self.is_on = True

    def take(self, topic: str, stamp_ns: int, data: bytes) -> None:
        """Keep a message; never blocks.

        Args:
            topic: Full topic name.
            stamp_ns: ROS time of receipt.
            data: CDR with its encapsulation header.
        """
        row = (stamp_ns, topic, data)
        if not self.is_on:
            if topic in self._latched:
                self._held[topic] = row
            return
        self._counts[topic].add(data)
        if topic in self._bulk:
            self._large.append(row)
            self._large_bytes += len(data)
        else:
            self._small.append(row)
        self._trim(stamp_ns)
        if self._reason and stamp_ns >= self._due_ns:
            self._begin_write(stamp_ns)

    def trigger(self, reason: str, stamp_ns: int) -> bool:
        """Ask for a snapshot that ends ``AFTER_NS`` from now.

        Returns:
            False if one is already due, or the last one is so fresh that it holds the same.
        """
        if not self.is_on or self._reason or stamp_ns < self._quiet_until_ns:
            return False
        self._reason, self._due_ns = reason, stamp_ns + AFTER_NS
        return True

    @property
    def report(self) -> BagReport:
        """Return the counts so far; a failed snapshot is no reason to stop."""
        with self._lock:
            return BagReport(dict(self._written), dict(self._dropped))

    def close(self) -> BagReport:
        """Write what is due and return the counts. Blocks; repeatable."""
        self.is_on = False
        if self._reason:
            self._begin_write(self._due_ns)
        for thread in self._threads:
            thread.join()
        return self.report

    def _trim(self, now_ns: int) -> None:
        oldest_ns = now_ns - self._length_ns
        while self._small and self._small[0][0] < oldest_ns:
            row = self._small.popleft()
            if row[1] in self._latched:
                self._held[row[1]] = row
        while self._large and (self._large[0][0] < oldest_ns
                               or self._large_bytes > self._capacity):
            self._large_bytes -= len(self._large.popleft()[2])

    def _begin_write(self, stamp_ns: int) -> None:
        reason, self._reason = self._reason, ''
        self._quiet_until_ns = stamp_ns + self._length_ns
        kept = [*self._small, *self._large]
        oldest_ns = min((row[0] for row in kept), default=stamp_ns)
        held = [(oldest_ns, topic, data) for _, topic, data in self._held.values()]
        rows = sorted([*held, *kept], key=lambda row: row[0])
        # the name is chosen here: an earlier one may not have made its folder yet
        thread = threading.Thread(target=self._write, args=(self._next_folder(), rows, reason),
                                  name='snapshot', daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def _write(self, folder: Path, rows: list[_Row], reason: str) -> None:
        files = BagFiles(folder, self._topics, storage=self._storage)
        written = 0
        try:
            files.open()
            try:
                written = self._write_rows(files, rows)
            finally:
                files.close()
            self._write_command(folder, reason)
        except Exception as error:  # a full disk must not end the ring
            for _, topic, _ in rows[written:]:
                self._note(topic, is_written=False)
            self._said(f'snapshot failed: {folder.name} ({reason}): {error}')
            return
        self._said(f'snapshot: {folder} reason={reason} messages={written}; '
                   f'replay it with {folder / COMMAND}')

    def _write_rows(self, files: BagFiles, rows: list[_Row]) -> int:
        written = 0
        for stamp_ns, topic, data in rows:
            encode = self._encode.get(topic)
            files.write(topic, stamp_ns, data if encode is None else encode(data))
            self._note(topic, is_written=True)
            written += 1
        return written

    def _note(self, topic: str, *, is_written: bool) -> None:
        counts = self._written if is_written else self._dropped
        with self._lock:
            counts[topic] += 1

    def _next_folder(self) -> Path:
        self._number += 1
        while (folder := self.folder / f'snapshot_{self._number}').exists():
            self._number += 1
        return folder

    def _write_command(self, folder: Path, reason: str) -> None:
        name = shlex.quote(str(folder.resolve()))
        again = shlex.quote(f'{folder.resolve()}_again')
        path = folder / COMMAND
        path.write_text(f'#!/bin/sh\n# Written because of: {reason}\n'
                        f'exec reflex-ros replay {name} --virtual --output {again} "$@"\n',
                        encoding='utf-8')
        path.chmod(0o755)


FAULT = b'arm_fault\0'
"""How a serialized ``control_tick`` says that the arm is at fault; nothing else spells it."""


def is_fault(data: bytes) -> bool:
    """Return whether a serialized ``control_tick`` has the cause ``arm_fault``."""
    return FAULT in data
