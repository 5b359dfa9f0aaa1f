"""Child processes that cannot outlive the supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from reflex_ros.bringup.graph import ProcessSpec

URGENT_NICE = -10
_PR_SET_PDEATHSIG = 1


class Child(Protocol):
    """One running process."""

    @property
    def pid(self) -> int:
        """Process id, also that of its group and session."""

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""

    def terminate(self) -> None:
        """Ask it to stop."""

    def kill(self) -> None:
        """End it and its children at once."""

    def tail(self, lines: int = 12) -> list[str]:
        """Return its last lines of output."""


class Launcher(Protocol):
    """Starts processes."""

    def start(self, spec: ProcessSpec) -> Child:
        """Start the process of a specification."""


def node_command(spec: ProcessSpec, params_file: Path, namespace: str = '') -> list[str]:
    """Return the command line of a node process."""
    command = [sys.executable, '-m', f'reflex_ros.nodes.{spec.executable}', '--ros-args',
               '--params-file', str(params_file)]
    if namespace.strip('/'):
        command += ['-r', f'__ns:=/{namespace.strip("/")}']
    return command


class ProcessLauncher:
    """Starts nodes in sessions of their own, their output in log files.

    Call it from the thread that lives longest: the kernel takes the end of the calling thread for
    the end of the parent.

    Args:
        command: Command line of a specification.
        logs: Folder of the log files.
        environment: The whole environment of the children.
    """

    def __init__(
        self, command: Callable[[ProcessSpec], Sequence[str]], *, logs: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._command = command
        self._logs = logs
        self._environment = dict(environment)

    def start(self, spec: ProcessSpec) -> Child:
        """Start the process of a specification."""
        self._logs.mkdir(parents=True, exist_ok=True)
        path = self._logs / f'{spec.executable}.log'
        with open(path, 'ab') as log:
            process = subprocess.Popen(
                self._command(spec), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, env=self._environment, start_new_session=True,
                preexec_fn=_tie_to_parent(),
            )
        if spec.is_urgent:
            _raise_priority(process.pid)
        return _Process(process, path)


class _Process:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        code = self._process.poll()
        if code is not None:
            self._kill_group()
        return code

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        # Popen.kill does nothing once the process has been waited for; its children may live on.
        self._process.kill()
        self._kill_group()

    def tail(self, lines: int = 12) -> list[str]:
        with open(self._log, encoding='utf-8', errors='replace') as file:
            return [line.rstrip() for line in deque(file, lines)]

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _tie_to_parent() -> Callable[[], None]:
    """Return what a child does before it becomes the node: ask for SIGTERM when its parent dies.

    SIGTERM lets the bridge decelerate and hold even if the supervisor was killed. Everything is
    looked up before the fork, since only the forking thread exists after it.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent, getppid, leave, term = os.getpid(), os.getppid, os._exit, int(signal.SIGTERM)

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, term, 0, 0, 0)
        if getppid() != parent:
            leave(1)

    return tie


def _raise_priority(pid: int) -> None:
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, URGENT_NICE)
