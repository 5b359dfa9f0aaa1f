"""Everything that a run publishes as messages: hand-written code equals the generic one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.bag import cdr, values
from reflex_ros.bag.encode import Encoder
from reflex_ros.bag.encode_flow import FlowEncoder
from reflex_ros.core.errors import LayoutError
from reflex_ros.core.types import JOINT_NAMES, CameraStatus, SlotRef, StageStatus, Task

SHARES = (Path(__file__).parents[3],)


@pytest.fixture(scope='module')
def flow():
    return FlowEncoder(shares=SHARES)


def generic(flow, value):
    """Return what rosbags makes of a value."""
    return Encoder.encode(flow, value)


def published(log):
    """Return ticks, plans and chunks: empty ones, waiting ones, and those in motion."""
    cameras = (CameraStatus('main', 3, 4, 5, 6), CameraStatus('wrist left', 7, 8, 9, 10))
    status = StageStatus(1, 5, 'policy', 'active', 1, 2, 3, 4, reason='none', cameras=cameras)
    block = replace(log.blocks[0], pinned=SlotRef(3, 4), window=(SlotRef(1, 2), SlotRef(2, 3)),
                    layout_hash='abc', state=np.arange(7.0), joint_names=JOINT_NAMES,
                    certificate_hash='d')
    trace = replace(log.traces[0], text='ä', stages=())
    return [*log.ticks[::9], *log.plans[::5], *log.chunks[::4], *log.blocks[::7],
            *log.traces[::4], trace, block, status,
            replace(status, cameras=(), ring_ok=False, text='odd')]


def test_hand_written_bytes_equal_the_generic_ones(flow, log):
    values = published(log)
    assert len({type(value) for value in values}) == 6
    for value in values:
        assert cdr.can_write(value)
        assert flow.encode(value) == generic(flow, value)


def test_a_wrong_byte_can_fail(flow, log):
    plan = next(p for p in log.plans if p.setpoints is not None and len(p.setpoints))
    assert cdr.write(plan)[:-1] != generic(flow, plan)


def test_a_chunk_of_another_width_takes_the_generic_way(flow, log):
    chunk = replace(log.chunks[0], positions=log.chunks[0].positions[:, :6],
                    joint_names=JOINT_NAMES[:6])
    assert not cdr.can_write(chunk)
    assert flow.encode(chunk) == generic(flow, chunk)


def test_joint_states_equal_the_generic_ones(flow):
    position = np.arange(7.0)
    assert flow.joint_state(1_500_000_000, JOINT_NAMES, position) == flow.generic_joint_state(
        1_500_000_000, JOINT_NAMES, position)


def test_blocks_tasks_and_statuses_are_read_back(flow, log):
    store = flow.store
    block = log.blocks[3]
    seen = store.deserialize_cdr(flow.encode(block), 'reflex_msgs/msg/KvBlock')
    assert list(seen.camera_names) == ['main'] and seen.number == block.number
    assert [s.name for s in seen.stages] == [s.name for s in block.stages]
    task = store.deserialize_cdr(flow.encode(Task(3, 7_000_000_001, 9, 'go')),
                                 'reflex_msgs/msg/Task')
    assert (task.instruction, task.epoch, task.header.stamp.sec) == ('go', 9, 7)
    status = StageStatus(1, 5, 'policy', 'active', 1, 2, 3, 4, reason='none')
    seen = store.deserialize_cdr(flow.encode(status), 'reflex_msgs/msg/StageStatus')
    assert (seen.node, seen.busy_since_ns, seen.ring_ok) == ('policy', 3, True)


def test_a_header_is_read_without_the_rest(flow, log):
    data = flow.encode(log.plans[0])
    assert values.header_stamp(data) == log.plans[0].stamp_ns
    assert values.header_stamp(data[:12]) == log.plans[0].stamp_ns
    swapped = b'\x00\x00' + data[2:4] + data[4:8][::-1] + data[8:12][::-1]
    assert values.header_stamp(swapped) == log.plans[0].stamp_ns
    with pytest.raises(LayoutError, match='11 bytes'):
        values.header_stamp(data[:11])
