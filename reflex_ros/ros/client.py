"""Calls to services of other nodes that end in time."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.executors import SingleThreadedExecutor

from reflex_ros.arm.protocol import recovery_ns
from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import StaleError
from reflex_ros.core.types import Reply
from reflex_ros.ros.convert import reply_from_msg
from reflex_ros.ros.qos import SERVICES, load_type

RECOVER_S = recovery_ns(1) / S
"""Longest that a bridge with one arm takes to answer ``recover``."""
SLICE_S = 1.0
"""Between two signs that a call still waits for its answer."""
_TRANSITIONS = MappingProxyType(
    {
        'configure': Transition.TRANSITION_CONFIGURE,
        'activate': Transition.TRANSITION_ACTIVATE,
        'deactivate': Transition.TRANSITION_DEACTIVATE,
        'cleanup': Transition.TRANSITION_CLEANUP,
    }
)


class Caller:
    """Calls services from outside an executor, e.g. a command line or the supervisor.

    Not thread-safe; never from a callback of ``node`` (it would wait for itself).

    Args:
        node: Node that belongs to no executor while a call runs.
        timeout_s: Longest wait for the service to appear and again for its answer, s.
    """

    def __init__(self, node: Any, *, timeout_s: float = 5.0) -> None:
        self._node = node
        self._timeout_s = timeout_s
        self._clients: dict[str, Any] = {}

    def call(
        self, service: str, kind: Any, request: Any, *, timeout_s: float | None = None,
        answer_s: float | None = None, waiting: Callable[[float], None] | None = None,
    ) -> Any:
        """Return the answer. Blocks.

        Args:
            service: Name. ``kind``: type. ``request``: of that type.
            timeout_s: Longest wait for the service and again for its answer, s; None as made.
            answer_s: Longest wait for the answer alone, s.
            waiting: Called with the s waited so far, once a second until the answer is there.

        Raises:
            StaleError: The service is not there, or does not answer in time.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        if service not in self._clients:
            self._clients[service] = self._node.create_client(kind, service)
        client = self._clients[service]
        if not client.wait_for_service(timeout_sec=limit):
            raise _silent(service, 'no such service', limit)
        future = client.call_async(request)
        executor = SingleThreadedExecutor(context=self._node.context)
        executor.add_node(self._node)
        try:
            _wait(executor, future, answer_s or limit, waiting)
        finally:
            executor.remove_node(self._node)
            executor.shutdown()
        if not future.done():
            client.remove_pending_request(future)
            raise _silent(service, 'no answer', answer_s or limit)
        return future.result()

    def close(self) -> None:
        """Destroy the clients."""
        for client in self._clients.values():
            self._node.destroy_client(client)
        self._clients.clear()


class BridgeClient:
    """The four services of the bridge.

    Args:
        caller: Makes the calls.
        namespace: Prefix of the bridge's services, '' for the caller's own namespace.
    """

    def __init__(self, caller: Caller, *, namespace: str = '') -> None:
        self._caller = caller
        self._prefix = f'{namespace.rstrip("/")}/' if namespace else ''

    def set_instruction(self, instruction: str) -> Reply:
        """Start a new epoch under an instruction."""
        return self._ask('set_instruction', instruction=instruction)

    def hold(self) -> Reply:
        """Decelerate and hold: the software stop."""
        return self._ask('hold')

    def resume(self) -> Reply:
        """Let the arm move again."""
        return self._ask('resume')

    def recover(self, *, arm_supported: bool, answer_s: float = RECOVER_S,
                waiting: Callable[[float], None] | None = None) -> Reply:
        """Clear the arm's faults, check and power it; takes seconds.

        Args:
            arm_supported: The operator's word.
            answer_s: Longest wait for the answer, s. ``waiting``: as for ``Caller.call``.
        """
        return self._ask('recover', answer_s=answer_s, waiting=waiting,
                         arm_supported=arm_supported)

    def _ask(self, name: str, *, answer_s: float | None = None,
             waiting: Callable[[float], None] | None = None, **fields: Any) -> Reply:
        kind = load_type(SERVICES[name])
        return reply_from_msg(self._caller.call(
            self._prefix + name, kind, kind.Request(**fields), answer_s=answer_s,
            waiting=waiting))


class LifecycleClient:
    """Moves a lifecycle node through its states.

    Args:
        caller: Makes the calls.
        node: Name of the node, relative or absolute.
    """

    def __init__(self, caller: Caller, node: str) -> None:
        self._caller = caller
        self._node = node

    def state(self) -> str:
        """Return the current state: unconfigured, inactive, active or finalized."""
        answer = self._caller.call(f'{self._node}/get_state', GetState, GetState.Request())
        return str(answer.current_state.label)

    def change(self, transition: str, *, timeout_s: float | None = None) -> bool:
        """Return whether the transition succeeded.

        Args:
            transition: ``configure``, ``activate``, ``deactivate`` or ``cleanup``.
            timeout_s: Longest wait, s; loading a checkpoint takes long.
        """
        request = ChangeState.Request(transition=Transition(id=_TRANSITIONS[transition]))
        service = f'{self._node}/change_state'
        answer = self._caller.call(service, ChangeState, request, timeout_s=timeout_s)
        return bool(answer.success)


def _wait(executor: Any, future: Any, limit_s: float,
          waiting: Callable[[float], None] | None) -> None:
    clock = SystemClock()
    begin_ns = clock.mono_ns()
    while not future.done() and (waited_s := (clock.mono_ns() - begin_ns) / S) < limit_s:
        if waiting is not None and waited_s >= SLICE_S:
            waiting(waited_s)
        executor.spin_until_future_complete(future, timeout_sec=min(SLICE_S, limit_s - waited_s))


def _silent(service: str, what: str, limit_s: float) -> StaleError:
    return StaleError(
        f'service {service} failed: got {what}, expected an answer within {limit_s:g} s. '
        'Check that its node runs, in the same namespace and ROS_DOMAIN_ID.'
    )
