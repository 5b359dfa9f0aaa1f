"""Conversion of signs of life, the simulated truth, joint states and service answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from geometry_msgs.msg import Point, Pose, Quaternion, Vector3
from reflex_msgs import msg as reflex_msg
from sensor_msgs.msg import JointState

from reflex_ros.core.types import (
    ArmFeedback,
    CameraStatus,
    FloatArray,
    Reply,
    SimEvent,
    SimTruth,
    StageStatus,
)
from reflex_ros.ros.convert_basic import (
    MessageError,
    check_schema,
    floats_from_msg,
    floats_to_msg,
    new_message,
    time_from_msg,
    time_to_msg,
)

BASE_FRAME = 'base_link'
"""Frame of every position in ``SimTruth``."""


def camera_status_from_msg(msg: Any) -> CameraStatus:
    """Return the freshness of one camera."""
    return CameraStatus(
        camera=msg.camera,
        last_stamp_ns=time_from_msg(msg.last_stamp),
        last_received_ns=msg.last_received_ns,
        content_since_ns=msg.content_since_ns,
        equal_frames=msg.equal_frames,
    )


def camera_status_to_msg(status: CameraStatus) -> Any:
    """Return a ``reflex_msgs/CameraStatus``."""
    return reflex_msg.CameraStatus(
        camera=status.camera,
        last_stamp=time_to_msg(status.last_stamp_ns),
        last_received_ns=status.last_received_ns,
        content_since_ns=status.content_since_ns,
        equal_frames=status.equal_frames,
    )


def stage_status_to_msg(status: StageStatus) -> Any:
    """Return a ``reflex_msgs/StageStatus``."""
    msg = new_message(reflex_msg.StageStatus, status, status.stamp_ns)
    msg.node, msg.state = status.node, status.state
    msg.last_input_ns, msg.last_output_ns = status.last_input_ns, status.last_output_ns
    msg.busy_since_ns, msg.sent_ns = status.busy_since_ns, status.sent_ns
    msg.ring_ok = bool(status.ring_ok)
    msg.outputs, msg.dropped = status.outputs, status.dropped
    msg.reason, msg.text, msg.epoch = status.reason, status.text, status.epoch
    msg.cameras = [camera_status_to_msg(camera) for camera in status.cameras]
    return msg


def stage_status_from_msg(msg: Any) -> StageStatus:
    """Return a sign of life.

    Raises:
        MessageError: Other schema.
    """
    check_schema(msg)
    return StageStatus(
        number=msg.number,
        stamp_ns=time_from_msg(msg.header.stamp),
        node=msg.node,
        state=msg.state,
        last_input_ns=msg.last_input_ns,
        last_output_ns=msg.last_output_ns,
        busy_since_ns=msg.busy_since_ns,
        sent_ns=msg.sent_ns,
        ring_ok=msg.ring_ok,
        outputs=msg.outputs,
        dropped=msg.dropped,
        reason=msg.reason,
        text=msg.text,
        epoch=msg.epoch,
        cameras=tuple(camera_status_from_msg(camera) for camera in msg.cameras),
    )


def sim_event_from_msg(msg: Any) -> SimEvent:
    """Return an event of the simulated world."""
    return SimEvent(msg.name, time_from_msg(msg.stamp))


def sim_event_to_msg(event: SimEvent) -> Any:
    """Return a ``reflex_msgs/SimEvent``."""
    return reflex_msg.SimEvent(name=event.name, stamp=time_to_msg(event.stamp_ns))


def sim_truth_to_msg(truth: SimTruth) -> Any:
    """Return a ``reflex_msgs/SimTruth``; objects sorted by name."""
    msg = new_message(reflex_msg.SimTruth, truth, truth.stamp_ns)
    msg.header.frame_id = BASE_FRAME
    msg.task, msg.phase, msg.success = truth.task, truth.phase, bool(truth.success)
    msg.joint_position = floats_to_msg(truth.joint_position)
    msg.joint_velocity = floats_to_msg(truth.joint_velocity)
    msg.tip_position = _xyz_to_msg(Point, truth.tip_position)
    msg.target_position = _xyz_to_msg(Point, truth.target_position)
    msg.target_velocity = _xyz_to_msg(Vector3, truth.target_velocity)
    msg.objects = [
        reflex_msg.NamedPose(name=name, pose=_pose_to_msg(pose))
        for name, pose in sorted(truth.objects.items())
    ]
    msg.events = [sim_event_to_msg(event) for event in truth.events]
    return msg


def sim_truth_from_msg(msg: Any) -> SimTruth:
    """Return the true state of the simulated world.

    Raises:
        MessageError: Other schema.
    """
    check_schema(msg)
    return SimTruth(
        number=msg.number,
        stamp_ns=time_from_msg(msg.header.stamp),
        task=msg.task,
        joint_position=floats_from_msg(msg.joint_position),
        joint_velocity=floats_from_msg(msg.joint_velocity),
        tip_position=_xyz_from_msg(msg.tip_position),
        target_position=_xyz_from_msg(msg.target_position),
        target_velocity=_xyz_from_msg(msg.target_velocity),
        objects={item.name: _pose_from_msg(item.pose) for item in msg.objects},
        phase=msg.phase,
        success=msg.success,
        events=tuple(sim_event_from_msg(event) for event in msg.events),
    )


def joint_state_from_msg(msg: Any, names: Sequence[str]) -> tuple[int, FloatArray]:
    """Return ROS time and positions ``float64[J]`` of a ``JointState``, bound by name.

    Args:
        msg: The message, in any order of the joints.
        names: Joints that it must have, in the order wanted.

    Raises:
        MessageError: It has other joints, or fewer positions than names.
    """
    given = list(msg.name)
    if set(given) != set(names) or len(msg.position) != len(given):
        raise MessageError(
            f'joint state: got names {given} and {len(msg.position)} positions, expected '
            f'{list(names)}. Correct the publisher.'
        )
    return time_from_msg(msg.header.stamp), np.array(
        [msg.position[given.index(name)] for name in names]
    )


def joint_state_to_msg(feedback: ArmFeedback, *, names: Sequence[str], stamp_ns: int) -> Any:
    """Return a ``sensor_msgs/JointState`` (rad and m; rad/s and m/s; N·m and N).

    Args:
        feedback: One reading of the arm.
        names: Joint names in its order.
        stamp_ns: ROS time of the reading.
    """
    msg = JointState(name=list(names))
    msg.header.stamp = time_to_msg(stamp_ns)
    msg.position = floats_to_msg(feedback.position)
    msg.velocity = floats_to_msg(feedback.velocity)
    msg.effort = floats_to_msg(feedback.effort)
    return msg


def reply_from_msg(response: Any) -> Reply:
    """Return the answer of one of the bridge's services."""
    return Reply(response.accepted, response.reason)


def reply_to_msg(reply: Reply, response: Any) -> Any:
    """Return ``response``, filled."""
    response.accepted, response.reason = reply.accepted, reply.reason
    return response


def _xyz_to_msg(kind: Any, values: FloatArray) -> Any:
    return kind(x=float(values[0]), y=float(values[1]), z=float(values[2]))


def _xyz_from_msg(msg: Any) -> FloatArray:
    return np.array([msg.x, msg.y, msg.z], dtype=np.float64)


def _pose_to_msg(pose: FloatArray) -> Any:
    w, x, y, z = (float(value) for value in pose[3:7])
    return Pose(position=_xyz_to_msg(Point, pose), orientation=Quaternion(w=w, x=x, y=y, z=z))


def _pose_from_msg(msg: Any) -> FloatArray:
    p, q = msg.position, msg.orientation
    return np.array([p.x, p.y, p.z, q.w, q.x, q.y, q.z], dtype=np.float64)
