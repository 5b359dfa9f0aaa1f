"""The only way from the SDK to the bus: one lock, and every frame compared before it leaves.

The SDK fills one shared message per command and encodes it afterwards: two threads that call it at
once put wrong frames on the bus, some of them all zeros, which is "move both joints to 0". So all
SDK commands run under the lock here, and a frame leaves only if it is byte for byte the one that
was asked for, by the thread that holds the lock, and not a forbidden one.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reflex_ros.arm import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reflex_ros.core.clock import Clock

ECHO_NS = 1_000_000_000
_ECHO_FRAMES = 512
_DLC = 8


@dataclass(frozen=True, slots=True)
class GateCounts:
    """Frames handed to the bus, not taken by it, and stopped before it.

    ``failed_in_a_row`` are frames, ``short_in_a_row`` commands of which some frame did not leave.
    """

    sent: int
    failed: int
    blocked: int
    failed_in_a_row: int
    short_in_a_row: int


class CommandGate:
    """Passes requested frames, stops all others.

    Args:
        clock: Ages the memory of own frames.
        send_frames: False = shadow mode: commands are withheld, queries pass.
    """

    def __init__(self, clock: Clock, *, send_frames: bool) -> None:
        self._clock = clock
        self._is_shadow = not send_frames
        self._lock = threading.RLock()
        self._owner = 0
        self._expected: deque[wire.Frame] = deque()
        self._taken: list[bool] = []
        self._raw_send: Callable[..., Any] | None = None
        self._success: object = None
        self._failure: object = None
        self._own_lock = threading.Lock()
        self._own: deque[tuple[int, wire.Frame]] = deque(maxlen=_ECHO_FRAMES)
        self._sent = self._failed = self._blocked = self._in_a_row = self._short = 0

    @property
    def is_shadow(self) -> bool:
        """Return whether commands are withheld."""
        return self._is_shadow

    @property
    def counts(self) -> GateCounts:
        """Return the counters."""
        return GateCounts(self._sent, self._failed, self._blocked, self._in_a_row, self._short)

    def install(self, can_bus: Any) -> None:
        """Put the gate before ``SendCanMessage`` of an SDK bus object."""
        with self._lock:
            status = can_bus.CAN_STATUS
            self._success, self._failure = status.SEND_MESSAGE_SUCCESS, status.SEND_MESSAGE_FAILED
            self._raw_send = can_bus.SendCanMessage
            self._in_a_row = self._short = 0
            can_bus.SendCanMessage = self._pass

    def remove(self) -> None:
        """Forget the bus; every later request fails."""
        with self._lock:
            self._raw_send = None

    def query(self, frame: wire.Frame, call: Callable[[], object]) -> bool:
        """Let one query pass, in shadow mode too; return whether the bus took it."""
        return all(self._run([frame], call))

    def each(self, frames: Sequence[wire.Frame], call: Callable[[], object]) -> tuple[bool, ...]:
        """Run SDK calls as ``command`` does; return for each frame whether the bus took it."""
        if self._is_shadow:
            return (False,) * len(frames)
        return self._run(frames, call)

    def command(self, frames: Sequence[wire.Frame], call: Callable[[], object]) -> bool:
        """Run SDK calls that must produce exactly ``frames``, in order.

        Returns:
            Whether the bus took all of them; False in shadow mode, without calling.
        """
        return all(self.each(frames, call))

    def is_own(self, frame: wire.Frame, now_ns: int) -> bool:
        """Return whether a received frame is an echo of one sent within the last second."""
        with self._own_lock:
            return any(now_ns - at <= ECHO_NS and own == frame for at, own in self._own)

    def _run(self, frames: Sequence[wire.Frame],
             call: Callable[[], object]) -> tuple[bool, ...]:
        with self._lock:
            if self._raw_send is None:
                return (False,) * len(frames)
            self._owner = threading.get_ident()
            self._expected = deque(frames)
            self._taken = []
            try:
                call()
            finally:
                self._expected = deque()
                self._owner = 0
            missing = len(frames) - len(self._taken)
            taken = (*self._taken, *(False,) * missing)
            self._short = 0 if all(taken) else self._short + 1
            return taken

    def _pass(
        self, arbitration_id: int, data: Any, dlc: int = _DLC, is_extended_id: bool = False,
    ) -> object:
        # Runs inside SDK calls, on whatever thread called the SDK.
        frame = wire.Frame(arbitration_id, bytes(data))
        is_mine = threading.get_ident() == self._owner
        expected = self._expected.popleft() if is_mine and self._expected else None
        if frame != expected or wire.is_forbidden(frame) or is_extended_id or dlc != _DLC:
            self._blocked += 1
            if expected is not None:
                self._taken.append(False)
            return self._failure
        status = self._hand_over(frame)
        self._taken.append(status == self._success)
        if status == self._success:
            self._sent += 1
            self._in_a_row = 0
        else:
            self._failed += 1
            self._in_a_row += 1
        return status

    def _hand_over(self, frame: wire.Frame) -> object:
        if self._raw_send is None:
            return self._failure
        with self._own_lock:
            self._own.append((self._clock.mono_ns(), frame))
        try:
            return self._raw_send(frame.can_id, frame.data, _DLC, False)
        except OSError:  # not all that a socket raises is caught by the SDK; the rest may leave
            return self._failure
