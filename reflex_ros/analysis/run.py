"""A recorded run, from a run folder or from a bag alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reflex_ros.analysis.collect import (
    IMAGES,
    Recorded,
    collect,
    header_stamp,
    read_settings,
)
from reflex_ros.analysis.source import Source, open_source
from reflex_ros.bag import values
from reflex_ros.bag.read import BagMessage
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.clock import MS, S
from reflex_ros.core.clock_steps import ClockSteps
from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.core.grid import plausible, usual_period_ns
from reflex_ros.core.ledger import LedgerReader, RecordArray, to_records
from reflex_ros.core.types import JOINT_NAMES, ByteArray, ChunkTrace, SimEvent, StallEvent

REACTION_EVENTS = ('jump',)
"""Simulated events that the policy is meant to react to."""
DEFAULT_PERIOD_NS = 20 * MS
RECEIPT_NS = 2 * S
"""A frame is received at most so long after its stamp."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run.

    Attributes:
        path: What was asked for.
        records: Ledger records, oldest first. ``period_ns``: control period.
        ticks_from: ``ledger`` or ``bag``.
        traces, stalls: In the order of their stamps.
        recorded: Everything else that the bags hold.
        settings: Parameters of the nodes by name.
        notes: What is missing, in words.
        sources: The bags. ``strip``: Folder of thinned frames, None if there is none.
        steps: Steps of ROS time that were taken out of all stamps, None if none were.
        lost_events: Events that were left out because of them.
        placed: Straight stamps of the frames of each image topic in the order of reading, None
            where no clock of the run showed it; empty without steps.
        without: Which steps and ticks are left out, in words.
        left_out_share: Share of the recorded ticks that are left out because they are damaged.
    """

    path: Path
    records: RecordArray
    period_ns: int
    ticks_from: str
    joint_names: tuple[str, ...] = JOINT_NAMES
    traces: tuple[ChunkTrace, ...] = ()
    stalls: tuple[StallEvent, ...] = ()
    recorded: Recorded = field(default_factory=Recorded)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    strip: Path | None = None
    steps: ClockSteps | None = None
    lost_events: int = 0
    placed: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    left_out_share: float = 0.0

    @property
    def events(self) -> list[SimEvent]:
        """Events that the policy is meant to react to."""
        return [e for t in self.recorded.truths for e in t.events if e.name in REACTION_EVENTS]

    @property
    def offset_ns(self) -> int:
        """ROS time minus steady time at the first tick."""
        return int(self.records['stamp_ns'][0]) - int(self.records['due_ns'][0])

    @property
    def duration_s(self) -> float:
        """Length of the ticks."""
        return int(self.records['count'].sum()) * self.period_ns / 1e9

    @property
    def execute_steps(self) -> int | None:
        """Rows used of a chunk, as the first recorded one says."""
        return self.recorded.execute_steps

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the figures are made without, in words: damage, and steps of the clock."""
        why = self.recorded.reasons
        damage = (f'{topic}: {count} messages are left out: {why.get(topic, "damaged")}'
                  for topic, count in sorted(self.recorded.undecodable.items()))
        return (*damage, *self.without)

    def frames(self, wanted_ns: set[int], topic: str) -> Iterator[tuple[int, ByteArray]]:
        """Yield (ROS time, ``uint8[H, W, 3]``) of the recorded frames with these stamps."""
        if not wanted_ns:
            return
        if self.steps is not None:
            yield from self._placed_frames(wanted_ns, topic)
            return
        span = {'start_ns': min(wanted_ns) - RECEIPT_NS, 'stop_ns': max(wanted_ns) + RECEIPT_NS}
        for source in self.sources:
            for message in source.messages(lambda name, _: name == topic, **span):
                with suppress(Exception):  # a damaged picture is not worth a report
                    stamp_ns = header_stamp(message.data)
                    if stamp_ns in wanted_ns:
                        yield from _picture(stamp_ns, source, message)

    def _placed_frames(self, wanted_ns: set[int], topic: str) -> Iterator[tuple[int, ByteArray]]:
        """Yield the frames of a run whose clock stepped: two may have the same stamp."""
        places = iter(self.placed.get(topic, ()))
        for source in self.sources:
            for message in source.messages(lambda name, _: name == topic):
                with suppress(Exception):
                    header_stamp(message.data)  # those without one have no place
                    stamp_ns = next(places, None)
                    if stamp_ns in wanted_ns:
                        yield from _picture(int(stamp_ns or 0), source, message)


def _picture(stamp_ns: int, source: Source,
             message: BagMessage) -> Iterator[tuple[int, ByteArray]]:
    image = values.image(source.decode(message))
    if image is not None:
        yield stamp_ns, image


