"""[ci] A node sleeps until something happens to it, and a request to end wakes it at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

rclpy = pytest.importorskip('rclpy')

from rclpy.node import Node  # noqa: E402

from reflex_ros.core.clock import S, SystemClock  # noqa: E402
from reflex_ros.ros import spin  # noqa: E402

LONG_S, SHORT_S = 30.0, 1.5


def run(monkeypatch: pytest.MonkeyPatch, act: Any, poll_s: float) -> float:
    """Run an idle node until ``act`` of its stop request ends it; return how long it took, s."""
    monkeypatch.setattr(spin, 'POLL_S', poll_s)
    began_ns = SystemClock().mono_ns()

    def make(stop: spin.Stop) -> Node:
        timer = threading.Timer(0.3, act, (stop,))
        timer.daemon = True
        node = Node('idle', use_global_arguments=False)
        node.create_guard_condition(timer.start).trigger()  # runs once it spins
        return node

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


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """Raise ``TimeoutError`` out of a block that blocks the main thread for ever."""
    def late(signum: int, frame: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left_s)  # that of the test itself


class LockedStop(spin.Stop):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def request(self, exit_code: int = 0) -> None:
        with self._lock:
            super().request(exit_code)


def interrupt(stop: spin.Stop, line: int) -> bool:
    """Request the end, and let a signal come at one line of that; return whether it came."""
    lines = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_name != 'request':
            return None
        if event == 'line':
            lines += 1
            if lines == line:
                signal.raise_signal(signal.SIGTERM)
        return trace

    before = sys.gettrace()
    with spin.stop_on_signals(stop), within(0.5 if isinstance(stop, LockedStop) else 10.0):
        sys.settrace(trace)
        try:
            stop.request(3)
        finally:
            sys.settrace(before)
    return lines >= line


def test_a_signal_may_come_while_the_end_is_requested() -> None:
    for line in range(1, 100):
        stop = spin.Stop()
        if not interrupt(stop, line):
            break
        assert stop.is_set
        assert stop.exit_code in (0, 3)
    assert line > 4


def test_a_lock_in_the_request_can_fail() -> None:
    with pytest.raises(TimeoutError):
        _ = [interrupt(LockedStop(), line) for line in range(1, 10)]


@pytest.mark.parametrize('kind', ['ends', 'can fail'])
def test_a_forked_process_does_not_hold_up_the_end(
        monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Its copy of the descriptor stays open as long as it lives."""
    if kind == 'can fail':
        monkeypatch.setattr(socket.socket, 'shutdown', lambda self, how: None)
    copy = -1
    try:
        expected = nullcontext() if kind == 'ends' else pytest.raises(TimeoutError)
        with (expected, within(LONG_S if kind == 'ends' else 0.5),
              spin.woken_by_signals(lambda: None)):
            told = signal.set_wakeup_fd(-1)
            copy = os.dup(told)
            signal.set_wakeup_fd(told)
    finally:
        os.close(copy)
