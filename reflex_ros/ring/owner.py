"""Identity of a process that survives the reuse of its process id."""

from __future__ import annotations

import os

PID_BITS = 22
"""Linux never gives out a process id of 2**22 or more."""
FOREIGN = 1 << 63
"""Marks an owner in another pid namespace: /proc cannot tell whether it lives."""


def process_owner(pid: int) -> int:
    """Return start time and pid of a process in one word, 0 if it is gone or a zombie.

    The start time is field 22 of /proc/PID/stat, in clock ticks since boot.
    """
    try:
        with open(f'/proc/{pid}/stat', 'rb') as file:
            state, *rest = file.read().rpartition(b')')[2].split()
        return 0 if state in (b'Z', b'X') else (int(rest[18]) << PID_BITS | pid) & ~FOREIGN
    except (OSError, ValueError, IndexError):
        return 0


def is_owner_alive(owner: int) -> bool:
    """Return whether the process lives; one in another pid namespace counts as alive."""
    if owner & FOREIGN:
        return True
    return owner != 0 and process_owner(owner & ((1 << PID_BITS) - 1)) == owner


def pid_namespace() -> int:
    """Return the inode of this process's pid namespace; 0 if /proc does not say."""
    try:
        return os.stat('/proc/self/ns/pid').st_ino
    except OSError:
        return 0
