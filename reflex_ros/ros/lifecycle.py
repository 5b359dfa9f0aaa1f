"""The common part of all nodes: lifecycle steps and errors that become exit codes.

What can fail fails in *configure*, saying what to do; nothing moves before *activate*. A node
that cannot be configured or activated ends its process with the exit code of its error.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rcl_interfaces.msg import Log
from rclpy._rclpy_pybind11 import InvalidHandle, RCLError
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message

from reflex_ros.core.errors import ReflexError
from reflex_ros.core.param_table import Value
from reflex_ros.ros.answers import Answers, layout_error
from reflex_ros.ros.clock import RosClock
from reflex_ros.ros.convert import MessageError
from reflex_ros.ros.log import NodeLog
from reflex_ros.ros.params import read_params
from reflex_ros.ros.publish import CLOSE_WAIT_S, QUIET, Outbox, Publisher, rcl
from reflex_ros.ros.qos import Topic, is_image
from reflex_ros.ros.spin import Stop

ENTITIES = ('publisher', 'subscription', 'service', 'client', 'timer')
"""What a node may make in ``configure``; ``cleanup`` need not destroy them."""
EXIT_BUG = 1
"""Exit code of an error that nobody raised on purpose."""
ROSOUT = QoSProfile(depth=1000, durability=DurabilityPolicy.TRANSIENT_LOCAL,
                    lifespan=Duration(seconds=10))
"""What rcl gives ``/rosout``."""
SERVICE_WAIT_S = 0.5
"""Longest wait for the last answer of a service that is destroyed."""
MAX_BYTES = 2**18
"""Largest message but images; the longest chunk that may be executed takes a third of it."""


class ReflexNode(LifecycleNode):  # type: ignore[misc]
    """A lifecycle node whose parts are made in ``configure`` and undone in reverse.

    Args:
        name: Node name; also selects its parameters.
        stop: Request to end the process.
    """

    def __init__(self, name: str, stop: Stop) -> None:
        self._log: NodeLog | None = None
        self._answers: dict[Any, Answers] = {}
        super().__init__(name, enable_rosout=False)  # see ros.log
        self._log = NodeLog(super().get_logger(), rosout=self._rosout())
        self.aside = Outbox(self._unsent)
        """Publishes what may wait for a stopped reader; nobody waits for it here."""
        for service in self.services:  # of parameters and of the life cycle
            self._answer_aside(service)
        self._stop_request = stop
        self._is_configured = self._is_active = False
        self.steady = RosClock(self.get_clock())
        self.params: dict[str, Value] = {}
        self.malformed = 0
        self._before: list[Any] = []

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
        """Read the parameters and configure, or end the process with the error's exit code."""
        self._before = self._entities()
        if unknown := layout_error():
            self.get_logger().warning(str(unknown))

        def action() -> None:
            self.params = read_params(self)
            self.configure()

        self._is_configured = self._guard(action)
        if not self._is_configured:
            self._undo_configure()
        return _result(self._is_configured)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Activate."""
        super().on_activate(state)
        self._is_active = self._guard(self.activate)
        return _result(self._is_active)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Deactivate."""
        self._end_active()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Clean up."""
        self._end_configured()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and clean up; the process ends."""
        self.stop()
        self._stop_request.request()
        return TransitionCallbackReturn.SUCCESS

    def _LifecycleNodeMixin__on_change_state(self, request: Any, response: Any) -> Any:
        """Answer a transition that the present state does not have; rclpy answers nothing.

        It is looked up first: rcl would write a line of its own with the interpreter's lock.
        """
        asked = request.transition
        key, known = (asked.label, 1) if asked.label else (asked.id, 0)
        if key not in [has[known] for has in self._state_machine.available_transitions]:
            self.get_logger().error(f'refused: no transition {key!r} from the state '
                                    f'{self._state_machine.current_state[1]}')
            response.success = False
            return response
        try:
            return super()._LifecycleNodeMixin__on_change_state(request, response)
        except RCLError as error:
            self.get_logger().error(f'refused: {error}')
            response.success = False
            return response

    def stop(self) -> None:
        """Deactivate and clean up whatever is there, in that order."""
        self._end_active()
        self._end_configured()

    def fail(self, error: BaseException) -> None:
        """Note an error from any thread: the process ends with its exit code."""
        if not isinstance(error, ReflexError):
            with suppress(OSError):  # the log may be on the full disk that is the error
                traceback.print_exception(error)
        self.get_logger().fatal(f'{type(error).__name__}: {error}')
        self._stop_request.request(getattr(error, 'exit_code', EXIT_BUG))

    # ---- nobody waits for a reader that was stopped ------------------------------------------

    def get_logger(self) -> Any:
        """Return a logger whose lines hold up no thread."""
        return super().get_logger() if self._log is None else self._log

    def create_service(self, *args: Any, **kwargs: Any) -> Any:
        """Return a service as rclpy makes it, whose answers hold up no thread."""
        service = super().create_service(*args, **kwargs)
        if self._log is not None:
            self._answer_aside(service)
        return service

    def destroy_service(self, service: Any) -> bool:
        """Send the answers of a service that wait, and destroy it."""
        answers = self._answers.pop(service, None)
        if answers is not None:
            answers.close(SERVICE_WAIT_S)
        return bool(super().destroy_service(service))

    def destroy_node(self) -> None:
        """Send and write what waits, for two seconds at most, and destroy the node."""
        wait_s = CLOSE_WAIT_S
        for last in (*self._answers.values(), self.aside, self._log):
            if last is not None and not last.close(wait_s):
                wait_s = 0.0
        super().destroy_node()

    def _rosout(self) -> Publisher | None:
        if not rcl().rcl_logging_rosout_enabled():
            return None
        return Publisher(self.create_publisher(Log, '/rosout', ROSOUT, event_callbacks=QUIET))

    def _answer_aside(self, service: Any) -> None:
        self._answers[service] = Answers(service, self._unsent)

    def _unsent(self, error: BaseException) -> None:
        if not isinstance(error, InvalidHandle):  # destroyed before its last message left
            self.get_logger().error(str(error), throttle_duration_sec=1.0)

    # ---- conveniences ------------------------------------------------------------------------

    def advertise(self, topic: Topic) -> Any:
        """Return a publisher of a topic of the table; a publish that waits stops no thread."""
        return Publisher(self.create_publisher(
            topic.message, topic.name, topic.qos, event_callbacks=QUIET))

    def listen(self, topic: Topic, take: Callable[[Any], None]) -> Any:
        """Return a subscription to a topic of the table; a malformed message is dropped.

        Messages but images come as bytes, so that one that is too large or no text is dropped
        before it takes the interpreter's lock for seconds or ends the executor.
        """
        is_raw = not is_image(topic)

        def guarded(msg: Any) -> None:
            try:
                take(_read(topic, msg) if is_raw else msg)
            except MessageError as error:
                self.malformed += 1
                self.get_logger().error(
                    f'{topic.name}: dropped a message (count={self.malformed}): {error}',
                    throttle_duration_sec=1.0,
                )

        return self.create_subscription(topic.message, topic.name, guarded, topic.qos, raw=is_raw)

    def _guard(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as error:
            self.fail(error)
            return False
        return True

    def _end_active(self) -> None:
        if self._is_active:
            self._is_active = False
            self._guard(self.deactivate)

    def _end_configured(self) -> None:
        if self._is_configured:
            self._is_configured = False
            self._undo_configure()

    def _undo_configure(self) -> None:
        """End what brings calls in before what they would use, and what ``configure`` made."""
        made = [entity for entity in self._entities() if entity not in self._before]
        for entity in reversed(made):
            kind = next(kind for kind in ENTITIES if entity in getattr(self, f'{kind}s'))
            if kind != 'publisher':
                getattr(self, f'destroy_{kind}')(entity)
        self._guard(self.cleanup)
        for publisher in [p for p in self.publishers if p in made]:
            self.destroy_publisher(publisher)

    def _entities(self) -> list[Any]:
        return [entity for kind in ENTITIES for entity in getattr(self, f'{kind}s')]


def _read(topic: Topic, data: bytes) -> Any:
    if len(data) > MAX_BYTES:
        raise MessageError(
            f'message is too large: got {len(data)}, expected at most {MAX_BYTES} (B). '
            'Correct the publisher.'
        )
    try:
        return deserialize_message(data, topic.message)
    except Exception as error:  # the middleware has no type of its own for what it cannot read
        raise MessageError(
            f'message cannot be read: got {error}, expected a {topic.type}. '
            'Correct the publisher.'
        ) from error


def _result(is_done: bool) -> TransitionCallbackReturn:
    return TransitionCallbackReturn.SUCCESS if is_done else TransitionCallbackReturn.FAILURE
