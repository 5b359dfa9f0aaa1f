"""The four services of the bridge; each answers accepted and why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reflex_ros.ros.convert import reply_to_msg
from reflex_ros.ros.qos import SERVICES, load_type

if TYPE_CHECKING:
    from reflex_ros.core.types import Reply
    from reflex_ros.ros.lifecycle import ReflexNode
    from reflex_ros.stages.base import Output
    from reflex_ros.stages.bridge import Bridge

Ask = Callable[[Any], tuple['Reply', tuple['Output', ...]]]


def serve_bridge(node: ReflexNode, bridge: Bridge, lock: threading.RLock,
                 publish: Callable[[tuple[Output, ...]], None]) -> None:
    """Offer ``set_instruction``, ``hold``, ``resume`` and ``recover``.

    Args:
        node: The bridge's node.
        bridge: The stage.
        lock: Serialises the stage; ``recover`` alone runs beside the loop, since it blocks for
            seconds and nothing is sent meanwhile.
        publish: Takes what the stage puts out.
    """
    now = node.steady.now

    def locked(ask: Ask) -> Ask:
        def under_lock(request: Any) -> tuple[Reply, tuple[Output, ...]]:
            with lock:
                return ask(request)

        return under_lock

    asks: tuple[tuple[str, Ask], ...] = (
        ('set_instruction', locked(lambda r: bridge.set_instruction(r.instruction, now()))),
        ('hold', locked(lambda _: bridge.hold(now()))),
        ('resume', locked(lambda _: bridge.resume(now()))),
        ('recover', lambda r: (bridge.recover(arm_supported=r.arm_supported), ())),
    )
    for name, ask in asks:
        node.create_service(load_type(SERVICES[name]), name, _callback(node, name, ask, publish))


def _callback(node: ReflexNode, name: str, ask: Ask,
              publish: Callable[[tuple[Output, ...]], None]) -> Callable[[Any, Any], Any]:
    def callback(request: Any, response: Any) -> Any:
        reply, outputs = ask(request)
        publish(outputs)
        node.get_logger().info(f'{name}: accepted={reply.accepted} reason={reply.reason}')
        return reply_to_msg(reply, response)

    return callback
