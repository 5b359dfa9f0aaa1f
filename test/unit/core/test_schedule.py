"""Known answers: when an inference starts and which instants its chunk belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.schedule import (
    AT_ONCE,
    inference_due,
    inference_due_at,
    step0_and_state_at,
    switches,
)
from reflex_ros.core.types import ArmState, Entry, Mode, Plan, StateSource, Stitch

T = 1_700_000_000 * S
DT = 20 * MS
MODES = {
    'sync': switches(Mode.SYNC),
    'continuous': switches(Mode.ASYNC_NAIVE),
    'threshold': switches(Mode.ASYNC_NAIVE, request='threshold'),
    'reflex': switches(Mode.REFLEX),
    'reflex late': switches(Mode.REFLEX, overlap=False),
}


def plan(**fields) -> Plan:
    defaults = {
        'number': 1,
        'stamp_ns': T,
        'epoch': 1,
        'arm_state': ArmState.TRACKING,
        'joint_names': (),
        'active_chunk_id': 4,
        'active_since_ns': T,
        'plan_end_ns': T + 50 * DT,
        'latency_ns': 100 * MS,
    }
    return Plan(**{**defaults, **fields})


def holding(**fields) -> Plan:
    defaults = {'arm_state': ArmState.HOLDING, 'active_chunk_id': 0, 'active_since_ns': 0}
    return plan(**{**defaults, 'plan_end_ns': 0, **fields})


def facts(mode: str, **fields) -> dict:
    defaults = {
        'execute_steps': 10,
        'period_ns': DT,
        'margin_steps': 1,
        'newest_oldest_stamp_ns': T,
        'last_block_used': 6,
        'block_number': 7,
        'inflight': False,
    }
    return {'switches': MODES[mode], **defaults, **fields}


HOLD = {'hold_since_ns': T, 'settled_since_ns': T + 5}


@pytest.mark.parametrize(
    ('the_plan', 'fields', 'is_due'),
    [
        (holding(**HOLD), {'newest_oldest_stamp_ns': T + 1}, True),
        (holding(**HOLD), {'newest_oldest_stamp_ns': T}, False),
        (holding(**HOLD), {'newest_oldest_stamp_ns': T - 1}, False),
        (holding(hold_since_ns=T), {'newest_oldest_stamp_ns': T + 1}, False),
        (plan(), {'newest_oldest_stamp_ns': T + 1}, False),
        (None, {'newest_oldest_stamp_ns': T + 1}, False),
        (holding(**HOLD), {'newest_oldest_stamp_ns': T + 1, 'inflight': True}, False),
        (holding(**HOLD), {'newest_oldest_stamp_ns': T + 1, 'block_number': 6}, False),
    ],
)
def test_sync_waits_for_the_hold_rest_and_newer_frames(the_plan, fields, is_due) -> None:
    assert inference_due(the_plan, T + S, **facts('sync', **fields)) is is_due


@pytest.mark.parametrize('the_plan', [None, plan(), holding(**HOLD)])
def test_continuous_uses_every_new_block(the_plan) -> None:
    assert inference_due(the_plan, T, **facts('continuous'))


@pytest.mark.parametrize(
    ('ticks', 'is_due'), [(0, False), (46, False), (47, True), (50, True), (90, True)]
)
def test_threshold_waits_until_the_plan_is_nearly_empty(ticks: int, is_due: bool) -> None:
    due = inference_due(plan(), T + ticks * DT, **facts('threshold', margin_steps=3))
    assert due is is_due


@pytest.mark.parametrize(
    ('execute_steps', 'latency_ms', 'margin', 'due_step'),
    [
        (10, 100, 1, 4),
        (10, 100, 0, 5),
        (10, 101, 0, 4),
        (10, 99, 0, 5),
        (10, 0, 0, 10),
        (5, 60, 1, 1),
        (5, 100, 1, 0),
        (5, 900, 2, 0),
        (25, 300, 2, 8),
    ],
)
def test_overlap_starts_early_by_the_delay_and_the_margin(
    execute_steps: int, latency_ms: int, margin: int, due_step: int
) -> None:
    given_plan = plan(latency_ns=latency_ms * MS)
    given_facts = facts('reflex', execute_steps=execute_steps, margin_steps=margin)
    assert inference_due_at(given_plan, **given_facts) == T + due_step * DT
    assert inference_due(given_plan, T + due_step * DT, **given_facts)
    assert not inference_due(given_plan, T + due_step * DT - 1, **given_facts)


def test_overlap_that_is_long_due_starts_at_once() -> None:
    assert inference_due(plan(), T + 30 * DT, **facts('reflex'))


def test_without_overlap_all_steps_are_executed_first() -> None:
    assert inference_due_at(plan(), **facts('reflex late')) == T + 10 * DT


def test_steps_are_counted_from_the_first_command_not_from_acceptance() -> None:
    late = plan(stamp_ns=T - 3 * DT, active_since_ns=T + 2 * DT)
    assert inference_due_at(late, **facts('reflex')) == T + 6 * DT


@pytest.mark.parametrize('mode', ['continuous', 'threshold', 'reflex', 'reflex late'])
@pytest.mark.parametrize(
    'the_plan', [None, holding(), holding(hold_since_ns=T), plan(hold_since_ns=T + DT)]
)
def test_without_a_running_chunk_the_inference_starts_at_once(mode, the_plan) -> None:
    assert inference_due_at(the_plan, **facts(mode)) == AT_ONCE


@given(
    st.sampled_from(sorted(MODES)),
    st.sampled_from([None, plan(), holding(), holding(**HOLD)]),
    st.integers(0, 10),
    st.integers(0, 10),
    st.booleans(),
    st.integers(-S, 10 * S),
)
def test_a_block_is_never_used_twice_nor_during_an_inference(
    mode, the_plan, used, number, inflight, later
) -> None:
    given_facts = facts(mode, last_block_used=used, block_number=number, inflight=inflight)
    given_facts['newest_oldest_stamp_ns'] = T + later
    if inference_due(the_plan, T + later, **given_facts):
        assert number > used
        assert not inflight


@given(st.sampled_from(sorted(MODES)), st.integers(0, 60), st.integers(0, 300), st.integers(0, 5))
def test_what_is_due_stays_due_while_only_time_passes(mode, ticks, latency_ms, margin) -> None:
    given_plan = plan(latency_ns=latency_ms * MS)
    given_facts = facts(mode, margin_steps=margin)
    if inference_due(given_plan, T + ticks * DT, **given_facts):
        assert inference_due(given_plan, T + (ticks + 1) * DT, **given_facts)


def test_presets_are_those_of_the_method() -> None:
    sync, naive, reflex = MODES['sync'], MODES['continuous'], MODES['reflex']
    assert (sync.entry, sync.state_source, sync.stitch, sync.request, sync.wait_settled) == (
        Entry.RESTART,
        StateSource.MEASURED,
        Stitch.REPLACE,
        'settled',
        True,
    )
    assert (naive.entry, naive.state_source, naive.stitch, naive.request) == (
        Entry.RESTART,
        StateSource.MEASURED,
        Stitch.REPLACE,
        'continuous',
    )
    assert (reflex.entry, reflex.state_source, reflex.stitch, reflex.request, reflex.overlap) == (
        Entry.ALIGNED,
        StateSource.PREDICTED,
        Stitch.BLEND,
        'overlap',
        True,
    )


def test_each_switch_can_be_set_alone() -> None:
    assert switches(Mode.ASYNC_NAIVE, entry=Entry.ALIGNED).entry is Entry.ALIGNED
    assert switches(Mode.REFLEX, stitch=Stitch.REPLACE).stitch is Stitch.REPLACE
    assert switches(Mode.REFLEX, overlap=False).overlap is False
    measured = switches(Mode.REFLEX, state_source=StateSource.MEASURED)
    assert measured.state_source is StateSource.MEASURED


@pytest.mark.parametrize(
    ('mode', 'fields'),
    [
        (Mode.SYNC, {'request': 'continuous'}),
        (Mode.REFLEX, {'request': 'settled'}),
        (Mode.REFLEX, {'state_source': StateSource.NONE}),
    ],
)
def test_switches_that_do_not_fit_the_mode_are_refused(mode, fields) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        switches(mode, **fields)


@pytest.mark.parametrize(
    ('source', 'pair', 'step0', 'state'),
    [
        (StateSource.MEASURED, None, 100, 100),
        (StateSource.PREDICTED, None, 300, 300),
        (StateSource.MEASURED, 'first_execution', 300, 100),
        (StateSource.PREDICTED, 'observation', 100, 300),
        (StateSource.MEASURED, 'observation', 100, 100),
        (StateSource.PREDICTED, 'first_execution', 300, 300),
    ],
)
def test_row_0_belongs_to_the_instant_of_the_state(source, pair, step0, state) -> None:
    instants = step0_and_state_at(
        source, observation_stamp_ns=100, first_execution_stamp_ns=300, pair=pair
    )
    assert instants == (step0, state)
