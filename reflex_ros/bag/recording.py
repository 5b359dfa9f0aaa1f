"""One recording: the writer, the counts against the publishers, and their report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rosbags.interfaces import Qos

from reflex_ros.bag.counts import TopicCounts
from reflex_ros.bag.room import Room
from reflex_ros.bag.run_folder import RECORDER_REPORT
from reflex_ros.bag.write import BagReport, BagWriter
from reflex_ros.core.errors import ConfigError

TOPIC_BYTES = 2048
"""Room in the report for one topic: its counts and those of a few publishers."""


class Recording:
    """Takes messages from one thread and records them while it is on.

    Args:
        writer: Not started yet.
        folder: Folder of its bag.
        types: Type of each topic by its full name.
        latched: Topics of which the last message before ``begin`` belongs into the bag.

    Attributes:
        folder: Folder of the bag. ``is_on``: whether messages are recorded.
        unheard: Topics with a publisher that cannot be heard, and why.
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
        self.unheard: dict[str, str] = {}
        self._writer = writer
        self._counts = {name: TopicCounts(kind) for name, kind in types.items()}
        self._latched = frozenset(latched)
        self._held: dict[str, tuple[int, bytes]] = {}
        self._room: Room | None = None

    def start(self) -> None:
        """Open the bag.

        Raises:
            ConfigError: The folder exists or cannot be written.
        """
        self._writer.start()
        try:
            self._room = Room(self.folder / RECORDER_REPORT, TOPIC_BYTES * (len(self._counts) + 1))
        except OSError as error:
            self._writer.close()
            raise ConfigError(
                f'bag {self.folder} cannot be opened: got {error.strerror}, expected a disk with '
                'room for what the recorder counts. Make room, or name another run folder.'
            ) from error

    def begin(self, profiles: Mapping[str, tuple[Qos, ...]] | None = None) -> None:
        """Record from now on, and what was latched before.

        Args:
            profiles: What the publishers offer, by topic; None for what the bag was made with.
        """
        self._writer.offer(profiles or {})
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
        room, self._room = self._room, None
        if room is not None:
            try:
                room.fill(json.dumps(self._counted(report), indent=2) + '\n')
            except OSError as error:
                room.release()
                report = replace(report, error=report.error or f'{RECORDER_REPORT}: {error}')
        return report

    def _counted(self, report: BagReport) -> dict[str, Any]:
        topics = {}
        for name, counts in self._counts.items():
            entry = {**counts.report(), 'written': report.written[name],
                     'dropped': report.dropped[name]}
            if name in report.odd:
                entry['stored_as_it_came'] = report.odd[name]
            topics[name] = entry
        return {'error': report.error, 'unheard': self.unheard, 'topics': topics}
