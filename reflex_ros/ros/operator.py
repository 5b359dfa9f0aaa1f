"""What an operator's command line needs of a running graph."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from rclpy.executors import SingleThreadedExecutor

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.errors import StaleError
from reflex_ros.core.types import Plan
from reflex_ros.ros.client import BridgeClient, Caller
from reflex_ros.ros.convert import plan_from_msg
from reflex_ros.ros.qos import topic
from reflex_ros.ros.spin import command_node


class Operator:
    """A node of its own with the services and the plan of the bridge; a context manager.

    Args:
        namespace: Namespace of the graph.
        timeout_s: Longest wait for the bridge.
    """

    def __init__(self, namespace: str = '', *, timeout_s: float = 5.0) -> None:
        self._namespace = namespace
        self._timeout_s = timeout_s
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Enter the graph."""
        self._node = self._stack.enter_context(
            command_node('operator', namespace=self._namespace))
        caller = Caller(self._node, timeout_s=self._timeout_s)
        self._stack.callback(caller.close)
        self.bridge = BridgeClient(caller)
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the graph."""
        self._stack.close()

    def plan(self) -> Plan:
        """Return the newest plan. Blocks.

        Raises:
            StaleError: No bridge publishes one.
        """
        got: list[Plan] = []
        source, clock = topic('plan'), SystemClock()

        def take(msg: Any) -> None:
            got.append(plan_from_msg(msg))

        subscription = self._node.create_subscription(
            source.message, source.name, take, source.qos)
        executor = SingleThreadedExecutor(context=self._node.context)
        executor.add_node(self._node)
        end_ns = clock.mono_ns() + round(self._timeout_s * S)
        try:
            while not got and clock.mono_ns() < end_ns:
                executor.spin_once(timeout_sec=0.1)
        finally:
            executor.remove_node(self._node)
            executor.shutdown()
            self._node.destroy_subscription(subscription)
        if not got:
            raise StaleError(
                f'no plan: got nothing from controller_bridge, expected one within '
                f'{self._timeout_s:g} s. Check namespace and ROS_DOMAIN_ID.')
        return got[-1]

    def status(self) -> str:
        """Return the newest plan in words. Blocks."""
        plan = self.plan()
        lines = [f'arm {plan.arm_state.value}, epoch {plan.epoch}, chunk {plan.active_chunk_id}',
                 f'L {plan.latency_ns / MS:.0f} ms, Δ {plan.delta_ns / MS:.0f} ms']
        if plan.last_reject:
            lines.append(f'last rejection: {plan.last_reject}')
        return '\n'.join(lines)
