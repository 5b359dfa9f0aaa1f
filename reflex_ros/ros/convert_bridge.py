"""Conversion of what the bridge says: plan, traces, ticks, stalls, task."""

from __future__ import annotations

from typing import Any

from reflex_msgs import msg as reflex_msg

from reflex_ros.core.clock import S
from reflex_ros.core.types import (
    ArmState,
    Cause,
    ChunkTrace,
    ControlTick,
    Fate,
    Plan,
    RejectReason,
    StallEvent,
    Task,
    Verdict,
)
from reflex_ros.ros.convert_basic import (
    MessageError,
    check_schema,
    count_from_msg,
    enum_from_msg,
    floats_from_msg,
    floats_to_msg,
    new_message,
    optional_floats_from_msg,
    time_from_msg,
    time_to_msg,
    trajectory_from_msg,
    trajectory_to_msg,
)
from reflex_ros.ros.convert_flow import stages_from_msg, stages_to_msg

MAX_DELAY_NS = 60 * S


def plan_to_msg(plan: Plan) -> Any:
    """Return a ``reflex_msgs/Plan``."""
    msg = new_message(reflex_msg.Plan, plan, plan.stamp_ns)
    msg.epoch = plan.epoch
    msg.arm_state = plan.arm_state.value
    msg.active_chunk_id = plan.active_chunk_id
    msg.active_since = time_to_msg(plan.active_since_ns)
    msg.entered_row = plan.entered_row
    msg.plan_end = time_to_msg(plan.plan_end_ns)
    msg.hold_since = time_to_msg(plan.hold_since_ns)
    msg.settled_since = time_to_msg(plan.settled_since_ns)
    msg.last_reject = plan.last_reject
    msg.latency_ns, msg.delta_ns = plan.latency_ns, plan.delta_ns
    msg.tracking_error = floats_to_msg(plan.tracking_error)
    msg.measured = floats_to_msg(plan.measured)
    msg.measured_stamp = time_to_msg(plan.measured_stamp_ns)
    stamps = () if plan.setpoint_stamps_ns is None else tuple(plan.setpoint_stamps_ns)
    msg.trajectory = trajectory_to_msg(plan.joint_names, stamps, plan.setpoints)
    return msg


def plan_from_msg(msg: Any) -> Plan:
    """Return a plan.

    Raises:
        MessageError: Other schema, unknown arm state, uneven rows, or delays and counters that
            nobody can have measured.
    """
    check_schema(msg)
    for name in ('latency_ns', 'delta_ns'):
        _check_delay(name, getattr(msg, name))
    stamps, rows = trajectory_from_msg(msg.trajectory, 'Plan.trajectory')
    has_rows = bool(len(rows))
    return Plan(
        number=msg.number,
        stamp_ns=time_from_msg(msg.header.stamp),
        epoch=count_from_msg(msg.epoch, 'Plan.epoch'),
        arm_state=enum_from_msg(ArmState, msg.arm_state, 'Plan.arm_state'),
        joint_names=tuple(msg.trajectory.joint_names),
        active_chunk_id=count_from_msg(msg.active_chunk_id, 'Plan.active_chunk_id'),
        active_since_ns=time_from_msg(msg.active_since),
        entered_row=msg.entered_row,
        plan_end_ns=time_from_msg(msg.plan_end),
        hold_since_ns=time_from_msg(msg.hold_since),
        settled_since_ns=time_from_msg(msg.settled_since),
        last_reject=msg.last_reject,
        latency_ns=msg.latency_ns,
        delta_ns=msg.delta_ns,
        measured_stamp_ns=time_from_msg(msg.measured_stamp),
        tracking_error=optional_floats_from_msg(msg.tracking_error),
        measured=optional_floats_from_msg(msg.measured),
        setpoint_stamps_ns=stamps if has_rows else None,
        setpoints=rows if has_rows else None,
    )


def chunk_trace_to_msg(trace: ChunkTrace) -> Any:
    """Return a ``reflex_msgs/ChunkTrace``."""
    msg = new_message(reflex_msg.ChunkTrace, trace, trace.stamp_ns)
    msg.chunk_id, msg.epoch = trace.chunk_id, trace.epoch
    msg.fate, msg.reason, msg.text = trace.fate.value, trace.reason.value, trace.text
    msg.entered_row = trace.entered_row
    msg.seam_position, msg.seam_velocity = float(trace.seam_position), float(trace.seam_velocity)
    msg.observation_stamp = time_to_msg(trace.observation_stamp_ns)
    msg.newest_stamp = time_to_msg(trace.newest_stamp_ns)
    msg.first_command_stamp = time_to_msg(trace.first_command_stamp_ns)
    msg.accepted_ns = trace.accepted_ns
    msg.inference_start_ns = trace.inference_start_ns
    msg.covered_ns = trace.covered_ns
    msg.stalled_ticks, msg.ticks = trace.stalled_ticks, trace.ticks
    msg.stages = stages_to_msg(trace.stages)
    return msg


