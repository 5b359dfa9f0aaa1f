"""What a recorder subscribes to, and where the messages go."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rclpy.event_handler import SubscriptionEventCallbacks
from std_srvs.srv import Trigger

from reflex_ros.bag.compress import RAW, ImageCompressor, Squeezer
from reflex_ros.bag.files import BagTopic
from reflex_ros.bag.recording import Recording
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bag.schema import find_schema
from reflex_ros.bag.snapshot import REQUEST, SnapshotRing
from reflex_ros.bag.write import BagWriter, Split
from reflex_ros.core.clock import Clock
from reflex_ros.core.errors import EXIT_DONE, ConfigError
from reflex_ros.core.param_table import Value
from reflex_ros.ros.diagnostics import Diagnosis, Level
from reflex_ros.ros.qos import (
    TOPICS,
    Profile,
    Topic,
    camera_topic,
    image_topic,
    is_image,
    topic,
)
from reflex_ros.ros.recording_qos import reader_qos

_UNRECORDED = ('/clock', 'clock_request', 'clock_answer')
"""Recorded only where named: a bag has its own times, and what two machines ask each other about
theirs is answered in ``/diagnostics``."""
NO_COMPRESSION, AUTO = 'none', 'auto'
SNAPSHOT_COMPRESSION = 'jpeg'
"""What ``auto`` is for a snapshot: a minute of a camera must fit into memory."""


def topics_to_record(params: Mapping[str, Value]) -> tuple[Topic, ...]:
    """Return the topics that the parameters ask for.

    Raises:
        ConfigError: A name is neither in the table nor that of an image topic.
    """
    names = cast('tuple[str, ...]', params['recorder.topics'])
    chosen = [_find(name) for name in names] or [t for t in TOPICS if t.name not in _UNRECORDED]
    if params['recorder.images'] or params['recorder.snapshot_s']:
        chosen += [image_topic(name) for name in camera_topics(params)]
    return tuple({entry.name: entry for entry in chosen}.values())


def camera_topics(params: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the image topic of each camera, primary first."""
    named = cast('tuple[str, ...]', params['camera.topics'])
    cameras = cast('tuple[str, ...]', params['camera.names'])
    return named or tuple(camera_topic(camera) for camera in cameras)


class RawReader:
    """A subscription to serialized messages.

    Args:
        node: rclpy node.
        entry: Topic.
        take: Gets the bytes and the middleware's information about them.
        unheard: Gets topic and reason when a publisher appears that cannot be heard.
    """

    def __init__(self, node: Any, entry: Topic, take: Callable[[bytes, Any], None],
                 unheard: Callable[[str, str], None] | None = None) -> None:
        def mismatch(event: Any) -> None:
            text = (f'cannot be heard: publishers={event.total_count} offer weaker QoS than the '
                    'recorder asks for; set it to that of the topic table')
            node.get_logger().error(f'{entry.name}: {text}')
            if unheard is not None:
                unheard(node.resolve_topic_name(entry.name), text)

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


