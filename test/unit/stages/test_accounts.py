"""Traces and stalls."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS, ClockOffset, S
from reflex_ros.core.types import ArmState, Cause, ControlTick, Fate, RejectReason, Verdict
from reflex_ros.stages.accounts import (
    EXPLANATIONS,
    REMEDIES,
    StallBook,
    TraceBook,
    advise,
    explain,
)
from reflex_ros.stages.follower import make_running


def tick(index, *, covered=False, motion=True, cause=Cause.PLAN_END):
    return ControlTick(
        number=index, stamp_ns=index, index=index, due_ns=index * 20 * MS, late_ns=0,
        verdict=Verdict.HELD, cause=cause, arm_state=ArmState.HOLDING, epoch=1, chunk_id=0,
        row=-1.0, is_sent=True, in_motion=motion, is_covered=covered, observation_age_ns=-1,
        tracking_error=0.0, setpoint=np.empty(0), command=np.empty(0), measured=np.empty(0))


def test_a_stall_is_one_event_with_its_first_cause():
    book = StallBook(period_ns=20 * MS)
    assert [book.add(tick(i)) for i in (5, 6)] == [None, None]
    assert book.add(tick(7, cause=Cause.NODE_DEAD)) is None
    event = book.add(tick(8, covered=True))
    assert (event.first_index, event.ticks, event.duration_ns) == (5, 3, 60 * MS)
    assert event.cause is Cause.PLAN_END and event.text == EXPLANATIONS['plan_end']


@pytest.mark.parametrize('quiet', [tick(1, covered=True), tick(1, motion=False)])
def test_ticks_that_are_covered_or_at_rest_are_no_stall(quiet):
    book = StallBook(period_ns=20 * MS)
    assert book.add(quiet) is None and book.close() is None and book.since_chunk == 0


def test_an_open_stall_is_told_once_at_the_end():
    book = StallBook(period_ns=20 * MS)
    book.add(tick(1))
    assert book.close().ticks == 1 and book.close() is None


def test_every_cause_has_words_and_a_remedy():
    assert {c for c in Cause if explain(c) == c.value} == {Cause.NONE}
    assert {c.value for c in Cause} - set(REMEDIES) == {'none'}
    assert advise(Cause.CAMERA_FROZEN) == (
        'a camera repeats the same picture; restart the driver of the camera')


def test_traces_are_numbered_and_tell_what_happened(rig):
    book, r = TraceBook(), rig(activate=False)
    chunk, offset = r.chunk(), ClockOffset(100 * S)
    bad = book.rejected(chunk, RejectReason.SEAM, 'why', now_ns=1, stamp_ns=2)
    assert (bad.number, bad.fate, bad.reason, bad.text) == (
        1, Fate.REJECTED, RejectReason.SEAM, 'why')
    running = make_running(chunk, step0_ns=S, observation_ns=S, accepted_ns=S, covered_ns=3)
    unused = book.ended(running, offset, stamp_ns=2, text='')
    assert (unused.number, unused.fate, unused.first_command_stamp_ns) == (2, Fate.SUPERSEDED, 0)
    running.ticks, running.first_command_ns = 4, S
    used = book.ended(running, offset, stamp_ns=2, text='')
    assert (used.fate, used.ticks, used.first_command_stamp_ns) == (Fate.EXECUTED, 4, 101 * S)
