"""Terminal output that holds up no thread of a process that commands an arm, in C either.

Whoever writes to a full terminal or pipe (Ctrl-S, a pager, a stopped reader) waits. C code of
rcl, rclpy and the middleware writes its lines, or waits for the log's lock behind another line,
with the interpreter's lock in hand, and every thread waits with it. So descriptors 1 and 2 become
pipes, which a process of its own empties (``ros.drain``): it drops what the terminal does not
take, tells so later, and outlives a crash. The pipes are ours alone, so they may refuse to wait,
should that process stand still; the terminal's own settings, which the shell shares, stay.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import io
import os
import stat
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import Any

from reflex_ros.ros import drain

END_WAIT_S = drain.LAST_S + 0.1
"""Longest wait for the last lines at the end of the process."""
_STREAMS = MappingProxyType({1: 'stdout', 2: 'stderr'})
_PIPE_BYTES = 2**20
_LINE_BUFFERED = 1
"""``_IOLBF``."""


class OutputGuard:
    """Puts a pipe and a process that empties it before descriptors that may block.

    Args:
        fds: 1, 2 or both.

    Raises:
        OSError: The process cannot be started; nothing has changed.
    """

    def __init__(self, fds: Iterable[int]) -> None:
        self._real = {fd: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in fds}
        pipes = {sink: _pipe() for sink in set(self._sinks().values())}
        try:
            self._helper = subprocess.Popen(
                [sys.executable, '-I', '-S', drain.__file__,
                 *(f'{pipes[sink][0]}:{sink}' for sink in pipes)],
                stdin=subprocess.DEVNULL, cwd='/', start_new_session=True,  # Ctrl-C is not for it
                pass_fds=[read for read, _ in pipes.values()],
            )
        except BaseException:
            _close(*(end for pipe in pipes.values() for end in pipe), *self._real.values())
            raise
        for fd, sink in self._sinks().items():
            self._keep_looks(fd)
            os.dup2(pipes[sink][1], fd)
            _replace_stream(fd)
        _close(*(end for pipe in pipes.values() for end in pipe))

    def close(self) -> None:
        """Let what waits out, for ``END_WAIT_S`` at most; what comes later waits for nobody."""
        for name in _STREAMS.values():
            with suppress(Exception):  # whatever somebody put there
                getattr(sys, name).flush()
        null = os.open(os.devnull, os.O_WRONLY)
        for fd in self._real:
            os.dup2(null, fd)
        os.close(null)
        with suppress(subprocess.TimeoutExpired):
            if self._helper.wait(END_WAIT_S) == 0:  # the reader reads: the rest goes there
                for fd, real in self._real.items():
                    os.dup2(real, fd)

    def _sinks(self) -> dict[int, int]:
        """Return the descriptor that stands for the sink of each; one pipe keeps the order."""
        by_file: dict[tuple[int, int], int] = {}
        found = {}
        for fd in self._real:
            status = os.fstat(self._real[fd])
            found[fd] = by_file.setdefault((status.st_dev, status.st_ino), fd)
        return found

    def _keep_looks(self, fd: int) -> None:
        """Keep colours and whole lines where C would look for a terminal."""
        if not os.isatty(fd):
            return
        is_log = (fd == 1) == (os.environ.get('RCUTILS_LOGGING_USE_STDOUT') == '1')
        if is_log:
            os.environ.setdefault('RCUTILS_COLORIZED_OUTPUT', '1')
        if fd == 1:
            libc = ctypes.CDLL(None)
            libc.setvbuf(ctypes.c_void_p.in_dll(libc, 'stdout'), None, _LINE_BUFFERED, 0)


@cache
def guard_output() -> str:
    """Guard descriptors 1 and 2 of this process until its end, once; return why that failed.

    A regular file takes all and needs no guard. Called before ``rclpy.init``, log lines on a
    terminal keep their colours.
    """
    fds = [fd for fd in _STREAMS if may_block(fd)]
    if not fds:
        return ''
    try:
        guard = OutputGuard(fds)
    except OSError as error:
        return (f'output: got {error}, expected a process that empties it. A terminal that is '
                'stopped may stop the control loop. Write the output to a file.')
    atexit.register(guard.close)
    return ''


def may_block(fd: int) -> bool:
    """Return whether a descriptor is a pipe, a socket or a terminal."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


class _Dropping(io.FileIO):
    """Takes for written what a pipe refuses or nobody empties: a line is worth no exception."""

    def write(self, data: Any) -> int:
        written = None
        with suppress(BrokenPipeError):
            written = super().write(data)
        return len(data) if written is None else written


def _replace_stream(fd: int) -> None:
    stream: Any = getattr(sys, _STREAMS[fd])
    with suppress(AttributeError, OSError, ValueError):  # somebody else's, or none
        if stream.fileno() == fd:
            stream.flush()
            setattr(sys, _STREAMS[fd], io.TextIOWrapper(
                io.BufferedWriter(_Dropping(fd, 'w', closefd=False)), encoding=stream.encoding,
                errors=stream.errors, line_buffering=stream.line_buffering,
                write_through=stream.write_through))


def _pipe() -> tuple[int, int]:
    """Return both ends, neither on a standard descriptor that was closed; writing never waits."""
    ends = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    _close(*ends)
    with suppress(OSError):  # more than this user may have
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(write, False)
    return read, write


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
