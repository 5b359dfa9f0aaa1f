"""Watches camera topics for a while; publishes nothing and calls nothing."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from rclpy.executors import SingleThreadedExecutor

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import ReflexError
from reflex_ros.ros.camera_log import MOST_ERRORS, CameraLog
from reflex_ros.ros.convert_basic import time_from_msg
from reflex_ros.ros.images import ImageDecoder
from reflex_ros.ros.qos import image_topic
from reflex_ros.ros.spin import command_node

_POLL_S = 0.05
_DECODED = 3
"""Images of a topic that are decoded; the others are only counted and hashed."""


class CameraWatch:
    """Subscribes to camera topics and keeps a log of each.

    Args:
        node: Node that receives the images.
        topics: Names; one that ends in ``/compressed`` carries JPEG or PNG.
    """

    def __init__(self, node: Any, topics: Sequence[str]) -> None:
        self._node, self._clock, self._decoder = node, SystemClock(), ImageDecoder()
        self.logs = {name: CameraLog(name) for name in topics}
        for name, log in self.logs.items():
            entry = image_topic(name)
            node.create_subscription(entry.message, name, partial(self._take, log), entry.qos)

    def note_publishers(self) -> None:
        """Note who publishes the topics now."""
        for name, log in self.logs.items():
            full = self._node.resolve_topic_name(name)
            found = self._node.get_publishers_info_by_topic(full)
            log.kinds = tuple(info.topic_type for info in found)

    def _take(self, log: CameraLog, msg: Any) -> None:
        now = self._clock.now()
        data = memoryview(msg.data)
        log.ages_ns.append(now.stamp_ns - time_from_msg(msg.header.stamp))
        log.hashes.append(zlib.crc32(data))
        log.encoding = getattr(msg, 'encoding', '') or _kind(msg.format)
        log.arrivals_ns.append(now.mono_ns)
        if hasattr(msg, 'width'):
            log.size = int(msg.width), int(msg.height)
        if len(log.arrivals_ns) <= _DECODED:
            self._decode(log, msg)

    def _decode(self, log: CameraLog, msg: Any) -> None:
        try:
            height, width = self._decoder.rgb(msg).shape[:2]
            log.size = width, height
        except ReflexError as error:
            if len(log.errors) < MOST_ERRORS:
                log.errors.append(str(error))


def _kind(text: str) -> str:
    """Return the compression in the ``format`` of a compressed image."""
    low = text.lower()
    return 'png' if 'png' in low else 'jpeg' if 'jp' in low else low or 'unnamed'


def watch_cameras(
    topics: Sequence[str], *, seconds: float, namespace: str = ''
) -> dict[str, CameraLog]:
    """Return what each topic carried. Blocks for ``seconds`` after the first image, or twice that.

    Args:
        topics: Names of image topics.
        seconds: How long each is watched, s.
        namespace: Namespace of relative names.
    """
    clock = SystemClock()
    with command_node('doctor_cameras', namespace=namespace) as node:
        watch = CameraWatch(node, topics)
        executor = SingleThreadedExecutor(context=node.context)
        executor.add_node(node)
        start_ns = clock.mono_ns()
        end_ns = latest_ns = start_ns + round(seconds * S)
        try:
            while (now_ns := clock.mono_ns()) < end_ns:
                executor.spin_once(timeout_sec=_POLL_S)
                first = [log.arrivals_ns[0] for log in watch.logs.values() if log.arrivals_ns]
                if first and end_ns == latest_ns:
                    # discovery takes its time: the watch begins with the first image
                    end_ns = min(first) + round(seconds * S) + 1
            watch.note_publishers()
        finally:
            executor.shutdown()
        for log in watch.logs.values():
            began = log.arrivals_ns[0] if log.arrivals_ns else start_ns
            log.seconds = (now_ns - began) / S
        return watch.logs
