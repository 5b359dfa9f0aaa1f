"""Topics and services of the suite and their quality of service, in one table.

Names are relative, so a namespace moves the whole suite; only ``/diagnostics`` and ``/clock`` are
shared by convention.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from rclpy.qos import (
    QoSDurabilityPolicy,
    QoSHistoryPolicy,
    QoSLivelinessPolicy,
    QoSProfile,
    QoSReliabilityPolicy,
)


class Profile(Enum):
    """Quality of service of a topic.

    ``SENSOR``: best effort, depth 5; a lost image is replaced by the next. ``NEWEST``: reliable,
    depth 1; only the newest counts. ``LATCHED``: the same, and a late joiner gets the last one.
    ``RECORD``: reliable, depth 100; at 50 Hz two seconds may be waiting before one is lost.
    """

    SENSOR = 'sensor'
    NEWEST = 'newest'
    LATCHED = 'latched'
    RECORD = 'record'


_DEPTH = MappingProxyType(
    {Profile.SENSOR: 5, Profile.NEWEST: 1, Profile.LATCHED: 1, Profile.RECORD: 100}
)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic.

    Attributes:
        name: Relative name.
        type: ROS name of its type, ``package/msg/Name``.
        profile: Quality of service of both ends.
        publishers: Nodes that publish it.
    """

    name: str
    type: str
    profile: Profile
    publishers: tuple[str, ...]

    @property
    def qos(self) -> QoSProfile:
        """Return the profile as rclpy takes it; a new object."""
        return qos_profile(self.profile)

    @property
    def message(self) -> Any:
        """Return the message class."""
        return load_type(self.type)


_BRIDGE = ('controller_bridge',)
_STAGES = ('vision_encoder', 'policy')

TOPICS: tuple[Topic, ...] = (
    Topic('kv_block', 'reflex_msgs/msg/KvBlock', Profile.NEWEST, ('vision_encoder',)),
    Topic('action_chunk', 'reflex_msgs/msg/ActionChunk', Profile.NEWEST, ('policy',)),
    Topic('plan', 'reflex_msgs/msg/Plan', Profile.LATCHED, _BRIDGE),
    Topic('task', 'reflex_msgs/msg/Task', Profile.LATCHED, _BRIDGE),
    Topic('chunk_trace', 'reflex_msgs/msg/ChunkTrace', Profile.RECORD, _BRIDGE),
    Topic('control_tick', 'reflex_msgs/msg/ControlTick', Profile.RECORD, _BRIDGE),
    Topic('stall_event', 'reflex_msgs/msg/StallEvent', Profile.RECORD, _BRIDGE),
    Topic('stage_status', 'reflex_msgs/msg/StageStatus', Profile.RECORD, _STAGES),
    Topic('joint_states', 'sensor_msgs/msg/JointState', Profile.RECORD, _BRIDGE),
    Topic('sim_truth', 'reflex_msgs/msg/SimTruth', Profile.RECORD, ('simulator',)),
    Topic('clock_request', 'sensor_msgs/msg/TimeReference', Profile.SENSOR, _BRIDGE),
    Topic('clock_answer', 'sensor_msgs/msg/TimeReference', Profile.SENSOR, ('supervisor',)),
    Topic(
        '/diagnostics',
        'diagnostic_msgs/msg/DiagnosticArray',
        Profile.RECORD,
        (*_BRIDGE, *_STAGES, 'recorder', 'simulator'),
    ),
    Topic('/clock', 'rosgraph_msgs/msg/Clock', Profile.SENSOR, ('simulator',)),
)
"""Every topic but the images; for those see ``image_topic``."""

SERVICES = MappingProxyType(
    {
        'set_instruction': 'reflex_msgs/srv/SetInstruction',
        'hold': 'reflex_msgs/srv/Hold',
        'resume': 'reflex_msgs/srv/Resume',
        'recover': 'reflex_msgs/srv/Recover',
    }
)
"""Services of the bridge: relative name and type."""


def topic(name: str) -> Topic:
    """Return the topic of that name.

    Raises:
        KeyError: The table has no such topic.
    """
    for entry in TOPICS:
        if entry.name == name:
            return entry
    raise KeyError(name)


def image_topic(name: str) -> Topic:
    """Return an image topic; a name that ends in ``/compressed`` carries JPEG or PNG.

    Args:
        name: Topic name, e.g. ``camera/main/image_raw`` or ``camera/main/image_raw/compressed``.
    """
    kind = 'CompressedImage' if name.endswith('/compressed') else 'Image'
    return Topic(name, f'sensor_msgs/msg/{kind}', Profile.SENSOR, ('simulator',))


def is_image(entry: Topic) -> bool:
    """Return whether a topic carries images."""
    return entry.type.startswith('sensor_msgs/msg/') and entry.type.endswith('Image')


def camera_topic(camera: str) -> str:
    """Return the default image topic of a camera."""
    return f'camera/{camera}/image_raw'


def qos_profile(profile: Profile) -> QoSProfile:
    """Return the quality of service as rclpy takes it; a new object."""
    latched, best_effort = profile is Profile.LATCHED, profile is Profile.SENSOR
    return QoSProfile(
        history=QoSHistoryPolicy.KEEP_LAST,
        depth=_DEPTH[profile],
        reliability=(
            QoSReliabilityPolicy.BEST_EFFORT if best_effort else QoSReliabilityPolicy.RELIABLE
        ),
        durability=(
            QoSDurabilityPolicy.TRANSIENT_LOCAL if latched else QoSDurabilityPolicy.VOLATILE
        ),
        liveliness=QoSLivelinessPolicy.AUTOMATIC,
    )


def load_type(name: str) -> Any:
    """Return the class of ``package/msg/Name`` or ``package/srv/Name``."""
    package, kind, cls = name.split('/')
    return getattr(importlib.import_module(f'{package}.{kind}'), cls)
