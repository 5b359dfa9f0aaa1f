"""``metadata.yaml`` of a bag in version 8, which ROS 2 Humble and Jazzy both read.

Profiles are a text with the numbers of the policies: Humble reads no other form, Jazzy tells
numbers and names apart by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)

from reflex_ros.bag.schema import Schema
from reflex_ros.bag.tally import Tally, sum_of
from reflex_ros.core.clock import S

METADATA = 'metadata.yaml'
ROOT = 'rosbag2_bagfile_information'
VERSION = 8
DISTRO = 'jazzy'
"""Where the message definitions and their hashes are from."""
FOREVER = QosTime(9_223_372_036, 854_775_807)
"""An infinite duration, as DDS and rosbag2 write it."""


@dataclass(frozen=True, slots=True)
class BagTopic:
    """One topic of a bag.

    Attributes:
        name: Full topic name, e.g. ``/control_tick``.
        schema: Its type.
        qos: Profiles that its publishers offer.
        is_bulk: Whether it is images: these are given up first when the disk is slow.
        is_optional: Whether it is left out of a bag that has no message of it.
    """

    name: str
    schema: Schema
    qos: tuple[Qos, ...] = ()
    is_bulk: bool = False
    is_optional: bool = False


def offered_qos(
    *, is_reliable: bool, is_latched: bool, depth: int, keeps_all: bool = False,
    deadline_ns: int | None = None, lifespan_ns: int | None = None,
    liveliness: QosLiveliness = QosLiveliness.AUTOMATIC, lease_ns: int | None = None,
    avoids_ros_names: bool = False,
) -> Qos:
    """Return a profile as a bag stores it.

    Args:
        is_reliable: Else best effort. is_latched: Transient local, else volatile.
        depth: Samples kept, if not all are.
        keeps_all: Whether the history keeps all.
        deadline_ns, lifespan_ns, lease_ns: None = infinite.
        liveliness: Who asserts it.
        avoids_ros_names: Whether the DDS topic has no prefix.
    """
    return Qos(
        QosHistory.KEEP_ALL if keeps_all else QosHistory.KEEP_LAST,
        depth,
        QosReliability.RELIABLE if is_reliable else QosReliability.BEST_EFFORT,
        QosDurability.TRANSIENT_LOCAL if is_latched else QosDurability.VOLATILE,
        _time(deadline_ns),
        _time(lifespan_ns),
        liveliness,
        _time(lease_ns),
        avoids_ros_names,
    )


def profiles_text(profiles: Sequence[Qos]) -> str:
    """Return profiles as YAML text with numbers; '' without any."""
    return _profiles_text(tuple(profiles)) if profiles else ''


@lru_cache(maxsize=64)
def _profiles_text(profiles: tuple[Qos, ...]) -> str:
    """Return the text; most topics of a bag have the same profiles."""
    found = [
        {
            'history': p.history.value, 'depth': p.depth, 'reliability': p.reliability.value,
            'durability': p.durability.value, 'deadline': _pair(p.deadline),
            'lifespan': _pair(p.lifespan), 'liveliness': p.liveliness.value,
            'liveliness_lease_duration': _pair(p.liveliness_lease_duration),
            'avoid_ros_namespace_conventions': p.avoid_ros_namespace_conventions,
        }
        for p in profiles
    ]
    return yaml.safe_dump(found, sort_keys=False).strip()


def metadata_of(parts: Mapping[str, Tally], topics: Sequence[BagTopic],
                storage: str) -> dict[str, Any]:
    """Return what ``metadata.yaml`` says below its root.

    Args:
        parts: Messages of each file by its name, in order.
        topics: All topics; optional ones without messages are left out.
        storage: ``mcap`` or ``sqlite3``.
    """
    total = sum_of(parts.values())
    return {
        'version': VERSION,
        'storage_identifier': storage,
        'duration': {'nanoseconds': total.span[1]},
        'starting_time': {'nanoseconds_since_epoch': total.span[0]},
        'message_count': total.total,
        'topics_with_message_count': [
            _topic(topic, total.counts.get(topic.name, 0)) for topic in topics
            if not topic.is_optional or total.counts.get(topic.name, 0)
        ],
        'compression_format': '',
        'compression_mode': '',
        'relative_file_paths': list(parts),
        'files': [
            {
                'path': name,
                'starting_time': {'nanoseconds_since_epoch': part.span[0]},
                'duration': {'nanoseconds': part.span[1]},
                'message_count': part.total,
            }
            for name, part in parts.items()
        ],
        'custom_data': None,
        'ros_distro': DISTRO,
    }


def file_name(folder: Path, part: int, suffix: str) -> str:
    """Return the name of a part, as rosbag2 names them."""
    return f'{folder.name}_{part}{suffix}'


def _topic(topic: BagTopic, count: int) -> dict[str, Any]:
    return {
        'topic_metadata': {
            'name': topic.name,
            'type': topic.schema.type,
            'serialization_format': 'cdr',
            'offered_qos_profiles': profiles_text(topic.qos),
            'type_description_hash': topic.schema.rihs01,
        },
        'message_count': count,
    }


def _time(duration_ns: int | None) -> QosTime:
    return FOREVER if duration_ns is None else QosTime(*divmod(duration_ns, S))


def _pair(time: QosTime) -> dict[str, int]:
    return {'sec': time.sec, 'nsec': time.nsec}
