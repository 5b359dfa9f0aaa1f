"""When an inference starts, from which state, and what its chunk says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import (
    JOINT_NAMES,
    ArmState,
    Mode,
    StateSource,
    Stitch,
    Task,
)
from reflex_ros.stages.policy import FIRST_ID_GAP, StateBuffer

T0 = 1_700_000_000 * S
DENOISE = 86


# ---- schedule --------------------------------------------------------------------------------


def test_the_first_observation_is_never_filtered(bench):
    b = bench()
    assert b.due(0) is None
    b.block(1)
    assert b.due(0)


def test_an_observation_that_equals_the_last_is_inferred_again(bench):
    b = bench(Mode.ASYNC_NAIVE)
    for number in (1, 2):
        b.block(number)
        assert b.due(0) and b.infer(0)[0] is not None


def test_a_block_is_used_once(bench):
    b = bench(Mode.ASYNC_NAIVE)
    b.block(1)
    b.infer(0)
    assert b.due(100) is None


def test_no_state_no_inference(bench):
    b = bench()
    b.stage.restart_time()
    b.block(1)
    assert b.due(0) is None


def test_a_restarted_encoder_counts_from_1_and_is_heard(bench):
    b = bench(Mode.ASYNC_NAIVE)
    b.block(500)
    b.infer(0)
    b.block(1, 40)
    assert b.due(40)


def test_a_restarted_encoder_is_heard_after_a_new_epoch_too(bench):
    b = bench(Mode.ASYNC_NAIVE)
    b.block(500)
    b.infer(0)
    b.stage.on_task(Task(2, T0, T0 // S + 1, 'other'))
    b.block(1, 40, epoch=T0 // S + 1)
    assert b.due(40)


def test_a_block_of_another_epoch_is_dropped_with_reason(bench):
    b = bench()
    b.block(1, epoch=1)
    assert b.due(0) is None
    assert b.stage.status(b.at(0)).dropped == 1 and 'epoch' in b.stage.status(b.at(0)).reason


def test_a_block_without_cameras_is_dropped_and_kills_nothing(bench):
    b = bench()
    b.block(1, camera_names=(), camera_stamps_ns=())
    assert b.due(0) is None and b.stage.status(b.at(0)).dropped == 1


def test_overlap_starts_the_latency_before_the_steps_are_done(bench):
    b = bench(execute_steps=10, margin_steps=1)
    b.plan(active_chunk_id=3, active_since_ns=T0, plan_end_ns=T0 + S)
    b.block(1)
    # L = 60 ms = 3 steps, 1 step of margin: 6 steps after the first command
    assert b.stage.due_at(b.at(0)) == T0 + 6 * 20 * MS


@pytest.mark.parametrize(('threshold', 'left'), [(0.5, 25), (0.0, 0), (1.0, 50)])
def test_threshold_asks_while_a_share_of_the_chunk_is_left(bench, threshold, left):
    b = bench(Mode.ASYNC_NAIVE, switch={'request': 'threshold'}, threshold=threshold)
    b.block(1)
    b.infer(0)
    b.plan(active_chunk_id=1, active_since_ns=T0, plan_end_ns=T0 + S)
    b.block(2, 40)
    assert b.stage.due_at(b.at(40)) == T0 + S - left * 20 * MS


def test_a_chunk_under_way_is_waited_for_until_the_plan_tells_of_it(bench):
    b = bench(execute_steps=1)
    b.block(1)
    b.infer(0)
    b.block(2, 40)
    assert b.due(100) is None
    b.plan(active_chunk_id=1, active_since_ns=T0, plan_end_ns=T0 + S)
    assert b.due(100)


def test_a_rejected_chunk_is_not_waited_for(bench):
    b = bench()
    b.block(1)
    b.infer(0)
    b.block(2, 40)
    b.stage.on_trace(b.trace(1))
    assert b.due(100)


def test_a_lost_chunk_is_not_waited_for_for_ever(bench):
    b = bench()
    b.block(1)
    b.infer(0)
    b.block(2, 40)
    assert b.due(900) is None and b.due(1100)


# ---- identity --------------------------------------------------------------------------------


def test_ids_count_from_1_in_a_new_run(bench):
    b = bench(Mode.ASYNC_NAIVE)
    ids = []
    for number in (1, 2, 3):
        b.block(number)
        ids.append(b.infer(0)[0].value.chunk_id)
    assert ids == [1, 2, 3]


def test_a_restarted_policy_starts_above_the_running_chunk(bench):
    b = bench()
    b.plan(active_chunk_id=41)
    b.block(1)
    assert b.infer(0)[0].value.chunk_id == 41 + FIRST_ID_GAP


def test_a_restarted_policy_that_sees_no_chunk_starts_above_all_that_were(bench):
    """After an hour of 25 chunks a second, while the operator holds the arm."""
    b = bench()
    b.stage.on_joint_state(T0 + 3600 * S, np.zeros(7))
    b.plan(active_chunk_id=0)
    b.block(1, 3600_000)
    assert b.infer(3600_000)[0].value.chunk_id > 3600 * 25


def test_a_gone_block_makes_no_chunk_and_the_next_one_does(bench):
    b = bench(Mode.ASYNC_NAIVE)
    b.model.is_gone = True
    b.block(1)
    assert b.infer(0)[0] is None
    assert 'gone' in b.stage.status(b.at(0)).reason
    b.model.is_gone = False
    b.block(2)
    assert b.infer(0)[0].value.chunk_id == 1


# ---- state and rows --------------------------------------------------------------------------


def test_a_predicted_state_is_the_command_at_the_first_execution(bench):
    b = bench()
    b.plan()
    b.block(1)
    chunk = b.infer(0)[0].value
    assert chunk.state_source is StateSource.PREDICTED
    assert chunk.state_at_ns == chunk.step0_at_ns == T0 + 60 * MS
    assert chunk.predicted_state[0] == pytest.approx(3 / 49)
    assert b.model.requests[0].row0_stamp_ns == T0 + 60 * MS


def test_a_measured_state_is_that_of_the_observation(bench):
    b = bench(Mode.ASYNC_NAIVE)
    b.stage.on_joint_state(T0 + 100 * MS, np.ones(7))
    b.block(1, 50)
    chunk = b.infer(120)[0].value
    assert chunk.step0_at_ns == T0 + 50 * MS and chunk.predicted_state[0] == pytest.approx(0.5)


def test_a_plan_of_another_arm_is_dropped_and_the_last_one_stays(bench):
    b = bench()
    b.plan()
    b.block(1)
    b.plan(joint_names=('a', 'b', 'c'), setpoints=np.ones((50, 3)), tracking_error=np.zeros(3))
    status = b.stage.status(b.at(0))
    assert (status.dropped, status.reason) == (1, 'plan of joints a, b, c')
    chunk = b.infer(0)[0].value
    assert chunk.state_source is StateSource.PREDICTED and len(chunk.predicted_state) == 7


@pytest.mark.parametrize('changes', [
    {'tracking_error': np.array([0.3, 0, 0, 0, 0, 0, 0])}, {'tracking_error': np.full(7, np.nan)},
    {'epoch': 1}, {'arm_state': ArmState.FAULTED},
])
def test_without_a_trustworthy_plan_the_measured_state_is_used_and_counted(bench, changes):
    b = bench()
    b.plan(**changes)
    b.block(1)
    chunk = b.infer(0)[0].value
    assert chunk.state_source is StateSource.MEASURED and b.stage.fallbacks == 1
    assert chunk.step0_at_ns == T0


def test_the_bound_of_the_tracking_error_is_a_setting(bench):
    b = bench(max_tracking_error_rad=0.5)
    b.plan(tracking_error=np.array([0.3, 0, 0, 0, 0, 0, 0]))
    b.block(1)
    assert b.infer(0)[0].value.state_source is StateSource.PREDICTED


@pytest.mark.parametrize(('mode', 'config', 'rows'), [
    (Mode.REFLEX, {}, 50), (Mode.REFLEX, {'horizon': 12}, 12), (Mode.REFLEX, {'horizon': 90}, 50),
    (Mode.SYNC, {'execute_steps': 5}, 5), (Mode.SYNC, {'execute_steps': 9, 'horizon': 7}, 7),
])
def test_only_rows_that_may_be_executed_are_published(bench, mode, config, rows):
    b = bench(mode, **config)
    b.block(1)
    assert len(b.infer(0)[0].value.positions) == rows


@pytest.mark.parametrize(('delay_ms', 'pads'), [(200, 1), (80, 0)])
def test_an_injected_delay_pads_up_to_itself_and_never_adds(bench, delay_ms, pads):
    b = bench(delay_ns=delay_ms * MS)
    b.block(1)
    output, probe = b.infer(0)
    assert output.not_before_ns == b.at(delay_ms).mono_ns
    assert probe.ready_ns == b.at(DENOISE).mono_ns
    padding = [s for s in output.value.stages if s.name == 'delay_pad']
    assert len(padding) == pads
    if pads:
        assert padding[0].end_ns == output.not_before_ns


def test_the_expected_first_execution_knows_the_injected_delay(bench):
    b = bench(delay_ns=200 * MS)
    b.plan(latency_ns=60 * MS)
    b.block(1)
    assert b.infer(0)[0].value.state_at_ns == T0 + 200 * MS


def test_guided_inpainting_is_refused_by_name_where_nothing_can_be_steered(
        bench, policy_model, monkeypatch):
    for rows in (0, 5):
        monkeypatch.setattr(policy_model, 'guided_rows', rows)
        with pytest.raises(ConfigError, match=f"got 'rtc' with 5 of {rows} rows"):
            bench(switch={'stitch': Stitch.RTC})
    monkeypatch.setattr(policy_model, 'guided_rows', 6)
    bench(switch={'stitch': Stitch.RTC})


RTC = {'stitch': Stitch.RTC, 'state_source': StateSource.MEASURED}


def guided(bench, ms=40, **plan):
    b = bench(switch=RTC)
    for k in range(20):
        b.stage.on_joint_state(T0 + k * 10 * MS, np.full(7, -1.0))
    b.block(1)
    b.plan(**{'active_chunk_id': 3, 'active_since_ns': T0, **plan})
    output, _ = b.infer(ms)
    return b, b.model.requests[0].guide, output.value


def test_a_guided_chunk_gets_the_plan_on_its_own_rows_and_says_how_many_are_frozen(bench):
    """Row 0 at the observation (0 ms), inference at 40 ms, L = 60 ms: rows 0 to 4 are gone."""
    b, guide, chunk = guided(bench)
    assert (guide.frozen_steps, chunk.frozen_steps) == (5, 5)
    assert guide.soft_end == 7
    assert guide.rows.shape == (50, 7)
    assert np.allclose(guide.rows[:, 0], np.linspace(0, 1, 50))
    assert chunk.stitch is Stitch.RTC
    assert b.stage.unguided == 0


def test_rows_before_the_plan_are_what_was_measured_and_rows_behind_it_are_missing(bench):
    stamps = T0 + 100 * MS + np.arange(10) * 20 * MS
    _, guide, _ = guided(bench, setpoint_stamps_ns=stamps, setpoints=np.ones((10, 7)))
    assert guide.rows[1:5].tolist() == [[-1.0] * 7] * 4
    assert guide.rows[5:].tolist() == [[1.0] * 7] * 10


@pytest.mark.parametrize('plan', [
    {'active_chunk_id': 0}, {'arm_state': ArmState.HOLDING}, {'setpoints': None},
    {'setpoints': np.empty((0, 7)), 'setpoint_stamps_ns': np.empty(0, np.int64)},
    {'setpoints': np.full((50, 7), np.nan)}, {'epoch': 1}, {'latency_ns': 900 * MS},
])
def test_nothing_to_continue_or_too_long_a_delay_gives_a_free_chunk(bench, plan):
    b, guide, chunk = guided(bench, **plan)
    assert guide is None
    assert chunk.frozen_steps == 0
    assert b.stage.unguided == ('epoch' not in plan)


def test_other_stitchers_are_never_guided(bench):
    b = bench()
    b.block(1)
    b.plan(active_chunk_id=3)
    b.infer(40)
    assert b.model.requests[0].guide is None


# ---- states ----------------------------------------------------------------------------------


def test_states_between_samples_are_interpolated_and_clamped_outside():
    states = StateBuffer()
    assert states.at(5) is None
    states.add(10, np.array([0.0]))
    states.add(20, np.array([1.0]))
    assert [float(states.at(t)[0]) for t in (0, 10, 15, 20, 99)] == [0, 0, 0.5, 1, 1]


def test_old_and_unreal_states_are_ignored():
    states = StateBuffer()
    states.add(10, np.array([0.0]))
    states.add(10, np.array([5.0]))
    states.add(9, np.array([5.0]))
    states.add(11, np.array([np.nan]))
    assert states.at(20).tolist() == [0.0]


def test_states_follow_ros_time_back():
    states = StateBuffer()
    states.add(100 * S, np.array([1.0]))
    states.add(5 * S, np.array([2.0]))
    assert states.at(100 * S).tolist() == [2.0]


def test_status_names_what_is_missing(bench):
    b = bench()
    assert b.stage.status(b.at(0)).state == 'waiting_block'
    b.block(1)
    b.stage.begin(b.at(7))
    status = b.stage.status(b.at(9))
    assert status.state == 'active' and status.busy_since_ns == b.at(7).mono_ns
    assert replace(status, number=0).epoch == T0 // S


# ---- a state that the block carries ----------------------------------------------------------


def told(source, *, at_ms=120, value=0.3):
    return {'state_source': source, 'state_at_ns': T0 + at_ms * MS, 'joint_names': JOINT_NAMES,
            'state': np.full(7, value)}


def test_a_predicted_state_of_the_block_is_taken_over_with_its_instant(bench):
    b = bench()
    b.plan()
    b.block(1, **told(StateSource.PREDICTED))
    output, _ = b.infer(40)
    chunk = output.value
    assert b.model.requests[0].state.tolist() == [0.3] * 7 == chunk.predicted_state.tolist()
    assert chunk.step0_at_ns == chunk.state_at_ns == T0 + 120 * MS
    assert b.model.requests[0].row0_stamp_ns == T0 + 120 * MS
    assert chunk.state_source is StateSource.PREDICTED and b.stage.fallbacks == 0


def test_a_measured_state_of_the_block_puts_row_0_at_the_observation(bench):
    b = bench()  # the mode asks for a prediction; the text of the block has none
    b.plan()
    b.block(1, **told(StateSource.MEASURED, at_ms=0))
    chunk = b.infer(40)[0].value
    assert chunk.state_source is StateSource.MEASURED
    assert chunk.step0_at_ns == chunk.state_at_ns == T0
    assert chunk.predicted_state.tolist() == [0.3] * 7


def test_a_forced_pair_moves_row_0_of_a_state_of_the_block(bench):
    b = bench(pair='observation')
    b.plan()
    b.block(1, **told(StateSource.PREDICTED))
    chunk = b.infer(40)[0].value
    assert (chunk.step0_at_ns, chunk.state_at_ns) == (T0, T0 + 120 * MS)


@pytest.mark.parametrize('changes', [
    {'state': None}, {'state': np.zeros(6)}, {'state': np.full(7, np.nan)},
    {'joint_names': JOINT_NAMES[::-1]},
])
def test_a_block_with_a_state_of_another_arm_is_dropped(bench, changes):
    b = bench()
    b.block(1, **{**told(StateSource.PREDICTED), **changes})
    assert b.due(0) is None
    assert 'block 1 has a state' in b.stage.status(b.at(0)).reason
