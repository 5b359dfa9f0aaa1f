"""What others ask of the bridge, four services that answer accepted and why, and what it asks.

A recovery takes seconds, and one executor serves all that the node hears. So it runs on a thread
of its own, and its answer leaves when it is done; a hold is answered at once meanwhile. Answers
leave on threads of their own (``ros.answers``): a client that was stopped keeps nobody waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rclpy.callback_groups import ReentrantCallbackGroup

from reflex_ros.ros.clock_exchange import ClockAsker
from reflex_ros.ros.convert import reply_to_msg
from reflex_ros.ros.executor import on_thread
from reflex_ros.ros.qos import SERVICES, load_type

if TYPE_CHECKING:
    from reflex_ros.core.cause import LinkFacts
    from reflex_ros.core.clock import Instant
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
        lock: Serialises the stage; ``recover`` alone runs beside it, see ``Bridge.recover``.
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
    )
    for name, ask in asks:
        node.create_service(load_type(SERVICES[name]), name, _callback(node, name, ask, publish))
    # reentrant: the others must not wait for it, and a second request is refused, not queued
    node.create_service(load_type(SERVICES['recover']), 'recover', _slow_callback(node, bridge),
                        callback_group=ReentrantCallbackGroup())


def ask_other_machine(node: ReflexNode, bridge: Bridge, lock: threading.RLock) -> ClockAsker:
    """Ask the machine of encoder and policy for its time, if it is another one."""
    def tell(link: LinkFacts | None, now: Instant, ahead_ns: int) -> bool:
        with lock:
            return bridge.link(link, now, ahead_ns=ahead_ns)

    return ClockAsker(node, tell)


def _callback(node: ReflexNode, name: str, ask: Ask,
              publish: Callable[[tuple[Output, ...]], None]) -> Callable[[Any, Any], Any]:
    def callback(request: Any, response: Any) -> Any:
        reply, outputs = ask(request)
        publish(outputs)
        return _answered(node, name, reply, response)

    return callback


def _slow_callback(node: ReflexNode, bridge: Bridge) -> Callable[[Any, Any], Any]:
    async def callback(request: Any, response: Any) -> Any:
        reply = await on_thread(
            node.executor, partial(bridge.recover, arm_supported=request.arm_supported),
            name='recover')
        return _answered(node, 'recover', reply, response)

    return callback


def _answered(node: ReflexNode, name: str, reply: Reply, response: Any) -> Any:
    node.get_logger().info(f'{name}: accepted={reply.accepted} reason={reply.reason}')
    return reply_to_msg(reply, response)
