"""The bridge's rules, one tick at a time."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.types import (
    ArmState,
    Cause,
    Entry,
    Fate,
    RejectReason,
    Reply,
    StageStatus,
    Verdict,
)
from reflex_ros.stages import bridge_recovery

TICK = 20 * MS


def joint1(ticks):
    return np.array([t.command[0] for t in ticks])


def still(ticks):
    return bool(np.ptp([t.command for t in ticks], axis=0).max() < 1e-12)


def sign_of_life(node):
    return StageStatus(number=1, stamp_ns=0, node=node, state='active', last_input_ns=0,
                       last_output_ns=0, busy_since_ns=0, sent_ns=0)


# ---- life cycle ------------------------------------------------------------------------------


def test_a_bridge_that_was_deactivated_can_be_activated_again(rig):
    r = rig()
    r.run_up()
    r.bridge.request_stop(r.now)
    r.tick(5)
    r.bridge.close(r.now)
    old_epoch = r.bridge.epoch
    r.clock.advance(2 * S)
    r.index, r.start_ns = 0, r.now.mono_ns
    r.bridge.activate()
    assert r.bridge.states.state is ArmState.HOLDING and r.bridge.epoch >= old_epoch
    r.run_up()
    assert r.tick()[0].verdict is Verdict.FRESH and r.tick()[0].in_motion


def test_nodes_that_spoke_before_a_long_activation_are_not_dead(rig):
    r = rig(activate=False)
    r.bridge.connect()
    for node in ('vision_encoder', 'policy'):
        r.bridge.status(sign_of_life(node), r.now)
    r.clock.advance(700 * MS)  # while the joints are powered nobody listens
    r.start_ns = r.now.mono_ns
    r.bridge.activate()
    causes = [t.cause for t in r.tick(30)]
    assert Cause.NODE_DEAD not in causes[:20]
    assert causes[-1] is Cause.NODE_DEAD  # they stayed silent


def test_activation_again_without_autostart_waits_for_the_operator(rig):
    r = rig()
    r.run_up()
    r.bridge.request_stop(r.now)
    r.tick(5)
    r.bridge.close(r.now)
    r.index, r.start_ns = 0, r.now.mono_ns + TICK
    r.bridge.activate(may_autostart=False)
    trace = r.offer(r.chunk())
    assert trace.reason is RejectReason.ARM_STATE
    assert still(r.tick(10))
    assert r.bridge.resume(r.now)[0].accepted


def test_a_stopping_bridge_cannot_be_resumed(rig):
    r = rig()
    r.run_up()
    r.bridge.request_stop(r.now)
    r.tick(3)
    assert not r.bridge.resume(r.now)[0].accepted


def test_resume_right_after_hold_is_accepted_before_the_next_tick(rig):
    r = rig()
    r.run_up()
    assert r.bridge.hold(r.now)[0].accepted
    assert r.bridge.resume(r.now)[0].accepted
    r.tick(2)
    assert r.bridge.states.state is ArmState.HOLDING
    r.run_up()
    assert r.bridge.states.state is ArmState.TRACKING


def test_resume_goes_on_from_the_measured_pose_after_a_push(rig):
    r = rig()
    r.run_up()
    r.plant.offset[0] = 0.3
    assert Cause.TRACKING in {t.cause for t in r.tick(10)}
    r.bridge.hold(r.now)
    r.tick(3)
    r.bridge.resume(r.now)
    r.plant.offset[0] = 0.0  # the model obeys at once: the command goes to where it was pushed to
    assert r.tick(40)[-1].command[0] == pytest.approx(0.3)


def test_one_damaged_reading_never_becomes_the_command(rig):
    r = rig()
    r.run_up()
    r.bridge.hold(r.now)
    held = r.tick(3)[-1].command
    r.plant.offset[1] = 0.3
    reply = r.bridge.resume(r.now)[0]
    assert not reply.accepted and 'does not rest' in reply.reason
    r.plant.offset[1] = 0.0
    assert r.tick(3)[-1].command == pytest.approx(held)
    assert r.bridge.resume(r.now)[0].accepted


def faulted(r, *, clears_after):
    """Fault a rig; its arm refuses to clear the fault so many times, and notes who may reset."""
    r.run_up()
    asked = []
    clear = r.arm.clear_faults

    def refuse(*, arm_supported, go_on):
        asked.append(arm_supported)
        if len(asked) <= clears_after:
            return Reply(False, 'stays')
        return clear(arm_supported=arm_supported, go_on=go_on)

    r.arm.clear_faults = refuse
    r.arm.inject_faults(('arm_estop',))
    r.tick(2)
    return asked


def test_recovery_needs_the_word_that_the_arm_is_supported(rig):
    r = rig()
    asked = faulted(r, clears_after=0)
    reply = r.bridge.recover(arm_supported=False)
    assert not reply.accepted and 'arm_supported' in reply.reason and not asked
    assert r.bridge.states.state is ArmState.FAULTED
    assert r.bridge.recover(arm_supported=True).accepted
    assert asked == [False], 'the power stays on'


def test_power_is_cut_only_by_a_second_request_for_the_same_fault(rig):
    r = rig()
    asked = faulted(r, clears_after=1)
    assert not r.bridge.recover(arm_supported=True).accepted
    assert r.bridge.recover(arm_supported=True).accepted
    assert asked == [False, True]
    r.run_up()
    r.arm.inject_faults(('arm_estop',))
    r.tick(2)
    r.bridge.recover(arm_supported=True)
    assert asked[-1] is False, 'a new fault begins anew'


def asked_for_another_fault(r):
    """Recover from a lost bus, then from a collision; return who may have reset the arm."""
    asked = faulted(r, clears_after=1)
    r.arm.inject_faults(('bus_lost',))
    assert not r.bridge.recover(arm_supported=True).accepted
    r.arm.inject_faults(('arm_collision',))
    r.tick(50)
    r.bridge.recover(arm_supported=True)
    return asked


def test_a_refusal_for_one_fault_is_no_first_request_for_another(rig):
    assert asked_for_another_fault(rig()) == [False, False]


def test_a_refusal_for_one_fault_is_no_first_request_for_another_can_fail(rig, monkeypatch):
    class Anything(frozenset):
        def intersection(self, other):
            return other

    monkeypatch.setattr(bridge_recovery, 'frozenset', Anything, raising=False)
    assert asked_for_another_fault(rig()) == [True, True]


# ---- ramp ------------------------------------------------------------------------------------


def test_a_chunk_that_takes_over_in_a_ramp_does_not_pull_the_arm_back(rig, move):
    r = rig(ramp_ns=400 * MS)
    r.tick(2)
    far = move(0.4)
    commands = []
    for _ in range(6):
        r.offer(r.chunk(start=far))
        commands += list(joint1(r.tick(3)))
    assert commands[-1] > 0.2
    assert min(np.diff(commands)) >= -1e-9


def test_a_ramp_starts_only_when_the_arm_rests(rig, move):
    r = rig()
    r.run_up()
    r.offer(r.chunk(to=move(0.3), rows=12))
    r.tick(6)
    r.bridge.hold(r.now)
    r.bridge.resume(r.now)
    r.offer(r.chunk(start=move(0.1), rows=40))
    ticks = r.tick(22)
    ramping = [t for t in ticks if t.verdict is Verdict.RAMPING]
    assert ticks[0].verdict is Verdict.HELD
    assert ramping and ramping[0].command[0] == pytest.approx(
        [t for t in ticks if t.verdict is Verdict.HELD][-1].command[0])


def test_a_fault_in_the_ramp_needs_a_new_ramp_after_recovery(rig):
    r = rig(ramp_ns=400 * MS)
    r.offer(r.chunk())
    r.tick(15)
    r.arm.inject_faults(('driver_error',))
    r.tick(2)
    assert r.bridge.states.state is ArmState.FAULTED
    assert r.bridge.recover(arm_supported=True).accepted
    assert still(r.tick(5)) and r.bridge.states.state is ArmState.ENABLED
    r.bridge.resume(r.now)
    r.tick(2)
    r.offer(r.chunk())
    assert r.tick(3)[-1].verdict is Verdict.RAMPING


# ---- chunks ----------------------------------------------------------------------------------


def test_chunks_that_begin_later_do_not_starve_each_other(rig):
    r = rig()
    r.tick(2)
    for _ in range(20):  # one each 40 ms, row 0 always 200 ms ahead
        r.offer(r.chunk(at_ns=r.next_due_ns + 200 * MS))
        r.tick(2)
    executed = {t.chunk_id for t in r.traces() if t.fate is Fate.EXECUTED}
    assert len(executed) > 10


def test_a_newer_chunk_replaces_a_waiting_one_that_begins_later(rig):
    r = rig()
    r.run_up()
    first = r.chunk(at_ns=r.next_due_ns + 200 * MS)
    r.offer(first)
    trace = r.offer(r.chunk(at_ns=r.next_due_ns + 100 * MS))
    assert (trace.chunk_id, trace.fate) == (first.chunk_id, Fate.SUPERSEDED)


def test_a_chunk_ahead_waits_while_the_running_one_goes_on(rig, move):
    r = rig()
    r.run_up()
    r.offer(r.chunk(at_ns=r.next_due_ns + 60 * MS, start=move(0.01)))
    ticks = r.tick(5)
    assert [t.chunk_id for t in ticks] == [6, 6, 6, 7, 7]
    assert ticks[3].row == 0.0


def test_restart_begins_in_row_0_of_a_tick_that_is_overdue(rig):
    r = rig()
    r.run_up()
    r.clock.sleep_until(r.next_due_ns + 2 * MS)  # the tick is due, but has not yet run
    r.offer(r.chunk(entry=Entry.RESTART))
    tick = r.tick(late_ns=3 * MS)[0]
    assert (tick.chunk_id, tick.row) == (r.chunks, 0.0)


def test_restart_begins_in_row_0_after_a_tick_that_was_missed(rig):
    r = rig()
    r.run_up()
    r.clock.sleep_until(r.next_due_ns + 12 * MS)
    r.offer(r.chunk(entry=Entry.RESTART))
    late, tick = r.tick(late_ns=13 * MS)[0], r.tick()[0]
    assert late.cause is Cause.TICK_LATE and late.chunk_id != r.chunks
    assert (tick.chunk_id, tick.row) == (r.chunks, 0.0)


def test_numbers_that_overflow_between_rows_hold_the_arm_and_not_the_bridge(
        rig, home, monkeypatch):
    monkeypatch.setattr('reflex_ros.stages.admission.MAX_POSITION', np.inf)
    r = rig()
    r.tick()
    positions = np.tile(home, (10, 1))
    positions[3:5, 1] = [1.7e308, -1.7e308]
    with np.errstate(all='ignore'):
        r.offer(r.chunk(positions=positions))
        ticks = r.tick(8)
    assert still(ticks)
    assert r.bridge.states.state is ArmState.HOLDING


def test_every_chunk_has_one_trace(rig):
    r = rig()
    r.tick()
    for ahead in (200, 100, 150, 0, 40, 40):
        r.offer(r.chunk(at_ns=r.next_due_ns + ahead * MS))
        r.tick(2)
    r.outputs += r.bridge.close(r.now)
    ids = [t.chunk_id for t in r.traces()]
    assert sorted(ids) == list(range(1, r.chunks + 1))


# ---- ticks -----------------------------------------------------------------------------------


def test_a_skipped_instant_executed_nothing_and_a_late_tick_neither(rig):
    r = rig()
    r.run_up()
    r.offer(r.chunk())
    r.tick()
    r.index += 2
    skipped = r.tick()[:2]
    late = r.tick(late_ns=15 * MS)
    for tick in (*skipped, *late):
        assert (tick.verdict, tick.cause) == (Verdict.HELD, Cause.TICK_LATE)
        assert not tick.is_covered and not tick.is_sent and len(tick.command) == 0


def test_shadow_mode_follows_the_plan_though_the_arm_does_not(rig, move):
    r = rig(send=False)
    r.run_up()
    r.offer(r.chunk(to=move(0.8), rows=40))
    ticks = r.tick(20)
    assert {t.verdict for t in ticks} <= {Verdict.FRESH, Verdict.LIMITED}
    assert not any(t.is_sent for t in ticks) and r.plant.position[0] == 0.0
    assert ticks[-1].command[0] > 0.3
    assert np.abs(r.plans()[-1].tracking_error).max() == 0.0
    r.outputs += r.bridge.close(r.now)
    assert r.traces()[-1].fate is Fate.EXECUTED and r.traces()[-1].first_command_stamp_ns > 0


def test_an_arm_that_does_not_follow_holds_without_shadow_mode(rig, move):
    r = rig()
    r.run_up()
    r.plant.command = lambda joints, gripper: None
    r.offer(r.chunk(to=move(0.8), rows=40))
    assert Cause.TRACKING in {t.cause for t in r.tick(30)}


def test_hold_since_follows_a_step_of_ros_time(rig):
    r = rig(uses_sim_time=True)
    r.run_up()
    r.tick(40)
    r.clock.step_stamp(-100 * S)
    r.tick(6)
    plan = r.plans()[-1]
    assert 0 < plan.hold_since_ns <= plan.settled_since_ns < plan.stamp_ns


def test_latency_of_a_policy_on_another_machine_comes_from_its_stamps(rig):
    r = rig(delay_warmup=0)
    r.tick()
    for _ in range(4):
        chunk = r.chunk(inference_start_ns=77 * S)
        assert r.offer(chunk) is None
        r.tick()
    assert r.bridge.latency.value_ns == 20 * MS


def test_a_policy_on_another_machine_is_trusted_again_after_a_clock_step(rig):
    r = rig()
    reasons = []
    for i in range(12):
        if i == 6:
            r.clock.step_stamp(-300 * MS)
        r.tick(2)
        trace = r.offer(r.chunk(inference_start_ns=r.now.mono_ns - 77 * S))
        reasons.append(trace is not None and trace.reason is RejectReason.CLOCK)
    assert reasons[:6] == [False] * 6 and reasons[6] and not any(reasons[10:])


def test_delay_maths_in_milliseconds_and_ticks(rig):
    r = rig(delay_warmup=1, delay_quantile=0.95)
    r.tick()
    for ms in (500, 86, 86, 86, 106):  # the first one is a cold start and does not count
        now = r.now
        r.offer(r.chunk(inference_start_ns=now.mono_ns - ms * MS,
                        inference_start_stamp_ns=now.stamp_ns - ms * MS))
        r.tick()
    assert r.bridge.latency.value_ns == 106 * MS
    assert r.bridge.latency.steps(TICK) == 6
