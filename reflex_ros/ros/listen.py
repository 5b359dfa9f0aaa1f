"""Hears what a running graph publishes, for a viewer beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

from rclpy.executors import SingleThreadedExecutor

from reflex_ros.ros.qos import TOPICS, Topic, image_topic, is_image
from reflex_ros.ros.recording_qos import reader_qos
from reflex_ros.ros.spin import command_node

COMPRESSED = '/compressed'


class Listener:
    """A node of its own with a subscription to each topic that is wanted; a context manager.

    Cameras have no fixed names: every image topic of the graph is heard as soon as it appears, the
    compressed one where there are both.

    Args:
        take: Gets topic, type and decoded message, in the thread that spins.
        wants: Returns whether a topic with this type is wanted.
        namespace: Namespace of the graph.
    """

    def __init__(self, take: Callable[[str, str, Any], None],
                 wants: Callable[[str, str], bool], *, namespace: str = '') -> None:
        self._take, self._wants, self._namespace = take, wants, namespace
        self._stack = ExitStack()
        self._heard: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Enter the graph."""
        self._node = self._stack.enter_context(
            command_node('view', namespace=self._namespace))
        self._executor = SingleThreadedExecutor()
        self._stack.callback(self._executor.shutdown)
        self._executor.add_node(self._node)
        for entry in TOPICS:
            if self._wants(entry.name, entry.type):
                self._hear(entry)
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the graph."""
        self._stack.close()

    def spin(self, timeout_s: float) -> None:
        """Hand on what has arrived, at most one message. Blocks for at most this long."""
        self._executor.spin_once(timeout_sec=timeout_s)

    def discover(self) -> None:
        """Hear image topics that have appeared since."""
        prefix = '/'.join(('', *filter(None, (self._namespace.strip('/'),)))).rstrip('/') + '/'
        for name, types in self._node.get_topic_names_and_types():
            entry = image_topic(name)
            if name.startswith(prefix) and entry.type in types and (
                    self._node.count_publishers(name)):
                self._hear(entry)
        for name in [n for n in self._heard if n + COMPRESSED in self._heard]:
            self._node.destroy_subscription(self._heard.pop(name))

    def _hear(self, entry: Topic) -> None:
        name = self._node.resolve_topic_name(entry.name)
        has_smaller = name + COMPRESSED in self._heard
        if name in self._heard or (is_image(entry) and has_smaller):
            return
        self._heard[name] = self._node.create_subscription(
            entry.message, entry.name, lambda msg: self._take(name, entry.type, msg),
            reader_qos(entry))
