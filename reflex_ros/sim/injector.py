"""Applies a fault script to one arm's frames, by time and seeded chance."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reflex_ros.core.clock import S
from reflex_ros.sim.can_codec import CanFrame
from reflex_ros.sim.faults import Direction, Fault, FaultScript, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

_FRAME_KINDS = frozenset({Kind.SILENCE, Kind.BUS_OFF, Kind.BUS_ERRORS, Kind.DROP, Kind.DELAY,
                          Kind.DUPLICATE, Kind.CORRUPT})


@dataclass(frozen=True, slots=True)
class _Window:
    """A fault with its steady start and end, ns; ``end_ns`` None = for good."""

    fault: Fault
    start_ns: int
    end_ns: int | None

    def covers(self, now_ns: int) -> bool:
        return self.start_ns <= now_ns and (self.end_ns is None or now_ns < self.end_ns)


@dataclass(frozen=True, slots=True)
class Changes:
    """Faults that began and ended since the previous update."""

    began: tuple[Fault, ...] = ()
    ended: tuple[Fault, ...] = ()


_NO_CHANGES = Changes()


class FaultInjector:
    """Which faults are in force, and what they do to frames.

    One thread calls it; ``inject`` and ``clear`` may be called from any.

    Args:
        script: Faults counted from ``start``.
    """

    def __init__(self, script: FaultScript | None = None) -> None:
        self._script = script or FaultScript()
        self._random = random.Random(self._script.seed)
        self._windows: tuple[_Window, ...] = ()
        self._active: tuple[_Window, ...] = ()
        self._touches_frames = False
        self._delayed: dict[Direction, list[tuple[int, int, CanFrame]]] = {
            direction: [] for direction in Direction}
        self._order = itertools.count()

    @property
    def next_due_ns(self) -> int | None:
        """Return the steady time of the next delayed frame to the host, None if there is none."""
        queue = self._delayed[Direction.FEEDBACK]
        return queue[0][0] if queue else None

    def start(self, now_ns: int) -> None:
        """Let the script count from ``now_ns``."""
        self._windows += tuple(_window(fault, now_ns) for fault in self._script.faults)

    def inject(self, fault: Fault, now_ns: int) -> None:
        """Add a fault; its ``start_s`` counts from ``now_ns``."""
        self._windows += (_window(fault, now_ns),)

    def clear(self) -> None:
        """End every fault; latched errors stay in the arm."""
        self._windows = ()

    def update(self, now_ns: int) -> Changes:
        """Decide what is in force from now on; call once per cycle."""
        windows = self._windows
        if not windows and not self._active:
            return _NO_CHANGES
        before = self._active
        self._active = tuple(window for window in windows if window.covers(now_ns))
        if self._active == before:
            return _NO_CHANGES
        self._touches_frames = any(w.fault.kind in _FRAME_KINDS for w in self._active)
        return Changes(
            tuple(w.fault for w in self._active if w not in before),
            tuple(w.fault for w in before if w not in self._active),
        )

    def active(self, kind: Kind, joint: int | None = None) -> Fault | None:
        """Return the first fault of a kind in force (that concerns a joint 1..6), if any."""
        for window in self._active:
            fault = window.fault
            if fault.kind is kind and (joint is None or joint in fault.joints):
                return fault
        return None

    def all_active(self, kind: Kind) -> tuple[Fault, ...]:
        """Return every fault of a kind in force."""
        return tuple(w.fault for w in self._active if w.fault.kind is kind)

    def filter(
        self, frames: Sequence[CanFrame], now_ns: int, direction: Direction,
    ) -> list[CanFrame]:
        """Return the frames that get through now; delayed ones come from ``delayed``."""
        if not self._touches_frames:
            return list(frames)
        out: list[CanFrame] = []
        for frame in frames:
            passed = self._pass(frame, now_ns, direction)
            if passed is not None:
                out += [passed] * (2 if self._is_doubled(frame, direction) else 1)
        return out

    def delayed(self, now_ns: int, direction: Direction) -> list[CanFrame]:
        """Return the delayed frames whose time has come; a dead or silent bus swallows them."""
        queue = self._delayed[direction]
        out: list[CanFrame] = []
        while queue and queue[0][0] <= now_ns:
            frame = heapq.heappop(queue)[2]
            if not self._is_swallowed(frame, direction):
                out.append(frame)
        return out

    def _pass(self, frame: CanFrame, now_ns: int, direction: Direction) -> CanFrame | None:
        if self._is_swallowed(frame, direction):
            return None
        delay_ns = 0
        for window in self._active:
            fault = window.fault
            if fault.kind is Kind.BUS_ERRORS and self._random.random() < fault.probability:
                return None
            if fault.kind not in _FRAME_KINDS or not _concerns(fault, frame, direction):
                continue
            if fault.kind is Kind.DROP and self._random.random() < fault.probability:
                return None
            if fault.kind is Kind.CORRUPT and self._random.random() < fault.probability:
                frame = self._corrupt(frame, fault.bits)
            if fault.kind is Kind.DELAY:
                delay_ns += round(fault.delay_s * S)
        if not delay_ns:
            return frame
        item = (now_ns + delay_ns, next(self._order), frame)
        heapq.heappush(self._delayed[direction], item)
        return None

    def _is_doubled(self, frame: CanFrame, direction: Direction) -> bool:
        return any(
            window.fault.kind is Kind.DUPLICATE and _concerns(window.fault, frame, direction)
            and self._random.random() < window.fault.probability for window in self._active)

    def _is_swallowed(self, frame: CanFrame, direction: Direction) -> bool:
        for window in self._active:
            fault = window.fault
            if fault.kind is Kind.BUS_OFF:
                return True
            if (fault.kind is Kind.SILENCE and direction is Direction.FEEDBACK
                    and _concerns(fault, frame, direction)):
                return True
        return False

    def _corrupt(self, frame: CanFrame, bits: int) -> CanFrame:
        size = 8 * len(frame.data)
        word = int.from_bytes(frame.data, 'big')
        for position in self._random.sample(range(size), min(bits, size)):
            word ^= 1 << position
        return CanFrame(frame.can_id, word.to_bytes(len(frame.data), 'big'))


def _concerns(fault: Fault, frame: CanFrame, direction: Direction) -> bool:
    return fault.direction is direction and (not fault.ids or frame.can_id in fault.ids)


def _window(fault: Fault, origin_ns: int) -> _Window:
    start_ns = origin_ns + round(fault.start_s * S)
    endless = math.isinf(fault.duration_s)
    return _Window(fault, start_ns, None if endless else start_ns + round(fault.duration_s * S))