def make_recording(
    node: Any, entries: Sequence[Topic], params: Mapping[str, Value], run: RunFolder, *,
    clock: Clock,
) -> tuple[Recording | SnapshotRing, dict[str, tuple[str, ...]]]:
    """Return what takes the messages, and the names in the bag of each topic, the usual first.

    A compressed topic has a second name, for images that cannot be compressed.

    Args:
        node: rclpy node. entries: What is recorded.
        params: Parameters of the recorder. run: Its folder. clock: Steady clock.

    Raises:
        ConfigError: The definition of a type is not found.
    """
    is_ring = bool(params['recorder.snapshot_s'])
    kind = _compression(params)
    compressor = None if kind == NO_COMPRESSION else ImageCompressor(kind)
    topics: list[BagTopic] = []
    stored: dict[str, tuple[str, ...]] = {}
    raw: dict[str, str] = {}
    for entry in entries:
        name, schema = node.resolve_topic_name(entry.name), find_schema(entry.type)
        stored[entry.name] = (name,)
        if compressor is not None and entry.type == RAW:
            small = f'{name}/compressed'
            stored[entry.name], raw[small] = (small, name), name
            topics.append(BagTopic(small, compressor.schema, is_bulk=True))
        topics.append(BagTopic(name, schema, (), is_image(entry), name in raw.values()))
    latched = [stored[entry.name][0] for entry in entries if is_latched(entry)]
    squeeze = None if compressor is None else Squeezer(compressor, raw)
    storage = cast('str', params['recorder.storage'])
    if is_ring:
        return SnapshotRing(
            run.path.resolve(), topics, storage=storage, latched=latched, squeeze=squeeze,
            length_ns=round(1e9 * cast('float', params['recorder.snapshot_s'])),
            capacity_bytes=cast('int', params['recorder.snapshot_bytes']),
            said=node.get_logger().info, failed=node.get_logger().error,
        ), stored
    split = Split(round(1e9 * cast('float', params['recorder.split_s'])),
                  cast('int', params['recorder.split_bytes']))
    folder = run.next_bag
    writer = BagWriter(folder, topics, storage=storage, clock=clock, split=split, squeeze=squeeze)
    types = {topic.name: topic.schema.type for topic in topics}
    return Recording(writer, folder, types, latched=latched), stored


def serve_snapshot(node: Any, ring: SnapshotRing, now_ns: Callable[[], int]) -> Any:
    """Offer ``~/snapshot`` (``std_srvs/Trigger``); return the service."""
    def ask(request: Any, response: Any) -> Any:
        response.success = ring.trigger(REQUEST, now_ns())
        response.message = ('it will be written in 2 s' if response.success
                            else 'one is due already')
        return response

    return node.create_service(Trigger, '~/snapshot', ask)


def bag_diagnosis(recording: Recording | SnapshotRing | None) -> Diagnosis:
    """Return the state of a recording.

    ERROR once the disk refused or a publisher cannot be heard, WARN after a drop or an image
    that was stored as it came.
    """
    if recording is None:
        return Diagnosis(Level.STALE, 'not configured')
    report = recording.report
    written, dropped = sum(report.written.values()), sum(report.dropped.values())
    odd = '; '.join(f'{name}: {text}' for name, text in report.odd.items())
    values = {'written': written, 'dropped': dropped, 'stored_as_they_came': odd}
    if report.error:
        return Diagnosis(Level.ERROR, f'recording ended early: {report.error}', values)
    if recording.unheard:
        names = ', '.join(sorted(recording.unheard))
        return Diagnosis(Level.ERROR, f'cannot be heard: {names}', values)
    level = Level.WARN if dropped or odd else Level.OK
    return Diagnosis(level, 'recording' if recording.is_on else 'ready', values)


def close_recording(node: Any, recording: Recording | SnapshotRing) -> int:
    """Complete a recording and log what became of it; return the exit code that it deserves."""
    report = recording.close()
    written, dropped = sum(report.written.values()), sum(report.dropped.values())
    node.get_logger().info(
        f'recorded: messages={written} dropped={dropped} error={report.error or "none"}')
    for name, text in report.odd.items():
        node.get_logger().warning(f'{name}: images were stored as they came: {text}')
    if not report.error:
        return EXIT_DONE
    error = ended_early(recording.folder, report.error)
    node.get_logger().error(f'{type(error).__name__}: {error}')
    return error.exit_code


def ended_early(folder: Path, text: str) -> ConfigError:
    """Return the error of a bag that the disk ended."""
    return ConfigError(
        f'bag {folder} ended early: got {text}, expected a disk with room. What it holds is whole '
        'and counted. Make room and start a new run.'
    )


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


def _compression(params: Mapping[str, Value]) -> str:
    kind = cast('str', params['recorder.compression'])
    if kind != AUTO:
        return kind
    return SNAPSHOT_COMPRESSION if params['recorder.snapshot_s'] else NO_COMPRESSION
