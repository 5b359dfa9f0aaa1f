"""[ci] The executor of one thread: woken where it must be, and what it runs is what rclpy runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

rclpy = pytest.importorskip('rclpy')

from rclpy.callback_groups import ReentrantCallbackGroup  # noqa: E402
from rclpy.event_handler import SubscriptionEventCallbacks  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.guard_condition import GuardCondition  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.task import Future  # noqa: E402
from std_msgs.msg import Empty  # noqa: E402
from std_srvs.srv import Trigger  # noqa: E402

from reflex_ros.core.clock import S, SystemClock  # noqa: E402
from reflex_ros.ros import executor as module  # noqa: E402
from reflex_ros.ros.executor import LoneExecutor, _Guard, on_thread  # noqa: E402

LONG_S, SHORT_S = 30.0, 1.5
MESSAGES = 20


@pytest.mark.parametrize('kind', ['woken', 'can fail'])
def test_what_was_done_on_a_thread_is_answered_at_once(
        monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Nothing else happens to the node: without a wake-up the answer waits for the next look."""
    if kind == 'can fail':
        monkeypatch.setattr(LoneExecutor, 'wake', lambda self: None)
    rclpy.init(args=[])
    try:
        executor, go_on = LoneExecutor(), threading.Event()
        node = Node('idle', use_global_arguments=False)
        executor.add_node(node)
        answer = executor.create_task(on_thread(executor, go_on.wait, name='work'))
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

    node, seen = Node('busy', use_global_arguments=False), []
    executor.add_node(node)
    node.create_subscription(Empty, 'something', seen.append, MESSAGES)
    publisher = node.create_publisher(Empty, 'something', MESSAGES)
    executor.spin_once(timeout_sec=0.0)
    monkeypatch.setattr(GuardCondition, 'trigger', counted)
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
        count = wakes(LoneExecutor() if lone else SingleThreadedExecutor(), monkeypatch)
    finally:
        rclpy.try_shutdown()
    assert count == 0 if lone else count >= 2 * MESSAGES  # the other one shows that it can fail


