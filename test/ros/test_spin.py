"""[ci] A node sleeps until something happens to it, and a request to end wakes it at once."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import nullcontext
from typing import Any

import pytest

rclpy = pytest.importorskip('rclpy')

from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.guard_condition import GuardCondition  # noqa: E402
from rclpy.node import Node  # noqa: E402
from std_msgs.msg import Empty  # noqa: E402

from reflex_ros.core.clock import S, SystemClock  # noqa: E402
from reflex_ros.ros import spin  # noqa: E402

LONG_S, SHORT_S = 30.0, 1.5
MESSAGES = 20


def run(monkeypatch: pytest.MonkeyPatch, act: Any, poll_s: float) -> float:
    """Run an idle node until ``act`` of its stop request ends it; return how long it took, s."""
    monkeypatch.setattr(spin, 'POLL_S', poll_s)
    began_ns = SystemClock().mono_ns()

    def make(stop: spin.Stop) -> Node:
        timer = threading.Timer(0.3, act, (stop,))
        timer.daemon = True
        timer.start()
        return Node('idle', use_global_arguments=False)

    assert spin.run_node(make, args=[]) == 0
    return (SystemClock().mono_ns() - began_ns) / S


def by_signal(stop: spin.Stop) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def by_request(stop: spin.Stop) -> None:
    stop.request()


@pytest.mark.parametrize('act', [by_signal, by_request])
def test_a_request_to_end_wakes_a_node_that_waits(
        monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    assert run(monkeypatch, act, LONG_S) < LONG_S / 2


@pytest.mark.parametrize('act', [by_signal, by_request])
def test_the_wake_up_can_fail(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    monkeypatch.setattr(spin, 'woken_by_signals', lambda wake: nullcontext())
    monkeypatch.setattr(spin.Stop, 'waking', lambda self, wake: nullcontext())
    assert run(monkeypatch, act, SHORT_S) > 0.9 * SHORT_S


@pytest.mark.parametrize('kind', ['woken', 'can fail'])
def test_what_was_done_on_a_thread_is_answered_at_once(
        monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Nothing else happens to the node: without a wake-up the answer waits for the next look."""
    if kind == 'can fail':
        monkeypatch.setattr(spin.LoneExecutor, 'wake', lambda self: None)
    rclpy.init(args=[])
    try:
        executor, go_on = spin.LoneExecutor(), threading.Event()
        node = Node('idle', use_global_arguments=False)
        executor.add_node(node)
        answer = executor.create_task(spin.on_thread(executor, go_on.wait, name='work'))
        executor.spin_once(timeout_sec=0.0)
        threading.Timer(0.3, go_on.set).start()
        began_ns, poll_s = SystemClock().mono_ns(), LONG_S if kind == 'woken' else SHORT_S
        while not answer.done():
            executor.spin_once(timeout_sec=poll_s)
        took_s = (SystemClock().mono_ns() - began_ns) / S
        executor.shutdown()
        node.destroy_node()
    finally:
        rclpy.try_shutdown()
    assert took_s < LONG_S / 2 if kind == 'woken' else took_s > 0.9 * SHORT_S


def wakes(executor: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often the executor was woken while it ran the callbacks of some messages."""
    count = 0
    trigger = GuardCondition.trigger

    def counted(self: Any) -> None:
        nonlocal count
        count += self is executor._guard
        trigger(self)

    monkeypatch.setattr(GuardCondition, 'trigger', counted)
    node, seen = Node('busy', use_global_arguments=False), []
    executor.add_node(node)
    node.create_subscription(Empty, 'something', seen.append, MESSAGES)
    publisher = node.create_publisher(Empty, 'something', MESSAGES)
    while len(seen) < MESSAGES:
        publisher.publish(Empty())
        executor.spin_once(timeout_sec=10.0)
    executor.shutdown()
    node.destroy_node()
    return count


@pytest.mark.parametrize('kind', ['lone', 'ready made'])
def test_callbacks_wake_the_executor_only_where_another_thread_could_need_it(
        monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    rclpy.init(args=[])
    try:
        lone = kind == 'lone'
        count = wakes(spin.LoneExecutor() if lone else SingleThreadedExecutor(), monkeypatch)
    finally:
        rclpy.try_shutdown()
    assert count == 0 if lone else count >= 2 * MESSAGES  # the other one shows that it can fail
