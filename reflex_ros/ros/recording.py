"""What a recorder subscribes to, and whether the publishers can be heard at all.

DDS does not connect a best-effort publisher with a reliable reader, and says so to nobody: the
bag would just be empty. So both ends are compared before recording starts.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import (
    QoSCompatibility,
    QoSDurabilityPolicy,
    QoSProfile,
    QoSReliabilityPolicy,
    qos_check_compatible,
)
from std_srvs.srv import Trigger

from reflex_ros.bag.compress import RAW, ImageCompressor
from reflex_ros.bag.files import BagTopic, offered_qos
from reflex_ros.bag.recording import Recording
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bag.schema import find_schema
from reflex_ros.bag.snapshot import SnapshotRing, is_fault
from reflex_ros.bag.write import BagWriter, Split
from reflex_ros.core.clock import Clock
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import Value
from reflex_ros.ros.diagnostics import Diagnosis, Level
from reflex_ros.ros.qos import TOPICS, Profile, Topic, camera_topic, image_topic, topic

DEPTH = 1000
"""Messages of one topic that may wait for the recorder: more than a second of the busiest."""
IMAGE_DEPTH = 10
_UNRECORDED = ('/clock',)
"""Recorded only where named: a bag has its own times."""


def topics_to_record(params: Mapping[str, Value]) -> tuple[Topic, ...]:
    """Return the topics that the parameters ask for.

    Raises:
        ConfigError: A name is neither in the table nor that of an image topic.
    """
    names = cast('tuple[str, ...]', params['recorder.topics'])
    chosen = [_find(name) for name in names] or [t for t in TOPICS if t.name not in _UNRECORDED]
    if params['recorder.images']:
        chosen += [image_topic(name) for name in camera_topics(params)]
    return tuple({entry.name: entry for entry in chosen}.values())


def camera_topics(params: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the image topic of each camera, primary first."""
    named = cast('tuple[str, ...]', params['camera.topics'])
    cameras = cast('tuple[str, ...]', params['camera.names'])
    return named or tuple(camera_topic(camera) for camera in cameras)


def is_image(entry: Topic) -> bool:
    """Return whether a topic carries images."""
    return entry.type.startswith('sensor_msgs/msg/') and entry.type.endswith('Image')


def reader_qos(entry: Topic) -> QoSProfile:
    """Return the profile of the recorder's subscription: as the table says, but deeper."""
    qos = entry.qos
    qos.depth = IMAGE_DEPTH if is_image(entry) else DEPTH
    return qos


class RawReader:
    """A subscription to serialized messages.

    Args:
        node: rclpy node.
        entry: Topic.
        take: Gets the bytes and the middleware's information about them.
    """

    def __init__(self, node: Any, entry: Topic, take: Callable[[bytes, Any], None]) -> None:
        def mismatch(event: Any) -> None:
            node.get_logger().error(
                f'{entry.name}: cannot be heard: publishers={event.total_count} offer weaker QoS '
                'than the recorder asks for; set it to that of the topic table'
            )

        self._node, self._take = node, take
        self._reader = node.create_subscription(
            entry.message, entry.name, take, reader_qos(entry), raw=True,
            event_callbacks=SubscriptionEventCallbacks(incompatible_qos=mismatch),
        )

    def drain(self) -> None:
        """Take what has arrived and the executor has not yet come to; call it in the executor."""
        handle = self._reader.handle
        with handle:
            for _ in range(self._reader.qos_profile.depth):
                taken = handle.take_message(self._reader.msg_type, True)
                if taken is None:
                    return
                self._take(*taken)

    def close(self) -> None:
        """End the subscription."""
        self._node.destroy_subscription(self._reader)


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


