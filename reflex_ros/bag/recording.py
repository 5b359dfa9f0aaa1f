"""One recording: the writer, the counts against the publishers, and their report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from reflex_ros.bag.counts import TopicCounts
from reflex_ros.bag.run_folder import RECORDER_REPORT
from reflex_ros.bag.write import BagReport, BagWriter


class Recording:
    """Takes messages from one thread and records them while it is on.

    Args:
        writer: Not started yet.
        folder: Folder of its bag.
        types: Type of each topic by its full name.
        latched: Topics of which the last message before ``begin`` belongs into the bag.
    """

    def __init__(
        self,
        writer: BagWriter,
        folder: Path,
        types: dict[str, str],
        *,
        latched: Iterable[str] = (),
    ) -> None:
        self.folder = folder
        self.is_on = False
        self._writer = writer
        self._counts = {name: TopicCounts(kind) for name, kind in types.items()}
        self._latched = frozenset(latched)
        self._held: dict[str, tuple[int, bytes]] = {}
        self._is_closed = False

    def start(self) -> None:
        """Open the bag.

        Raises:
            ConfigError: The folder exists or cannot be written.
        """
        self._writer.start()

    def begin(self) -> None:
        """Record from now on, and what was latched before."""
        self.is_on = True
        for name, (stamp_ns, data) in self._held.items():
            self.take(name, stamp_ns, data)
        self._held.clear()

    def take(self, topic: str, stamp_ns: int, data: bytes) -> None:
        """Record a message if the recording is on; never blocks.

        Args:
            topic: Full topic name.
            stamp_ns: ROS time of receipt.
            data: CDR with its encapsulation header.
        """
        if self.is_on:
            self._counts[topic].add(data)
            self._writer.write(topic, stamp_ns, data)
        elif topic in self._latched:
            self._held[topic] = (stamp_ns, data)

    @property
    def report(self) -> BagReport:
        """Return the counts of the writer so far."""
        return self._writer.report

    def close(self) -> BagReport:
        """Complete the bag, write ``recorder.json`` into it and return the counts. Blocks."""
        self.is_on = False
        report = self._writer.close()
        if not self._is_closed and self.folder.is_dir():
            self._is_closed = True
            topics = {
                name: {**counts.report(), 'written': report.written[name],
                       'dropped': report.dropped[name]}
                for name, counts in self._counts.items()
            }
            text = json.dumps({'error': report.error, 'topics': topics}, indent=2)
            try:
                (self.folder / RECORDER_REPORT).write_text(text + '\n', encoding='utf-8')
            except OSError as error:
                report = replace(report, error=report.error or f'{RECORDER_REPORT}: {error}')
        return report
