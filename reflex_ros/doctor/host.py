"""The machine as text: files below a root, answers of commands, environment. Nothing raises.

A recorded tree and recorded answers stand for any machine, healthy or broken, in tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

COMMAND_S = 5.0
"""Longest answer of a command."""
MOST_BYTES = 1 << 20
"""Files of /proc and /sys are small; nothing larger is read."""

Runner = Callable[[Sequence[str]], str]


def run_command(command: Sequence[str]) -> str:
    """Return what a command prints, '' if it is missing, fails or hangs."""
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=COMMAND_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ''
    return done.stdout.decode('utf-8', 'replace') if done.returncode == 0 else ''


class Host:
    """Reads a machine.

    Args:
        root: Folder that stands for ``/``.
        run: Runs commands, see ``run_command``.
        environ: Environment variables.
    """

    def __init__(
        self, root: Path = Path('/'), *, run: Runner = run_command,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._root, self._run = root, run
        self.environ = dict(os.environ if environ is None else environ)
        self._answers: dict[tuple[str, ...], str] = {}

    def read(self, path: str) -> str | None:
        """Return the text of a file, None if it cannot be read."""
        try:
            with self._inside(path).open('rb') as file:
                return file.read(MOST_BYTES).decode('utf-8', 'replace').strip('\0 \n')
        except (OSError, ValueError):
            return None

    def number(self, path: str, base: int = 10) -> int | None:
        """Return the whole number in a file, None if there is none."""
        try:
            return int(self.read(path) or '', base)
        except ValueError:
            return None

    def has(self, path: str) -> bool:
        """Return whether a file or folder is there and may be looked at."""
        try:
            return self._inside(path).exists()
        except (OSError, ValueError):
            return False

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the sorted names in a folder, () if it cannot be read."""
        try:
            return tuple(sorted(entry.name for entry in self._inside(folder).iterdir()))
        except (OSError, ValueError):
            return ()

    def answer(self, *command: str) -> str:
        """Return what a command prints, '' if it does not work; asked once."""
        if command not in self._answers:
            self._answers[command] = self._run(command)
        return self._answers[command]

    def json_answer(self, *command: str) -> Any:
        """Return what a command prints as JSON, None if it is none."""
        try:
            return json.loads(self.answer(*command))
        except (ValueError, RecursionError):
            return None

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip('/')


def dig(value: Any, *keys: str) -> Any:
    """Return what lies below the keys of nested objects, None where one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def whole(value: Any) -> int | None:
    """Return a whole number, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
