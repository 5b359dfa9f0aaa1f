"""The last seconds in memory, written when something happens: a recording that costs no disk.

Takes messages as ``Recording`` does. Small messages and images are kept for the whole time within
bounds of memory, the oldest give way; of latched topics the message in force at the start is kept
as well. Compressing and writing are done by threads of their own.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rosbags.interfaces import Qos

from reflex_ros.bag.compress import Squeezer
from reflex_ros.bag.counts import TopicCounts
from reflex_ros.bag.events import TICK, EventWatch
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.bag.frames import Frame, FrameRing
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bag.write import BagReport
from reflex_ros.core.clock import S

AFTER_NS = 2 * S
"""So much of what follows an event belongs to its snapshot."""
LONGEST_NS = 10 * S
"""An event that lasts longer is written before it ends."""
SMALL_BYTES = 2**27
"""Most bytes of messages that are no images; a minute of a run takes a tenth."""
COMMAND = 'replay.sh'
PARAMS = 'run.yaml'
REQUEST = 'request'
_Row = tuple[int, str, bytes]
_SCRIPT = """#!/bin/sh
# Written because of: {reason}
here=$(cd "$(dirname "$0")" && pwd) || exit 2
again="${{here}}_again" number=1
while [ -e "$again" ]; do number=$((number + 1)); again="${{here}}_again_$number"; done
params="$here/{params}"
[ -e "$params" ] && set -- --params-file "$params" "$@"
set -- replay "$here" --virtual --output "$again" "$@"
if command -v reflex-ros >/dev/null 2>&1; then exec reflex-ros "$@"; fi
PYTHONPATH={package}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} -c \\
  'import sys; from reflex_ros.cli.main import main; sys.exit(main())' "$@"
