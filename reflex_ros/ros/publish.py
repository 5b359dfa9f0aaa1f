"""Publishing that holds up neither the other threads of a process nor its control loop.

A publish may stand still for a second: Fast DDS keeps a writer locked while it looks for the
shared-memory port of a reader that was stopped (SIGSTOP, a debugger, a suspended container).
rclpy waits for that with the interpreter's lock in hand, and every thread waits with it, those
that command the arm and read its bus too. Here the message is turned into bytes with the lock,
and handed to ``rcl_publish_serialized_message`` without it, which ctypes sees to. ``Outbox``
moves what is left of the wait to a thread of its own.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from rclpy._rclpy_pybind11 import RCLError
from rclpy.serialization import serialize_message

CAPACITY = 4096
"""Messages that wait at most; the bridge fills that in some twenty seconds."""
CLOSE_WAIT_S = 2.0
"""Longest wait for the last messages at the end."""
_END = None


class Publisher:
    """An rclpy publisher whose ``publish`` waits without the interpreter's lock; thread-safe.

    Args:
        publisher: The rclpy publisher.
    """

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher
        self._send = _rcl().rcl_publish_serialized_message

    def publish(self, msg: Any) -> None:
        """Publish a message.

        Raises:
            RCLError: The middleware refused it, e.g. after the end of ROS.
        """
        data = serialize_message(msg)
        bytes_ = _Bytes(ctypes.cast(data, ctypes.c_void_p), len(data), len(data), _allocator())
        handle = self._publisher.handle
        with handle:  # not destroyed meanwhile
            code = self._send(handle.pointer, ctypes.byref(bytes_), None)
        if code:
            raise RCLError(f'{self._publisher.topic_name}: not published: {_take_error()} '
                           f'(code={code})')


class Outbox:
    """Publishes in order on a thread of its own; who posts never waits.

    Args:
        failed: Takes the exception of a publish; the thread goes on.
        capacity: Messages that may wait; one more is dropped and counted.
    """

    def __init__(self, failed: Callable[[BaseException], None], *,
                 capacity: int = CAPACITY) -> None:
        self._failed = failed
        self._waiting: queue.Queue[tuple[Any, Any] | None] = queue.Queue(capacity)
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name='outbox', daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Messages that wait."""
        return self._waiting.qsize()

    def post(self, publisher: Any, msg: Any) -> None:
        """Have a message published soon; drop and count it if too many wait."""
        try:
            self._waiting.put_nowait((publisher, msg))
        except queue.Full:
            self.dropped += 1

    def close(self, wait_s: float = CLOSE_WAIT_S) -> bool:
        """Publish what waits and end the thread; return whether that was done in time."""
        try:
            self._waiting.put(_END, timeout=wait_s)
        except queue.Full:
            return False
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (entry := self._waiting.get()) is not _END:
            publisher, msg = entry
            try:
                publisher.publish(msg)
            except Exception as error:  # one message, or the end of ROS; the owner decides
                self._failed(error)


class _Allocator(ctypes.Structure):
    """``rcutils_allocator_t``."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in (
        'allocate', 'deallocate', 'reallocate', 'zero_allocate', 'state'))


class _Bytes(ctypes.Structure):
    """``rcl_serialized_message_t``, that is ``rcutils_uint8_array_t``."""

    _fields_ = (('buffer', ctypes.c_void_p), ('length', ctypes.c_size_t),
                ('capacity', ctypes.c_size_t), ('allocator', _Allocator))


class _Text(ctypes.Structure):
    """``rcutils_error_string_t``."""

    _fields_ = (('str', ctypes.c_char * 1024),)


@cache
def _rcl() -> ctypes.CDLL:
    """Return the library that rclpy has loaded, found by its name among the loaded ones."""
    library = ctypes.CDLL('librcl.so')
    send = library.rcl_publish_serialized_message
    send.argtypes = (ctypes.c_void_p, ctypes.POINTER(_Bytes), ctypes.c_void_p)
    send.restype = ctypes.c_int
    return library


@cache
def _rcutils() -> ctypes.CDLL:
    library = ctypes.CDLL('librcutils.so')
    library.rcutils_get_default_allocator.restype = _Allocator
    library.rcutils_get_error_string.restype = _Text
    return library


@cache
def _allocator() -> _Allocator:
    allocator: _Allocator = _rcutils().rcutils_get_default_allocator()
    return allocator


def _take_error() -> str:
    """Return what rcl says of the last failure on this thread, and clear it."""
    text: str = _rcutils().rcutils_get_error_string().str.decode(errors='replace')
    _rcutils().rcutils_reset_error()
    return text.split(', at ')[0]
