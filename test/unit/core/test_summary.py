"""Known answers: figures of tick tables written by hand.

A table is a string, one character per tick of 20 ms:
``w`` warmup hold, ``r`` ramp, ``1``..``9`` fresh tick of that chunk, ``l`` limited tick of the
chunk before it, ``.`` hold without a plan (stall), ``t`` late tick that a live chunk covers,
``o`` operator hold, ``i`` new instruction, ``f`` arm fault.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, Instant
from reflex_ros.core.ledger import LedgerReader, LedgerWriter, to_records
from reflex_ros.core.summary import summarise
from reflex_ros.core.types import (
    ArmState,
    Cause,
    ChunkTrace,
    ControlTick,
    Fate,
    RejectReason,
    SimEvent,
    StageTime,
    Verdict,
)

PERIOD = 20 * MS
START_NS = 7_000 * MS
OFFSET_NS = 1_700_000_000_000 * MS

HELD = {
    'w': (ArmState.HOLDING, Cause.WARMUP, False, False),
    '.': (ArmState.HOLDING, Cause.DENOISE_LATE, True, False),
    't': (ArmState.TRACKING, Cause.TICK_LATE, True, True),
    'o': (ArmState.HOLDING, Cause.OPERATOR, False, False),
    'i': (ArmState.HOLDING, Cause.INSTRUCTION, False, False),
}


def ticks(table):
    """Return the ticks of a table."""
    result, chunk = [], 0
    for index, char in enumerate(table):
        chunk = int(char) if char.isdigit() else chunk
        verdict, (state, cause, in_motion, covered) = of_char(char)
        result.append(ControlTick(
            number=index + 1, stamp_ns=stamp(index), index=index, due_ns=mono(index),
            late_ns=12 * MS if char == 't' else MS // 10, verdict=verdict, cause=cause,
            arm_state=state, epoch=1, chunk_id=chunk if covered else 0, row=0.0,
            is_sent=char not in 'tf', in_motion=in_motion, is_covered=covered,
            observation_age_ns=100 * MS, tracking_error=0.0, setpoint=np.zeros(7),
            command=np.zeros(7), measured=np.zeros(7),
        ))
    return result


def of_char(char):
    if char == 'r':
        return Verdict.RAMPING, (ArmState.RAMP_IN, Cause.NONE, False, True)
    if char == 'f':
        return Verdict.STOPPED, (ArmState.FAULTED, Cause.ARM_FAULT, False, False)
    if char == 'l':
        return Verdict.LIMITED, (ArmState.TRACKING, Cause.LIMIT, True, True)
    if char.isdigit():
        return Verdict.FRESH, (ArmState.TRACKING, Cause.NONE, True, True)
    return Verdict.HELD, HELD[char]


def mono(tick):
    """Return the steady instant of a (fractional) tick."""
    return START_NS + round(tick * PERIOD)


def stamp(tick):
    """Return the ROS time of a (fractional) tick."""
    return mono(tick) + OFFSET_NS


def trace(chunk_id, *, start=0.0, accepted=0.0, covered=0.0, newest=0.0, first=None, **fields):
    """Return a trace; all instants in ticks, ``covered`` in ticks as well."""
    return ChunkTrace(**({
        'number': chunk_id, 'stamp_ns': 0, 'chunk_id': chunk_id, 'epoch': 1,
        'fate': Fate.EXECUTED, 'reason': RejectReason.NONE, 'text': '', 'entered_row': 0,
        'seam_position': 0.0, 'seam_velocity': 0.0, 'observation_stamp_ns': stamp(newest),
        'newest_stamp_ns': stamp(newest),
        'first_command_stamp_ns': 0 if first is None else stamp(first),
        'accepted_ns': mono(accepted), 'inference_start_ns': mono(start),
        'covered_ns': round(covered * PERIOD), 'stalled_ticks': 0, 'ticks': 0,
    } | fields))


def summary(table, traces=(), **kwargs):
    return summarise(ticks(table), list(traces), period_ns=PERIOD, **kwargs)


@pytest.mark.parametrize(('table', 'motion', 'stalled', 'changes', 'stalled_share'), [
    ('1111', 4, 0, 0, math.nan),
    ('11112222', 8, 0, 1, 0.0),
    ('11..2222', 8, 2, 1, 1.0),
    ('11..22233.4', 11, 3, 3, 2 / 3),
    ('ww..rr1122', 4, 0, 1, 0.0),
    ('wwr11ooo22', 4, 0, 1, 0.0),
    ('11iii.22', 5, 1, 1, 1.0),
    ('11ff22', 4, 0, 1, 0.0),
    ('1tt1l2', 6, 0, 1, 0.0),
    ('1.1.1.', 6, 3, 0, math.nan),
    ('11....', 6, 4, 0, math.nan),
    ('wwww', 0, 0, 0, math.nan),
])
def test_liveness_ratios_of_a_table(table, motion, stalled, changes, stalled_share):
    result = summary(table)
    assert (result.motion_ticks, result.stalled_ticks) == (motion, stalled)
    assert result.stall_ratio == pytest.approx(stalled / motion if motion else math.nan,
                                               nan_ok=True)
    assert result.chunk_changes == changes
    assert result.stalled_chunks == pytest.approx(stalled_share, nan_ok=True)


def test_every_tick_is_counted_once():
    result = summary('wwr11t..l2of')
    assert sum(result.verdicts.values()) == sum(result.causes.values()) == 12
    assert result.verdicts == {
        'stopped': 1, 'ramping': 1, 'held': 6, 'limited': 1, 'fresh': 3
    }
    assert {name: n for name, n in result.causes.items() if n} == {
        'warmup': 2, 'none': 4, 'tick_late': 1, 'denoise_late': 2, 'limit': 1, 'operator': 1,
        'arm_fault': 1,
    }


def test_ticks_equal_steady_time_over_period():
    result = summary('wwr1122..33')
    assert result.ticks == result.expected_ticks == 11
    assert result.is_complete


def test_missing_tick_shows_in_the_sum():
    table = ticks('1111')
    result = summarise([*table[:1], *table[2:]], [], period_ns=PERIOD)
    assert (result.ticks, result.expected_ticks) == (3, 4)
    assert not result.is_complete


def test_ratios_end_at_the_stop_request():
    assert summary('1111....').stall_ratio == 0.5
    assert summary('1111....', stop_ns=mono(6)).stall_ratio == pytest.approx(2 / 6)
    assert summary('1111....', stop_ns=mono(4)).stall_ratio == 0.0


def test_gap_in_motion_counts_as_stall(tmp_path):
    start = Instant(START_NS, START_NS + OFFSET_NS)
    table = ticks('11111')
    with LedgerWriter.create(tmp_path / 'l', period_ns=PERIOD, start=start) as writer:
        for item in table[:4]:
            writer.append(item)
    LedgerWriter.reopen(tmp_path / 'l', Instant(mono(10), stamp(10))).close()
    result = summarise(LedgerReader(tmp_path / 'l').records(), [], period_ns=PERIOD)
    assert (result.ticks, result.expected_ticks, result.gap_ticks) == (10, 10, 6)
    assert result.stall_ratio == 0.6
    assert result.causes['node_dead'] == 6
    assert result.late_ms['n'] == 4


def test_uncovered_share_is_weighted_by_time():
    traces = [
        trace(2, start=1, accepted=5, covered=3),
        trace(3, start=5, accepted=11, covered=6),
    ]
    result = summary('1' * 12, traces)
    assert result.inferences == 2
    assert result.uncovered_share == pytest.approx(1 / 10)


def test_sync_inference_is_uncovered_altogether():
    traces = [trace(2, start=2, accepted=5), trace(3, start=7, accepted=10)]
    result = summary('11...22...33', traces)
    assert result.uncovered_share == 1.0
    assert result.stalled_chunks == 1.0


@pytest.mark.parametrize('left_out', [
    trace(1, start=-3, accepted=0, covered=0),
    trace(2, start=2, accepted=5, fate=Fate.REJECTED, reason=RejectReason.SEAM),
    trace(2, start=7, accepted=10, covered=0),
    trace(2, start=2, accepted=5, inference_start_ns=0),
], ids=['first chunk', 'rejected', 'during a rest', 'unknown start'])
def test_inference_that_no_plan_could_cover_does_not_count(left_out):
    result = summary('1111111oo11111', [left_out, trace(3, start=1, accepted=3, covered=1)])
    assert result.inferences == 1
    assert result.uncovered_share == 0.5


def test_covered_time_never_exceeds_the_inference():
    assert summary('1' * 9, [trace(2, start=1, accepted=3, covered=5)]).uncovered_share == 0.0


def test_observation_to_command_takes_the_first_command_of_each_observation():
    traces = [
        trace(2, accepted=4, newest=1, first=5),
        trace(3, accepted=6, newest=1, first=7),
        trace(4, accepted=8, newest=5, first=11),
        trace(5, accepted=9, newest=8, fate=Fate.SUPERSEDED),
    ]
    result = summary('1' * 12, traces)
    assert result.observation_to_command['n'] == 2
    assert result.observation_to_command['p50'] == pytest.approx(80.0)
    assert result.observation_to_command['max'] == pytest.approx(120.0)
    assert result.reaction_name == 'observation_to_command'
    assert result.reaction_ms == result.observation_to_command


def test_event_reaction_starts_at_the_event_and_ends_at_the_first_informed_command():
    traces = [
        trace(2, accepted=5, newest=2, first=6),
        trace(3, accepted=9, newest=4, first=10),
        trace(4, accepted=8, newest=5, first=9),
    ]
    events = [SimEvent('jump', stamp(at)) for at in (2.5, 4, 5.5)]
    result = summary('1' * 14, traces, events=events)
    assert result.event_reaction['n'] == 2
    assert result.event_reaction['max'] == pytest.approx((9 - 2.5) * 20)
    assert result.event_reaction['p50'] == pytest.approx((9 - 4) * 20)
    assert result.unanswered_events == 1
    assert result.reaction_name == 'event_reaction'


def test_frame_at_the_very_event_knows_of_it():
    events = [SimEvent('jump', stamp(2))]
    result = summary('1' * 9, [trace(2, accepted=5, newest=2, first=6)], events=events)
    assert result.event_reaction['max'] == pytest.approx(80.0)


def test_events_outside_the_window_do_not_count():
    events = [SimEvent('jump', stamp(1)), SimEvent('jump', stamp(9))]
    result = summary('wwr111111111', [trace(2, accepted=6, newest=4, first=7)], events=events,
                     stop_ns=mono(8))
    assert result.event_reaction['n'] == 0
    assert result.unanswered_events == 0


def test_fates_and_reasons_cover_the_whole_run():
    traces = [
        trace(1), trace(2, fate=Fate.SUPERSEDED),
        trace(3, fate=Fate.REJECTED, reason=RejectReason.EPOCH),
        trace(4, fate=Fate.REJECTED, reason=RejectReason.EPOCH),
    ]
    result = summary('11', traces)
    assert result.fates == {'executed': 1, 'superseded': 1, 'rejected': 2}
    assert result.reject_reasons == {'epoch': 2}


def test_stage_times_are_taken_from_the_traces():
    stages = (StageTime('encode', 0, 4 * MS), StageTime('denoise', 4 * MS, 34 * MS))
    result = summary('1' * 9, [trace(2, start=1, accepted=4, stages=stages)])
    assert {name: table['max'] for name, table in result.stage_ms.items()} == {
        'encode': 4.0, 'denoise': 30.0
    }


def test_ledger_records_give_the_figures_of_the_ticks():
    table = ticks('wwr11t..22o.3')
    traces = [trace(2, start=4, accepted=7, covered=1, newest=3, first=8)]
    assert repr(summarise(to_records(table), traces, period_ns=PERIOD)) == repr(
        summarise(table, traces, period_ns=PERIOD)
    )


def test_empty_run_has_no_figures():
    result = summarise([], [], period_ns=PERIOD)
    assert (result.ticks, result.expected_ticks) == (0, 0)
    assert math.isnan(result.stall_ratio)
    assert math.isnan(result.uncovered_share)


def test_stall_ratio_can_fail():
    table = ticks('11..22')
    hidden = [replace(item, is_covered=True) for item in table]
    assert summarise(hidden, [], period_ns=PERIOD).stall_ratio == 0.0
    assert summarise(table, [], period_ns=PERIOD).stall_ratio > 0.0
