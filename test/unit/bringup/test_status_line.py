from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import pytest

from reflex_ros.bringup.status_line import (
    Console,
    LedgerWatch,
    Progress,
    format_status,
    progress,
)
from reflex_ros.core.clock import MS, Instant, ManualClock, S
from reflex_ros.core.ledger import LedgerWriter, to_records
from reflex_ros.core.types import ArmState, Cause, ControlTick, Verdict

PERIOD_NS = 20 * MS


@dataclass
class Delays:
    latency_ns: int = 21 * MS
    delta_ns: int = 60 * MS


def tick(index, *, chunk=1, verdict=Verdict.FRESH, cause=Cause.NONE, covered=True):
    return ControlTick(
        number=index, stamp_ns=S + index * PERIOD_NS, index=index, due_ns=index * PERIOD_NS,
        late_ns=0, verdict=verdict, cause=cause, arm_state=ArmState.TRACKING, epoch=1,
        chunk_id=chunk, row=0.0, is_sent=True, in_motion=True, is_covered=covered,
        observation_age_ns=0, tracking_error=0.0, setpoint=np.zeros(7), command=np.zeros(7),
        measured=np.zeros(7))


def test_progress_counts_from_the_first_executed_chunk():
    held = {'verdict': Verdict.HELD, 'covered': False}
    ticks = [tick(0, chunk=0, cause=Cause.WARMUP, **held), tick(1), tick(2), tick(3),
             tick(4, chunk=0, cause=Cause.DENOISE_LATE, **held)]
    now = progress(to_records(ticks), PERIOD_NS)
    assert now.ticks == 4
    assert now.first_chunk_ns == PERIOD_NS
    assert dict(now.verdicts) == {'fresh': 0.75, 'held': 0.25}
    assert (now.stalled, now.cause) == (1, 'denoise_late')
    assert now.arm_state == 'tracking'
    assert now.last_cause == 'denoise_late'


def test_progress_of_nothing_is_nothing():
    assert progress(to_records([]), PERIOD_NS) == Progress(period_ns=PERIOD_NS)


def test_the_line_names_shares_stalls_state_and_delays_in_ms_and_ticks():
    now = Progress(ticks=100, verdicts=(('held', 0.02), ('fresh', 0.98)), stalled=2,
                   cause='tick_late', arm_state='tracking', period_ns=PERIOD_NS)
    assert format_status(2.0, now, Delays()) == (
        '   2.0 s  100 ticks  fresh 98.0 %  held 2.0 %  stalls 2 (tick_late)  tracking  '
        'L 21 ms = 2 ticks  Δ 60 ms = 3 ticks')
    assert 'L ' not in format_status(2.0, now, None)


def test_the_watch_follows_a_growing_ledger_and_waits_for_it(tmp_path):
    clock = ManualClock(S)
    watch = LedgerWatch(tmp_path / 'ledger.bin', clock)
    assert watch.progress().ticks == 0
    with LedgerWriter.create(tmp_path / 'ledger.bin', period_ns=PERIOD_NS,
                             start=Instant(0, S)) as writer:
        writer.append(tick(0))
        clock.advance(S)
        assert watch.progress().ticks == 1
        writer.append(tick(1))
        assert watch.progress().ticks == 1
        assert watch.latest().ticks == 2


def test_a_terminal_gets_one_line_that_is_rewritten():
    stream = io.StringIO()
    console = Console(stream, ManualClock(), width=20)
    console.status('one')
    console.status('one')
    console.line('event')
    console.status('x' * 40)
    console.end()
    assert stream.getvalue() == (
        'one\r\x1b[2Kevent\none\r\x1b[2K' + 'x' * 19 + '\n')


def test_elsewhere_a_plain_line_comes_every_five_seconds():
    stream, clock = io.StringIO(), ManualClock()
    console = Console(stream, clock)
    for _ in range(100):
        console.status('status')
        clock.advance(100 * MS)
    console.end()
    assert stream.getvalue() == 'status\n' * 2


@pytest.mark.parametrize('text', ['\r', '\x1b'])
def test_plain_output_has_no_control_characters(text):
    stream = io.StringIO()
    console = Console(stream, ManualClock())
    console.status('a')
    console.line('b')
    console.end()
    assert text not in stream.getvalue()
