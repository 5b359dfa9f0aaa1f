"""The command due at an instant stands for the state then, or nothing does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.future_state import predict
from reflex_ros.core.interpolate import SetpointPath
from reflex_ros.core.types import JOINT_NAMES, ArmState, Plan

T = 1_700_000_000 * S
BOUND = 0.1
ROWS = np.random.default_rng(0).normal(size=(6, 7))
STAMPS = T + np.arange(6) * 20 * MS
PLAN = Plan(
    number=1,
    stamp_ns=T,
    epoch=9,
    arm_state=ArmState.TRACKING,
    joint_names=JOINT_NAMES,
    tracking_error=np.full(7, 0.02),
    setpoint_stamps_ns=STAMPS,
    setpoints=ROWS,
)


def predicted(plan: Plan | None, at: int = T + 40 * MS, **fields):
    return predict(plan, at, max_tracking_error_rad=BOUND, **fields)


def test_prediction_is_the_command_due_at_that_instant() -> None:
    assert np.array_equal(predicted(PLAN), ROWS[2])
    between = predicted(PLAN, T + 47 * MS)
    np.testing.assert_array_equal(between, SetpointPath(STAMPS, ROWS).at(T + 47 * MS).position)
    assert (between != ROWS[2]).all()


def test_past_the_plan_its_last_setpoint_is_held() -> None:
    assert np.array_equal(predicted(PLAN, T + S), ROWS[-1])


def test_before_the_plan_its_first_setpoint_stands() -> None:
    assert np.array_equal(predicted(PLAN, T - S), ROWS[0])


def test_a_hold_predicts_the_hold_pose() -> None:
    hold = replace(
        PLAN,
        arm_state=ArmState.HOLDING,
        hold_since_ns=T,
        setpoint_stamps_ns=STAMPS[:1],
        setpoints=ROWS[:1],
    )
    assert np.array_equal(predicted(hold, T + S), ROWS[0])


@pytest.mark.parametrize(
    'plan',
    [
        None,
        replace(PLAN, setpoints=None),
        replace(PLAN, setpoint_stamps_ns=None),
        replace(PLAN, setpoints=ROWS[:0], setpoint_stamps_ns=STAMPS[:0]),
        replace(PLAN, setpoints=np.where(ROWS > 1, np.nan, ROWS)),
        replace(PLAN, tracking_error=None),
        replace(PLAN, tracking_error=np.zeros(3)),
    ],
    ids=['no plan', 'no setpoints', 'no stamps', 'empty', 'nan', 'no feedback', 'other joints'],
)
def test_without_a_plan_or_feedback_nothing_is_predicted(plan) -> None:
    assert predicted(plan) is None


@pytest.mark.parametrize('state', list(ArmState))
def test_only_an_arm_that_obeys_is_predicted(state: ArmState) -> None:
    obeys = state in {ArmState.ENABLED, ArmState.RAMP_IN, ArmState.TRACKING, ArmState.HOLDING}
    assert (predicted(replace(PLAN, arm_state=state)) is not None) is obeys


@pytest.mark.parametrize(('epoch', 'is_known'), [(None, True), (9, True), (8, False), (10, False)])
def test_a_plan_of_another_epoch_predicts_nothing(epoch, is_known: bool) -> None:
    assert (predicted(PLAN, epoch=epoch) is not None) is is_known


@pytest.mark.parametrize(
    ('joint', 'error', 'is_known'),
    [
        (0, BOUND, True),
        (0, -BOUND, True),
        (3, BOUND + 1e-9, False),
        (5, -BOUND - 1e-9, False),
        (2, np.nan, False),
        (2, np.inf, False),
        (6, 10.0, True),
    ],
)
def test_tracking_error_above_the_bound_predicts_nothing(joint, error, is_known) -> None:
    errors = np.zeros(7)
    errors[joint] = error
    assert (predicted(replace(PLAN, tracking_error=errors)) is not None) is is_known


def test_prediction_is_a_copy() -> None:
    state = predicted(PLAN)
    state[:] = 5.0
    assert np.array_equal(predicted(PLAN), ROWS[2])


@pytest.mark.parametrize('rows', [1, 2, 3, 4, 6])
def test_the_rows_nearby_give_what_all_rows_give(rows: int) -> None:
    plan = replace(PLAN, setpoint_stamps_ns=STAMPS[:rows], setpoints=ROWS[:rows])
    path = SetpointPath(STAMPS[:rows], ROWS[:rows])
    for at in range(int(T) - 20 * MS, int(T) + 140 * MS, 3 * MS):
        found = predicted(plan, at)
        assert found is not None and found.tobytes() == path.at(at).position.tobytes()
