"""The worked timeline of docs/messages.md holds on both clocks and through the messages."""

from __future__ import annotations

import re

import numpy as np
import pytest
import yaml

from reflex_ros.core.clock import ClockOffset, Instant
from reflex_ros.core.delay import DelayEstimator
from reflex_ros.core.interpolate import SetpointPath
from reflex_ros.core.schedule import step0_and_state_at
from reflex_ros.core.types import (
    JOINT_NAMES,
    ActionChunk,
    ArmState,
    Cause,
    ControlTick,
    KvBlock,
    SlotRef,
    StageTime,
    StateSource,
    Stitch,
    Verdict,
)

pytestmark = pytest.mark.ros


def read_timeline(root):
    text = (root / 'docs' / 'messages.md').read_text(encoding='utf-8')
    return yaml.safe_load(re.search(r'```yaml\n(.*?)```', text, re.DOTALL).group(1))


@pytest.fixture
def timeline(root):
    return read_timeline(root)


@pytest.fixture
def offset(timeline):
    pair = timeline['clock_pair']
    return ClockOffset.at(Instant(pair['mono'], pair['stamp']))


def stages(rows):
    return tuple(StageTime(*row) for row in rows)


def block_of(timeline):
    data = timeline['kv_block']
    return KvBlock(
        number=data['number'],
        stamp_ns=data['stamp'],
        epoch=data['epoch'],
        camera_names=(timeline['frame']['camera'],),
        camera_stamps_ns=(timeline['frame']['stamp'],),
        ring_id=data['ring_id'],
        slot=data['slot'],
        seq=data['seq'],
        pinned=SlotRef(**data['pinned']),
        window=tuple(SlotRef(**ref) for ref in data['window']),
        stages=stages(data['stages']),
    )


def chunk_of(timeline, block, offset):
    data = timeline['action_chunk']
    positions = np.array(data['positions'])
    return ActionChunk(
        number=data['number'],
        chunk_id=data['chunk_id'],
        block_number=block.number,
        epoch=block.epoch,
        observation_stamp_ns=block.stamp_ns,
        newest_stamp_ns=max(block.camera_stamps_ns),
        oldest_stamp_ns=min(block.camera_stamps_ns),
        step0_at_ns=data['step0_at'],
        state_at_ns=data['state_at'],
        step_period_ns=data['step_period'],
        execute_steps=data['execute_steps'],
        joint_names=JOINT_NAMES,
        positions=positions,
        predicted_state=positions[0],
        stitch=Stitch.BLEND,
        state_source=StateSource.PREDICTED,
        inference_start_ns=data['inference_start'],
        inference_start_stamp_ns=offset.to_stamp(data['inference_start']),
        stages=block.stages + stages(data['stages']),
    )


def tick_of(timeline, chunk):
    data, row = timeline['control_tick'], timeline['control_tick']['row']
    setpoint = np.array(data['setpoint'])
    return ControlTick(
        number=data['index'] + 1,
        stamp_ns=data['stamp'],
        index=data['index'],
        due_ns=data['due'],
        late_ns=0,
        verdict=Verdict.FRESH,
        cause=Cause.NONE,
        arm_state=ArmState.TRACKING,
        epoch=chunk.epoch,
        chunk_id=chunk.chunk_id,
        row=row,
        is_sent=True,
        in_motion=True,
        is_covered=True,
        observation_age_ns=data['observation_age'],
        tracking_error=0.0,
        setpoint=setpoint,
        command=setpoint,
        measured=setpoint,
    )


def test_every_instant_agrees_on_both_clocks(timeline, offset):
    tick, frame = timeline['control_tick'], timeline['frame']
    assert offset.to_mono(tick['stamp']) == tick['due']
    assert tick['due'] == tick['loop_start'] + tick['index'] * tick['period']
    assert offset.to_mono(frame['stamp']) == timeline['kv_block']['stages'][0][1]
    assert frame['stamp'] == timeline['kv_block']['stamp']


def test_stages_follow_each_other_from_frame_to_acceptance(timeline):
    rows = timeline['kv_block']['stages'] + timeline['action_chunk']['stages']
    assert all(start <= end for _, start, end in rows)
    assert all(a[2] <= b[1] for a, b in zip(rows, rows[1:], strict=False))
    assert rows[0][2] == timeline['frame']['received']
    assert rows[4][1] == timeline['action_chunk']['inference_start']
    assert rows[-1][2] <= timeline['accepted'] <= timeline['control_tick']['due']


def test_row_zero_belongs_to_the_predicted_state(timeline):
    data, stamp = timeline['action_chunk'], timeline['kv_block']['stamp']
    assert step0_and_state_at(
        StateSource.PREDICTED,
        observation_stamp_ns=stamp,
        first_execution_stamp_ns=stamp + data['expected_delta'],
    ) == (data['step0_at'], data['state_at'])


def test_the_tick_evaluates_the_row_that_is_due(timeline, offset):
    tick, data = timeline['control_tick'], timeline['action_chunk']
    assert (tick['stamp'] - data['step0_at']) / data['step_period'] == tick['row']
    starts = offset.to_mono(data['step0_at'])
    times = starts + data['step_period'] * np.arange(len(data['positions']))
    setpoint = SetpointPath(times, data['positions']).at(tick['due'])
    np.testing.assert_allclose(setpoint.position, tick['setpoint'], atol=1e-12)


def test_both_delays_follow_from_the_instants(timeline):
    result, data = timeline['result'], timeline['action_chunk']
    tick, stamp = timeline['control_tick'], timeline['kv_block']['stamp']
    assert timeline['accepted'] - data['inference_start'] == result['latency']
    assert tick['stamp'] - stamp == result['delta'] == tick['observation_age']
    estimator = DelayEstimator(initial_ns=result['latency'])
    assert estimator.steps(tick['period']) == result['latency_ticks']


def test_the_whole_path_survives_serialisation(timeline, offset):
    from rclpy.serialization import deserialize_message, serialize_message

    from reflex_ros.ros import convert

    block = block_of(timeline)
    chunk = chunk_of(timeline, block, offset)
    tick = tick_of(timeline, chunk)
    for name, value in {'kv_block': block, 'action_chunk': chunk, 'control_tick': tick}.items():
        msg = getattr(convert, f'{name}_to_msg')(value)
        read = deserialize_message(serialize_message(msg), type(msg))
        back = getattr(convert, f'{name}_from_msg')(read)
        assert back == value
        for field in ('positions', 'predicted_state', 'setpoint', 'command', 'measured'):
            if hasattr(value, field):
                np.testing.assert_array_equal(getattr(back, field), getattr(value, field))


def test_a_wrong_clock_in_the_timeline_can_fail(timeline, offset):
    timeline['control_tick']['due'] += 1
    with pytest.raises(AssertionError):
        test_every_instant_agrees_on_both_clocks(timeline, offset)