@pytest.mark.parametrize('kind', ['woken', 'can fail'])
def test_what_a_resumed_callback_makes_ready_is_run_at_once(
        monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A callback that goes on ends what another one, which was asked before it, waits for."""
    if kind == 'can fail':
        monkeypatch.setattr(_Guard, 'is_deaf', property(lambda _: True, lambda *_: None),
                            raising=False)
    rclpy.init(args=[])
    try:
        executor, poll_s = LoneExecutor(), LONG_S if kind == 'woken' else SHORT_S
        node = Node('idle', use_global_arguments=False)
        executor.add_node(node)
        done: list[str] = []
        first: Any = Future()
        second: Any = Future()

        async def ends() -> None:
            await first
            second.set_result(None)

        async def waits() -> None:
            await second
            executor.create_task(done.append, 'waited')

        for callback in (ends, waits):
            node.create_guard_condition(callback, ReentrantCallbackGroup()).trigger()
            executor.spin_once(timeout_sec=1.0)
        threading.Timer(0.3, lambda: (first.set_result(None), executor.wake())).start()
        began_ns = SystemClock().mono_ns()
        while not done:
            executor.spin_once(timeout_sec=poll_s)
        took_s = (SystemClock().mono_ns() - began_ns) / S
        executor.shutdown()
        node.destroy_node()
    finally:
        rclpy.try_shutdown()
    assert took_s < LONG_S / 2 if kind == 'woken' else took_s > 0.9 * SHORT_S


# ---- what is run -----------------------------------------------------------------------------


@contextmanager
def started(executor_of: Callable[[], Any]) -> Iterator[tuple[Any, Node]]:
    """Give an executor with a node, and clean up after both."""
    rclpy.init(args=[])
    try:
        executor = executor_of()
        node = Node('some', use_global_arguments=False)
        executor.add_node(node)
        yield executor, node
        executor.shutdown()
        node.destroy_node()
    finally:
        rclpy.try_shutdown()


def until(executor: Any, is_met: Callable[[], bool], limit_s: float = LONG_S) -> bool:
    """Spin until something is met; return whether it was."""
    end_ns = SystemClock().mono_ns() + round(limit_s * S)
    while not is_met() and SystemClock().mono_ns() < end_ns:
        executor.spin_once(timeout_sec=0.2)
    return is_met()


class Script:
    """What happens to a node with one entity of every kind, in turn; ``seen`` has what ran."""

    def __init__(self, executor: Any, node: Node) -> None:
        self.executor, self.node, self.seen = executor, node, list[str]()

    def run(self) -> list[str]:
        for step in (self.message, self.service, self.timer, self.event, self.later,
                     self.destroyed, self.guard, self.busy_group):
            step()
        return self.seen

    def wait(self, what: str) -> None:
        assert until(self.executor, lambda: what in self.seen), (what, self.seen)

    def hear(self, name: str, **options: Any) -> Any:
        return self.node.create_subscription(
            Empty, name, lambda _: self.seen.append(name), 10, **options)

    def message(self) -> None:
        self.hear('one')
        self.node.create_publisher(Empty, 'one', 10).publish(Empty())
        self.wait('one')

    def service(self) -> None:
        def answer(request: Any, response: Any) -> Any:
            self.seen.append('asked')
            return response

        self.node.create_service(Trigger, 'ask', answer)
        client = self.node.create_client(Trigger, 'ask')
        assert until(self.executor, client.service_is_ready)
        client.call_async(Trigger.Request()).add_done_callback(
            lambda _: self.seen.append('answered'))
        self.wait('answered')

    def timer(self) -> None:
        timer = self.node.create_timer(0.01, lambda: self.seen.append('timer'))
        assert until(self.executor, lambda: self.seen.count('timer') == 3)
        timer.cancel()
        self.executor.spin_once(timeout_sec=0.1)
        self.node.destroy_timer(timer)
        assert self.seen.count('timer') == 3

    def event(self) -> None:
        matched = SubscriptionEventCallbacks(matched=lambda _: self.seen.append('matched'))
        self.hear('two', event_callbacks=matched)
        self.node.create_publisher(Empty, 'two', 10)
        self.wait('matched')

    def later(self) -> None:
        """A callback makes a subscription, and another thread makes one while it waits."""
        def make(_: Any) -> None:
            self.hear('three')
            self.node.create_publisher(Empty, 'three', 10).publish(Empty())

        self.node.create_subscription(Empty, 'make', make, 10)
        self.node.create_publisher(Empty, 'make', 10).publish(Empty())
        self.wait('three')
        other = threading.Timer(0.1, self.hear, ('four',))
        publisher = self.node.create_publisher(Empty, 'four', 10)
        other.start()
        assert until(self.executor, lambda: publisher.get_subscription_count() > 0)
        other.join()
        publisher.publish(Empty())
        self.wait('four')

    def destroyed(self) -> None:
        heard = self.hear('five')
        publisher = self.node.create_publisher(Empty, 'five', 10)
        publisher.publish(Empty())
        self.wait('five')
        self.node.destroy_subscription(heard)
        publisher.publish(Empty())
        self.executor.spin_once(timeout_sec=0.1)
        self.node.create_publisher(Empty, 'one', 10).publish(Empty())
        assert until(self.executor, lambda: self.seen.count('one') == 2)
        assert self.seen.count('five') == 1

    def guard(self) -> None:
        self.node.create_guard_condition(lambda: self.seen.append('guard')).trigger()
        self.wait('guard')

    def busy_group(self) -> None:
        """While a callback of a group goes on, no other of the group runs."""
        go_on: Any = Future()

        async def slow(_: Any) -> None:
            self.seen.append('slow')
            await go_on
            self.seen.append('slow ends')

        self.node.create_subscription(Empty, 'slow', slow, 10)
        self.node.create_publisher(Empty, 'slow', 10).publish(Empty())
        self.wait('slow')
        self.node.create_publisher(Empty, 'two', 10).publish(Empty())
        for _ in range(3):
            self.executor.spin_once(timeout_sec=0.05)
        assert 'two' not in self.seen
        go_on.set_result(None)
        self.wait('two')
        assert self.seen.index('slow ends') < self.seen.index('two')


def test_what_runs_is_what_rclpy_runs() -> None:
    found = []
    for executor_of in (SingleThreadedExecutor, LoneExecutor):
        with started(executor_of) as (executor, node):
            found.append(Script(executor, node).run())
    assert found[0] == found[1]


def test_its_own_wait_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    wait = module.Watched.wait
    monkeypatch.setattr(module.Watched, 'wait', lambda self, timeout_ns: (
        waits.append(self), wait(self, timeout_ns))[1])
    with started(LoneExecutor) as (executor, node):
        Script(executor, node).message()
        lists = len(set(map(id, waits)))
        for _ in range(MESSAGES):
            executor.spin_once(timeout_sec=0.0)
    assert len(waits) > MESSAGES
    assert len(set(map(id, waits))) == lists  # made anew only where something was made


def test_a_list_that_is_kept_for_ever_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoneExecutor, '_is_stale', property(
        lambda self: self._watched is None, lambda *_: None), raising=False)
    with started(LoneExecutor) as (executor, node):
        script = Script(executor, node)
        executor.spin_once(timeout_sec=0.0)
        script.hear('one')
        node.create_publisher(Empty, 'one', 10).publish(Empty())
        assert not until(executor, lambda: bool(script.seen), 1.0)


def test_a_time_limit_and_the_end_are_kept() -> None:
    with started(LoneExecutor) as (executor, _):
        for timeout_s in (0.0, 0.2):
            began_ns = SystemClock().mono_ns()
            executor.spin_once(timeout_sec=timeout_s)
            assert timeout_s <= (SystemClock().mono_ns() - began_ns) / S < timeout_s + 5.0
        with pytest.raises(module.TimeoutException):
            executor.wait_for_ready_callbacks(timeout_sec=0.0)
        threading.Timer(0.2, executor.shutdown).start()
        with pytest.raises(module.ShutdownException):
            executor.wait_for_ready_callbacks(timeout_sec=LONG_S)
