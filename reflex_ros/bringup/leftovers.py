"""Shared memory that killed processes leave behind.

Fast DDS removes its segments when a participant ends, not when its process is killed. The files
of our own processes are noted while they run and removed in the end, unless somebody else has
them mapped.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

_SHM = Path('/dev/shm')
_OWN = re.compile(r'/dev/shm/((?:sem\.)?fastrtps_\w+)')


class Leftovers:
    """Shared-memory files of our processes."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._pids: set[int] = set()

    def note(self, pid: int) -> None:
        """Note what a process has mapped now; also watched by ``refresh`` from now on."""
        self._pids.add(pid)
        self._names |= mapped_by(pid)

    def refresh(self) -> None:
        """Note what the watched processes have mapped since."""
        for pid in self._pids:
            self._names |= mapped_by(pid)

    def remove(self, *, ignored: int = 0) -> list[str]:
        """Remove what is left and mapped by nobody; return the names of what was removed.

        Args:
            ignored: Process whose mappings do not count: our own once it has left the graph, for
                the middleware unmaps the segments of others late or never.
        """
        left = {name for name in self._names if (_SHM / name).exists()}
        if left:
            left -= _mapped_by_all(but=ignored)
        for name in left:
            with contextlib.suppress(OSError):
                (_SHM / name).unlink()
        # The lock file beside a segment is opened, not mapped.
        for name in {f'{name}_el' for name in left} | {f'sem.{name}_mutex' for name in left}:
            with contextlib.suppress(OSError):
                (_SHM / name).unlink()
        return sorted(left)


def mapped_by(pid: int) -> set[str]:
    """Return the Fast DDS files that a process has mapped; none if it is gone or not ours."""
    try:
        text = Path(f'/proc/{pid}/maps').read_text(encoding='utf-8', errors='replace')
    except OSError:
        return set()
    return set(_OWN.findall(text))


def _mapped_by_all(*, but: int) -> set[str]:
    pids = (int(name) for name in os.listdir('/proc') if name.isdecimal())
    return {name for pid in pids if pid != but for name in mapped_by(pid)}
