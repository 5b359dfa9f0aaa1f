"""Log lines that hold up neither the executor nor the control loop.

rclpy writes a line with the interpreter's lock in hand. A terminal or a pipe that nobody reads
(Ctrl-S, a pager, a supervisor that was stopped) stops the write, and with it every thread of the
process, those that command the arm too. Here a line is written on a thread of its own without
that lock, and as ever goes to the terminal, the log file and ``/rosout``. The last is published
here: rcl would do it within the log's own lock, and lines of C code, which wait for that lock with
the interpreter's in hand, would wait for a stopped reader. ``ros.output`` guards the terminal.
"""

from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any

from rcl_interfaces.msg import Log
from rclpy.logging import LoggingSeverity

from reflex_ros.core.clock import Clock, S, SystemClock
from reflex_ros.ros.convert_basic import time_to_msg
from reflex_ros.ros.publish import CLOSE_WAIT_S, Outbox, rcutils

_FORMAT = b'%s'


class _Location(ctypes.Structure):
    """``rcutils_log_location_t``."""

    _fields_ = (('function', ctypes.c_char_p), ('file', ctypes.c_char_p),
                ('line', ctypes.c_size_t))


class NodeLog:
    """A node's logger; who logs never waits.

    Lines beyond ``capacity`` are dropped and counted.

    Args:
        logger: The one of rclpy: its name and level count, and its other methods.
        clock: Spaces lines that are throttled, and stamps them.
        rosout: Publisher of ``/rosout``, or None.
        capacity: Lines that may wait.
    """

    def __init__(self, logger: Any, clock: Clock | None = None, *, rosout: Any = None,
                 capacity: int = 1000) -> None:
        self._logger = logger
        self._rosout = rosout
        self._clock = clock or SystemClock()
        self._name = str(logger.name).encode()
        self._write = rcutils().rcutils_log
        self._last_ns: dict[tuple[str, int], int] = {}
        self._outbox = Outbox(lambda error: None, capacity=capacity)

    def debug(self, text: str, **filters: Any) -> bool:
        """Log at level DEBUG; see ``info``."""
        return self._log(LoggingSeverity.DEBUG, text, sys._getframe(1), filters)

    def info(self, text: str, **filters: Any) -> bool:
        """Log a line; return whether it was one to be logged.

        Args:
            text: The line.
            filters: ``throttle_duration_sec``: least time between two lines of the same place in
                the code, s.
        """
        return self._log(LoggingSeverity.INFO, text, sys._getframe(1), filters)

    def warning(self, text: str, **filters: Any) -> bool:
        """Log at level WARN; see ``info``."""
        return self._log(LoggingSeverity.WARN, text, sys._getframe(1), filters)

    def error(self, text: str, **filters: Any) -> bool:
        """Log at level ERROR; see ``info``."""
        return self._log(LoggingSeverity.ERROR, text, sys._getframe(1), filters)

    def fatal(self, text: str, **filters: Any) -> bool:
        """Log at level FATAL; see ``info``."""
        return self._log(LoggingSeverity.FATAL, text, sys._getframe(1), filters)

    warn = warning

    def __getattr__(self, name: str) -> Any:
        """Return what else a logger of rclpy has: its name, level and children."""
        return getattr(self._logger, name)

    @property
    def dropped(self) -> int:
        """Lines that were lost because too many waited."""
        return self._outbox.dropped

    def publish(self, line: tuple[int, bytes, _Location, int]) -> None:
        """Write a line; waits as long as whoever reads it."""
        severity, text, location, stamp_ns = line
        self._write(ctypes.addressof(location), severity, self._name, _FORMAT, text)
        if self._rosout is not None:
            self._rosout.publish(Log(
                stamp=time_to_msg(stamp_ns), level=severity, name=self._name.decode(),
                msg=text.decode(), function=location.function.decode(),
                file=location.file.decode(), line=location.line))

    def close(self, wait_s: float = CLOSE_WAIT_S) -> bool:
        """Write what waits; return whether that was done in time. Later lines are lost."""
        return self._outbox.close(wait_s)

    def _log(self, severity: LoggingSeverity, text: str, caller: FrameType,
             filters: dict[str, Any]) -> bool:
        code, line = caller.f_code, caller.f_lineno
        if not self._logger.is_enabled_for(severity) or not self._is_due(
                (code.co_filename, line), **filters):
            return False
        location = _Location(code.co_name.encode(), code.co_filename.encode(), line)
        self._outbox.post(self, (
            int(severity), text.encode(errors='replace'), location, self._clock.stamp_ns()))
        return True

    def _is_due(self, place: tuple[str, int], *, throttle_duration_sec: float = 0.0) -> bool:
        now_ns, last_ns = self._clock.mono_ns(), self._last_ns.get(place)
        if last_ns is not None and now_ns - last_ns < throttle_duration_sec * S:
            return False
        if throttle_duration_sec:
            self._last_ns[place] = now_ns
        return True
