"""Real-time priority for the threads that must not wait, where the system allows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


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


def _set(policy: int, parameter: os.sched_param) -> bool:
    try:
        os.sched_setscheduler(0, policy, parameter)
    except OSError:
        return False
    return True
