"""Every cause, every verdict, and every pair of them by precedence."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex_ros.core.cause import (
    CAUSES,
    VERDICTS,
    ChunkFacts,
    NodeFacts,
    TickFacts,
    decide,
    is_in_motion,
    is_live,
)
from reflex_ros.core.clock import MS, S
from reflex_ros.core.types import ArmState, CameraStatus, Cause, Mode, StageStatus, Verdict

NOW = 1000 * S
LIVE = ChunkFacts(epoch=7, row=3.5, horizon=50, observation_age_ns=200 * MS)
CAMERA = {'last_received_ns': NOW - 60 * MS, 'content_since_ns': NOW - 60 * MS, 'equal_frames': 1}
NODE = {
    'sent_ns': NOW - 30 * MS,
    'received_ns': NOW - 29 * MS,
    'has_exited': False,
    'ring_ok': True,
    'busy_since_ns': 0,
    'last_input_ns': NOW - 70 * MS,
    'last_output_ns': NOW - 80 * MS,
    'reason': '',
}
TICK = {
    'arm_state': ArmState.HOLDING,
    'feedback_ns': NOW - 5 * MS,
    'epoch': 7,
    'chunk': LIVE,
    'latency_ns': 100 * MS,
    'delta_ns': 150 * MS,
    'encode_ns': 40 * MS,
    'last_chunk_ns': NOW - 79 * MS,
    'last_accept_ns': NOW - 79 * MS,
}

FACTS_OF = {
    Cause.ARM_FAULT: {'tick': {'faults': ('collision',)}},
    Cause.OPERATOR: {'tick': {'is_operator_hold': True}},
    Cause.INSTRUCTION: {'tick': {'instruction_ns': NOW - 300 * MS}},
    Cause.CLOCK: {'tick': {'is_clock_distrusted': True}},
    Cause.TICK_LATE: {'tick': {'late_ns': 10 * MS + 1}},
    Cause.NODE_DEAD: {'encoder': {'has_exited': True}},
    Cause.RING_LOST: {'policy': {'ring_ok': False}},
    Cause.STATE_STALE: {'tick': {'feedback_ns': NOW - 51 * MS}},
    Cause.TRACKING: {'tick': {'tracking_error_rad': 0.3}},
    Cause.CHUNK_REJECTED: {'tick': {'chunk': None, 'last_reject_ns': NOW - 50 * MS}},
    Cause.SYNC_WAIT: {'tick': {'mode': Mode.SYNC, 'hold_ns': NOW - 200 * MS}},
    Cause.TRANSPORT: {'tick': {'chunk': None, 'last_chunk_ns': NOW - 300 * MS},
                      'policy': {'last_output_ns': NOW - 101 * MS}},
    Cause.DENOISE_LATE: {'tick': {'chunk': None, 'last_chunk_ns': NOW - 300 * MS},
                         'policy': {'busy_since_ns': NOW - 101 * MS}},
    Cause.ENCODE_LATE: {'tick': {'chunk': None}, 'encoder': {'busy_since_ns': NOW - 41 * MS}},
    Cause.CAMERA_LATE: {'tick': {'chunk': None}, 'camera': {'last_received_ns': NOW - 200 * MS}},
    Cause.CAMERA_FROZEN: {'camera': {'content_since_ns': NOW - 540 * MS, 'equal_frames': 13}},
    Cause.PLAN_END: {'tick': {'chunk': None}},
    Cause.LIMIT: {'tick': {'limited': ('joint2',)}},
    Cause.WARMUP: {'tick': {'has_tracked': False}},
    Cause.NONE: {'tick': {'arm_state': ArmState.RAMP_IN}},
}
"""For each cause, the smallest set of facts that brings it about in a bridge that holds; a ramp
has none."""

UNEXPLAINED = Cause.PLAN_END
"""Of an arm that holds under a live chunk while all is well: it still comes to rest."""

EXCLUSIVE = {(Cause.SYNC_WAIT, Cause.WARMUP), (Cause.PLAN_END, Cause.WARMUP)}
"""Pairs that cannot hold together: one needs an executed chunk, the other that there was none."""

PAIRS = [pair for pair in itertools.combinations(Cause, 2) if pair not in EXCLUSIVE]


def node(name, fields, camera=None):
    """Return facts of a node that is well but for ``fields``."""
    values = NODE | fields
    received_ns, has_exited = values.pop('received_ns'), values.pop('has_exited')
    cameras = (CameraStatus('main', last_stamp_ns=0, **camera),) if camera else ()
    status = StageStatus(1, 0, name, 'active', cameras=cameras, **values)
    return NodeFacts(status, received_ns, has_exited)


def facts(*scenes, **tick):
    """Return the facts of a tick at which all of ``scenes`` and the fields ``tick`` hold."""

    def merged(part):
        return {key: value for scene in scenes for key, value in scene.get(part, {}).items()}

    return TickFacts(
        now_ns=NOW,
        encoder=node('vision_encoder', merged('encoder'), CAMERA | merged('camera')),
        policy=node('policy', merged('policy')),
        **(TICK | merged('tick') | tick),
    )


def cause_of(*scenes, **tick):
    return decide(facts(*scenes, **tick))[1]


def test_tables_have_the_order_of_the_enums():
    assert [cause for _, cause in CAUSES] == list(Cause)
    assert [verdict for _, verdict in VERDICTS] == list(Verdict)


@pytest.mark.parametrize('cause', list(Cause))
def test_each_cause_is_found(cause):
    assert cause_of(FACTS_OF[cause]) is cause


@pytest.mark.parametrize(('first', 'second'), PAIRS, ids=lambda cause: cause.value)
def test_of_two_causes_the_earlier_one_wins(first, second):
    assert cause_of(FACTS_OF[first], FACTS_OF[second]) is first
    assert cause_of(FACTS_OF[second], FACTS_OF[first]) is first


def test_precedence_pairs_can_fail():
    swapped = [CAUSES[1], CAUSES[0], *CAUSES[2:]]
    both = facts(FACTS_OF[Cause.ARM_FAULT], FACTS_OF[Cause.OPERATOR])
    assert next(cause for holds, cause in swapped if holds(both)) is Cause.OPERATOR


VERDICT_FACTS = {
    Verdict.STOPPED: {'faults': ('collision',)},
    Verdict.RAMPING: {'arm_state': ArmState.RAMP_IN},
    Verdict.HELD: {'is_operator_hold': True},
    Verdict.LIMITED: {'limited': ('joint2',)},
    Verdict.FRESH: {},
}


@pytest.mark.parametrize(('first', 'second'), [*itertools.combinations(Verdict, 2)])
def test_of_two_verdicts_the_earlier_one_wins(first, second):
    both = {'arm_state': ArmState.TRACKING} | VERDICT_FACTS[second] | VERDICT_FACTS[first]
    assert decide(facts(**both))[0] is first
    alone = {'arm_state': ArmState.TRACKING} | VERDICT_FACTS[second]
    assert decide(facts(**alone))[0] is second


@pytest.mark.parametrize(('state', 'verdict', 'cause'), [
    (ArmState.DISCONNECTED, Verdict.STOPPED, Cause.ARM_FAULT),
    (ArmState.CONNECTED, Verdict.STOPPED, Cause.OPERATOR),
    (ArmState.CHECKED, Verdict.STOPPED, Cause.OPERATOR),
    (ArmState.ENABLED, Verdict.HELD, Cause.OPERATOR),
    (ArmState.RAMP_IN, Verdict.RAMPING, Cause.NONE),
    (ArmState.TRACKING, Verdict.FRESH, Cause.NONE),
    (ArmState.HOLDING, Verdict.HELD, Cause.PLAN_END),
    (ArmState.FAULTED, Verdict.STOPPED, Cause.ARM_FAULT),
])
def test_arm_state_decides_when_nothing_else_is_wrong(state, verdict, cause):
    assert decide(facts(arm_state=state)) == (verdict, cause)


def test_live_chunk_is_fresh_whatever_the_nodes_do():
    dead = facts(FACTS_OF[Cause.NODE_DEAD], FACTS_OF[Cause.RING_LOST], FACTS_OF[Cause.CAMERA_LATE],
                 arm_state=ArmState.TRACKING, chunk=LIVE)
    assert decide(dead) == (Verdict.FRESH, Cause.NONE)


def test_distrusted_clock_does_not_stop_a_live_plan():
    tick = facts(arm_state=ArmState.TRACKING, is_clock_distrusted=True)
    assert decide(tick) == (Verdict.FRESH, Cause.NONE)


def test_limited_tick_names_limit_even_if_an_earlier_cause_holds():
    tick = facts(arm_state=ArmState.TRACKING, limited=('joint2',), tracking_error_rad=1.0)
    assert decide(tick) == (Verdict.LIMITED, Cause.LIMIT)


def test_late_tick_is_held_although_a_live_chunk_covers_it():
    tick = facts(arm_state=ArmState.TRACKING, late_ns=11 * MS)
    assert decide(tick) == (Verdict.HELD, Cause.TICK_LATE)
    assert is_live(tick)


def test_tick_half_a_period_late_is_still_fresh():
    tick = facts(arm_state=ArmState.TRACKING, late_ns=10 * MS)
    assert decide(tick) == (Verdict.FRESH, Cause.NONE)


def test_lost_feedback_stops_a_tracking_arm():
    tick = facts(arm_state=ArmState.TRACKING, feedback_ns=NOW - 101 * MS)
    assert decide(tick) == (Verdict.STOPPED, Cause.ARM_FAULT)


@pytest.mark.parametrize(('change', 'live'), [
    ({}, True),
    ({'epoch': 6}, False),
    ({'row': 49.99}, True),
    ({'row': 50.0}, False),
    ({'observation_age_ns': 500 * MS}, True),
    ({'observation_age_ns': 500 * MS + 1}, False),
])
def test_live_needs_epoch_row_and_age(change, live):
    tick = facts(arm_state=ArmState.TRACKING, chunk=replace(LIVE, **change))
    assert is_live(tick) is live
    expected = (Verdict.FRESH, Cause.NONE) if live else (Verdict.HELD, Cause.PLAN_END)
    assert decide(tick) == expected


@pytest.mark.parametrize('field', ['instruction_ns', 'resumed_ns'])
def test_grace_ends_after_delta_and_half_a_second(field):
    cause = {'instruction_ns': Cause.INSTRUCTION, 'resumed_ns': Cause.OPERATOR}[field]
    assert cause_of(**{field: NOW - 650 * MS}) is cause
    late = facts(FACTS_OF[Cause.ENCODE_LATE], **{field: NOW - 650 * MS - 1})
    assert decide(late)[1] is Cause.ENCODE_LATE


def test_silent_node_is_dead_after_the_status_bound():
    assert cause_of({'policy': {'received_ns': NOW - 400 * MS}}) is UNEXPLAINED
    assert cause_of({'policy': {'received_ns': NOW - 400 * MS - 1}}) is Cause.NODE_DEAD


def test_node_never_heard_of_is_warmup_and_not_dead():
    tick = replace(facts(has_tracked=False, chunk=None), encoder=None, policy=None)
    assert decide(tick) == (Verdict.HELD, Cause.WARMUP)


def test_nan_tracking_error_counts_as_too_large():
    assert cause_of(tracking_error_rad=math.nan) is Cause.TRACKING


def test_rejection_before_the_newest_acceptance_explains_nothing():
    assert cause_of(chunk=None, last_reject_ns=NOW - 80 * MS) is Cause.PLAN_END


def test_sync_pause_longer_than_meant_has_its_true_cause():
    scenes = (FACTS_OF[Cause.SYNC_WAIT], FACTS_OF[Cause.CAMERA_LATE])
    assert cause_of(*scenes, hold_ns=NOW - 650 * MS) is Cause.SYNC_WAIT
    assert cause_of(*scenes, hold_ns=NOW - 651 * MS) is Cause.CAMERA_LATE


def test_first_tick_of_a_sync_pause_is_sync_wait():
    assert cause_of(chunk=None, mode=Mode.SYNC, hold_ns=0) is Cause.SYNC_WAIT


def test_block_unknown_to_an_idle_policy_is_transport():
    lost = {'encoder': {'last_output_ns': NOW - 140 * MS},
            'policy': {'last_input_ns': NOW - 300 * MS, 'last_output_ns': 0}}
    assert cause_of(lost, chunk=None) is Cause.TRANSPORT
    busy = {**lost, 'policy': {**lost['policy'], 'busy_since_ns': NOW - 20 * MS}}
    assert cause_of(busy, chunk=None) is Cause.PLAN_END


def test_blocks_that_stay_away_are_transport_although_the_newest_is_young():
    lost = {'encoder': {'last_output_ns': NOW - 40 * MS},
            'policy': {'last_input_ns': NOW - 300 * MS, 'last_output_ns': 0}}
    assert cause_of(lost, chunk=None) is Cause.TRANSPORT
    paused = {**lost, 'policy': {**lost['policy'], 'last_input_ns': NOW - 280 * MS}}
    assert cause_of(paused, chunk=None) is Cause.PLAN_END
    later = {**lost, 'encoder': {'last_output_ns': NOW - 20 * MS}}
    assert cause_of(later, chunk=None) is Cause.PLAN_END


def test_encoder_that_drops_for_its_cameras_is_camera_late():
    dropping = {'encoder': {'reason': 'camera_skew', 'last_output_ns': NOW - 200 * MS}}
    assert cause_of(dropping, chunk=None) is Cause.CAMERA_LATE


@pytest.mark.parametrize('cause', [
    Cause.TRANSPORT, Cause.DENOISE_LATE, Cause.ENCODE_LATE, Cause.CAMERA_LATE])
def test_what_keeps_the_next_chunk_waiting_holds_no_tick_that_a_live_chunk_covers(cause):
    assert cause_of(FACTS_OF[cause], chunk=LIVE) is UNEXPLAINED
    frozen = FACTS_OF[Cause.CAMERA_FROZEN]
    assert cause_of(frozen, FACTS_OF[cause], chunk=LIVE) is Cause.CAMERA_FROZEN
    assert cause_of(frozen, FACTS_OF[cause], chunk=None) is cause


def test_a_step_whose_chunk_has_come_is_not_late():
    busy = FACTS_OF[Cause.DENOISE_LATE]
    assert cause_of(busy, last_chunk_ns=NOW - 101 * MS) is Cause.DENOISE_LATE
    assert cause_of(busy, last_chunk_ns=NOW - 100 * MS) is Cause.PLAN_END


@pytest.mark.parametrize('change', [
    {'content_since_ns': NOW - 540 * MS, 'equal_frames': 9},
    {'content_since_ns': NOW - 500 * MS, 'equal_frames': 13},
])
def test_frozen_needs_both_frames_and_time(change):
    assert cause_of({'camera': change}) is UNEXPLAINED


@pytest.mark.parametrize('cause', list(Cause))
def test_in_motion_is_tracking_or_a_hold_nobody_asked_for(cause):
    resting = {Cause.OPERATOR, Cause.INSTRUCTION, Cause.ARM_FAULT, Cause.WARMUP}
    assert is_in_motion(ArmState.HOLDING, cause) is (cause not in resting)
    assert is_in_motion(ArmState.TRACKING, cause)
    for state in set(ArmState) - {ArmState.HOLDING, ArmState.TRACKING}:
        assert not is_in_motion(state, cause)


@settings(deadline=None)
@given(st.sets(st.sampled_from(sorted(FACTS_OF))), st.sampled_from(sorted(ArmState)))
def test_every_tick_has_exactly_one_verdict_that_fits_its_cause(causes, state):
    verdict, cause = decide(facts(*(FACTS_OF[item] for item in causes), arm_state=state))
    assert (verdict is Verdict.FRESH) <= (cause is Cause.NONE)
    assert (verdict is Verdict.LIMITED) <= (cause is Cause.LIMIT)
    assert (verdict is Verdict.STOPPED) == (
        state in {ArmState.DISCONNECTED, ArmState.CONNECTED, ArmState.CHECKED, ArmState.FAULTED}
        or Cause.ARM_FAULT in causes
    )


@settings(deadline=None)
@given(st.sets(st.sampled_from(sorted(FACTS_OF))), st.sampled_from(sorted(ArmState)),
       st.sampled_from(sorted(Cause)))
def test_a_tick_that_is_held_or_stopped_always_has_a_cause(causes, state, held_for):
    verdict, cause = decide(facts(
        *(FACTS_OF[item] for item in causes), arm_state=state, held_for=held_for))
    assert verdict not in (Verdict.HELD, Verdict.STOPPED) or cause is not Cause.NONE


@pytest.mark.parametrize('held_for', [Cause.OPERATOR, Cause.TRACKING, Cause.PLAN_END])
def test_an_arm_that_still_comes_to_rest_is_held_for_what_held_it(held_for):
    assert cause_of(held_for=held_for) is held_for
    assert cause_of(FACTS_OF[Cause.NODE_DEAD], held_for=held_for) is Cause.NODE_DEAD
    assert cause_of(arm_state=ArmState.TRACKING, held_for=held_for) is Cause.NONE


def test_a_held_tick_always_has_a_cause_can_fail():
    """By the table alone a live chunk that waits for the arm to rest has none."""
    assert next(cause for holds, cause in CAUSES if holds(facts())) is Cause.NONE