def chunk_trace_from_msg(msg: Any) -> ChunkTrace:
    """Return the life of a chunk.

    Raises:
        MessageError: Other schema, unknown fate or reason, or an impossible identity.
    """
    check_schema(msg)
    return ChunkTrace(
        number=msg.number,
        stamp_ns=time_from_msg(msg.header.stamp),
        chunk_id=count_from_msg(msg.chunk_id, 'ChunkTrace.chunk_id'),
        epoch=msg.epoch,
        fate=enum_from_msg(Fate, msg.fate, 'ChunkTrace.fate'),
        reason=enum_from_msg(RejectReason, msg.reason, 'ChunkTrace.reason'),
        text=msg.text,
        entered_row=msg.entered_row,
        seam_position=msg.seam_position,
        seam_velocity=msg.seam_velocity,
        observation_stamp_ns=time_from_msg(msg.observation_stamp),
        newest_stamp_ns=time_from_msg(msg.newest_stamp),
        first_command_stamp_ns=time_from_msg(msg.first_command_stamp),
        accepted_ns=msg.accepted_ns,
        inference_start_ns=msg.inference_start_ns,
        covered_ns=msg.covered_ns,
        stalled_ticks=msg.stalled_ticks,
        ticks=msg.ticks,
        stages=stages_from_msg(msg.stages),
    )


def control_tick_to_msg(tick: ControlTick) -> Any:
    """Return a ``reflex_msgs/ControlTick``."""
    msg = new_message(reflex_msg.ControlTick, tick, tick.stamp_ns)
    msg.index, msg.due_ns, msg.late_ns = tick.index, tick.due_ns, tick.late_ns
    msg.verdict, msg.cause = tick.verdict.value, tick.cause.value
    msg.arm_state = tick.arm_state.value
    msg.epoch, msg.chunk_id = tick.epoch, tick.chunk_id
    msg.row = float(tick.row)
    msg.is_sent, msg.in_motion = bool(tick.is_sent), bool(tick.in_motion)
    msg.is_covered = bool(tick.is_covered)
    msg.observation_age_ns = tick.observation_age_ns
    msg.tracking_error = float(tick.tracking_error)
    msg.setpoint = floats_to_msg(tick.setpoint)
    msg.command = floats_to_msg(tick.command)
    msg.measured = floats_to_msg(tick.measured)
    return msg


def control_tick_from_msg(msg: Any) -> ControlTick:
    """Return a tick.

    Raises:
        MessageError: Other schema, unknown verdict, cause or arm state.
    """
    check_schema(msg)
    return ControlTick(
        number=msg.number,
        stamp_ns=time_from_msg(msg.header.stamp),
        index=msg.index,
        due_ns=msg.due_ns,
        late_ns=msg.late_ns,
        verdict=enum_from_msg(Verdict, msg.verdict, 'ControlTick.verdict'),
        cause=enum_from_msg(Cause, msg.cause, 'ControlTick.cause'),
        arm_state=enum_from_msg(ArmState, msg.arm_state, 'ControlTick.arm_state'),
        epoch=msg.epoch,
        chunk_id=msg.chunk_id,
        row=msg.row,
        is_sent=msg.is_sent,
        in_motion=msg.in_motion,
        is_covered=msg.is_covered,
        observation_age_ns=msg.observation_age_ns,
        tracking_error=msg.tracking_error,
        setpoint=floats_from_msg(msg.setpoint),
        command=floats_from_msg(msg.command),
        measured=floats_from_msg(msg.measured),
    )


def stall_event_to_msg(event: StallEvent) -> Any:
    """Return a ``reflex_msgs/StallEvent``."""
    msg = new_message(reflex_msg.StallEvent, event, event.stamp_ns)
    msg.first_index, msg.ticks = event.first_index, event.ticks
    msg.duration_ns = event.duration_ns
    msg.cause, msg.text = event.cause.value, event.text
    return msg


def stall_event_from_msg(msg: Any) -> StallEvent:
    """Return a stall.

    Raises:
        MessageError: Other schema or unknown cause.
    """
    check_schema(msg)
    return StallEvent(
        number=msg.number,
        stamp_ns=time_from_msg(msg.header.stamp),
        first_index=msg.first_index,
        ticks=msg.ticks,
        duration_ns=msg.duration_ns,
        cause=enum_from_msg(Cause, msg.cause, 'StallEvent.cause'),
        text=msg.text,
    )


def task_to_msg(task: Task) -> Any:
    """Return a ``reflex_msgs/Task``."""
    msg = new_message(reflex_msg.Task, task, task.stamp_ns)
    msg.epoch, msg.instruction = task.epoch, task.instruction
    return msg


def task_from_msg(msg: Any) -> Task:
    """Return the instruction in force.

    Raises:
        MessageError: Other schema or an impossible epoch.
    """
    check_schema(msg)
    epoch = count_from_msg(msg.epoch, 'Task.epoch')
    return Task(msg.number, time_from_msg(msg.header.stamp), epoch, msg.instruction)


def _check_delay(name: str, value_ns: int) -> None:
    if not 0 <= value_ns <= MAX_DELAY_NS:
        raise MessageError(
            f'field Plan.{name} is wrong: got {value_ns}, expected 0 to {MAX_DELAY_NS} (ns). '
            'Correct the publisher.'
        )
