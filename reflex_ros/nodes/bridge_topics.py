"""The topics that the bridge publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reflex_ros.core.types import ChunkTrace, ControlTick, Plan, StallEvent, Task
from reflex_ros.ros import convert
from reflex_ros.ros.publish import Outbox
from reflex_ros.ros.qos import topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.core.clock import Instant
    from reflex_ros.core.types import ArmFeedback
    from reflex_ros.ros.lifecycle import ReflexNode
    from reflex_ros.stages.base import Output

TYPES: tuple[tuple[type, str, Any], ...] = (
    (Plan, 'plan', convert.plan_to_msg),
    (Task, 'task', convert.task_to_msg),
    (ChunkTrace, 'chunk_trace', convert.chunk_trace_to_msg),
    (ControlTick, 'control_tick', convert.control_tick_to_msg),
    (StallEvent, 'stall_event', convert.stall_event_to_msg),
)


class BridgeTopics:
    """Publishes what the bridge puts out, in order; safe from several threads, never waits.

    Args:
        node: The bridge's node.
        failed: Takes the error of a message that was not published.
    """

    def __init__(self, node: ReflexNode, *, failed: Callable[[BaseException], None]) -> None:
        self.outbox = Outbox(failed)
        self._publishers = {
            kind: (node.advertise(topic(name)), to_msg) for kind, name, to_msg in TYPES
        }
        self._joint_states = node.advertise(topic('joint_states'))
        self.last_tick: ControlTick | None = None

    def publish(self, outputs: tuple[Output, ...]) -> None:
        """Publish each output on the topic of its type."""
        for output in outputs:
            value = output.value
            publisher, to_msg = self._publishers[type(value)]
            self.outbox.post(publisher, to_msg(value))
            if isinstance(value, ControlTick):
                self.last_tick = value

    def publish_joint_state(self, reading: ArmFeedback | None, names: tuple[str, ...], *,
                            now: Instant) -> None:
        """Publish a reading of the arm under the time at which it was received.

        Args:
            reading: Nothing is published of None, or of one that says nothing yet.
            names: Joint names in its order.
            now: Both times of the same instant.
        """
        if reading is not None and reading.mono_ns:
            stamp_ns = now.stamp_ns - (now.mono_ns - reading.mono_ns)
            self.outbox.post(self._joint_states, convert.joint_state_to_msg(
                reading, names=names, stamp_ns=stamp_ns))

    def close(self) -> bool:
        """Publish what waits; return whether that was done in time."""
        return self.outbox.close()
