"""What the supervisor saw: lines for people and ``supervisor.jsonl`` for machines."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from reflex_ros.core.clock import S

if TYPE_CHECKING:
    from pathlib import Path

    from reflex_ros.core.clock import Clock


class Printer(Protocol):
    """Prints one line."""

    def __call__(self, text: str) -> None:
        """Print ``text``."""


class EventLog:
    """Writes events as they happen; each line is on the disk before the next thing is done.

    Args:
        path: File of one JSON object per line, appended to.
        clock: Source of the times.
        printer: Prints the lines for people.
    """

    def __init__(self, path: Path, clock: Clock, *, printer: Printer) -> None:
        self._file = path.open('a', encoding='utf-8', buffering=1)
        self._clock = clock
        self._print = printer
        self._start_ns = clock.mono_ns()

    def event(
        self, event: str, node: str = '', *, text: str = '', pid: int = 0,
        exit_code: int | None = None,
    ) -> None:
        """Write one event; with ``text`` also print it.

        Args:
            event: Name, snake_case.
            node: Process or node that it is about.
            text: What people read.
            pid: Its process, 0 if none.
            exit_code: Its exit code, negative for a signal.
        """
        now = self._clock.now()
        fields = {'ns': now.mono_ns, 'stamp_ns': now.stamp_ns, 'event': event, 'node': node,
                  'pid': pid, 'exit_code': exit_code, 'text': text}
        with suppress(OSError):  # a full disk must not end the supervisor, which ends the run
            self._file.write(json.dumps(fields, ensure_ascii=False) + '\n')
        if text:
            seconds = (now.mono_ns - self._start_ns) / S
            self._print(f'[{seconds:6.2f} s] {node + ": " if node else ""}{text}')

    def lines(self, lines: list[str]) -> None:
        """Print lines of a child's output, set off."""
        for line in lines:
            self._print(f'    | {line}')

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._file.close()
