"""A run whose ROS time stepped, put on an axis without the steps; what is not sure is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reflex_ros.analysis.collect import Block, Recorded, Status
from reflex_ros.analysis.run import RecordedRun
from reflex_ros.core.clock_steps import ClockSteps, find_steps
from reflex_ros.core.ledger import GAP, RecordArray
from reflex_ros.core.straight import OLDEST_NS, straight_traces
from reflex_ros.core.types import ChunkTrace, SimTruth

_CLOCK = 'rosgraph_msgs/msg/Clock'


def straighten(run: RecordedRun) -> RecordedRun:
    """Return a run without the steps of ROS time that its ticks show, each named in the notes.

    Latencies over a step are left out and counted, and so are negative ones. Simulated time is
    taken as it is: it may stop and go.
    """
    is_tick = (run.records['flags'] & GAP) == 0
    ticks = run.records[is_tick]
    is_simulated = any(kind == _CLOCK and run.recorded.read.get(topic)
                       for topic, kind in run.recorded.types.items())
    steps = find_steps([], []) if is_simulated else find_steps(ticks['due_ns'], ticks['stamp_ns'])
    if not steps.steps_ns:
        traces, lost = _forward(run.traces)
        said = _left_out(lost, 'reactions', 'their newest frame is later than their first command')
        return replace(run, traces=traces, notes=(*run.notes, *said),
                       without=(*run.without, *said))
    records = run.records.copy()
    records['stamp_ns'][is_tick] -= steps.shifts_ns(ticks['due_ns'])
    traces = straight_traces(run.traces, steps, ticks['stamp_ns'],
                             records['stamp_ns'][is_tick])
    ages = _set_ages(records, is_tick, steps, traces)
    unsure = [t.first_command_stamp_ns for t in traces
              if t.first_command_stamp_ns and not t.newest_stamp_ns]
    placed = {topic: _places(stamps, steps) for topic, stamps in run.recorded.images.items()}
    recorded, events = _recorded(run.recorded, steps, traces, unsure)
    recorded = replace(recorded, images={topic: _sorted(at) for topic, at in placed.items()})
    why = 'the clock may have stepped within'
    notes = [f'{text}: times are those of an axis without the step' for text in steps.words()]
    notes += _left_out(len(unsure), 'reactions', why)
    notes += _left_out(events, 'events', why)
    notes += _left_out(ages, 'ages of observations at a tick', why)
    return replace(run, records=records, traces=traces, recorded=recorded, steps=steps,
                   lost_events=events, placed=placed, notes=(*run.notes, *notes),
                   without=(*run.without, *notes))


def _left_out(count: int, what: str, why: str) -> list[str]:
    return [f'{count} {what} are left out: {why}'] if count else []


def _forward(traces: Sequence[ChunkTrace]) -> tuple[tuple[ChunkTrace, ...], int]:
    """Return the traces, without the frame of those that end before they begin; how many."""
    found = tuple(replace(t, newest_stamp_ns=0)
                  if 0 < t.first_command_stamp_ns < t.newest_stamp_ns else t for t in traces)
    return found, sum(new is not old for new, old in zip(found, traces, strict=True))


def _set_ages(records: RecordArray, is_tick: np.ndarray, steps: ClockSteps,
              traces: Sequence[ChunkTrace]) -> int:
    """Correct the age of observations that may be older than the last step.

    It is that of their chunk; -1 where none tells. Returns how many are not known.
    """
    observed = {trace.chunk_id: trace.observation_stamp_ns for trace in traces}
    stretch = np.searchsorted(steps.dues_ns, records['due_ns'], 'right')
    born_ns = records['stamp_ns'] - records['observation_age_ns']
    has_age = is_tick & (records['observation_age_ns'] != -1)
    forgotten = 0
    for number, step_ns in enumerate(steps.steps_ns, start=1):
        sure_ns = steps.stretches[number].after_ns + min(max(-step_ns, 0), OLDEST_NS)
        for row in records[has_age & (stretch == number) & (born_ns <= sure_ns)]:
            known_ns = observed.get(int(row['chunk_id']), 0)
            age_ns = int(row['stamp_ns']) - known_ns if known_ns else -1
            records['observation_age_ns'][records['index'] == row['index']] = age_ns
            forgotten += age_ns < 0
    return forgotten


def _recorded(recorded: Recorded, steps: ClockSteps, traces: Sequence[ChunkTrace],
              unsure: Sequence[int]) -> tuple[Recorded, int]:
    truths: list[SimTruth] = []
    for truth in sorted(recorded.truths, key=lambda truth: truth.number):
        after_ns = truths[-1].stamp_ns if truths else -1 << 62
        places = [at for _, at in steps.places(truth.stamp_ns) if at >= after_ns]
        at_ns = min(places, default=max(after_ns, truth.stamp_ns))
        truths.append(_truth(truth, at_ns, steps, traces, unsure))
    lost = (sum(len(truth.events) for truth in recorded.truths)
            - sum(len(truth.events) for truth in truths))
    return replace(
        recorded, truths=truths,
        statuses=sorted((_status(s, steps) for s in recorded.statuses),
                        key=lambda status: status.stamp_ns),
        blocks=[_block(block, steps) for block in recorded.blocks],
        joint_stamps=_sorted(_places(recorded.joint_stamps, steps)),
    ), lost


def _places(stamps: Sequence[int], steps: ClockSteps) -> tuple[int | None, ...]:
    return tuple(None if place is None else place[1] for place in steps.assign(stamps))


def _sorted(places: Sequence[int | None]) -> list[int]:
    return sorted(at_ns for at_ns in places if at_ns is not None)


def _truth(truth: SimTruth, stamp_ns: int, steps: ClockSteps, traces: Sequence[ChunkTrace],
           unsure: Sequence[int]) -> SimTruth:
    """Return a truth without the events whose time, or whose first command, is not sure."""
    events = []
    for event in truth.events:
        near_ns = min(map(abs, steps.steps_ns)) // 2
        at_ns = steps.straight(event.stamp_ns) or steps.straight(
            event.stamp_ns, from_ns=stamp_ns - near_ns, until_ns=stamp_ns + near_ns)
        if at_ns is None:
            continue
        answer_ns = min((t.first_command_stamp_ns for t in traces
                         if t.newest_stamp_ns >= at_ns and t.first_command_stamp_ns),
                        default=1 << 62)
        if not any(at_ns <= command_ns <= answer_ns for command_ns in unsure):
            events.append(replace(event, stamp_ns=at_ns))
    return replace(truth, stamp_ns=stamp_ns, events=tuple(events))


def _status(status: Status, steps: ClockSteps) -> Status:
    sent_ns = status.sent_ns + steps.offset_ns
    return replace(status, stamp_ns=steps.nearest(status.stamp_ns, sent_ns))


def _block(block: Block, steps: ClockSteps) -> Block:
    """Return a block with straight stamps, without any where one of them is not sure."""
    stamps = [steps.straight(at_ns) for at_ns in block.stamps_ns]
    sure = [at_ns for at_ns in stamps if at_ns is not None]
    return replace(block, stamp_ns=steps.nearest(block.stamp_ns, block.stamp_ns),
                   stamps_ns=tuple(sure) if len(sure) == len(stamps) else ())