"""


class SnapshotRing:
    """Keeps what arrived in the last seconds and writes it when an event begins, or on request.

    One event makes one snapshot, which holds its begin and what follows: its end and
    ``AFTER_NS`` more, or ``LONGEST_NS`` if it lasts. ``take`` and ``trigger`` belong to one
    thread.

    Args:
        folder: Run folder; snapshots become ``snapshot_1`` … in it.
        topics: All topics.
        length_ns: How long messages are kept. ``capacity_bytes``: most bytes of images.
        storage: ``mcap`` or ``sqlite3``.
        latched: Topics of which the message in force at its start belongs into every snapshot.
        squeeze: Makes the stored image of an arrived one.
        said, failed: Get a line about each snapshot, from the writing thread.

    Attributes:
        folder: Run folder. ``is_on``: whether messages are kept.
        unheard: Topics with a publisher that cannot be heard, and why.
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
        squeeze: Squeezer | None = None,
        said: Callable[[str], None] | None = None,
        failed: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = folder
        self.is_on = False
        self.unheard: dict[str, str] = {}
        self._topics, self._storage = tuple(topics), storage
        self._profiles: dict[str, tuple[Qos, ...]] = {}
        self._length_ns = length_ns
        self._bulk = frozenset(topic.name for topic in topics if topic.is_bulk)
        self._ticks = frozenset(t.name for t in topics if t.schema.type == TICK)
        self._counts = {topic.name: TopicCounts(topic.schema.type) for topic in topics}
        self._small: deque[_Row] = deque()
        self._small_bytes = 0
        self._frames = FrameRing(capacity_bytes, squeeze)
        self._squeeze = squeeze
        self._latched = frozenset(latched)
        self._held: dict[str, _Row] = {}
        self._said, self._failed = said or (lambda _: None), failed or (lambda _: None)
        self._watch = EventWatch()
        self._reason = ''
        self._due_ns = self._latest_ns = self._quiet_until_ns = 0
        self._threads: list[threading.Thread] = []
        self._number = 0
        self._lock = threading.Lock()
        self._written = dict.fromkeys(self._counts, 0)
        self._dropped = dict.fromkeys(self._counts, 0)

    def start(self) -> None:
        """Do nothing: there is no file yet."""

    def begin(self, profiles: Mapping[str, tuple[Qos, ...]] | None = None) -> None:
        """Keep messages from now on.

        Args:
            profiles: What the publishers offer, by topic.
        """
        self._profiles = dict(profiles or {})
        self.is_on = True

    def take(self, topic: str, stamp_ns: int, data: bytes) -> None:
        """Keep a message; never waits for the disk.

        Args:
            topic: Full topic name.
            stamp_ns: ROS time of receipt.
            data: CDR with its encapsulation header.
        """
        if not self.is_on:
            if topic in self._latched:
                self._held[topic] = (stamp_ns, topic, data)
            return
        self._counts[topic].add(data)
        if topic in self._bulk:
            self._frames.take(stamp_ns, topic, data)
        else:
            self._small.append((stamp_ns, topic, data))
            self._small_bytes += len(data)
        self._trim(stamp_ns)
        if topic in self._ticks:
            self._see(data, stamp_ns)
        if self._reason and stamp_ns >= self._due_ns:
            self._begin_write(stamp_ns)

    def trigger(self, reason: str, stamp_ns: int) -> bool:
        """Ask for a snapshot that ends ``AFTER_NS`` from now.

        Returns:
            False if one is already due.
        """
        if not self.is_on or self._reason:
            return False
        self._reason = reason
        self._due_ns = self._latest_ns = stamp_ns + AFTER_NS
        return True

    @property
    def report(self) -> BagReport:
        """Return the counts so far; a failed snapshot is no reason to stop."""
        odd = {} if self._squeeze is None else dict(self._squeeze.odd)
        with self._lock:
            return BagReport(dict(self._written), dict(self._dropped), '', odd)

    def close(self) -> BagReport:
        """Write what is due and return the counts. Blocks; repeatable."""
        self.is_on = False
        if self._reason:
            self._begin_write(self._due_ns)
        for thread in self._threads:
            thread.join()
        self._frames.close()
        return self.report

    def _see(self, data: bytes, stamp_ns: int) -> None:
        """Look for the begin of an event, and put the snapshot of one that lasts off."""
        event = self._watch.take(data, stamp_ns)
        if event and not self._reason:
            # Soon after another one it waits, so that two do not hold the same.
            self._reason = event
            self._due_ns = max(stamp_ns + AFTER_NS, self._quiet_until_ns)
            self._latest_ns = max(stamp_ns + min(LONGEST_NS, self._length_ns // 2), self._due_ns)
        elif self._watch.is_on and self._reason and self._reason != REQUEST:
            self._due_ns = min(max(stamp_ns + AFTER_NS, self._due_ns), self._latest_ns)

    def _trim(self, now_ns: int) -> None:
        oldest_ns = now_ns - self._length_ns
        while self._small and (self._small[0][0] < oldest_ns or self._small_bytes > SMALL_BYTES):
            row = self._small.popleft()
            self._small_bytes -= len(row[2])
            if row[1] in self._latched:
                self._held[row[1]] = row
        self._frames.trim(oldest_ns)

    def _begin_write(self, stamp_ns: int) -> None:
        reason, self._reason = self._reason, ''
        self._quiet_until_ns = stamp_ns + self._length_ns // 2
        kept = [*(Frame(*row, True) for row in self._small), *self._frames.rows()]
        oldest_ns = min((row.stamp_ns for row in kept), default=stamp_ns)
        held = [Frame(oldest_ns, topic, data, True) for _, topic, data in self._held.values()]
        rows = sorted([*held, *kept], key=lambda row: row.stamp_ns)
        # the name is chosen here: an earlier one may not have made its folder yet
        thread = threading.Thread(target=self._write, args=(self._next_folder(), rows, reason),
                                  name='snapshot', daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def _write(self, folder: Path, rows: list[Frame], reason: str) -> None:
        files = BagFiles(folder, self._topics, storage=self._storage)
        files.offer(self._profiles)
        error = ''
        try:
            files.open()
            try:
                self._write_rows(files, rows)
            finally:
                files.close()
        except Exception as caught:  # a full disk must not end the ring
            error = f'{type(caught).__name__}: {caught}'
        written = self._note(files.counts, rows)
        if written:
            error = self._write_command(folder, reason) or error
        if error:
            self._failed(f'snapshot failed: {folder.name} ({reason}): {written} of {len(rows)} '
                       f'messages are in it: {error}')
            return
        images = sum(count for name, count in files.counts.items() if name in self._bulk)
        self._said(f'snapshot: {folder} reason={reason} messages={written} images={images}; '
                   f'replay it with {folder / COMMAND}')

    def _write_rows(self, files: BagFiles, rows: list[Frame]) -> None:
        for row in rows:
            topic, data = self._frames.finish(row)
            files.write(topic, row.stamp_ns, data)

    def _note(self, counts: Mapping[str, int], rows: list[Frame]) -> int:
        """Count what is in the snapshot and what should be; return the former."""
        wanted = dict.fromkeys(counts, 0)
        for row in rows:
            wanted[row.topic] += 1
        with self._lock:
            for topic, count in counts.items():
                self._written[topic] += count
            lost = len(rows) - sum(counts.values())
            for topic, count in wanted.items():
                missing = min(lost, max(0, count - counts[topic]))
                self._dropped[topic] += missing
                lost -= missing
        return sum(counts.values())

    def _next_folder(self) -> Path:
        self._number += 1
        while (folder := self.folder / f'snapshot_{self._number}').exists():
            self._number += 1
        return folder

    def _write_command(self, folder: Path, reason: str) -> str:
        """Write what replays the snapshot; return the error, '' if it is there."""
        path, params = folder / COMMAND, RunFolder(self.folder).params
        try:
            if params.is_file():
                shutil.copy(params, folder / PARAMS)
            path.write_text(_SCRIPT.format(
                reason=reason, params=PARAMS, python=shlex.quote(sys.executable),
                package=shlex.quote(str(Path(__file__).resolve().parents[2]))), encoding='utf-8')
            path.chmod(0o755)
        except OSError as error:
            return f'{COMMAND}: {error}'
        return ''
