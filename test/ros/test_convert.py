"""Every field of every core type survives the message, and nothing malformed passes."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum

import numpy as np
import pytest

from reflex_ros.core import types
from reflex_ros.core.types import (
    JOINT_NAMES,
    ActionChunk,
    ArmFeedback,
    ArmState,
    CameraStatus,
    Cause,
    ChunkTrace,
    ControlTick,
    Entry,
    Fate,
    KvBlock,
    Plan,
    RejectReason,
    Reply,
    SimEvent,
    SimTruth,
    SlotRef,
    StageStatus,
    StageTime,
    StallEvent,
    StateSource,
    Stitch,
    Task,
    Verdict,
)

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from reflex_ros.ros import convert
from reflex_ros.ros.convert import MessageError

pytestmark = pytest.mark.ros

STAMP = 1_700_000_000_123_456_789
STATE = np.array([0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.07])
ROWS = np.arange(21.0).reshape(3, 7) / 10
STAGES = (StageTime('encode', 5, 9), StageTime('denoise', 10, 2**62))
CAMERA = CameraStatus('wrist', STAMP, 7, 8, 3)

VALUES = {
    'stage_time': STAGES[0],
    'slot_ref': SlotRef(2, 2**63),
    'camera_status': CAMERA,
    'sim_event': SimEvent('jump', STAMP),
    'task': Task(1, STAMP, 1_700_000_000, 'pick up the red cube ☂'),
    'stall_event': StallEvent(2, STAMP, 100, 3, 60_000_000, Cause.PLAN_END, 'plan ended'),
    'kv_block': KvBlock(
        number=1,
        stamp_ns=STAMP,
        epoch=3,
        camera_names=('main', 'wrist'),
        camera_stamps_ns=(STAMP, STAMP - 5),
        ring_id=4,
        slot=5,
        seq=6,
        generation=7,
        layout_hash='ab',
        pinned=SlotRef(8, 9),
        window=(SlotRef(1, 2), SlotRef(3, 4)),
        state_source=StateSource.PREDICTED,
        state_at_ns=STAMP + 1,
        joint_names=JOINT_NAMES,
        state=STATE,
        valid_tokens=300,
        certificate_hash='cd',
        stages=STAGES,
    ),
    'action_chunk': ActionChunk(
        number=1,
        chunk_id=2,
        block_number=3,
        epoch=4,
        observation_stamp_ns=STAMP,
        newest_stamp_ns=STAMP + 1,
        oldest_stamp_ns=STAMP - 1,
        step0_at_ns=STAMP + 2,
        state_at_ns=STAMP + 3,
        step_period_ns=20_000_000,
        execute_steps=5,
        joint_names=JOINT_NAMES,
        positions=ROWS,
        predicted_state=STATE,
        frozen_steps=1,
        stitch=Stitch.RTC,
        entry=Entry.RESTART,
        state_source=StateSource.PREDICTED,
        inference_start_ns=11,
        inference_start_stamp_ns=STAMP + 4,
        stages=STAGES,
    ),
    'plan': Plan(
        number=1,
        stamp_ns=STAMP,
        epoch=2,
        arm_state=ArmState.TRACKING,
        joint_names=JOINT_NAMES,
        active_chunk_id=3,
        active_since_ns=STAMP + 1,
        entered_row=4,
        plan_end_ns=STAMP + 2,
        hold_since_ns=STAMP + 3,
        settled_since_ns=STAMP + 4,
        last_reject='seam',
        latency_ns=5,
        delta_ns=6,
        measured_stamp_ns=STAMP + 5,
        tracking_error=STATE,
        measured=STATE + 1,
        setpoint_stamps_ns=np.array([STAMP, STAMP + 20_000_000, STAMP + 40_000_001]),
        setpoints=ROWS,
    ),
    'chunk_trace': ChunkTrace(
        number=1,
        stamp_ns=STAMP,
        chunk_id=2,
        epoch=3,
        fate=Fate.REJECTED,
        reason=RejectReason.SEAM,
        text='too far',
        entered_row=4,
        seam_position=0.5,
        seam_velocity=0.25,
        observation_stamp_ns=STAMP + 1,
        newest_stamp_ns=STAMP + 2,
        first_command_stamp_ns=STAMP + 3,
        accepted_ns=6,
        inference_start_ns=7,
        covered_ns=8,
        stalled_ticks=9,
        ticks=10,
        stages=STAGES,
    ),
    'control_tick': ControlTick(
        number=1,
        stamp_ns=STAMP,
        index=2,
        due_ns=3,
        late_ns=4,
        verdict=Verdict.LIMITED,
        cause=Cause.LIMIT,
        arm_state=ArmState.TRACKING,
        epoch=5,
        chunk_id=6,
        row=1.25,
        is_sent=True,
        in_motion=True,
        is_covered=True,
        observation_age_ns=7,
        tracking_error=0.125,
        setpoint=STATE,
        command=STATE + 1,
        measured=STATE + 2,
    ),
    'stage_status': StageStatus(
        number=1,
        stamp_ns=STAMP,
        node='policy',
        state='waiting_block',
        last_input_ns=2,
        last_output_ns=3,
        busy_since_ns=4,
        sent_ns=5,
        ring_ok=False,
        outputs=6,
        dropped=7,
        reason='late',
        text='wait',
        epoch=8,
        cameras=(CAMERA,),
    ),
    'sim_truth': SimTruth(
        number=1,
        stamp_ns=STAMP,
        task='follow',
        joint_position=STATE,
        joint_velocity=STATE + 1,
        tip_position=np.array([0.1, 0.2, 0.3]),
        target_position=np.array([0.4, 0.5, 0.6]),
        target_velocity=np.array([0.7, 0.8, 0.9]),
        objects={'cube': np.array([1.0, 2.0, 3.0, 0.5, 0.6, 0.7, 0.8])},
        phase='approach',
        success=True,
        events=(SimEvent('jump', STAMP - 1),),
    ),
}


def round_trip(name, value):
    return getattr(convert, f'{name}_from_msg')(getattr(convert, f'{name}_to_msg')(value))


def changed(value):
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, Enum):
        return next(member for member in type(value) if member is not value)
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + 'x'
    if isinstance(value, np.ndarray):
        return value + 1
    if isinstance(value, dict):
        return {key + 'x': changed(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(changed(item) for item in value)
    return dataclasses.replace(
        value, **{field.name: changed(getattr(value, field.name)) for field in fields(value)}
    )


def fields(value):
    return dataclasses.fields(value)


def is_same(a, b):
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    return bool(a == b)


def all_same(a, b):
    return all(is_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))


CASES = [(name, field.name) for name, value in VALUES.items() for field in fields(value)]


def test_every_core_type_with_a_message_is_tried():
    names = {
        re.sub('(?<!^)([A-Z])', r'_\1', type(value).__name__).lower() for value in VALUES.values()
    }
    assert names == set(VALUES)
    data = {name for name in dir(types) if dataclasses.is_dataclass(getattr(types, name))}
    # Frame travels as a sensor message, ArmFeedback as JointState, Reply in services.
    assert data - {type(value).__name__ for value in VALUES.values()} == {
        'ArmFeedback',
        'Frame',
        'Reply',
    }


@pytest.mark.parametrize('name', VALUES)
def test_a_full_value_survives(name):
    assert all_same(round_trip(name, VALUES[name]), VALUES[name])


@pytest.mark.parametrize(('name', 'field'), CASES)
def test_each_field_reaches_the_other_side_by_itself(name, field):
    value = VALUES[name]
    other = dataclasses.replace(value, **{field: changed(getattr(value, field))})
    assert all_same(round_trip(name, other), other)
    assert not all_same(round_trip(name, other), value)


@pytest.mark.parametrize('name', ['kv_block', 'plan'])
def test_absent_parts_stay_absent(name):
    value = VALUES[name]
    bare = {f.name: None for f in fields(value) if getattr(value, f.name) is not None}
    bare = {key: None for key in bare if key in ('pinned', 'state', 'tracking_error', 'measured')}
    if name == 'plan':
        bare |= {'setpoint_stamps_ns': None, 'setpoints': None}
    else:
        bare |= {'joint_names': ()}
    assert all_same(
        round_trip(name, dataclasses.replace(value, **bare)), dataclasses.replace(value, **bare)
    )


@pytest.mark.parametrize('stamp', [0, 1, 999_999_999, 10**9, STAMP, -1])
def test_times_keep_every_nanosecond(stamp):
    assert convert.time_from_msg(convert.time_to_msg(stamp)) == stamp


def test_values_share_no_memory_with_messages():
    msg = convert.action_chunk_to_msg(VALUES['action_chunk'])
    chunk = convert.action_chunk_from_msg(msg)
    msg.trajectory.points[0].positions[0] = 99.0
    msg.predicted_state[0] = 99.0
    assert all_same(chunk, VALUES['action_chunk'])


def test_numbers_that_are_not_finite_pass_to_the_bridge():
    rows = ROWS.copy()
    rows[1, 2] = np.nan
    back = round_trip('action_chunk', dataclasses.replace(VALUES['action_chunk'], positions=rows))
    assert np.isnan(back.positions[1, 2])


def spoil_row(msg):
    msg.trajectory.points[1].positions = [1.0]


def spoil_grid(msg):
    msg.trajectory.points[2].time_from_start.nanosec += 1


def spoil_start(msg):
    msg.trajectory.header.stamp.sec += 1


def drop_rows(msg):
    msg.trajectory.points = []


def spoil_word(msg):
    msg.stitch = 'glue'


def spoil_schema(msg):
    msg.schema_version = 2


def spoil_period(msg):
    msg.step_period_ns = 0


@pytest.mark.parametrize(
    ('spoil', 'says'),
    [
        (spoil_row, 'row 1.*got 1 positions, expected 7'),
        (spoil_grid, 'row 2 off its grid'),
        (spoil_start, 'row 0 off its grid'),
        (drop_rows, 'no rows'),
        (spoil_period, 'no rows'),
        (spoil_word, "ActionChunk.stitch.*'glue'.*replace, blend, rtc"),
        (spoil_schema, 'schema 2, expected 1'),
    ],
)
def test_a_malformed_chunk_is_refused_by_name(spoil, says):
    msg = convert.action_chunk_to_msg(VALUES['action_chunk'])
    convert.action_chunk_from_msg(msg)
    spoil(msg)
    with pytest.raises(MessageError, match=says):
        convert.action_chunk_from_msg(msg)


@pytest.mark.parametrize(('name', 'field', 'value'), [
    ('plan', 'latency_ns', -1), ('plan', 'latency_ns', 2**63 - 1), ('plan', 'delta_ns', 10**12),
    ('plan', 'active_chunk_id', 2**64 - 1), ('plan', 'epoch', 2**63),
    ('chunk_trace', 'chunk_id', 2**64 - 1), ('task', 'epoch', 2**64 - 1),
    ('kv_block', 'number', 2**63), ('action_chunk', 'chunk_id', 2**64 - 1),
    ('action_chunk', 'epoch', 2**64 - 1),
])
def test_a_number_that_nobody_can_have_counted_or_measured_is_refused(name, field, value):
    msg = getattr(convert, f'{name}_to_msg')(VALUES[name])
    setattr(msg, field, value)
    with pytest.raises(MessageError, match=rf'\.{field} is wrong: got {value}, expected'):
        getattr(convert, f'{name}_from_msg')(msg)


def test_setpoints_that_do_not_advance_are_refused():
    msg = convert.plan_to_msg(VALUES['plan'])
    msg.trajectory.points[1].time_from_start = msg.trajectory.points[0].time_from_start
    with pytest.raises(MessageError, match='wrong row 1.*rising'):
        convert.plan_from_msg(msg)


def test_a_block_with_a_missing_camera_stamp_is_refused():
    msg = convert.kv_block_to_msg(VALUES['kv_block'])
    msg.camera_stamps = msg.camera_stamps[:1]
    with pytest.raises(MessageError, match='camera_stamps.*got 1, expected 2'):
        convert.kv_block_from_msg(msg)


def test_joint_states_carry_names_and_effort():
    feedback = ArmFeedback(5, STATE, STATE + 1, STATE + 2, (True,) * 7, 1, 0)
    msg = convert.joint_state_to_msg(feedback, names=JOINT_NAMES, stamp_ns=STAMP)
    assert tuple(msg.name) == JOINT_NAMES
    assert convert.time_from_msg(msg.header.stamp) == STAMP
    np.testing.assert_array_equal(
        [msg.position, msg.velocity, msg.effort], [STATE, STATE + 1, STATE + 2]
    )


def test_an_answer_keeps_its_reason():
    from reflex_msgs.srv import Recover

    response = convert.reply_to_msg(Reply(False, 'arm not supported'), Recover.Response())
    assert convert.reply_from_msg(response) == Reply(False, 'arm not supported')
