"""The common part of all nodes: lifecycle, errors that become exit codes, signals, clean ends.

What can fail fails in *configure*, saying what to do; nothing moves before *activate*. A node that
cannot be configured ends its process with the exit code of its error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.signals import SignalHandlerOptions

from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT, ReflexError
from reflex_ros.core.param_table import Value
from reflex_ros.ros.clock import RosClock
from reflex_ros.ros.params import declare_parameters

SPIN_S = 0.1


class ReflexNode(LifecycleNode):
    """A lifecycle node whose parts are made in ``configure`` and undone in reverse.

    Args:
        name: Node name; also selects its parameters.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.exit_code: int | None = None
        self.clock = RosClock(self)
        self.params: dict[str, Value] = declare_parameters(self, name)
        self._is_configured = self._is_active = False

    # ---- to be written by a node -------------------------------------------------------------

    def configure(self) -> None:
        """Make everything that can fail; raises ReflexError."""

    def activate(self) -> None:
        """Start; raises ReflexError."""

    def deactivate(self) -> None:
        """Stop what ``activate`` started."""

    def cleanup(self) -> None:
        """Undo ``configure``."""

    # ---- transitions -------------------------------------------------------------------------

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Configure, or end the process with the error's exit code."""
        done = self._guard(self.configure)
        self._is_configured = done
        return _result(done)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Activate."""
        if super().on_activate(state) is not TransitionCallbackReturn.SUCCESS:
            return TransitionCallbackReturn.FAILURE
        self._is_active = self._guard(self.activate)
        return _result(self._is_active)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Deactivate."""
        self._stop_active()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Clean up."""
        self._stop_configured()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and clean up; the process ends."""
        self.stop()
        self.exit_code = EXIT_DONE if self.exit_code is None else self.exit_code
        return TransitionCallbackReturn.SUCCESS

    def stop(self) -> None:
        """Deactivate and clean up whatever is there, in that order."""
        self._stop_active()
        self._stop_configured()

    def fail(self, error: BaseException) -> None:
        """Note an error from any thread: the process ends with its exit code."""
        self.exit_code = error.exit_code if isinstance(error, ReflexError) else 1
        if not isinstance(error, ReflexError):
            traceback.print_exception(error)
        self.get_logger().fatal(str(error))

    def _guard(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as error:
            self.fail(error)
            return False
        return True

    def _stop_active(self) -> None:
        if self._is_active:
            self._is_active = False
            self._guard(self.deactivate)

    def _stop_configured(self) -> None:
        if self._is_configured:
            self._is_configured = False
            self._guard(self.cleanup)


def _result(done: bool) -> TransitionCallbackReturn:
    return TransitionCallbackReturn.SUCCESS if done else TransitionCallbackReturn.FAILURE


def run_nodes(make: Callable[[], Sequence[ReflexNode]], args: Sequence[str] | None = None) -> int:
    """Run nodes until a signal, an error or their shutdown; return the exit code.

    Signals are handled here and not by rclpy, so that a node can still publish while it stops.
    """
    _need_log_folder()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    nodes: list[ReflexNode] = []
    try:
        nodes.extend(make())
        _spin(nodes, stop)
    except ReflexError as error:
        print(f'{type(error).__name__}: {error}', file=sys.stderr, flush=True)
        return error.exit_code
    finally:
        _end(nodes)
    return next((n.exit_code for n in nodes if n.exit_code), EXIT_DONE)


def _spin(nodes: Sequence[ReflexNode], stop: threading.Event) -> None:
    executor = SingleThreadedExecutor()
    for node in nodes:
        executor.add_node(node)
    while not stop.is_set() and all(node.exit_code is None for node in nodes):
        executor.spin_once(timeout_sec=SPIN_S)
    _answer_pending(executor, nodes)
    for node in nodes:
        node.stop()
    executor.shutdown()


def _answer_pending(executor: SingleThreadedExecutor, nodes: Sequence[ReflexNode]) -> None:
    """Let the answer of a failed transition leave before the process ends."""
    if any(node.exit_code for node in nodes):
        executor.spin_once(timeout_sec=SPIN_S)


def _end(nodes: Sequence[ReflexNode]) -> None:
    for node in reversed(nodes):
        with contextlib.suppress(Exception):
            node.destroy_node()
    rclpy.try_shutdown()


def _need_log_folder() -> None:
    """Give rclpy a folder for its logs where there is no home."""
    if not any(os.environ.get(name) for name in ('HOME', 'ROS_LOG_DIR', 'ROS_HOME')):
        os.environ['ROS_LOG_DIR'] = tempfile.mkdtemp(prefix='reflex_ros_log_')


def need(value: Any, what: str, todo: str) -> Any:
    """Return ``value``, or raise if a part is missing that ``configure`` should have made."""
    if value is None:
        raise ReflexError(f'{what}: got none, expected one. {todo}')
    return value


__all__ = ['EXIT_INPUT', 'ReflexNode', 'need', 'run_nodes']
