"""What an operator's command line needs of a running graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Self

from rclpy.executors import SingleThreadedExecutor
from std_srvs.srv import Trigger

from reflex_ros.arm.protocol import recovery_ns
from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.errors import StaleError
from reflex_ros.core.param_table import BRIDGE, RECORDER
from reflex_ros.core.types import Plan, Reply
from reflex_ros.ros.client import BridgeClient, Caller
from reflex_ros.ros.convert import plan_from_msg
from reflex_ros.ros.diagnostics import Level
from reflex_ros.ros.qos import topic
from reflex_ros.ros.spin import command_node

DIAGNOSTICS_S = 2.5
"""They come once a second."""


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
        self._caller = caller
        self.bridge = BridgeClient(caller)
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the graph."""
        self._stack.close()

    def snapshot(self) -> Reply:
        """Ask the recorder to write what it keeps in memory. Blocks.

        Raises:
            StaleError: No recorder keeps anything: ``recorder.snapshot_s`` is 0.
        """
        answer = self._caller.call(f'{RECORDER}/snapshot', Trigger, Trigger.Request())
        return Reply(bool(answer.success), str(answer.message))

    def plan(self) -> Plan:
        """Return the newest plan. Blocks.

        Raises:
            StaleError: No bridge publishes one.
        """
        got: list[Plan] = []
        self._hear('plan', lambda msg: got.append(plan_from_msg(msg)), lambda: bool(got),
                   self._timeout_s)
        if not got:
            raise StaleError(
                f'no plan: got nothing from controller_bridge, expected one within '
                f'{self._timeout_s:g} s. Check namespace and ROS_DOMAIN_ID.')
        return got[-1]

    def recover(self, say: Callable[[str], None], *, arm_supported: bool) -> Reply:
        """Recover the arm and tell meanwhile how far it is. Blocks as long as the bridge may need.

        Args:
            say: Takes a line once a second until the answer is there.
            arm_supported: The operator's word.

        Raises:
            StaleError: The bridge is not there or does not answer.
        """
        plans: list[Plan] = []
        with suppress(StaleError):  # the service itself says that the bridge is not there
            plans.append(self.plan())
        limit_s = recovery_ns(len(plans[-1].joint_names) if plans else 0) / S
        source = topic('plan')
        subscription = self._node.create_subscription(
            source.message, source.name, lambda msg: plans.append(plan_from_msg(msg)), source.qos)

        def waiting(waited_s: float) -> None:
            state = f'the arm is {plans[-1].arm_state.value}' if plans else 'no plan heard'
            del plans[:-1]
            say(f'recovering for {waited_s:.0f} s of at most {limit_s:.0f}: {state}')

        try:
            return self.bridge.recover(
                arm_supported=arm_supported, answer_s=limit_s, waiting=waiting)
        except KeyboardInterrupt:
            say('The recovery goes on without you. `reflex-ros arm hold` ends it.')
            raise
        finally:
            self._node.destroy_subscription(subscription)

    def diagnoses(self) -> dict[str, tuple[Level, str]]:
        """Return level and words of each part of the bridge; {} if it says nothing. Blocks."""
        got: dict[str, tuple[Level, str]] = {}

        def take(msg: Any) -> None:
            for status in msg.status:
                node, _, part = status.name.partition(': ')
                if node == BRIDGE:
                    got[part] = Level(status.level), status.message

        self._hear('/diagnostics', take, lambda: bool(got), DIAGNOSTICS_S)
        return got

    def status(self) -> str:
        """Return in words what the arm does and what is wrong with it. Blocks."""
        plan = self.plan()
        lines = [f'arm {plan.arm_state.value}, epoch {plan.epoch}, chunk {plan.active_chunk_id}',
                 f'L {plan.latency_ns / MS:.0f} ms, Δ {plan.delta_ns / MS:.0f} ms']
        if plan.last_reject:
            lines.append(f'last rejection: {plan.last_reject}')
        lines += [f'{level.name} {part}: {words}' for part, (level, words)
                  in self.diagnoses().items() if level is not Level.OK]
        return '\n'.join(lines)

    def _hear(self, name: str, take: Callable[[Any], None], is_done: Callable[[], bool],
              timeout_s: float) -> None:
        """Call ``take`` with the messages of a topic until it has enough."""
        source, clock = topic(name), SystemClock()
        subscription = self._node.create_subscription(
            source.message, source.name, take, source.qos)
        executor = SingleThreadedExecutor(context=self._node.context)
        executor.add_node(self._node)
        end_ns = clock.mono_ns() + round(timeout_s * S)
        try:
            while not is_done() and clock.mono_ns() < end_ns:
                executor.spin_once(timeout_sec=0.1)
        finally:
            executor.remove_node(self._node)
            executor.shutdown()
            self._node.destroy_subscription(subscription)
