"""Quality of service of what is recorded: whether it can be heard, and what the bag says of it.

DDS does not connect a best-effort publisher with a reliable reader, and says so to nobody: the
bag would just be empty. So both ends are compared before recording starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rclpy.duration import Duration
from rclpy.qos import (
    QoSCompatibility,
    QoSDurabilityPolicy,
    QoSHistoryPolicy,
    QoSLivelinessPolicy,
    QoSProfile,
    QoSReliabilityPolicy,
    qos_check_compatible,
)
from rosbags.interfaces import Qos, QosLiveliness

from reflex_ros.bag.metadata import FOREVER, offered_qos
from reflex_ros.core.clock import S
from reflex_ros.core.errors import ConfigError
from reflex_ros.ros.qos import Topic, is_image

DEPTH = 1000
"""Messages of one topic that may wait for the recorder: more than a second of the busiest."""
IMAGE_DEPTH = 10
MANUAL = QoSLivelinessPolicy.MANUAL_BY_TOPIC
_FOREVER_NS = FOREVER.sec * S + FOREVER.nsec


def reader_qos(entry: Topic) -> QoSProfile:
    """Return the profile of the recorder's subscription: as the table says, but deeper."""
    qos = entry.qos
    qos.depth = IMAGE_DEPTH if is_image(entry) else DEPTH
    return qos


def check_publishers(node: Any, entries: Iterable[Topic]) -> None:
    """Refuse to record a topic whose publisher cannot be heard.

    Args:
        node: rclpy node.
        entries: Topics that it subscribes to with ``reader_qos``.

    Raises:
        ConfigError: A publisher's profile does not fit.
    """
    for entry in entries:
        for info in node.get_publishers_info_by_topic(node.resolve_topic_name(entry.name)):
            check_compatible(entry, info.qos_profile, reader_qos(entry), info.node_name)


def check_compatible(entry: Topic, offered: Any, asked: Any, publisher: str) -> None:
    """Refuse a publisher whose messages would never arrive.

    Args:
        entry: The topic.
        offered: Profile of the publisher. ``asked``: that of the subscription.
        publisher: Name of the node that publishes.

    Raises:
        ConfigError: DDS would not connect the two.
    """
    result, _ = qos_check_compatible(offered, asked)
    if result == QoSCompatibility.ERROR:
        raise ConfigError(
            f'topic {entry.name} cannot be recorded: got a {_words(offered)} publisher '
            f'({publisher}), expected {_words(asked)} as the recorder asks for. Nothing would '
            'arrive, so set the QoS of the publisher.'
        )


def offered_now(node: Any, entries: Sequence[Topic],
                stored: Mapping[str, Sequence[str]]) -> dict[str, tuple[Qos, ...]]:
    """Return what the publishers offer now, or the table where there are none, as bags store it.

    Args:
        node: rclpy node. entries: What is recorded.
        stored: Names in the bag by the name of a topic.
    """
    found: dict[str, tuple[Qos, ...]] = {}
    for entry in entries:
        name = node.resolve_topic_name(entry.name)
        infos = node.get_publishers_info_by_topic(name)
        profiles = [info.qos_profile for info in infos] or [entry.qos]
        kept = tuple(dict.fromkeys(profile_of(profile, entry.qos) for profile in profiles))
        found |= dict.fromkeys(stored[entry.name], kept)
    return found


def profile_of(offered: Any, table: Any) -> Qos:
    """Return a publisher's profile as a bag stores it.

    Args:
        offered: Profile of the publisher. Discovery tells neither history nor depth.
        table: Profile that gives those that it does not tell.
    """
    is_told = offered.history in (QoSHistoryPolicy.KEEP_LAST, QoSHistoryPolicy.KEEP_ALL)
    history = offered if is_told else table
    return offered_qos(
        is_reliable=offered.reliability != QoSReliabilityPolicy.BEST_EFFORT,
        is_latched=offered.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL,
        depth=history.depth,
        keeps_all=history.history == QoSHistoryPolicy.KEEP_ALL,
        deadline_ns=_finite(offered.deadline),
        lifespan_ns=_finite(offered.lifespan),
        liveliness=(QosLiveliness.MANUAL_BY_TOPIC if offered.liveliness == MANUAL
                    else QosLiveliness.AUTOMATIC),
        lease_ns=_finite(offered.liveliness_lease_duration),
        avoids_ros_names=bool(offered.avoid_ros_namespace_conventions),
    )


def _finite(duration: Duration) -> int | None:
    """Return a duration in ns; None if it is infinite or was left to the middleware."""
    nanoseconds = int(duration.nanoseconds)
    return nanoseconds if 0 < nanoseconds < _FOREVER_NS else None


def _words(profile: Any) -> str:
    words = ['best-effort' if profile.reliability == QoSReliabilityPolicy.BEST_EFFORT
             else 'reliable']
    if profile.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL:
        words.append('latched')
    for name in ('deadline', 'liveliness_lease_duration'):
        nanoseconds = _finite(getattr(profile, name))
        if nanoseconds is not None:
            words.append(f'{name} {nanoseconds / S:g} s')
    if profile.liveliness == MANUAL:
        words.append('manual liveliness')
    return ', '.join(words)
