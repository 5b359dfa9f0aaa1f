"""A run whose ROS time stepped, for a viewer: every row stands on an axis without the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reflex_ros.analysis.run import load_run
from reflex_ros.analysis.source import Source
from reflex_ros.analysis.straight import straighten
from reflex_ros.bag.read import BagMessage, TopicInfo
from reflex_ros.core.clock_steps import ClockSteps
from reflex_ros.core.errors import ReflexError
from reflex_ros.core.types import ChunkTrace, ControlTick
from reflex_ros.stages.replay_straight import StraightReader


@dataclass(frozen=True, slots=True)
class StraightAxis:
    """Stamps of ticks, chunks and plans without the steps; what is not sure has none.

    Attributes:
        steps: Steps of the run. ``notes``: they and what is left out because of them, in words.
        ticks: Straight stamp and age of the observation of each tick by its index.
        traces: Straight chunk traces by (chunk, steady time of acceptance).
    """

    steps: ClockSteps
    notes: tuple[str, ...]
    ticks: dict[int, tuple[int, int]]
    traces: dict[tuple[int, int], ChunkTrace]

    def tick(self, tick: ControlTick) -> ControlTick:
        """Return a tick with straight stamps."""
        straight_ns = tick.stamp_ns - int(self.steps.shifts_ns(tick.due_ns))
        stamp_ns, age_ns = self.ticks.get(tick.index, (straight_ns, -1))
        return replace(tick, stamp_ns=stamp_ns, observation_age_ns=age_ns)

    def trace(self, trace: ChunkTrace) -> ChunkTrace:
        """Return a trace with straight stamps, 0 where its newest frame is not sure."""
        return self.traces.get((trace.chunk_id, trace.accepted_ns),
                               replace(trace, newest_stamp_ns=0, first_command_stamp_ns=0))

    def near(self, stamp_ns: int, to_ns: int) -> int:
        """Return the straight stamp of something beside a message with a straight stamp."""
        return self.steps.nearest(stamp_ns, to_ns)

    def messages(self, source: Source, names: Iterable[str],
                 notes: list[str]) -> Iterator[BagMessage]:
        """Yield the messages of topics, each with a straight stamp in its header.

        Args:
            source: The bag. ``names``: topics.
            notes: Gets what is left out, in words.
        """
        yield from StraightReader(_Readable(source), self.steps, notes).messages(*names)


def straight_axis(path: Path) -> StraightAxis | None:
    """Return the axis of a run whose clock stepped; None where it did not, or nothing tells."""
    try:
        run = load_run(path)
        found = straighten(run)
    except (ReflexError, OSError):  # whoever shows the bag says what is wrong with it
        return None
    for source in run.sources:
        source.close()
    if found.steps is None:
        return None
    records = found.records
    ticks = dict(zip(records['index'].tolist(), zip(
        records['stamp_ns'].tolist(), records['observation_age_ns'].tolist(), strict=True),
        strict=True))
    return StraightAxis(found.steps, found.notes[len(run.notes):], ticks,
                        {(t.chunk_id, t.accepted_ns): t for t in found.traces})


class _Readable:
    """A bag, whole or damaged, as ``StraightReader`` reads it."""

    def __init__(self, source: Source) -> None:
        self.folder = source.path
        self.topics = {name: TopicInfo(kind, '', source.counts.get(name, 0), ())
                       for name, kind in source.types.items()}
        self._source = source

    def decode(self, message: BagMessage) -> Any:
        return self._source.decode(message)

    def messages(self, *topics: str) -> Iterator[BagMessage]:
        yield from self._source.messages(lambda name, _: name in topics)
