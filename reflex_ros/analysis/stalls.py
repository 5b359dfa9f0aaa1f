"""Each time the arm had no live plan, and the chain of stages that led to the end of it.

The cause is the bridge's, decided at the tick; nothing here relabels it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from reflex_ros.analysis.collect import Status
from reflex_ros.analysis.run import RecordedRun
from reflex_ros.core.clock import MS, S
from reflex_ros.core.ledger import (
    ARM_STATE_CODES,
    CAUSE_CODES,
    COVERED,
    IN_MOTION,
    VERDICT_CODES,
    RecordArray,
)
from reflex_ros.core.types import ArmState, Cause, ChunkTrace, Fate, Verdict

EXPECTED = frozenset({Cause.OPERATOR, Cause.INSTRUCTION, Cause.SYNC_WAIT, Cause.WARMUP,
                      Cause.LIMIT, Cause.NONE})
"""Causes that somebody asked for or that a mode is made of; every other one is a fault."""
_FAULT_CODES = tuple(i for i, cause in enumerate(CAUSE_CODES) if cause not in EXPECTED)
LONG_START_NS = 5 * S
"""A start that a fault delays longer is a fault; nodes that find each other take less."""
LEAST_WAIT_MS = 0.5
NEVER_TRACKED = 'never_tracked'
"""Name among the faults of a run in which the arm never followed a plan."""
MOST_REJECTED = 2
ONSET_TICKS = 10


@dataclass(frozen=True, slots=True)
class Step:
    """One link of a chain, ms since the stall began (negative: before)."""

    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True)
class Chain:
    """The way of one chunk, from its newest frame to its first command or its rejection.

    Attributes:
        chunk_id: The chunk. ``fate``: what became of it. ``text``: why it was rejected.
        steps: In order of time, waits between the stages included.
    """

    chunk_id: int
    fate: str
    text: str
    steps: tuple[Step, ...]

    @property
    def longest(self) -> Step:
        """The step that took longest; nothing else is left to explain."""
        return max(self.steps, key=lambda step: step.end_ms - step.start_ms)


@dataclass(frozen=True, slots=True)
class Stall:
    """Ticks in a row that no live chunk covered, or that a fault held or stopped all the same.

    Also the time before the first ``tracking`` tick, where the arm never tracked or a fault kept
    it from doing so for long.

    Attributes:
        number: From 1. ``first_index``: index of its first tick.
        start_s, duration_ms: Since the first record; length. ``stamp_ns``: its start, ROS time.
        ticks: Its ticks. ``cause``: that of most of them; ``causes``: ticks of each.
        stalled_ticks: Those in motion that no live chunk covered: what ``stall_ratio`` counts.
        is_stop: Whether nothing was sent (arm fault); such ticks are not in motion.
        lasted: Whether the recording ended before it did.
        text: What the bridge said, '' if its event was not recorded.
        ended_by: Chunk that ended it, 0 if none.
        chains: Those of the chunks that were refused meanwhile, and of the one that ended it.
        statuses: What encoder and policy said last before it began; of a start before it ended.
        arm_states: Ticks of each state of the arm, for a start alone. ``chunks``: chunks that
            came meanwhile, by fate, for a start alone.
    """

    number: int
    first_index: int
    start_s: float
    duration_ms: float
    stamp_ns: int
    ticks: int
    cause: Cause
    causes: dict[str, int]
    stalled_ticks: int
    is_stop: bool
    lasted: bool
    text: str
    ended_by: int
    chains: tuple[Chain, ...]
    statuses: tuple[Status, ...]
    arm_states: dict[str, int] = field(default_factory=dict)
    chunks: dict[str, int] = field(default_factory=dict)

    @property
    def is_start(self) -> bool:
        """Whether it is the time before the first ``tracking`` tick."""
        return bool(self.arm_states)

    @property
    def is_never_tracked(self) -> bool:
        """Whether the arm did not follow any plan in the whole run."""
        return self.is_start and self.lasted

    @property
    def kind(self) -> str:
        """``stop``: nothing was sent; ``hold``: held although a chunk was live; else ``stall``.

        ``start``: before the arm first tracked.
        """
        if self.is_start:
            return 'start'
        if self.is_stop:
            return 'stop'
        return 'stall' if self.stalled_ticks else 'hold'

    @property
    def is_fault(self) -> bool:
        """Whether its cause is one that nobody asked for, or the arm never tracked."""
        return self.is_never_tracked or self.cause not in EXPECTED

    @property
    def fault_names(self) -> tuple[str, ...]:
        """Under which names it counts among the faults; () if it is none."""
        names = (NEVER_TRACKED,) if self.is_never_tracked else ()
        return names if self.cause in EXPECTED else (*names, self.cause.value)


def find_stalls(run: RecordedRun) -> tuple[Stall, ...]:
    """Return a start that failed, then the stalls, stops and holds after it."""
    stalled = _is_stalled(run.records)
    found: list[Stall] = list(_start(run))
    for first, last in _with_onsets(_runs(_kinds(run.records, stalled))):
        found.append(_stall(run, first, last, stalled=stalled, number=len(found) + 1))
    return tuple(found)


def _start(run: RecordedRun) -> Iterator[Stall]:
    """Yield the time before the first ``tracking`` tick if the arm never tracked, or late."""
    before = int(np.argmax(since)) if (since := _since_tracking(run.records)).any() else len(since)
    part = run.records[:before]
    is_fault = np.isin(part['cause'], _FAULT_CODES)
    fault_ns = int(part['count'][is_fault].sum()) * run.period_ns
    is_lasting = before == len(run.records)
    if not before or not (is_lasting or fault_ns > LONG_START_NS):
        return
    stall = _stall(run, 0, before - 1, stalled=np.zeros(len(since), bool), number=1)
    weights = np.bincount(part['arm_state'], weights=part['count'],
                          minlength=len(ARM_STATE_CODES))
    states = {ARM_STATE_CODES[i].value: int(weights[i]) for i in np.flatnonzero(weights)}
    end_ns = int(part['stamp_ns'][-1])
    came = [t for t in run.traces if t.stamp_ns <= end_ns]
    refused = [t for t in came if t.fate is Fate.REJECTED]
    fates = Counter(t.fate.value for t in came)
    start_ns, offset_ns = int(part['due_ns'][0]), run.offset_ns
    ending = stall.chains[-1:] if stall.ended_by else ()
    yield replace(
        stall, arm_states=states, chunks=dict(fates), cause=_cause_of(part, is_lasting=is_lasting),
        statuses=_before(run.recorded.statuses, end_ns),
        chains=(*(_chain(t, start_ns, offset_ns) for t in refused[-MOST_REJECTED:]), *ending))


def _cause_of(part: RecordArray, *, is_lasting: bool) -> Cause:
    """Return the cause of most ticks; of a late start that of most ticks with a fault."""
    weights = np.bincount(part['cause'], weights=part['count'], minlength=len(CAUSE_CODES))
    if not is_lasting:
        weights[[i for i in range(len(CAUSE_CODES)) if i not in _FAULT_CODES]] = 0
    return CAUSE_CODES[int(weights.argmax())]


def _since_tracking(records: RecordArray) -> npt.NDArray[np.bool_]:
    tracking = records['arm_state'] == ARM_STATE_CODES.index(ArmState.TRACKING)
    return np.asarray(np.cumsum(tracking) > 0)


def _is_stalled(records: RecordArray) -> npt.NDArray[np.bool_]:
    flags = records['flags']
    stalled = ((flags & IN_MOTION) != 0) & ((flags & COVERED) == 0)
    return np.asarray(stalled & _since_tracking(records))


def _kinds(records: RecordArray, stalled: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    """Return 1 for a tick that stalled or was held by a fault, 2 for a stopped one, else 0."""
    since, verdict = _since_tracking(records), records['verdict']
    is_fault = np.isin(records['cause'], _FAULT_CODES)
    held = (verdict == VERDICT_CODES.index(Verdict.HELD)) & is_fault & since
    stopped = (verdict == VERDICT_CODES.index(Verdict.STOPPED)) & is_fault & since
    return np.where(stopped, 2, (stalled | held).astype(np.int8)).astype(np.int8)


def _runs(kinds: npt.NDArray[np.int8]) -> list[tuple[int, int]]:
    """Return (first, last) of every run of one kind but 0; a lost tick does not end it."""
    edges = np.flatnonzero(np.diff(kinds)) + 1
    starts, ends = [0, *edges.tolist()], [*(edges - 1).tolist(), len(kinds) - 1]
    return [(a, b) for a, b in zip(starts, ends, strict=True) if len(kinds) and kinds[a]]


def _with_onsets(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join a short hold and what directly follows it: a lost arm holds before it stops."""
    joined: list[tuple[int, int]] = []
    for first, last in runs:
        if joined and joined[-1][1] == first - 1 and first - joined[-1][0] <= ONSET_TICKS:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def _stall(run: RecordedRun, first: int, last: int, *, stalled: npt.NDArray[np.bool_],
           number: int) -> Stall:
    part = run.records[first : last + 1]
    start_ns = int(part['due_ns'][0])
    end_ns = int(part['due_ns'][-1]) + int(part['count'][-1]) * run.period_ns
    weights = np.bincount(part['cause'], weights=part['count'], minlength=len(CAUSE_CODES))
    causes = {CAUSE_CODES[i].value: int(weights[i]) for i in np.flatnonzero(weights)}
    offset_ns = int(part['stamp_ns'][0]) - start_ns
    lasted = last == len(run.records) - 1
    ending = None if lasted else _ending(run.traces, end_ns + offset_ns)
    return Stall(
        number=number, first_index=int(part['index'][0]),
        start_s=(start_ns - int(run.records['due_ns'][0])) / S,
        duration_ms=(end_ns - start_ns) / MS, stamp_ns=int(part['stamp_ns'][0]),
        ticks=int(part['count'].sum()), cause=CAUSE_CODES[int(weights.argmax())], causes=causes,
        stalled_ticks=int(part['count'][stalled[first : last + 1]].sum()),
        is_stop=bool((part['verdict'] == VERDICT_CODES.index(Verdict.STOPPED)).any()),
        lasted=lasted,
        text=_text(run, int(part['index'][0])), ended_by=ending.chunk_id if ending else 0,
        chains=tuple(_chain(t, start_ns, offset_ns) for t in (
            *_rejected(run.traces, start_ns, end_ns, offset_ns), *([ending] if ending else []))),
        statuses=_before(run.recorded.statuses, start_ns + offset_ns),
    )


