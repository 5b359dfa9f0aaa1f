"""A stray or damaged message must not shut out the good ones that come after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.types import Mode, RejectReason, StageStatus, Task
from reflex_ros.stages import bridge_intake
from reflex_ros.stages.policy import FIRST_ID_GAP
from reflex_ros.stages.states import StateBuffer

FAR = 2**62
"""The largest id that the edge to ROS lets through."""


def offer(r, ticks=5, **changes):
    """Offer a chunk, run ticks and return why it was rejected, NONE if it was not."""
    before = len(r.traces())
    r.offer(r.chunk(**changes))
    new = [t for t in r.traces()[before:] if t.reason is not RejectReason.NONE]
    r.tick(ticks)
    return new[0].reason if new else RejectReason.NONE


def reasons(r, count, **changes):
    return [offer(r, **changes) for _ in range(count)]


GOOD, REFUSED = RejectReason.NONE, RejectReason.MALFORMED


# ---- ids -------------------------------------------------------------------------------------


def test_an_impossible_id_is_refused_with_words_and_the_next_chunk_is_taken(rig):
    r = rig()
    r.run_up()
    assert offer(r, chunk_id=FAR) is REFUSED
    assert 'Two policies publish, or a message was damaged' in r.traces()[-1].text
    assert reasons(r, 3) == [GOOD] * 3


def test_an_impossible_first_id_costs_one_chunk(rig):
    r = rig()
    r.tick()
    assert offer(r, chunk_id=FAR) is REFUSED
    assert reasons(r, 4) == [REFUSED, GOOD, GOOD, GOOD]


def test_an_impossible_first_id_costs_one_chunk_can_fail(rig, monkeypatch):
    """Believed, it keeps the good ones out for a second and a half."""
    monkeypatch.setattr('reflex_ros.stages.admission.MAX_ID_JUMP', 2**64)
    r = rig()
    r.tick()
    assert offer(r, chunk_id=FAR) is GOOD
    assert reasons(r, 4) == [REFUSED] * 4


def test_ids_that_go_on_above_the_largest_first_one_are_taken(rig):
    """A policy that restarts after two months of one instruction begins there."""
    r = rig()
    r.tick()
    r.chunks = 60 * 24 * 3600 * FIRST_ID_GAP
    assert reasons(r, 4) == [REFUSED, GOOD, GOOD, GOOD]


def recovers(r):
    """Return how long good chunks were refused after a first one of a foreign policy, s."""
    r.tick()
    assert offer(r, chunk_id=10**6) is GOOD, 'nothing is known yet'
    found = reasons(r, 40)
    refused = found.count(REFUSED)
    assert found == [REFUSED] * refused + [GOOD] * (40 - refused)
    return refused * 5 * 20 * MS / S


def test_a_first_id_from_nowhere_is_forgotten(rig):
    assert 0.5 < recovers(rig()) <= 1.6


def test_a_first_id_from_nowhere_is_forgotten_can_fail(rig, monkeypatch):
    monkeypatch.setattr(bridge_intake, 'ID_MEMORY_NS', 10**18)
    assert recovers(rig()) == 4.0


def test_the_id_of_a_refused_chunk_counts_for_nothing(rig):
    r = rig()
    r.run_up()
    assert offer(r, chunk_id=10**6, epoch=1) is RejectReason.EPOCH
    assert offer(r, chunk_id=10**7, step0_at_ns=0) is RejectReason.ALL_ROWS_PAST
    assert reasons(r, 2) == [GOOD] * 2


@pytest.mark.parametrize('first', [
    lambda last: last + FIRST_ID_GAP, lambda last: last + 30 * 24 * 3600 * FIRST_ID_GAP,
], ids=['above the running chunk', 'after a month'])
def test_a_restarted_policy_is_accepted_at_once(rig, first):
    r = rig()
    r.run_up()
    r.chunks = first(r.chunks)
    assert reasons(r, 3) == [GOOD] * 3


def test_a_policy_that_begins_anew_is_accepted_after_a_pause(rig):
    r = rig()
    r.chunks = 1000
    r.run_up()
    r.tick(100)
    r.chunks = 0
    assert reasons(r, 3) == [GOOD] * 3


def test_a_repeated_chunk_is_refused_for_as_long_as_it_could_be_executed(rig):
    r = rig(max_age_ns=2 * S)
    r.run_up()
    chunk = r.chunk(rows=200)
    assert r.offer(chunk) is None
    for _ in range(20):
        r.tick(10)
        r.offer(chunk)
        assert r.traces()[-1].reason in (REFUSED, RejectReason.STALE)


def test_an_id_that_never_rises_is_refused_for_ever(rig):
    r = rig()
    r.run_up()
    assert reasons(r, 30, chunk_id=1) == [REFUSED] * 30


def test_of_two_policies_the_one_with_lower_ids_is_refused(rig):
    r = rig()
    r.run_up()
    found = []
    for n in range(1, 20):
        r.chunks = 1000 + n
        assert offer(r) is GOOD
        found.append(offer(r, chunk_id=n))
    assert set(found) == {REFUSED}


def test_a_policy_does_not_follow_an_impossible_id(bench):
    b = bench()
    b.plan(active_chunk_id=41)
    b.plan(active_chunk_id=FAR)
    b.stage.on_trace(b.trace(FAR))
    b.block(1)
    assert b.infer(0)[0].value.chunk_id == 41 + FIRST_ID_GAP
    b.stage.on_trace(b.trace(FAR))
    b.block(2)
    assert b.infer(200)[0].value.chunk_id == 42 + FIRST_ID_GAP


def test_a_policy_does_not_follow_an_impossible_id_can_fail(bench, monkeypatch):
    monkeypatch.setattr('reflex_ros.stages.policy.MAX_ID_JUMP', 2**64)
    b = bench()
    b.stage.on_trace(b.trace(FAR))
    b.block(1)
    assert b.infer(0)[0].value.chunk_id > FAR


# ---- delays ----------------------------------------------------------------------------------


def learnt(r):
    """Return L and Delta after a chunk whose inference began long before its observation."""
    for _ in range(5):
        now = r.now
        r.offer(r.chunk(inference_start_ns=now.mono_ns - 20 * S,
                        inference_start_stamp_ns=now.stamp_ns - 20 * S))
        r.tick(5)
    return r.bridge.latency.value_ns, r.bridge.delta.value_ns


def test_an_inference_before_its_observation_teaches_nothing(rig):
    latency_ns, delta_ns = learnt(rig(delay_warmup=0))
    assert latency_ns == 100 * MS and delta_ns < 60 * MS


def test_an_inference_before_its_observation_teaches_nothing_can_fail(rig, monkeypatch):
    monkeypatch.setattr(bridge_intake, 'MAX_AHEAD_NS', 60 * S)
    assert learnt(rig(delay_warmup=0))[0] == 20 * S


def test_a_primary_frame_out_of_its_observation_is_refused_and_teaches_nothing(rig):
    r = rig(delay_warmup=0)
    r.run_up()
    before = r.bridge.delta.value_ns
    assert offer(r, observation_stamp_ns=r.now.stamp_ns - 50 * S) is REFUSED
    assert r.bridge.delta.value_ns == before


# ---- epochs, blocks, states ------------------------------------------------------------------


def tasks(r, *, epoch):
    """Return when the bridge told its task to a node that says it lives in an epoch, s."""
    r.run_up()
    r.outputs, told = [], []
    for _ in range(40):
        r.bridge.status(StageStatus(
            number=1, stamp_ns=0, node='policy', state='active', last_input_ns=0,
            last_output_ns=0, busy_since_ns=0, sent_ns=r.now.mono_ns, epoch=epoch), r.now)
        before = len(r.outputs)
        r.tick(5)
        told += [o.value for o in r.outputs[before:] if isinstance(o.value, Task)]
    assert all(task.epoch == r.bridge.epoch and task.instruction == 'go' for task in told)
    return len(told)


def test_a_node_in_another_epoch_is_told_the_task_once_a_second(rig):
    r = rig()
    assert 3 <= tasks(r, epoch=r.bridge.epoch + 7) <= 5


@pytest.mark.parametrize('epoch', [None, 0], ids=['this epoch', 'none yet'])
def test_a_node_in_another_epoch_is_told_the_task_can_fail(rig, epoch):
    r = rig()
    assert tasks(r, epoch=r.bridge.epoch if epoch is None else epoch) == 0


def test_only_a_bridge_at_work_tells_its_task_again(rig):
    r = rig(activate=False)
    r.bridge.connect()
    stray = StageStatus(
        number=1, stamp_ns=0, node='policy', state='active', last_input_ns=0, last_output_ns=0,
        busy_since_ns=0, sent_ns=0, epoch=r.bridge.epoch + 7)
    for _ in range(5):
        r.clock.advance(2 * S)
        r.bridge.status(stray, r.now)
    r.start_ns = r.now.mono_ns
    r.bridge.activate()
    r.tick()
    assert len([o for o in r.outputs if isinstance(o.value, Task)]) == 1
    r.bridge.request_stop(r.now)
    r.clock.advance(2 * S)
    r.bridge.status(stray, r.now)
    assert not any(isinstance(o.value, Task) for o in r.bridge.close(r.now))


def test_a_block_with_an_impossible_number_is_followed_by_the_next_good_one(bench):
    b = bench(Mode.ASYNC_NAIVE)
    b.block(FAR, 0)
    assert b.infer(0)[0] is not None
    for number in (7, 8):
        b.block(number, 40 * number)
        assert b.due(40 * number) and b.infer(40 * number)[0] is not None


def test_a_state_from_the_far_future_is_forgotten_with_the_next_one():
    states = StateBuffer()
    for stamp_ns, value in ((S, 1.0), (2**62, 9.0), (2 * S, 2.0)):
        states.add(stamp_ns, np.full(7, value))
    assert states.at(2 * S)[0] == 2.0


def test_a_chunk_whose_rows_are_too_dense_never_becomes_the_plan(rig):
    """The plan is published row by row: a second of such rows has a billion of them."""
    r = rig()
    r.run_up()
    dense = replace(r.chunk(at_ns=r.next_due_ns + 900 * MS), step_period_ns=1)
    assert r.offer(dense).reason is REFUSED
    assert max(len(plan.setpoints) for plan in r.plans()) < 100
