"""Publishing that holds up neither the other threads of a process nor its control loop.

A publish may stand still for seconds: Fast DDS keeps a writer locked while it looks for the
shared-memory port of a reader that was stopped (SIGSTOP, a debugger, a suspended container).
rclpy waits for that with the interpreter's lock in hand, and every thread waits with it, those
that command the arm and read its bus too. Here the message is converted with the lock, as rclpy
does it, and handed to ``rcl_publish`` without it, which ctypes sees to. ``Outbox`` moves what is
left of the wait to a thread of its own.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias

from rclpy._rclpy_pybind11 import RCLError
from rclpy.event_handler import PublisherEventCallbacks

CAPACITY = 4096
"""Messages that wait at most; the bridge fills that in some twenty seconds."""
QUIET = PublisherEventCallbacks(use_default_callbacks=False)
"""No events: each would be one more thing to wait for at every turn of the executor; a reader
whose quality of service does not fit says so itself."""
CLOSE_WAIT_S = 2.0
"""Longest wait for the last messages at the end."""
_END = None
Failed: TypeAlias = Callable[[BaseException], None]


class Publisher:
    """An rclpy publisher whose ``publish`` waits without the interpreter's lock; thread-safe.

    Args:
        publisher: The rclpy publisher.
    """

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher
        self._support = TypeSupport(publisher.msg_type)
        self._send = rcl().rcl_publish

    def publish(self, msg: Any) -> None:
        """Publish a message.

        Raises:
            TypeError: It is of another type.
            RCLError: The middleware refused it, e.g. after the end of ROS.
        """
        handle = self._publisher.handle
        with handle, self._support.in_c(msg) as memory:  # the handle is not destroyed meanwhile
            code = self._send(handle.pointer, memory, None)
        if code:
            raise RCLError(f'{self._publisher.topic_name}: not published: {take_error()} '
                           f'(code={code})')


class Outbox:
    """Publishes in order on a thread of its own; who posts never waits.

    Args:
        failed: Takes the exception of a publish; the thread goes on.
        capacity: Messages that may wait; one more is dropped and counted.
    """

    def __init__(self, failed: Failed, *, capacity: int = CAPACITY) -> None:
        self._failed = failed
        self._capacity = capacity
        self._waiting: queue.SimpleQueue[tuple[Any, Any] | None] = queue.SimpleQueue()
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name='outbox', daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Messages that wait."""
        return self._waiting.qsize()

    def post(self, publisher: Any, msg: Any) -> None:
        """Have a message published soon; drop and count it if too many wait."""
        if self._waiting.qsize() < self._capacity:
            self._waiting.put((publisher, msg))
        else:
            self.dropped += 1

    def close(self, wait_s: float = CLOSE_WAIT_S) -> bool:
        """Publish what waits and end the thread; return whether that was done in time."""
        self._waiting.put(_END)
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (entry := self._waiting.get()) is not _END:
            publisher, msg = entry
            try:
                publisher.publish(msg)
            except Exception as error:  # one message, or the end of ROS; the owner decides
                self._failed(error)


class TypeSupport:
    """Makes C structures of Python messages, with the functions that rclpy uses for it."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        meta = type(kind)
        if meta._CREATE_ROS_MESSAGE is None:
            meta.__import_type_support__()
        memory = ctypes.c_void_p
        self._create = ctypes.PYFUNCTYPE(memory)(_address(meta._CREATE_ROS_MESSAGE))
        self._convert = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.py_object, memory)(
            _address(meta._CONVERT_FROM_PY))
        self._destroy = ctypes.PYFUNCTYPE(None, memory)(_address(meta._DESTROY_ROS_MESSAGE))

    @contextmanager
    def in_c(self, msg: Any) -> Iterator[int]:
        """Return where the message lies in C until the block ends."""
        if not isinstance(msg, self._kind):
            raise TypeError(f'message to publish: got a {type(msg).__name__}, expected a '
                            f'{self._kind.__name__}. Publish it on the topic of its type.')
        memory = self._create()
        if not memory:
            raise MemoryError(f'no memory for a {self._kind.__name__}')
        try:
            if not self._convert(msg, memory):
                raise TypeError(f'{self._kind.__name__}: cannot be converted')
            yield memory
        finally:
            self._destroy(memory)


class _Text(ctypes.Structure):
    """``rcutils_error_string_t``."""

    _fields_ = (('str', ctypes.c_char * 1024),)


def _address(capsule: Any) -> int:
    """Return the address of the function in a capsule."""
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    return int(address(capsule, name(capsule)))


@cache
def rcl() -> ctypes.CDLL:
    """Return the library that rclpy has loaded, found by its name among the loaded ones."""
    library = ctypes.CDLL('librcl.so')
    library.rcl_publish.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    library.rcl_publish.restype = ctypes.c_int
    library.rcl_send_response.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    library.rcl_send_response.restype = ctypes.c_int
    library.rcl_logging_rosout_enabled.argtypes = ()
    library.rcl_logging_rosout_enabled.restype = ctypes.c_bool
    return library


@cache
def rcutils() -> ctypes.CDLL:
    """Return the library of errors and log lines, as ``rcl``."""
    library = ctypes.CDLL('librcutils.so')
    library.rcutils_get_error_string.restype = _Text
    library.rcutils_log.argtypes = (
        ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
    library.rcutils_log.restype = None
    return library


def take_error() -> str:
    """Return what rcl says of the last failure on this thread, and clear it."""
    text: str = rcutils().rcutils_get_error_string().str.decode(errors='replace')
    rcutils().rcutils_reset_error()
    return text.split(', at ')[0]
