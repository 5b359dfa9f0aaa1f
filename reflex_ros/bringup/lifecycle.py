"""What the supervisor asks of lifecycle nodes, and sequences of such requests."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

Transition = Literal['configure', 'activate']


class Lifecycle(Protocol):
    """Changes the state of lifecycle nodes."""

    def request(self, node: str, transition: Transition) -> Future[str]:
        """Ask a node for a transition, waiting for the node to appear.

        Returns:
            A future of '' once the node is in the new state, else of what went wrong. Cancelling
            it ends the request.
        """

    def close(self) -> None:
        """End all requests."""


@dataclass(frozen=True, slots=True)
class Step:
    """One transition of one lifecycle node."""

    transition: Transition
    node: str


class RoutineState(Enum):
    """Where a routine is."""

    RUNNING = 'running'
    DONE = 'done'
    FAILED = 'failed'


class Routine:
    """Transitions one after the other; never blocks.

    Args:
        steps: What to do, in order.
        lifecycle: Who does it.

    Attributes:
        state: Where it is.
        failure: Why it failed, '' unless it did.
        done: Steps that are done.
    """

    def __init__(self, steps: Sequence[Step], lifecycle: Lifecycle) -> None:
        self.state = RoutineState.RUNNING
        self.failure = ''
        self.done: list[Step] = []
        self._left = list(steps)
        self._lifecycle = lifecycle
        self._asked: Future[str] | None = None

    @property
    def current(self) -> Step | None:
        """The step that is under way, or that failed; None once all are done."""
        return self._left[0] if self._left else None

    def advance(self) -> None:
        """Take what has been answered and ask for the next step."""
        while self.state is RoutineState.RUNNING:
            if not self._left:
                self.state = RoutineState.DONE
                return
            if self._asked is None:
                step = self._left[0]
                self._asked = self._lifecycle.request(step.node, step.transition)
            if not self._asked.done():
                return
            self._take(self._asked)

    def cancel(self) -> None:
        """Give up; the running request ends by itself."""
        if self._asked is not None:
            self._asked.cancel()
        if self.state is RoutineState.RUNNING:
            self.state, self.failure = RoutineState.FAILED, 'cancelled'

    def _take(self, asked: Future[str]) -> None:
        self._asked = None
        error = 'cancelled' if asked.cancelled() else asked.result()
        if error:
            self.state, self.failure = RoutineState.FAILED, error
        else:
            self.done.append(self._left.pop(0))
