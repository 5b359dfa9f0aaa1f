"""The supervisor's ear and hand in the ROS graph: lifecycle requests and the newest plan."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import rclpy
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.types import Plan
from reflex_ros.ros.clock_exchange import ClockAnswerer
from reflex_ros.ros.convert import MessageError, plan_from_msg
from reflex_ros.ros.qos import topic
from reflex_ros.ros.spin import ensure_log_dir

ASK_S, LONGEST_ASK_S = 0.25, 4.0
"""Time after which a question without an answer is asked again: twice as long each time, since an
answer of a slow machine that always comes a little later than that would never be taken."""
RESEND_S = 2.0
"""Time after which an idle node that did not answer a request is sent it again."""

_TRANSITIONS = MappingProxyType({
    'configure': (Transition.TRANSITION_CONFIGURE, State.PRIMARY_STATE_INACTIVE),
    'activate': (Transition.TRANSITION_ACTIVATE, State.PRIMARY_STATE_ACTIVE),
})
_STARTS = MappingProxyType({
    'configure': State.PRIMARY_STATE_UNCONFIGURED,
    'activate': State.PRIMARY_STATE_INACTIVE,
})


class GraphLink:
    """A node in a context and a thread of its own. ``request`` may be called from any thread.

    Args:
        namespace: Namespace of the graph.
        timeout_s: Longest time for one transition: start of the process, load and warm-up.
        tells_time: Whether it tells a bridge on another machine what time it is on this one.
    """

    def __init__(self, namespace: str = '', *, timeout_s: float = 120.0,
                 tells_time: bool = False) -> None:
        ensure_log_dir(os.environ)
        self._timeout_s = timeout_s
        self._context = Context()
        rclpy.init(
            args=[], context=self._context, signal_handler_options=SignalHandlerOptions.NO
        )
        self._node = Node(
            'supervisor', context=self._context, namespace=namespace, enable_rosout=False,
            use_global_arguments=False, start_parameter_services=False,
        )
        self._plan: Plan | None = None
        plan = topic('plan')
        self._node.create_subscription(plan.message, plan.name, self._take_plan, plan.qos)
        self._answerer = ClockAnswerer(self._node, SystemClock()) if tells_time else None
        self._closing = threading.Event()
        self._clients: dict[str, Any] = {}
        self._clients_lock = threading.Lock()
        self._thread = threading.Thread(target=self._spin, name='graph_link', daemon=True)
        self._thread.start()

    @property
    def plan(self) -> Plan | None:
        """The newest plan of the bridge."""
        return self._plan

    def request(self, node: str, transition: str) -> Future[str]:
        """Ask a lifecycle node for ``configure`` or ``activate``, once it is there.

        Returns:
            A future of '' once the node is in the new state, else of what went wrong. Cancelling
            it ends the request.
        """
        result: Future[str] = Future()
        worker = threading.Thread(
            target=self._work, args=(result, node, transition), name=f'{transition} {node}',
            daemon=True,
        )
        worker.start()
        return result

    def close(self) -> None:
        """End all requests and leave the graph."""
        self._closing.set()
        self._thread.join(timeout=2.0)
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def _take_plan(self, msg: Any) -> None:
        with suppress(MessageError):  # the nodes say so; the status line goes on without it
            self._plan = plan_from_msg(msg)

    def _spin(self) -> None:
        executor = SingleThreadedExecutor(context=self._context)
        executor.add_node(self._node)
        try:
            while not self._closing.is_set():
                executor.spin_once(timeout_sec=0.1)
        except ExternalShutdownException:
            pass
        finally:
            executor.shutdown(timeout_sec=1.0)

    def _work(self, result: Future[str], node: str, transition: str) -> None:
        try:
            text = self._change(result, node, transition)
        except Exception as error:
            text = f'{type(error).__name__}: {error}'
        if result.set_running_or_notify_cancel():
            result.set_result(text)

    def _change(self, result: Future[str], node: str, transition: str) -> str:
        """Move the node; a request that got lost while the two found each other is repeated.

        A node that is busy answers nothing, so only one that says that it is still in the old
        state is asked again.
        """
        wanted, goal = _TRANSITIONS[transition]
        change = self._client(ChangeState, f'{node}/change_state')
        get = self._client(GetState, f'{node}/get_state')
        request = ChangeState.Request(transition=Transition(id=wanted))
        deadline = _Deadline(self._timeout_s)
        sent: Any = None
        sent_at, patience_s = _Deadline(RESEND_S), ASK_S
        while not result.cancelled() and not self._closing.is_set():
            if deadline.is_over:
                return f'no answer within {self._timeout_s:g} s'
            is_there = get.wait_for_service(timeout_sec=ASK_S)
            state = self._ask(get, GetState.Request(), patience_s, sent) if is_there else None
            if sent is not None and sent.done():
                return '' if sent.result().success else 'the node refuses; its log says why'
            if state is None:
                patience_s = min(2.0 * patience_s, LONGEST_ASK_S) if is_there else ASK_S
                continue
            current = state.current_state
            if current.id == goal:
                return ''
            if current.id == _STARTS[transition] and (sent is None or sent_at.is_over):
                sent, sent_at = change.call_async(request), _Deadline(RESEND_S)
            elif current.id == State.PRIMARY_STATE_FINALIZED or (
                transition == 'activate' and current.id == State.PRIMARY_STATE_UNCONFIGURED
            ):
                return f'the node is {current.label}'
            self._closing.wait(0.02)
        return 'cancelled'

    def _ask(self, client: Any, request: Any, patience_s: float, unless: Any) -> Any:
        """Return the answer; None without one in time, or once the future ``unless`` is done."""
        future = client.call_async(request)
        waited = _Deadline(patience_s)
        while not (future.done() or waited.is_over or self._closing.is_set()
                   or (unless is not None and unless.done())):
            self._closing.wait(0.01)
        if not future.done():
            client.remove_pending_request(future)
            return None
        return future.result()

    def _client(self, kind: Any, name: str) -> Any:
        with self._clients_lock:
            if name not in self._clients:
                self._clients[name] = self._node.create_client(kind, name)
            return self._clients[name]


class _Deadline:
    """A time from now on the steady clock."""

    def __init__(self, seconds: float) -> None:
        self._clock = SystemClock()
        self._end_ns = self._clock.mono_ns() + round(seconds * S)

    @property
    def is_over(self) -> bool:
        return self._clock.mono_ns() >= self._end_ns
