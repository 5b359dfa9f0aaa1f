"""Core types to and from messages: the only place where both meet.

``<type>_to_msg(value)`` gives a new message; ``<type>_from_msg(msg)`` gives a value that shares
no memory with the message and raises ``MessageError`` where the message contradicts itself. A
node converts first thing on receipt and last thing before publishing.
"""

from __future__ import annotations

from reflex_ros.ros.convert_basic import MessageError, time_from_msg, time_to_msg
from reflex_ros.ros.convert_bridge import (
    chunk_trace_from_msg,
    chunk_trace_to_msg,
    control_tick_from_msg,
    control_tick_to_msg,
    plan_from_msg,
    plan_to_msg,
    stall_event_from_msg,
    stall_event_to_msg,
    task_from_msg,
    task_to_msg,
)
from reflex_ros.ros.convert_flow import (
    action_chunk_from_msg,
    action_chunk_to_msg,
    kv_block_from_msg,
    kv_block_to_msg,
    slot_ref_from_msg,
    slot_ref_to_msg,
    stage_time_from_msg,
    stage_time_to_msg,
)
from reflex_ros.ros.convert_status import (
    BASE_FRAME,
    camera_status_from_msg,
    camera_status_to_msg,
    joint_state_from_msg,
    joint_state_to_msg,
    reply_from_msg,
    reply_to_msg,
    sim_event_from_msg,
    sim_event_to_msg,
    sim_truth_from_msg,
    sim_truth_to_msg,
    stage_status_from_msg,
    stage_status_to_msg,
)

__all__ = [
    'BASE_FRAME',
    'MessageError',
    'action_chunk_from_msg',
    'action_chunk_to_msg',
    'camera_status_from_msg',
    'camera_status_to_msg',
    'chunk_trace_from_msg',
    'chunk_trace_to_msg',
    'control_tick_from_msg',
    'control_tick_to_msg',
    'joint_state_from_msg',
    'joint_state_to_msg',
    'kv_block_from_msg',
    'kv_block_to_msg',
    'plan_from_msg',
    'plan_to_msg',
    'reply_from_msg',
    'reply_to_msg',
    'sim_event_from_msg',
    'sim_event_to_msg',
    'sim_truth_from_msg',
    'sim_truth_to_msg',
    'slot_ref_from_msg',
    'slot_ref_to_msg',
    'stage_status_from_msg',
    'stage_status_to_msg',
    'stage_time_from_msg',
    'stage_time_to_msg',
    'stall_event_from_msg',
    'stall_event_to_msg',
    'task_from_msg',
    'task_to_msg',
    'time_from_msg',
    'time_to_msg',
]
