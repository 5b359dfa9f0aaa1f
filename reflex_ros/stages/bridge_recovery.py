"""Bringing a faulted arm back: seconds of work that must not keep anybody waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reflex_ros.arm.protocol import recovery_ns
from reflex_ros.arm.states import ArmEvent
from reflex_ros.core.clock import S
from reflex_ros.core.errors import ArmError, ReflexError
from reflex_ros.core.types import ArmState, Reply

if TYPE_CHECKING:
    from reflex_ros.arm.protocol import Arm
    from reflex_ros.arm.states import StateMachine
    from reflex_ros.core.types import FloatArray


class Recovery:
    """Clears faults, checks and enables, one recovery at a time; may run beside everything else.

    From its start until it has fired ``enable`` the state of the arm is one in which the tick
    sends nothing, so no two threads ever send at once. Of several arms those without the fault are
    led to rest by the tick before: it is refused until they rest, and ``braking`` and it exclude
    each other. A stop or a hold ends it before the next
    joint gets its power, before the bus is reopened and before a reset cuts the power; whoever
    asks for the reset again is told of it first once more.

    Args:
        arm: The arm. ``states``: its state.
        check: Checks the connected arm and fires ``check``.
        seed: Called with the pose that ``enable`` holds, before the arm may move again: the
            command stream starts there.
        is_at_rest: Tells whether no arm is still led to rest.
    """

    def __init__(self, arm: Arm, states: StateMachine, *, check: Callable[[], None],
                 seed: Callable[[FloatArray], None], is_at_rest: Callable[[], bool]) -> None:
        self._arm, self._states, self._check, self._seed = arm, states, check, seed
        self._is_at_rest = is_at_rest
        self._busy = threading.Lock()
        self._braking = threading.Lock()
        self._noting = threading.Lock()
        self._told: frozenset[str] = frozenset()
        self._is_held = False
        self.is_allowed = True
        """False from a stop request on: nothing new begins, and no joint is powered any more."""

    @property
    def is_running(self) -> bool:
        """Whether a recovery is under way."""
        return self._busy.locked()

    def new_fault(self) -> None:
        """Note a fault: the power is not cut at the first request for it."""
        self._told = frozenset()

    def hold(self) -> bool:
        """End the recovery that is under way before it powers another joint; False without one."""
        with self._noting:
            self._is_held = self.is_running
            return self._is_held

    def run(self, *, arm_supported: bool) -> Reply:
        """Recover and return the answer; blocks for seconds. A second one is refused meanwhile.

        Args:
            arm_supported: The operator's word. Powering the joints may let the arm sag.
        """
        if not self._busy.acquire(blocking=False):
            return Reply(False, 'A recovery is under way. Wait for its answer.')
        try:
            with self._braking:
                refusal = self._refusal(arm_supported)
            return refusal or self._recover()
        finally:
            with self._noting:
                self._is_held = False
                self._busy.release()

    @contextmanager
    def braking(self) -> Iterator[bool]:
        """Give whether the tick may send to arms of a faulted bridge; never waits."""
        is_free = self._braking.acquire(blocking=False)
        try:
            yield is_free and not self.is_running
        finally:
            if is_free:
                self._braking.release()

    def wait(self) -> None:
        """Block until no recovery runs: the arm is about to be closed or enabled anew.

        Raises:
            ArmError: It does not end.
        """
        longest_s = recovery_ns(len(self._arm.names)) / S
        if not self._busy.acquire(timeout=longest_s):
            raise ArmError(
                f'recovery: got one that does not end, expected an end within {longest_s:g} s. '
                'Support the arm and restart the bridge.', code='arm')
        self._busy.release()

    def _refusal(self, arm_supported: bool) -> Reply | None:
        if not self.is_allowed:
            return Reply(False, 'The bridge is stopping.')
        if self._states.state is not ArmState.FAULTED:
            return Reply(False, f'The arm is {self._states.state.value}, not faulted.')
        if not self._is_at_rest():
            return Reply(False, 'The other arm is still being brought to rest. Recover again in a '
                                'second.')
        if not arm_supported:
            return Reply(False, 'Powering the joints may let the arm sag or drop. Support it, '
                                'then repeat with arm_supported.')
        return None

    def _recover(self) -> Reply:
        try:
            reply = self._clear()
            if not reply.accepted:
                return reply
            self._go_on()
            self._states.fire(ArmEvent.RECOVER)
            self._check()
            self._seed(self._arm.enable(go_on=self._go_on))
            self._states.fire(ArmEvent.ENABLE)
        except BaseException as error:  # whatever it is: an arm half recovered is a faulted one
            text = self._failed(error)
            if not isinstance(error, Exception):
                raise
            return Reply(False, text)
        return Reply(True, 'Recovered; holding the measured pose. Resume to move.')

    def _failed(self, error: BaseException) -> str:
        """Enter ``faulted`` and return what the operator is told."""
        self._told = frozenset()
        text = str(error) if isinstance(error, ReflexError) else (
            f'Recovery: got {type(error).__name__}: {error}, expected none. The arm is faulted, '
            'joints that have power keep it. Check cable and adapter, then recover again.')
        if self._states.allows(ArmEvent.FAULT):
            self._states.fire(ArmEvent.FAULT, text)
        return text

    def _clear(self) -> Reply:
        """Clear the faults; the arm may be reset for one that was in force at a refusal."""
        reply = self._arm.clear_faults(
            arm_supported=bool(self._told.intersection(self._arm.faults())), go_on=self._go_on)
        self._told = frozenset(() if reply.accepted else self._arm.faults())
        return reply

    def _go_on(self) -> None:
        """Raise if a stop or a hold came since the recovery began."""
        if self.is_allowed and not self._is_held:
            return
        what = 'a hold' if self.is_allowed else 'a stop of the bridge'
        raise ArmError(
            f'Recovery: got {what}, expected none while it runs. It has ended: no further joint '
            'gets power, joints that have it keep it. Support the arm and recover again.',
            code='recovery_ended')
