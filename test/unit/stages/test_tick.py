"""The record of a tick and the plan beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.cause import CauseBounds
from reflex_ros.core.clock import MS, ClockOffset, S
from reflex_ros.core.interpolate import Setpoint
from reflex_ros.core.types import ArmFeedback, ArmState, Cause, Verdict
from reflex_ros.stages.bridge_config import BridgeConfig
from reflex_ros.stages.follower import Follower
from reflex_ros.stages.mover import ramp
from reflex_ros.stages.tick import Motion, Situation, TickBook, plan_of

AT = Situation(
    joint_names=tuple('abcdefg'), arm_state=ArmState.HOLDING, epoch=3, faults=(),
    is_clock_trusted=True, latency_ns=0, delta_ns=0, max_age_ns=500 * MS, encoder=None,
    policy=None)


def reading(position=0.0, at_ns=S):
    return ArmFeedback(at_ns, np.full(7, position), np.zeros(7), np.zeros(7), (True,) * 7, 1, 0)


@pytest.fixture
def book():
    return TickBook(BridgeConfig(), None)


def record(book, instant, index, *, at=AT, motion=Motion(), late_ns=0):  # noqa: B008
    due_ns = S + index * 20 * MS
    now = instant(due_ns + late_ns)
    return book.record(at, motion, reading(at_ns=due_ns), now=now, due_ns=due_ns, index=index)


def test_every_due_instant_gets_exactly_one_record(book, instant):
    ticks = [t for index in (0, 1, 5, 6, 20) for t in record(book, instant, index)]
    assert [t.index for t in ticks] == list(range(21))
    assert [t.number for t in ticks] == list(range(1, 22))
    assert [t.due_ns for t in ticks] == [S + i * 20 * MS for i in range(21)]


def test_the_stamp_of_a_tick_is_that_of_its_due_instant(book, instant):
    tick = record(book, instant, 0, late_ns=7 * MS)[0]
    assert tick.stamp_ns == instant(S).stamp_ns and tick.late_ns == 7 * MS


def test_before_the_first_chunk_it_is_warmup(book, instant):
    tick = record(book, instant, 0)[0]
    assert (tick.verdict, tick.cause, tick.in_motion) == (Verdict.HELD, Cause.WARMUP, False)


def test_a_stop_ends_motion_in_the_ledger(book, instant):
    book.executed()
    assert record(book, instant, 0)[0].in_motion
    book.stop()
    assert not record(book, instant, 1)[0].in_motion


def test_restart_forgets_the_run_but_not_the_counter(book, instant):
    book.executed()
    book.stop()
    record(book, instant, 0)
    book.restart(np.zeros(7), is_shadow=False)
    tick = record(book, instant, 0)[0]
    assert (tick.number, tick.cause) == (2, Cause.WARMUP)


def test_the_gripper_does_not_count_as_tracking_error(book):
    book.commanded(np.array([0, 0, 0, 0, 0.1, 0, 0.9]))
    assert book.error_of(reading()) == pytest.approx(0.1)


def test_without_a_command_there_is_no_tracking_error(book):
    assert book.error_of(reading(1.0)) == 0.0


def test_settled_is_counted_from_the_first_slow_tick_of_a_hold(book, instant):
    book.settled(instant(1), True)
    assert book.rest.settled_since_ns == 0
    book.hold_since(instant(10))
    for at_ns, is_settled in ((20, False), (30, True), (40, True)):
        book.settled(instant(at_ns), is_settled)
    assert (book.rest.hold_since_ns, book.rest.settled_since_ns) == (10, 30)
    book.settled(instant(50), False)
    assert book.rest.settled_since_ns == 0
    book.hold_since(None)
    assert book.rest.hold_since_ns == 0


def test_a_plan_without_chunks_is_the_held_pose(book, instant):
    held = np.arange(7.0)
    plan = plan_of(AT, book, Follower(), reading(), held=held, offset=ClockOffset(100 * S),
                   number=1, now=instant(S), due_ns=S)
    assert plan.setpoints.tolist() == [held.tolist()]
    assert plan.setpoint_stamps_ns.tolist() == [101 * S]
    assert (plan.active_chunk_id, plan.plan_end_ns, plan.hold_since_ns) == (0, 0, 0)
    assert plan.tracking_error.tolist() == held.tolist()


def test_a_plan_before_the_arm_was_enabled_knows_no_error(book, instant):
    plan = plan_of(replace(AT, arm_state=ArmState.CHECKED), book, Follower(), reading(0.5),
                   held=None, offset=ClockOffset(0), number=1, now=instant(S), due_ns=S)
    assert np.isnan(plan.tracking_error).all() and plan.setpoints[0, 0] == 0.5


def test_a_ramp_leads_from_rest_to_the_moving_target():
    origin, target = np.zeros(2), Setpoint(np.ones(2), np.full(2, 0.5))
    start, end = (ramp(origin, target, u, 500 * MS) for u in (0.0, 1.0))
    assert start.position.tolist() == [0, 0] and start.velocity.tolist() == [0, 0]
    assert end.position.tolist() == [1, 1] and end.velocity.tolist() == [0.5, 0.5]
    middle = [ramp(origin, target, u, 500 * MS).position[0] for u in np.linspace(-1, 2, 61)]
    assert (np.diff(middle) >= 0).all()


# ---- held while a live chunk waits for the arm to rest -----------------------------------------


def test_a_chunk_that_ends_in_the_ramp_holds_the_next_one_for_its_end(rig, move):
    """The next ramp begins at rest: the live chunk waits, and the hold is still for the end."""
    r = rig(ramp_ns=500 * MS, max_seam_rad=3.0)
    r.tick(3)
    r.offer(r.chunk(to=move(0.5), rows=8))
    r.tick(9)
    assert r.bridge.states.state is ArmState.HOLDING and not r.bridge.is_at_rest
    here = r.plant.position
    r.offer(r.chunk(start=here, to=here, rows=40))
    held = r.tick()[0]
    assert held.is_covered and (held.verdict, held.cause) == (Verdict.HELD, Cause.PLAN_END)


def braking_after_resume(rig, move):
    """Hold a fast arm, resume before it rests, and return the ticks under a live chunk."""
    r = rig(max_age_ns=5000 * MS, bounds=CauseBounds(grace_ns=0, max_age_ns=5000 * MS),
            initial_delta_ns=20 * MS, delay_warmup=99, max_seam_rad=3.0)
    r.run_up()
    r.offer(r.chunk(to=move(1.9), rows=50))
    r.tick(24)
    r.bridge.hold(r.now)
    r.tick()
    r.bridge.resume(r.now)
    here = r.plant.position
    r.offer(r.chunk(start=here, to=here, rows=100))
    return [t for t in r.tick(15) if t.verdict is Verdict.HELD]


def test_a_resume_before_the_arm_rests_is_held_for_the_operator(rig, move):
    held = braking_after_resume(rig, move)
    assert len(held) > 3 and {t.cause for t in held} == {Cause.OPERATOR}


def test_a_hold_that_goes_on_keeps_its_cause_can_fail(rig, move, monkeypatch):
    monkeypatch.setattr(TickBook, '_note_hold', lambda *_: None)
    assert {t.cause for t in braking_after_resume(rig, move)} != {Cause.OPERATOR}