def _text(run: RecordedRun, first_index: int) -> str:
    return next((s.text for s in run.stalls if s.first_index == first_index), '')


def _ending(traces: Sequence[ChunkTrace], stamp_ns: int) -> ChunkTrace | None:
    """Return the chunk whose first command came first after a stall."""
    after = [t for t in traces if t.first_command_stamp_ns >= stamp_ns - 5 * MS]
    return min(after, key=lambda t: t.first_command_stamp_ns, default=None)


def _chain(trace: ChunkTrace, start_ns: int, offset_ns: int) -> Chain:
    def after_ms(mono_ns: int) -> float:
        return (mono_ns - start_ns) / MS

    steps = [Step(s.name, after_ms(s.start_ns), after_ms(s.end_ns)) for s in trace.stages]
    arrived_ms = after_ms(trace.accepted_ns)
    if trace.fate is Fate.REJECTED:
        steps.append(Step('rejected', arrived_ms, arrived_ms))
    else:
        command_ms = after_ms(trace.first_command_stamp_ns - offset_ns)
        steps.append(Step('first command', arrived_ms, command_ms))
    reached_ms = (after_ms(trace.newest_stamp_ns - offset_ns) if trace.newest_stamp_ns
                  else steps[0].start_ms)  # when its frame was is not sure
    whole: list[Step] = []
    for step in steps:
        if step.start_ms - reached_ms > LEAST_WAIT_MS:
            whole.append(Step('wait', reached_ms, step.start_ms))
        whole.append(step)
        reached_ms = max(reached_ms, step.end_ms)
    return Chain(trace.chunk_id, trace.fate.value, trace.text, tuple(whole))


def _rejected(traces: Sequence[ChunkTrace], start_ns: int, end_ns: int,
              offset_ns: int) -> list[ChunkTrace]:
    """Return the last few chunks that were refused during a stall or just before it."""
    found = [t for t in traces if t.fate is Fate.REJECTED
             and start_ns - S // 2 <= t.stamp_ns - offset_ns <= end_ns]
    return found[-MOST_REJECTED:]


def _before(statuses: Sequence[Status], stamp_ns: int) -> tuple[Status, ...]:
    """Return the last sign of life of each node before a stamp."""
    newest: dict[str, Status] = {}
    for status in statuses:
        if status.stamp_ns <= stamp_ns:
            newest[status.node] = status
    return tuple(newest.values())
