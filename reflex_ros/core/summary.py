"""Figures of a run from its ledger and its chunk traces; every ratio as the ledger defines it.

All ratios cover the time from the first ``tracking`` tick to the stop request. A figure without
samples is nan, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
import numpy.typing as npt

from reflex_ros.core.clock import MS
from reflex_ros.core.ledger import (
    ARM_STATE_CODES,
    CAUSE_CODES,
    COVERED,
    GAP,
    IN_MOTION,
    VERDICT_CODES,
    RecordArray,
    to_records,
)
from reflex_ros.core.stats import quantiles
from reflex_ros.core.types import ArmState, ChunkTrace, ControlTick, Fate, SimEvent


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """Figures of a run; quantile tables in ms as ``core.stats.quantiles`` gives them.

    Attributes:
        ticks: Ticks that have a verdict, gaps included. ``expected_ticks``: steady time over the
            period; both must be equal. ``gap_ticks``: those that nobody ran.
        verdicts, causes: Ticks of each, all names present.
        motion_ticks: In-motion ticks. ``stalled_ticks``: those that no live chunk covered.
        stall_ratio: Their quotient.
        chunk_changes: Changes of the executed chunk. ``stalled_chunks``: share of them with at
            least one stalled tick in between.
        inferences: Inferences made in motion. ``uncovered_share``: share of their time that the
            running plan did not cover.
        observation_to_command: First command from an observation minus its newest frame.
        event_reaction: First command that could know of an event minus the event.
        unanswered_events: Events that no command could know of.
        fates, reject_reasons: Chunks of each, those of the whole run.
        late_ms: Lateness of the ticks that ran.
        stage_ms: Duration of each stage.
    """

    ticks: int
    expected_ticks: int
    gap_ticks: int
    verdicts: dict[str, int]
    causes: dict[str, int]
    motion_ticks: int
    stalled_ticks: int
    stall_ratio: float
    chunk_changes: int
    stalled_chunks: float
    inferences: int
    uncovered_share: float
    observation_to_command: dict[str, float]
    event_reaction: dict[str, float]
    unanswered_events: int
    fates: dict[str, int]
    reject_reasons: dict[str, int]
    late_ms: dict[str, float]
    stage_ms: dict[str, dict[str, float]]

    @property
    def is_complete(self) -> bool:
        """Whether every due tick has a verdict."""
        return self.ticks == self.expected_ticks

    @property
    def reaction_name(self) -> str:
        """Which of the two figures ``reaction_ms`` is."""
        return 'event_reaction' if self.event_reaction['n'] else 'observation_to_command'

    @property
    def reaction_ms(self) -> dict[str, float]:
        """``event_reaction`` where an event was answered, else ``observation_to_command``."""
        has_event = bool(self.event_reaction['n'])
        return self.event_reaction if has_event else self.observation_to_command


def summarise(
    ticks: Iterable[ControlTick] | RecordArray,
    traces: Sequence[ChunkTrace],
    *,
    period_ns: int,
    events: Sequence[SimEvent] = (),
    stop_ns: int | None = None,
) -> LedgerSummary:
    """Return the figures of a run.

    Args:
        ticks: All ticks in order, as values or as ledger records.
        traces: Chunk traces.
        period_ns: Control period.
        events: Simulated events that the policy is meant to react to.
        stop_ns: Steady instant of the stop request; None = after the last tick.
    """
    records = ticks if isinstance(ticks, np.ndarray) else to_records(ticks)
    window = _window(records, stop_ns)
    used = _traces_within(traces, records[window])
    motion, stalled = _stalls(records[window])
    changes, stalled_changes = _changes(records[window])
    inferences, uncovered = _uncovered(used, records[window])
    reactions, unanswered = _reactions(used, events, records[window])
    return LedgerSummary(
        ticks=int(records['count'].sum()),
        expected_ticks=_expected(records, period_ns),
        gap_ticks=int(records['count'][_has(records, GAP)].sum()),
        verdicts=_tally(records, 'verdict', [item.value for item in VERDICT_CODES]),
        causes=_tally(records, 'cause', [item.value for item in CAUSE_CODES]),
        motion_ticks=motion,
        stalled_ticks=stalled,
        stall_ratio=_share(stalled, motion),
        chunk_changes=changes,
        stalled_chunks=_share(stalled_changes, changes),
        inferences=inferences,
        uncovered_share=uncovered,
        observation_to_command=quantiles(_commands(used)),
        event_reaction=quantiles(reactions),
        unanswered_events=unanswered,
        fates=_count_fates(traces),
        reject_reasons=_count_reasons(traces),
        late_ms=quantiles(records['late_ns'][~_has(records, GAP)] / MS),
        stage_ms=_stage_ms(used),
    )


def samples(
    records: RecordArray, traces: Sequence[ChunkTrace], *, events: Sequence[SimEvent] = ()
) -> dict[str, list[float]]:
    """Return what the quantiles of ``summarise`` are taken from, ms, for intervals.

    Keys: ``observation_to_command``, ``event_reaction``, and ``stage:<name>`` of each stage.
    """
    window = records[_window(records, None)]
    used = _traces_within(traces, window)
    found = {
        'observation_to_command': _commands(used),
        'event_reaction': _reactions(used, events, window)[0],
    }
    for trace in used:
        for stage in trace.stages:
            duration_ms = (stage.end_ns - stage.start_ns) / MS
            found.setdefault(f'stage:{stage.name}', []).append(duration_ms)
    return found


def _has(records: RecordArray, flag: int) -> npt.NDArray[np.bool_]:
    has: npt.NDArray[np.bool_] = (records['flags'] & flag) != 0
    return has


def _share(part: int, whole: int) -> float:
    return part / whole if whole else nan


def _expected(records: RecordArray, period_ns: int) -> int:
    """Steady time from the first due instant to the end of the last period, over the period."""
    if not len(records):
        return 0
    last = records[-1]
    end_ns = int(last['due_ns']) + int(last['count']) * period_ns
    return round((end_ns - int(records['due_ns'][0])) / period_ns)


def _tally(records: RecordArray, field: str, names: list[str]) -> dict[str, int]:
    counts = np.bincount(records[field], weights=records['count'], minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _window(records: RecordArray, stop_ns: int | None) -> slice:
    """From the first ``tracking`` tick to the last one before the stop request."""
    tracking = records['arm_state'] == ARM_STATE_CODES.index(ArmState.TRACKING)
    first = int(np.argmax(tracking)) if tracking.any() else len(records)
    if stop_ns is None:
        return slice(first, len(records))
    return slice(first, int(np.searchsorted(records['due_ns'], stop_ns)))


def _stalls(records: RecordArray) -> tuple[int, int]:
    """Return in-motion ticks and those of them that no live chunk covered."""
    counts, motion = records['count'], _has(records, IN_MOTION)
    return int(counts[motion].sum()), int(counts[motion & ~_has(records, COVERED)].sum())


def _changes(records: RecordArray) -> tuple[int, int]:
    """Return changes of the executed chunk and those with a stalled tick in between."""
    executed = np.flatnonzero(_has(records, COVERED) & (records['chunk_id'] > 0))
    stalls = np.cumsum(_has(records, IN_MOTION) & ~_has(records, COVERED))
    is_change = np.diff(records['chunk_id'][executed]) != 0
    is_stalled = np.diff(stalls[executed]) > 0
    return int(is_change.sum()), int((is_change & is_stalled).sum())


def _traces_within(traces: Sequence[ChunkTrace], records: RecordArray) -> list[ChunkTrace]:
    """Return chunks accepted in the window: the first one, which nothing could cover, is not."""
    if not len(records):
        return []
    first_ns, last = int(records['due_ns'][0]), records[-1]
    last_ns = int(last['due_ns'])
    return [
        trace
        for trace in traces
        if trace.fate is not Fate.REJECTED and first_ns < trace.accepted_ns <= last_ns
    ]


def _uncovered(traces: Sequence[ChunkTrace], records: RecordArray) -> tuple[int, float]:
    """Return the inferences that lie wholly in motion and the uncovered share of their time.

    During a rest that was asked for (operator, instruction) no plan is meant to cover anything.
    """
    due_ns = records['due_ns']
    rests = np.concatenate(([0], np.cumsum(~_has(records, IN_MOTION))))
    count = total_ns = uncovered_ns = 0
    for trace in traces:
        before = max(0, int(np.searchsorted(due_ns, trace.inference_start_ns, 'right')) - 1)
        after = int(np.searchsorted(due_ns, trace.accepted_ns))
        duration_ns = trace.accepted_ns - trace.inference_start_ns
        if trace.inference_start_ns == 0 or duration_ns <= 0 or rests[after] > rests[before]:
            continue
        count += 1
        total_ns += duration_ns
        uncovered_ns += duration_ns - min(max(trace.covered_ns, 0), duration_ns)
    return count, _share(uncovered_ns, total_ns)


def _commands(traces: Sequence[ChunkTrace]) -> list[float]:
    """Return, for each observation that led to one, its first command minus its newest frame.

    None is negative: a frame that is not known, or later than the command, tells nothing.
    """
    first: dict[int, int] = {}
    for trace in traces:
        if trace.first_command_stamp_ns >= trace.newest_stamp_ns > 0:
            known = first.get(trace.newest_stamp_ns, trace.first_command_stamp_ns)
            first[trace.newest_stamp_ns] = min(known, trace.first_command_stamp_ns)
    return [(command_ns - stamp_ns) / MS for stamp_ns, command_ns in first.items()]


def _reactions(
    traces: Sequence[ChunkTrace], events: Sequence[SimEvent], records: RecordArray
) -> tuple[list[float], int]:
    """Return the reactions to the events of the window, ms, and how many had none."""
    reactions, unanswered = [], 0
    for event in events:
        if not _is_during(event, records):
            continue
        commands = [
            trace.first_command_stamp_ns
            for trace in traces
            if trace.first_command_stamp_ns >= trace.newest_stamp_ns >= event.stamp_ns
        ]
        if commands:
            reactions.append((min(commands) - event.stamp_ns) / MS)
        else:
            unanswered += 1
    return reactions, unanswered


def _is_during(event: SimEvent, records: RecordArray) -> bool:
    stamps = records['stamp_ns']
    return len(stamps) > 0 and int(stamps[0]) <= event.stamp_ns <= int(stamps[-1])


def _count_fates(traces: Sequence[ChunkTrace]) -> dict[str, int]:
    counts = Counter(trace.fate for trace in traces)
    return {fate.value: counts[fate] for fate in Fate}


def _count_reasons(traces: Sequence[ChunkTrace]) -> dict[str, int]:
    counts = Counter(trace.reason.value for trace in traces if trace.fate is Fate.REJECTED)
    return dict(sorted(counts.items()))


def _stage_ms(traces: Sequence[ChunkTrace]) -> dict[str, dict[str, float]]:
    durations: dict[str, list[float]] = {}
    for trace in traces:
        for stage in trace.stages:
            durations.setdefault(stage.name, []).append((stage.end_ns - stage.start_ns) / MS)
    return {name: quantiles(values) for name, values in durations.items()}
