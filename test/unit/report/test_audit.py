"""The audit against ledgers that are true and ledgers that lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, Instant, S
from reflex_ros.core.ledger import LedgerWriter
from reflex_ros.core.types import ArmState, Cause, ControlTick, Verdict
from reflex_ros.report.audit import audit, format_audit
from reflex_ros.sim.can_codec import CanFrame
from reflex_ros.sim.can_tap import CommandTap

START = Instant(5 * S, 1_700_000_000 * S)
PERIOD = 20 * MS
ZERO = np.zeros(7)


def tick(index: int, **changes) -> ControlTick:
    base = ControlTick(
        number=index + 1, stamp_ns=START.stamp_ns + index * PERIOD, index=index,
        due_ns=START.mono_ns + index * PERIOD, late_ns=0, verdict=Verdict.FRESH,
        cause=Cause.NONE, arm_state=ArmState.TRACKING, epoch=1, chunk_id=3, row=0.0,
        is_sent=True, in_motion=True, is_covered=True, observation_age_ns=0, tracking_error=0.0,
        setpoint=ZERO, command=ZERO, measured=ZERO,
    )
    return replace(base, **changes)


@pytest.fixture
def run(tmp_path):
    """Write a run of ticks and the frames that arrived for them; return its audit."""

    def write(ticks, *, lost: int = 0, extra: int = 0):
        with LedgerWriter.create(tmp_path / 'ledger.bin', period_ns=PERIOD,
                                 start=START) as ledger:
            for one in ticks:
                ledger.append(one)
        tap = CommandTap(('can0',), path=tmp_path / 'can_tap.bin', start=START)
        sent = [t.due_ns for t in ticks if t.is_sent][lost:]
        for at in sent + [START.mono_ns + MS] * extra:
            tap.record('can0', CanFrame(0x155, bytes(8)), at + MS)
        tap.record('can0', CanFrame(0x155, bytes(8)), START.mono_ns - S)  # before the ledger
        tap.close()
        return audit(tmp_path, window=100)

    return write


def test_true_ledger_is_complete_and_sent_true(run):
    held = {'verdict': Verdict.HELD, 'cause': Cause.PLAN_END}
    late = {'verdict': Verdict.HELD, 'cause': Cause.TICK_LATE, 'is_sent': False}
    found = run([tick(0), tick(1, **held), tick(2, **late), tick(3)])
    assert found.is_complete and found.is_sent_true
    assert (found.ticks, found.expected_ticks, found.received, found.not_sent) == (4, 4, 3, 1)
    assert found.live_share == 0.5
    assert 'NO' not in format_audit(found)


def test_ramping_ticks_are_left_out_of_the_share(run):
    found = run([tick(0, verdict=Verdict.RAMPING), tick(1)])
    assert (found.ramping, found.live_share) == (1, 1.0)


def test_ticks_before_the_first_chunk_are_not_judged(run):
    found = run([tick(0, chunk_id=0, verdict=Verdict.HELD, cause=Cause.WARMUP), tick(1)])
    assert (found.window_ticks, found.live_share) == (1, 1.0)


def test_commands_that_never_arrived_are_found_can_fail(run):
    found = run([tick(i) for i in range(10)], lost=4)
    assert not found.is_sent_true
    assert 'NO' in format_audit(found)


def test_commands_that_the_ledger_hides_are_found_can_fail(run):
    assert not run([tick(i) for i in range(10)], extra=4).is_sent_true


def test_held_tick_without_a_cause_is_found_can_fail(run):
    found = run([tick(0), tick(1, verdict=Verdict.HELD)])
    assert found.unexplained == 1 and not found.is_complete


def test_skipped_ticks_stay_in_the_count(run):
    found = run([tick(0), tick(5)])
    assert (found.ticks, found.expected_ticks) == (6, 6)
    assert found.unexplained == 4
