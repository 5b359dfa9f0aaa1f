"""Which chunks may be executed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.types import JOINT_NAMES, ActionChunk, ArmState, RejectReason
from reflex_ros.stages.admission import MAX_ID_JUMP, Admission, judge

NOW = 10 * S
AT = Admission(
    joint_names=JOINT_NAMES, epoch=7, arm_state=ArmState.TRACKING, is_armed=True,
    is_clock_trusted=True, next_due_ns=NOW, step0_ns=NOW, observation_ns=NOW - 100 * MS,
    max_age_ns=500 * MS, last_chunk_id=4,
)


def chunk(**changes):
    values = {
        'number': 1, 'chunk_id': 5, 'block_number': 1, 'epoch': 7, 'observation_stamp_ns': 0,
        'newest_stamp_ns': 0, 'oldest_stamp_ns': 0, 'step0_at_ns': 0, 'state_at_ns': 0,
        'step_period_ns': 20 * MS, 'execute_steps': 5, 'joint_names': JOINT_NAMES,
        'positions': np.zeros((10, 7)), 'predicted_state': np.zeros(7),
    }
    return ActionChunk(**{**values, **changes})


def with_value(value, row=3, joint=2):
    positions = np.zeros((10, 7))
    positions[row, joint] = value
    return chunk(positions=positions)


def test_a_good_chunk_is_accepted_without_words():
    assert judge(chunk(), AT) == (RejectReason.NONE, '')


@pytest.mark.parametrize(('bad', 'reason'), [
    (chunk(joint_names=JOINT_NAMES[::-1]), RejectReason.JOINT_NAMES),
    (chunk(joint_names=JOINT_NAMES[:6], positions=np.zeros((10, 6))), RejectReason.JOINT_NAMES),
    (chunk(positions=np.zeros((10, 6))), RejectReason.MALFORMED),
    (chunk(positions=np.zeros((0, 7))), RejectReason.MALFORMED),
    (chunk(positions=np.zeros((1001, 7))), RejectReason.MALFORMED),
    (chunk(positions=np.zeros(7)), RejectReason.MALFORMED),
    (chunk(step_period_ns=0), RejectReason.MALFORMED),
    (chunk(step_period_ns=-20 * MS), RejectReason.MALFORMED),
    (chunk(step_period_ns=2 * S), RejectReason.MALFORMED),
    (chunk(step_period_ns=MS - 1), RejectReason.MALFORMED),
    (chunk(chunk_id=4), RejectReason.MALFORMED),
    (chunk(chunk_id=5 + MAX_ID_JUMP), RejectReason.MALFORMED),
    (chunk(chunk_id=2**63 - 1), RejectReason.MALFORMED),
    (chunk(oldest_stamp_ns=1), RejectReason.MALFORMED),
    (chunk(observation_stamp_ns=1), RejectReason.MALFORMED),
    (chunk(newest_stamp_ns=-1), RejectReason.MALFORMED),
    (chunk(newest_stamp_ns=201 * MS), RejectReason.CLOCK),
    (with_value(np.nan), RejectReason.NOT_FINITE),
    (with_value(-np.inf), RejectReason.NOT_FINITE),
    (with_value(90.0), RejectReason.MALFORMED),
    (with_value(-1e308), RejectReason.MALFORMED),
    (chunk(epoch=6), RejectReason.EPOCH),
    (chunk(epoch=8), RejectReason.EPOCH),
])
def test_a_chunk_that_contradicts_the_arm_is_rejected_with_words(bad, reason):
    found, text = judge(bad, AT)
    assert found is reason
    assert 'got' in text and 'expected' in text


def test_degrees_are_called_by_their_name():
    assert 'joint3' in judge(with_value(90.0), AT)[1] and 'units' in judge(with_value(90.0), AT)[1]


@pytest.mark.parametrize(('changes', 'reason'), [
    ({'arm_state': ArmState.FAULTED}, RejectReason.ARM_STATE),
    ({'arm_state': ArmState.CHECKED}, RejectReason.ARM_STATE),
    ({'is_armed': False}, RejectReason.ARM_STATE),
    ({'is_clock_trusted': False}, RejectReason.CLOCK),
    ({'step0_ns': NOW - 200 * MS}, RejectReason.ALL_ROWS_PAST),
    ({'step0_ns': NOW + S + 1}, RejectReason.CLOCK),
    ({'observation_ns': NOW - 501 * MS}, RejectReason.STALE),
    ({'observation_ns': NOW + 101 * MS}, RejectReason.CLOCK),
])
def test_a_chunk_at_the_wrong_moment_is_rejected(changes, reason):
    assert judge(chunk(), replace(AT, **changes))[0] is reason


@pytest.mark.parametrize('changes', [
    {'step0_ns': NOW - 200 * MS + 1}, {'step0_ns': NOW + S}, {'observation_ns': NOW - 500 * MS},
    {'observation_ns': NOW + 100 * MS}, {'last_chunk_id': 0}, {'arm_state': ArmState.RAMP_IN},
    {'arm_state': ArmState.HOLDING},
])
def test_the_bounds_themselves_are_allowed(changes):
    assert judge(chunk(), replace(AT, **changes))[0] is RejectReason.NONE


@pytest.mark.parametrize('good', [
    chunk(chunk_id=4 + MAX_ID_JUMP), chunk(step_period_ns=MS), chunk(newest_stamp_ns=200 * MS),
    chunk(oldest_stamp_ns=-40 * MS, newest_stamp_ns=40 * MS),
])
def test_what_an_honest_chunk_may_reach_is_allowed(good):
    assert judge(good, AT)[0] is RejectReason.NONE


@pytest.mark.parametrize(('first', 'reason'), [
    (1, RejectReason.NONE), (MAX_ID_JUMP, RejectReason.NONE),
    (MAX_ID_JUMP + 1, RejectReason.MALFORMED), (2**62, RejectReason.MALFORMED)])
def test_the_first_id_is_one_that_a_policy_reaches(first, reason):
    assert judge(chunk(chunk_id=first), replace(AT, last_chunk_id=0))[0] is reason


def test_row_0_may_lie_as_far_ahead_as_an_observation_may_be_old():
    """An inference that takes so long asks for it, and one that says so must be unlearnt."""
    slow = replace(AT, max_age_ns=3 * S, step0_ns=NOW + 3 * S)
    assert judge(chunk(), slow)[0] is RejectReason.NONE
    assert judge(chunk(), replace(slow, step0_ns=NOW + 3 * S + 1))[0] is RejectReason.CLOCK


def test_names_are_compared_before_numbers():
    bad = with_value(np.nan)
    assert judge(replace(bad, joint_names=JOINT_NAMES[::-1]), AT)[0] is RejectReason.JOINT_NAMES