def make_recording(
    node: Any, entries: Sequence[Topic], params: Mapping[str, Value], run: RunFolder, *,
    clock: Clock,
) -> tuple[Recording | SnapshotRing, dict[str, str]]:
    """Return what takes the messages, and the name in the bag of each topic.

    Profiles are those that the publishers offer now, or the table's where there are none.

    Args:
        node: rclpy node. entries: What is recorded.
        params: Parameters of the recorder. run: Its folder. clock: Steady clock.

    Raises:
        ConfigError: The definition of a type is not found.
    """
    kind = cast('str', params['recorder.compression'])
    full = {entry.name: node.resolve_topic_name(entry.name) for entry in entries}
    compressor = ImageCompressor(kind) if kind != 'none' else None
    squeezed = {entry.name for entry in entries if compressor and entry.type == RAW}
    stored = {name: f'{full[name]}/compressed' if name in squeezed else full[name]
              for name in full}
    topics = []
    for entry in entries:
        topic_now = _bag_topic(node, entry)
        if compressor is not None and entry.name in squeezed:
            topic_now = replace(topic_now, name=stored[entry.name], schema=compressor.schema)
        topics.append(topic_now)
    latched = [stored[entry.name] for entry in entries if is_latched(entry)]
    encode = {stored[name]: compressor for name in squeezed if compressor is not None}
    storage = cast('str', params['recorder.storage'])
    if params['recorder.snapshot_s']:
        return SnapshotRing(
            run.path.resolve(), topics, storage=storage, latched=latched, encode=dict(encode),
            length_ns=round(1e9 * cast('float', params['recorder.snapshot_s'])),
            capacity_bytes=cast('int', params['recorder.snapshot_bytes']),
            said=node.get_logger().info,
        ), stored
    split = Split(round(1e9 * cast('float', params['recorder.split_s'])),
                  cast('int', params['recorder.split_bytes']))
    folder = run.next_bag
    writer = BagWriter(folder, topics, storage=storage, clock=clock, split=split, encode=encode)
    types = {topic.name: topic.schema.type for topic in topics}
    return Recording(writer, folder, types, latched=latched), stored


def event_of(entry: Topic, data: bytes) -> str:
    """Return what a message says happened that deserves a snapshot, '' if nothing."""
    if entry.name == 'stall_event':
        return 'stall'
    return 'arm_fault' if entry.name == 'control_tick' and is_fault(data) else ''


def serve_snapshot(node: Any, ring: SnapshotRing, now_ns: Callable[[], int]) -> Any:
    """Offer ``~/snapshot`` (``std_srvs/Trigger``); return the service."""
    def ask(request: Any, response: Any) -> Any:
        response.success = ring.trigger('request', now_ns())
        response.message = ('it will be written in 2 s' if response.success
                            else 'one is due, or was just written')
        return response

    return node.create_service(Trigger, '~/snapshot', ask)


def bag_diagnosis(recording: Recording | SnapshotRing | None) -> Diagnosis:
    """Return the state of a recording; ERROR once the disk refused, WARN after a drop."""
    if recording is None:
        return Diagnosis(Level.STALE, 'not configured')
    report = recording.report
    written, dropped = sum(report.written.values()), sum(report.dropped.values())
    values = {'written': written, 'dropped': dropped}
    if report.error:
        return Diagnosis(Level.ERROR, report.error, values)
    level = Level.WARN if dropped else Level.OK
    return Diagnosis(level, 'recording' if recording.is_on else 'ready', values)


def _bag_topic(node: Any, entry: Topic) -> BagTopic:
    name = node.resolve_topic_name(entry.name)
    found = [info.qos_profile for info in node.get_publishers_info_by_topic(name)]
    # Discovery does not tell the depth, so it is the table's.
    qos = [
        offered_qos(
            is_reliable=profile.reliability == QoSReliabilityPolicy.RELIABLE,
            is_latched=profile.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL,
            depth=entry.qos.depth,
        )
        for profile in found or [entry.qos]
    ]
    return BagTopic(name, find_schema(entry.type), tuple(dict.fromkeys(qos)), is_image(entry))


def is_latched(entry: Topic) -> bool:
    """Return whether a late joiner gets the last message."""
    return entry.profile is Profile.LATCHED


def _find(name: str) -> Topic:
    try:
        return topic(name)
    except KeyError:
        pass
    if 'image' in name.rsplit('/', 1)[-1] or name.endswith('/compressed'):
        return image_topic(name)
    known = [entry.name for entry in TOPICS]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    raise ConfigError(
        f'recorder.topics: got {name!r}, expected a topic of the suite or an image topic. '
        f'Nearest: {near[0]}.'
    )


def _words(profile: Any) -> str:
    is_reliable = profile.reliability == QoSReliabilityPolicy.RELIABLE
    latched = profile.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL
    return ('reliable' if is_reliable else 'best-effort') + (', latched' if latched else '')
