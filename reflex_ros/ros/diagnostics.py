"""Diagnostics at 1 Hz after REP 107."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from reflex_ros.ros.publish import QUIET, Publisher
from reflex_ros.ros.qos import topic


class Level(Enum):
    """Severity; a node that is not configured is never ``OK``.

    ``WARN``: works, degraded. ``ERROR``: do not rely on it. ``STALE``: no data.
    """

    OK = DiagnosticStatus.OK
    WARN = DiagnosticStatus.WARN
    ERROR = DiagnosticStatus.ERROR
    STALE = DiagnosticStatus.STALE


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """State of one part of a node.

    Attributes:
        level: Severity.
        message: One line for a person.
        values: snake_case keys with unit, e.g. ``late_p99_ms``; floats get four digits.
    """

    level: Level
    message: str
    values: Mapping[str, object] = field(default_factory=dict)


class Diagnostics:
    """Publishes what its sources say, once a second, until ``close``.

    Args:
        node: rclpy node; one with an outbox ``aside`` has them published by it.
        hardware_id: What the node drives or runs on, e.g. ``piper:can0``.
        sources: Part of the node, e.g. ``tick``, and the function that diagnoses it; called in
            the node's executor.
    """

    def __init__(
        self, node: Any, hardware_id: str, *, sources: Mapping[str, Callable[[], Diagnosis]]
    ) -> None:
        self._node = node
        self._hardware_id = hardware_id
        self._sources = dict(sources)
        entry = topic('/diagnostics')
        self._publisher = node.create_publisher(
            entry.message, entry.name, entry.qos, event_callbacks=QUIET)
        self._writer = Publisher(self._publisher)
        self._outbox = getattr(node, 'aside', None)
        self._timer = node.create_timer(1.0, self.publish)

    def publish(self) -> None:
        """Ask every source and publish one array."""
        msg = DiagnosticArray()
        msg.header.stamp = self._node.get_clock().now().to_msg()
        msg.status = [
            status_to_msg(
                f'{self._node.get_name()}: {part}', source(), hardware_id=self._hardware_id
            )
            for part, source in self._sources.items()
        ]
        if self._outbox is None:
            self._writer.publish(msg)
        else:
            self._outbox.post(self._writer, msg)

    def close(self) -> None:
        """Stop publishing."""
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)


def status_to_msg(name: str, diagnosis: Diagnosis, *, hardware_id: str) -> Any:
    """Return a ``DiagnosticStatus`` of that name."""
    return DiagnosticStatus(
        level=diagnosis.level.value,
        name=name,
        message=diagnosis.message,
        hardware_id=hardware_id,
        values=[KeyValue(key=key, value=_text(value)) for key, value in diagnosis.values.items()],
    )


def _text(value: object) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)