def load_run(path: Path | str) -> RecordedRun:
    """Read a run folder, or one bag.

    Ticks come from the ledger of a run folder; from ``control_tick`` of a bag alone.

    Raises:
        ConfigError: There is neither, or the bag is not of this suite.
        LayoutError: The ticks are of another version.
    """
    path = Path(path)
    paths = RunFolder(path)
    if paths.ledger.is_file() or paths.bags:
        return _from_folder(paths)
    source = open_source(path)
    recorded = collect([source])
    parent = RunFolder(path.resolve().parent)
    strip = parent.strip if parent.strip.is_dir() and path.is_dir() else None
    return _from_bag(path, recorded, (source,), read_settings(parent.params), strip)


def _from_folder(paths: RunFolder) -> RecordedRun:
    sources, notes = [], []
    for bag in paths.bags:
        try:
            sources.append(open_source(bag))
        except ReflexError as error:
            notes.append(str(error))
    recorded = collect(sources)
    settings = read_settings(paths.params)
    strip = paths.strip if paths.strip.is_dir() else None
    if not paths.ledger.is_file():
        said = (*notes, f'no {paths.ledger.name}: ticks are those of the bag')
        return _from_bag(paths.path, recorded, tuple(sources), settings, strip, said)
    try:
        ledger = LedgerReader(paths.ledger)
    except ReflexError as error:
        said = (*notes, str(error))
        return _from_bag(paths.path, recorded, tuple(sources), settings, strip, said)
    records = ledger.records()
    if not len(records):
        raise ConfigError(
            f'run {paths.path} has no ticks: got an empty {paths.ledger.name}, expected records. '
            'The bridge ended before its first tick; see the logs of the run.'
        )
    if not sources:
        notes.append('no bag: only the ledger could be read')
    return RecordedRun(
        paths.path, records, ledger.header.period_ns, 'ledger', ledger.header.joint_names,
        *_by_stamp(recorded), recorded, settings, (*notes, *_lacking(recorded, sources)),
        tuple(sources), strip)


def _from_bag(path: Path, recorded: Recorded, sources: tuple[Source, ...],
              settings: dict[str, Any], strip: Path | None,
              said: tuple[str, ...] = ()) -> RecordedRun:
    """Return a run whose ticks are those of the bag; ``said``: what was noted before."""
    once = {(tick.index, tick.due_ns): tick for tick in recorded.ticks}
    ticks = sorted(once.values(), key=lambda tick: tick.index)
    if not ticks:
        raise ConfigError(_no_ticks(path, recorded, said))
    period_ns = usual_period_ns([t.index for t in ticks], [t.due_ns for t in ticks],
                                DEFAULT_PERIOD_NS)
    records = to_records(ticks)
    fits = plausible([t.index for t in ticks], [t.due_ns for t in ticks], period_ns)
    notes = _lacking(recorded, sources)
    without = () if fits.all() else (
        f'{int((~fits).sum())} of {len(fits)} ticks are left out: their instants do not fit their '
        'indices',)
    notes += without
    if len(ticks) < len(recorded.ticks):
        notes.append(f'{len(recorded.ticks) - len(ticks)} ticks came twice: counted once')
    torn = sum(recorded.undecodable.get(topic, 0) for topic in recorded.topics_of('ControlTick'))
    return RecordedRun(
        path, records[fits], period_ns, 'bag', JOINT_NAMES, *_by_stamp(recorded), recorded,
        settings, (*said, *notes), sources, strip, without=without,
        left_out_share=(torn + int((~fits).sum())) / (torn + len(fits)))


def _no_ticks(path: Path, recorded: Recorded, said: tuple[str, ...]) -> str:
    notes = '; '.join((*said, *recorded.notes)[:3])
    if not recorded.types:
        got = 'nothing that can be read'
    elif recorded.topics_of('ControlTick'):
        got = 'a control_tick topic without a readable message'
    elif any(kind.startswith('reflex_msgs/') for kind in recorded.types.values()):
        got = f'only {", ".join(sorted(recorded.types))}'
    else:
        got = f'topics of other programs ({", ".join(sorted(recorded.types))})'
    return (
        f'bag {path} has no ticks: got {got:.300}, expected control_tick, as the recorder of '
        f'reflex_ros writes it. Give the bag or the folder of a run.'
        + (f' Noted: {notes:.600}' if notes else '')
    )


def _by_stamp(recorded: Recorded) -> tuple[tuple[ChunkTrace, ...], tuple[StallEvent, ...]]:
    return (tuple(sorted(recorded.traces, key=lambda t: t.stamp_ns)),
            tuple(sorted(recorded.stalls, key=lambda s: s.stamp_ns)))


def _lacking(recorded: Recorded, sources: tuple[Source, ...] | list[Source]) -> list[str]:
    """Return the notes, and which parts of a full report the topics cannot give."""
    notes = list(recorded.notes)
    if not sources:
        return notes
    parts = (('ChunkTrace', 'no chunk_trace: no reactions, stages or seams'),
             ('StageStatus', 'no stage_status: stalls are explained by their cause alone'),
             ('KvBlock', 'no kv_block: camera skew is not known'))
    notes += [text for kind, text in parts if not recorded.topics_of(kind)]
    if not any(kind in IMAGES for kind in recorded.types.values()):
        notes.append('no images: camera loss is judged by other stamps')
    return notes
