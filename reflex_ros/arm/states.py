"""Which state of the arm may follow which, and on what event.

::

    disconnected -> connected -> checked -> enabled -> ramp_in -> tracking <-> holding
                        ^                                 any of them -> faulted
                        +---------------- recover ---------------------------+

A recovered arm is checked and enabled again before it may move; activation is never automatic.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from reflex_ros.core.errors import ArmError
from reflex_ros.core.types import ArmState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reflex_ros.core.clock import Clock

HISTORY = 64


class ArmEvent(str, Enum):
    """What can change the state."""

    CONNECT = 'connect'
    CHECK = 'check'
    ENABLE = 'enable'
    RESUME = 'resume'
    """An operator or the supervisor starts motion: ramp in from the held pose."""
    TRACK = 'track'
    """A chunk takes over: the ramp is done, or a hold without operator ends by itself."""
    HOLD = 'hold'
    FAULT = 'fault'
    RECOVER = 'recover'
    DISCONNECT = 'disconnect'


_A, _E = ArmState, ArmEvent
_POWERED = (_A.ENABLED, _A.RAMP_IN, _A.TRACKING, _A.HOLDING)

TRANSITIONS: Mapping[tuple[ArmState, ArmEvent], ArmState] = MappingProxyType({
    (_A.DISCONNECTED, _E.CONNECT): _A.CONNECTED,
    (_A.CONNECTED, _E.CHECK): _A.CHECKED,
    (_A.CHECKED, _E.CHECK): _A.CHECKED,
    (_A.CHECKED, _E.ENABLE): _A.ENABLED,
    (_A.ENABLED, _E.RESUME): _A.RAMP_IN,
    (_A.HOLDING, _E.RESUME): _A.RAMP_IN,
    (_A.RAMP_IN, _E.TRACK): _A.TRACKING,
    (_A.HOLDING, _E.TRACK): _A.TRACKING,
    (_A.RAMP_IN, _E.HOLD): _A.HOLDING,
    (_A.TRACKING, _E.HOLD): _A.HOLDING,
    (_A.HOLDING, _E.HOLD): _A.HOLDING,
    (_A.CONNECTED, _E.FAULT): _A.FAULTED,
    (_A.CHECKED, _E.FAULT): _A.FAULTED,
    **{(state, _E.FAULT): _A.FAULTED for state in _POWERED},
    (_A.FAULTED, _E.FAULT): _A.FAULTED,
    (_A.FAULTED, _E.RECOVER): _A.CONNECTED,
    **{(state, _E.DISCONNECT): _A.DISCONNECTED for state in _A},
})
"""Every legal transition; what is not listed raises."""


def may_send(state: ArmState) -> bool:
    """Return whether command frames may leave in this state."""
    return state in _POWERED


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of state on the steady clock."""

    at_ns: int
    event: ArmEvent
    before: ArmState
    after: ArmState
    reason: str = ''


class StateMachine:
    """State of one arm with its recent past. Thread-safe.

    Args:
        clock: Stamps the transitions.
        state: First state.
    """

    def __init__(self, clock: Clock, *, state: ArmState = ArmState.DISCONNECTED) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._state = state
        self._since_ns = clock.mono_ns()
        self._history: deque[Transition] = deque(maxlen=HISTORY)

    @property
    def state(self) -> ArmState:
        """Return the current state."""
        return self._state

    @property
    def since_ns(self) -> int:
        """Return the steady time of the last change to another state."""
        return self._since_ns

    @property
    def reason(self) -> str:
        """Return why the state is what it is, '' if nobody said."""
        with self._lock:
            return self._history[-1].reason if self._history else ''

    @property
    def history(self) -> tuple[Transition, ...]:
        """Return the recent transitions, oldest first; a copy."""
        with self._lock:
            return tuple(self._history)

    def allows(self, event: ArmEvent) -> bool:
        """Return whether ``event`` is legal now."""
        return (self._state, event) in TRANSITIONS

    def fire(self, event: ArmEvent, reason: str = '') -> ArmState:
        """Change the state by ``event`` and return the new one.

        Raises:
            ArmError: Illegal in the current state (code ``arm_state``); the state is untouched.
        """
        with self._lock:
            before = self._state
            after = TRANSITIONS.get((before, event))
            if after is None:
                raise ArmError(self._refusal(event), code='arm_state', recent=tuple(self._history))
            now_ns = self._clock.mono_ns()
            if after is not before:
                self._since_ns = now_ns
                self._history.append(Transition(now_ns, event, before, after, reason))
            self._state = after
            return after

    def _refusal(self, event: ArmEvent) -> str:
        legal = sorted(e.value for s, e in TRANSITIONS if s is self._state)
        return (
            f'Arm event {event.value}: got it in state {self._state.value}, expected one of '
            f'{", ".join(legal)}. Bring the arm to a state that allows it first.'
        )
