"""Life of a node process: start without a home folder, stop on a signal, say how it ended."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import rclpy
from rclpy._rclpy_pybind11 import RCLError
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from reflex_ros.core.errors import EXIT_DONE, ReflexError
from reflex_ros.ros.executor import LoneExecutor

POLL_S = 1.0
"""Longest wait of the executor: so late it would notice a request whose wake-up was lost."""
_LAST_S = 0.1
"""Longest wait for a last callback."""
_WAKE_BYTES = 64


class Stop:
    """Request to end the process, set by a signal or by the node itself; thread-safe.

    It takes no lock: a second signal may come while the first is being noted, on the same thread.
    """

    def __init__(self) -> None:
        self._code: int | None = None
        self._wake: Callable[[], None] | None = None
        self._waiter = 0

    @property
    def is_set(self) -> bool:
        """Whether the process is to end."""
        return self._code is not None

    @property
    def exit_code(self) -> int:
        """Code of the first request."""
        return EXIT_DONE if self._code is None else self._code

    def request(self, exit_code: int = EXIT_DONE) -> None:
        """Ask the process to end; the first request decides the code."""
        if self._code is None:
            self._code = exit_code
        wake = self._wake
        if wake is not None and threading.get_ident() != self._waiter:
            wake()

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake`` at every request of another thread while the block runs."""
        self._wake, self._waiter = wake, threading.get_ident()
        try:
            yield
        finally:
            self._wake = None


def run_node(
    make: Callable[[Stop], Any], *, args: Sequence[str] | None = None, threads: int = 1
) -> int:
    """Run one node until a signal, its own request or an error; return the exit code.

    rclpy's signal handlers invalidate the context at once, so a node could no longer publish its
    last words or command a stop. Here a signal only sets ``Stop``: the node's ``stop()`` method,
    if it has one, is then called with a context that still works.

    Args:
        make: Makes the node; is given the stop request.
        args: Command line, ``sys.argv`` if None.
        threads: Threads of the executor.

    Returns:
        0 after a normal end, else the code of the request or of the ``ReflexError``.
    """
    stop = Stop()
    with stop_on_signals(stop):
        _start_ros(args)
        try:
            _spin(make, stop, threads)
        except ReflexError as error:
            print(f'{type(error).__name__}: {error}', file=sys.stderr)
            return error.exit_code
        finally:
            rclpy.try_shutdown()
    return stop.exit_code


def ensure_log_dir(environ: Any) -> None:
    """Name a log folder where ROS would find none and refuse to start.

    Args:
        environ: Environment, changed in place: without HOME, ROS_HOME and ROS_LOG_DIR the
            last is set to a folder under the run folder or the temporary one.
    """
    if any(environ.get(name) for name in ('ROS_LOG_DIR', 'ROS_HOME', 'HOME')):
        return
    folder = Path(tempfile.gettempdir()) / f'reflex_ros-{os.getuid()}' / 'log'
    folder.mkdir(parents=True, exist_ok=True)
    environ['ROS_LOG_DIR'] = str(folder)


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a stop request while the block runs; main thread only."""

    def request(signum: int, frame: FrameType | None) -> None:
        stop.request()

    previous = {
        number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def woken_by_signals(wake: Callable[[], None]) -> Iterator[None]:
    """Call ``wake`` on a thread of its own at every signal while the block runs.

    Python runs the handler of a signal on the main thread, once that is back from what it waits
    for in C; the interpreter tells of the signal at once through a file. Main thread only.
    """
    told, tells = socket.socketpair()
    tells.setblocking(False)

    def listen() -> None:
        while told.recv(_WAKE_BYTES):
            wake()

    thread = threading.Thread(target=listen, name='signals', daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        tells.shutdown(socket.SHUT_WR)  # a process forked meanwhile has it open, too
        tells.close()
        thread.join()
        told.close()


@contextmanager
def command_node(name: str, *, namespace: str = '') -> Iterator[Any]:
    """Give a command line a node that takes no ROS arguments, and clean up after it.

    Args:
        name: Node name.
        namespace: Its namespace.
    """
    _start_ros([])
    node = Node(name, namespace=namespace, use_global_arguments=False)
    try:
        yield node
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


def _start_ros(args: Sequence[str] | None) -> None:
    ensure_log_dir(os.environ)
    rclpy.init(
        args=list(args) if args is not None else None,
        signal_handler_options=SignalHandlerOptions.NO,
    )


def _spin(make: Callable[[Stop], Any], stop: Stop, threads: int) -> None:
    executor = MultiThreadedExecutor(threads) if threads > 1 else LoneExecutor()
    made = make(stop)
    nodes = list(made) if isinstance(made, Sequence) else [made]
    for node in nodes:
        executor.add_node(node)

    def wake() -> None:
        executor.create_task(_nothing)  # woken for less it would go on to wait

    try:
        with stop.waking(wake), woken_by_signals(wake):
            while not stop.is_set and rclpy.ok():
                try:
                    executor.spin_once(timeout_sec=POLL_S)
                except (RCLError, UnicodeDecodeError) as error:  # e.g. a text that is no UTF-8
                    nodes[0].get_logger().error(f'refused: {error}')
        # The answer of a service call that asked for the end has to leave first.
        executor.spin_once(timeout_sec=_LAST_S)
    finally:
        for node in nodes:
            if hasattr(node, 'stop'):
                node.stop()
        executor.shutdown(timeout_sec=1.0)
        with suppress(KeyboardInterrupt):
            for node in reversed(nodes):
                node.destroy_node()


def _nothing() -> None:
    pass
