"""[ci] Every fault of the loop on the virtual clock: what the arm does, and what the ledger says.

No fault moves the arm unasked: commands stay within the limits and end in a held pose.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core import cause
from reflex_ros.core.clock import MS, Instant, S
from reflex_ros.core.types import ArmState, Cause, Fate, Mode, RejectReason, Task, Verdict
from reflex_ros.stages.bridge_task import TaskBook


def commands(ticks) -> np.ndarray:
    return np.array([t.command for t in ticks if len(t.command)])


def stands_still(ticks) -> bool:
    return bool(np.ptp(commands(ticks), axis=0).max() < 1e-9)


def causes(ticks) -> set[Cause]:
    return {t.cause for t in ticks}


def edit_chunks(run, change) -> None:
    """Let ``change`` edit every chunk on its way to the bridge."""
    offer = run.bridge.offer
    run.bridge.offer = lambda chunk, now: offer(change(chunk), now)


def with_positions(change):
    def edit(chunk):
        positions = chunk.positions.copy()
        change(positions)
        return replace(chunk, positions=positions)

    return edit


# ---- nodes -----------------------------------------------------------------------------------


@pytest.mark.parametrize('worker', ['policy_worker', 'encoder_worker'])
def test_dead_node_is_named_within_600_ms_and_the_arm_comes_to_rest(scene, worker):
    s = scene()
    s.at(2.0, lambda run: setattr(getattr(run, worker), 'is_dead', True))
    s.finish()
    named = [t for t in s.run.log.ticks if t.cause is Cause.NODE_DEAD]
    assert named
    assert named[0].due_ns - s.run.log.ticks[0].due_ns <= 2_600 * MS
    assert stands_still(s.ticks(3.5, 4.0))


def test_dead_node_is_named_can_fail(scene):
    s = scene()
    s.finish()
    assert Cause.NODE_DEAD not in causes(s.run.log.ticks)


def test_live_chunk_is_finished_before_the_arm_decelerates(scene):
    s = scene()
    s.at(2.0, lambda run: setattr(run.policy_worker, 'is_dead', True))
    s.finish()
    assert {t.verdict for t in s.ticks(2.0, 2.3)} <= {Verdict.FRESH, Verdict.LIMITED}
    held = [t for t in s.ticks(2.3, 4.0) if t.verdict is Verdict.HELD]
    assert held and held[0].observation_age_ns > 500 * MS


def test_run_goes_on_when_the_policy_is_back(scene):
    s = scene(duration_s=5.0)
    s.at(2.0, lambda run: setattr(run.policy_worker, 'is_dead', True))

    def revive(run) -> None:
        run.policy_worker.is_dead = run.policy_worker.is_busy = False
        run.policy_worker.poke()

    s.at(3.5, revive)
    s.finish()
    assert {t.verdict for t in s.ticks(4.2, 5.0)} <= {Verdict.FRESH, Verdict.LIMITED}


def test_the_software_stop_works_while_inference_blocks(scene):
    s = scene()
    replies = []
    s.at(2.0, lambda run: setattr(run.policy_worker, 'is_busy', True))
    s.at(2.1, lambda run: replies.append(run.bridge.hold(run.clock.now())[0]))
    s.finish()
    assert [reply.accepted for reply in replies] == [True]
    after = s.ticks(2.12, 4.0)
    assert causes(after) == {Cause.OPERATOR} and all(t.is_sent for t in after)
    assert stands_still(s.ticks(3.2, 4.0))


def test_the_software_stop_can_fail(scene):
    s = scene()
    s.finish()
    assert not stands_still(s.ticks(3.2, 4.0))


# ---- chunks ----------------------------------------------------------------------------------


def _nan(positions) -> None:
    positions[3, 2] = np.nan


@pytest.mark.parametrize(('change', 'reason'), [
    (with_positions(_nan), RejectReason.NOT_FINITE),
    (lambda c: replace(c, joint_names=c.joint_names[::-1]), RejectReason.JOINT_NAMES),
    (lambda c: replace(c, positions=c.positions[:, :6]), RejectReason.MALFORMED),
    (lambda c: replace(c, step_period_ns=0), RejectReason.MALFORMED),
    (lambda c: replace(c, epoch=c.epoch - 1), RejectReason.EPOCH),
    (lambda c: replace(c, step0_at_ns=c.step0_at_ns - 5 * S), RejectReason.ALL_ROWS_PAST),
    (lambda c: replace(c, step0_at_ns=c.step0_at_ns + 9 * S), RejectReason.CLOCK),
    (lambda c: replace(c, oldest_stamp_ns=c.oldest_stamp_ns - S), RejectReason.STALE),
    (lambda c: replace(c, chunk_id=1), RejectReason.MALFORMED),
    (with_positions(lambda p: p.__iadd__(1.0)), RejectReason.SEAM),
], ids=lambda value: value.value if isinstance(value, RejectReason) else '')
def test_bad_chunk_is_rejected_and_moves_nothing(scene, change, reason):
    s = scene()
    s.at(2.0, lambda run: edit_chunks(run, change))
    s.finish()
    bad = [t for t in s.run.log.traces if t.accepted_ns > s.run.log.ticks[0].due_ns + 2 * S]
    rejected = [t for t in bad if t.fate is Fate.REJECTED]
    assert rejected and {t.reason for t in rejected} == {reason}
    assert all(t.text for t in rejected)
    assert stands_still(s.ticks(3.6, 4.0))
    assert Cause.CHUNK_REJECTED in causes(s.ticks(2.0, 4.0))


def test_a_rejected_chunk_is_traced_exactly_once(scene):
    s = scene()
    s.at(2.0, lambda run: edit_chunks(run, with_positions(_nan)))
    s.finish()
    ids = [t.chunk_id for t in s.run.log.traces]
    assert len(ids) == len(set(ids)) == len(s.run.log.chunks)


def after_a_stray_chunk(scene):
    """Return the last second of a run whose second chunk names a start of 20 s before."""
    s = scene()

    def stray(chunk):
        ago_ns = 20 * S if chunk.chunk_id == 2 else 0
        return replace(chunk, inference_start_ns=chunk.inference_start_ns - ago_ns,
                       inference_start_stamp_ns=chunk.inference_start_stamp_ns - ago_ns)

    s.run.bridge.latency._warmup_left = 0
    edit_chunks(s.run, stray)
    s.finish()
    return {t.verdict for t in s.ticks(3.0, 4.0)}


def test_a_stray_delay_does_not_shut_out_the_chunks_behind_it(scene):
    assert after_a_stray_chunk(scene) <= {Verdict.FRESH, Verdict.LIMITED}


def test_a_stray_delay_does_not_shut_out_the_chunks_behind_it_can_fail(scene, monkeypatch):
    monkeypatch.setattr('reflex_ros.stages.bridge_intake.MAX_AHEAD_NS', 60 * S)
    assert after_a_stray_chunk(scene) == {Verdict.HELD}


def after_a_stray_task(scene):
    """Return the last second of a run in which both stages heard the task of another epoch."""
    s = scene()

    def mislead(run):
        task = Task(9, run.clock.stamp_ns(), run.bridge.epoch + 5, 'go elsewhere')
        run.encoder.on_task(task)
        run.policy.on_task(task)

    s.at(1.55, mislead)
    s.finish()
    return {t.verdict for t in s.ticks(3.2, 4.0)}


def test_a_stray_task_is_corrected(scene):
    assert after_a_stray_task(scene) <= {Verdict.FRESH, Verdict.LIMITED}


def test_a_stray_task_is_corrected_can_fail(scene, monkeypatch):
    monkeypatch.setattr(TaskBook, 'retell', lambda self, status, now: None)
    assert after_a_stray_task(scene) == {Verdict.HELD}


# ---- operator and instruction ----------------------------------------------------------------


def test_hold_stops_while_an_inference_runs_and_resume_ramps_in(scene):
    s = scene(duration_s=6.0, delay_ms=300)
    replies = []
    s.at(2.0, lambda run: replies.append(run.bridge.hold(run.clock.now())[0]))
    s.at(4.0, lambda run: replies.append(run.bridge.resume(run.clock.now())[0]))
    s.finish()
    assert [r.accepted for r in replies] == [True, True]
    held = s.ticks(2.02, 4.0)
    assert causes(held) == {Cause.OPERATOR} and {t.verdict for t in held} == {Verdict.HELD}
    assert stands_still(s.ticks(3.0, 4.0))
    after = s.ticks(4.0, 6.0)
    assert Verdict.RAMPING in {t.verdict for t in after}
    assert {t.verdict for t in s.ticks(5.5, 6.0)} <= {Verdict.FRESH, Verdict.LIMITED}


def test_new_instruction_raises_the_epoch_and_resumes_by_itself(scene):
    s = scene(duration_s=5.0)
    s.at(2.0, lambda run: run.publish(run.bridge.set_instruction('go on', run.clock.now())[1]))
    s.finish()
    epochs = sorted({t.epoch for t in s.run.log.ticks})
    assert len(epochs) == 2 and epochs[1] == epochs[0] + 1
    held = [t for t in s.ticks(2.0, 3.0) if t.verdict is Verdict.HELD]
    assert held and causes(held) == {Cause.INSTRUCTION}
    assert not any(t.in_motion for t in held)
    assert {t.verdict for t in s.ticks(3.5, 5.0)} <= {Verdict.FRESH, Verdict.LIMITED}


def test_empty_instruction_is_refused(scene):
    s = scene()
    reply, outputs = s.run.bridge.set_instruction('  ', s.run.clock.now())
    assert not reply.accepted and 'expected words' in reply.reason and outputs == ()


def test_an_endless_instruction_is_refused(scene):
    s = scene()
    reply, outputs = s.run.bridge.set_instruction('pick ' * 2000, s.run.clock.now())
    assert not reply.accepted and 'got 10000 characters' in reply.reason and outputs == ()


def test_nothing_moves_without_being_asked(scene):
    s = scene(bridge={'is_autostarted': False})
    s.finish()
    assert stands_still(s.run.log.ticks)
    assert causes(s.run.log.ticks) == {Cause.OPERATOR}
    assert not any(t.in_motion for t in s.run.log.ticks)


def test_nothing_moves_without_being_asked_can_fail(scene):
    s = scene()
    s.finish()
    assert not stands_still(s.run.log.ticks)


# ---- arm -------------------------------------------------------------------------------------


def test_lost_feedback_faults_and_sends_nothing(scene):
    s = scene()
    s.at(2.0, lambda run: run.arm.silence(True))
    s.finish()
    assert [t.is_sent for t in s.ticks(2.14, 4.0)] == [False] * len(s.ticks(2.14, 4.0))
    assert s.run.bridge.states.state is ArmState.FAULTED
    assert {(t.verdict, t.cause) for t in s.ticks(2.14, 4.0)} == {
        (Verdict.STOPPED, Cause.ARM_FAULT)}


def test_arm_fault_needs_recover_and_resume(scene):
    s = scene(duration_s=6.0)
    s.at(2.0, lambda run: run.arm.inject_faults(('driver_error',)))
    replies = []

    def recover(run) -> None:
        replies.append(run.bridge.resume(run.clock.now())[0])
        replies.append(run.bridge.recover(arm_supported=True))

    s.at(3.0, recover)
    s.at(4.0, lambda run: replies.append(run.bridge.resume(run.clock.now())[0]))
    s.finish()
    assert [r.accepted for r in replies] == [False, True, True]
    assert stands_still(s.ticks(3.1, 4.0))
    assert {t.verdict for t in s.ticks(5.5, 6.0)} <= {Verdict.FRESH, Verdict.LIMITED}


def test_tracking_error_holds_the_arm(scene):
    s = scene()

    def push(run) -> None:
        true_state = run.world.joint_state

        def pushed():
            position, velocity = true_state()
            return position + np.array([0.4, 0, 0, 0, 0, 0, 0]), velocity

        run.world.joint_state = pushed

    s.at(2.0, push)
    s.finish()
    assert Cause.TRACKING in causes(s.ticks(2.0, 4.0))
    assert stands_still(s.ticks(3.0, 4.0))


# ---- time ------------------------------------------------------------------------------------


def test_clock_step_refuses_chunks_until_three_agree_and_the_plan_goes_on(scene):
    s = scene(duration_s=5.0)
    s.at(2.0, lambda run: run.clock.step_stamp(-200 * MS))
    s.finish()
    rejected = [t for t in s.run.log.traces if t.reason is RejectReason.CLOCK]
    assert len(rejected) == 2
    assert all(t.is_sent for t in s.ticks(1.0, 5.0))
    assert {t.verdict for t in s.ticks(4.0, 5.0)} <= {Verdict.FRESH, Verdict.LIMITED}


def test_backward_simulated_time_raises_the_epoch(scene):
    s = scene(duration_s=5.0, bridge={'uses_sim_time': True})

    def back(run) -> None:
        run.clock.step_stamp(-2 * S)
        run.encoder.restart_time()

    s.at(2.0, back)
    s.finish()
    assert len({t.epoch for t in s.run.log.ticks}) == 2


def test_late_tick_sends_nothing_and_skipped_instants_get_a_record_each(scene):
    s = scene(duration_s=3.0)
    run = s.run
    step = run.bridge.step

    def late(now, due_ns, index):
        if index == 100:
            now = Instant(now.mono_ns + 15 * MS, now.stamp_ns + 15 * MS)
        if index in (120, 121, 122):
            return ()
        return step(now, due_ns, index)

    run.bridge.step = late
    s.finish()
    by_index = {t.index: t for t in run.log.ticks}
    assert sorted(by_index) == list(range(len(by_index)))
    assert (by_index[100].verdict, by_index[100].cause) == (Verdict.HELD, Cause.TICK_LATE)
    assert not by_index[100].is_sent
    for index in (120, 121, 122):
        assert by_index[index].cause is Cause.TICK_LATE and not by_index[index].is_sent


# ---- cameras ---------------------------------------------------------------------------------


def test_frozen_camera_is_named(scene):
    image = np.zeros((8, 8, 3), np.uint8)
    s = scene(render=lambda camera: image)
    s.at(2.0, lambda run: setattr(run.policy_worker, 'is_busy', True))
    s.finish()
    assert Cause.CAMERA_FROZEN in causes(s.ticks(2.0, 4.0))


def causes_while_frozen(scene):
    """Return the causes of a second with one picture and a policy that is busy half its time."""
    s = scene(render=lambda camera: np.zeros((8, 8, 3), np.uint8), delay_ms=60)
    s.finish()
    held = s.ticks(2.0, 4.0)
    assert {t.verdict for t in held} == {Verdict.HELD} and stands_still(held)
    return causes(held)


def test_a_frozen_camera_is_named_in_every_tick_that_it_holds(scene):
    assert causes_while_frozen(scene) == {Cause.CAMERA_FROZEN}


def test_a_frozen_camera_is_named_in_every_tick_can_fail(scene, monkeypatch):
    def as_before(facts):
        busy_ns = facts.policy.status.busy_since_ns
        return 0 < busy_ns < facts.now_ns - facts.latency_ns

    monkeypatch.setattr(cause, 'CAUSES', tuple(
        (as_before if name is Cause.DENOISE_LATE else holds, name)
        for holds, name in cause.CAUSES))
    assert Cause.DENOISE_LATE in causes_while_frozen(scene)


def test_silent_camera_is_named(scene):
    s = scene()
    s.at(2.0, lambda run: setattr(run, '_camera', lambda: None))
    s.finish()
    assert Cause.CAMERA_LATE in causes(s.ticks(2.0, 4.0))
    assert stands_still(s.ticks(3.5, 4.0))


def test_sync_waits_are_named(scene):
    s = scene(mode='sync', execute_steps=25, delay_ms=100)
    s.finish()
    held = [t for t in s.ticks(1.5, 4.0) if t.verdict is Verdict.HELD]
    assert held and causes(held) == {Cause.SYNC_WAIT}
    assert Mode(s.run.config.bridge.mode) is Mode.SYNC


def test_first_chunk_far_from_the_held_pose_is_refused_and_nothing_moves(scene):
    """A wrong unit or normalisation must not sweep the arm, not even behind a ramp."""
    s = scene(duration_s=2.0)
    edit_chunks(s.run, with_positions(lambda p: p.__iadd__(0.8)))
    s.finish()
    rejected = [t for t in s.run.log.traces if t.fate is Fate.REJECTED]
    assert rejected and {t.reason for t in rejected} == {RejectReason.SEAM}
    assert stands_still(s.run.log.ticks)
