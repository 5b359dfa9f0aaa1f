"""What threads that must not wait need of the system and of the interpreter.

FIFO priority and a core of their own where the system allows it, and no garbage collection of what
was there before: a full collection of the start-up's objects takes longer than a control period.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import NamedTuple


@contextmanager
def realtime(level: int) -> Iterator[bool]:
    """Run the block under FIFO scheduling; threads that it starts keep it.

    Args:
        level: Priority 1..99; 0 changes nothing.

    Yields:
        Whether the system allowed it. Without ``CAP_SYS_NICE`` or an ``rtprio`` limit it does not,
        and everything runs at normal priority.
    """
    before, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    is_allowed = level > 0 and _set(os.SCHED_FIFO, os.sched_param(level))
    try:
        yield is_allowed
    finally:
        if is_allowed:
            _set(before, parameter)


@contextmanager
def pinned(core: int) -> Iterator[bool]:
    """Run the block on one CPU core; threads that it starts stay there.

    Args:
        core: Its number; -1 changes nothing.

    Yields:
        Whether the system allowed it.
    """
    before = os.sched_getaffinity(0)
    is_allowed = core >= 0 and _pin({core})
    try:
        yield is_allowed
    finally:
        if is_allowed:
            _pin(before)


class Scheduling(NamedTuple):
    """How the system runs a thread: policy, priority and cores."""

    policy: int
    level: int
    cores: frozenset[int]


def scheduling() -> Scheduling:
    """Return how this thread runs."""
    return Scheduling(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority,
                      frozenset(os.sched_getaffinity(0)))


@contextmanager
def scheduled(like: Scheduling) -> Iterator[None]:
    """Run the block as another thread ran, as far as allowed; what it starts keeps that."""
    before = scheduling()
    _apply(like, before)
    try:
        yield
    finally:
        _apply(before, scheduling())


class Urgency:
    """Starts threads with the priority and the core that the parameters ask for.

    Args:
        level: FIFO priority, 0 = normal.
        core: Number of the core, -1 = any.
    """

    def __init__(self, level: int, core: int) -> None:
        self._level, self._core = level, core
        self.refusals: tuple[str, ...] = ()
        """What the system did not allow at the last ``threads``, each with what to do."""

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Run the block; what it starts keeps priority and core."""
        with realtime(self._level) as is_realtime, pinned(self._core) as is_pinned:
            refused = []
            if self._level > 0 and not is_realtime:
                refused.append(
                    f'control.realtime_priority: got normal scheduling, expected FIFO '
                    f'{self._level}. The system does not permit it: give the user an rtprio limit '
                    f'of at least {self._level} in /etc/security/limits.d, or set it to 0.')
            if self._core >= 0 and not is_pinned:
                usable = ', '.join(map(str, sorted(os.sched_getaffinity(0))))
                refused.append(
                    f'control.core: got no permission for core {self._core}, expected one of '
                    f'{usable}. Choose one of them, or -1 for any.')
            self.refusals = tuple(refused)
            yield


@contextmanager
def frozen_garbage() -> Iterator[int]:
    """Take everything that exists out of later garbage collections while the block runs.

    Yields:
        How many objects are frozen.
    """
    freeze_garbage()
    try:
        yield gc.get_freeze_count()
    finally:
        gc.unfreeze()


def freeze_garbage() -> None:
    """Collect once, then take everything that is left out of later collections."""
    gc.collect()
    gc.freeze()


def _apply(wanted: Scheduling, present: Scheduling) -> None:
    if wanted[:2] != present[:2]:
        _set(wanted.policy, os.sched_param(wanted.level))
    if wanted.cores != present.cores:
        _pin(wanted.cores)


def _pin(cores: Set[int]) -> bool:
    try:
        os.sched_setaffinity(0, cores)
    except OSError:
        return False
    return True


def _set(policy: int, parameter: os.sched_param) -> bool:
    try:
        os.sched_setscheduler(0, policy, parameter)
    except OSError:
        return False
    return True
