"""Answers of services that hold up neither the executor nor the control loop.

rclpy sends an answer from the executor with the interpreter's lock in hand. Fast DDS writes it to
every client of the service, whoever asked, and may wait for one that was stopped: then nobody is
served, and every thread waits, those that command the arm too. Here the answer is converted with
the lock and handed to ``rcl_send_response`` without it, on a thread of the service's own. The
executor is free to serve the next request, a hold. Where the request's identifier cannot be read,
with another rclpy than the pinned one, rclpy sends the answer: a hold is never refused for that.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from rclpy._rclpy_pybind11 import RCLError, rmw_request_id_t, rmw_service_info_t

from reflex_ros.core.errors import ConfigError
from reflex_ros.ros.publish import CLOSE_WAIT_S, Failed, Outbox, TypeSupport, rcl, take_error

OBJECT_BYTES = 56
"""Size of an object of pybind11, whose third word is the address of what it wraps."""
_WRAPPED = 16
_GUID_BYTES = 16


class _RequestId(ctypes.Structure):
    """``rmw_request_id_t``."""

    _fields_ = (('writer_guid', ctypes.c_byte * _GUID_BYTES), ('number', ctypes.c_int64))


def layout_error() -> ConfigError | None:
    """Return why requests cannot be identified with this rclpy; cheap, so asked at the start."""
    return None if rmw_request_id_t.__basicsize__ == OBJECT_BYTES else _unknown(rmw_request_id_t)


class Answers:
    """Sends the answers of one service; made, it replaces the service's ``send_response``.

    Args:
        service: The rclpy service.
        failed: Takes the exception of an answer that was not sent.
    """

    def __init__(self, service: Any, failed: Failed) -> None:
        self._service = service
        self._failed = failed
        self._support = TypeSupport(service.srv_type.Response)
        self._send = rcl().rcl_send_response
        self._lock = threading.Lock()
        self._outbox: Outbox | None = None
        self._plain = service.send_response
        self._is_told = False
        service.send_response = self.post

    def post(self, response: Any, header: Any) -> None:
        """Have an answer sent soon.

        Args:
            response: Of the service's type. ``header``: of the request.
        """
        try:
            request = request_id(header)
        except ConfigError as error:
            self._plain(response, header)
            self._tell(error)
            return
        with self._lock:
            if self._outbox is None:
                self._outbox = Outbox(self._failed)
        self._outbox.post(self, (response, request))

    def _tell(self, error: ConfigError) -> None:
        if not self._is_told:
            self._is_told = True
            self._failed(error)

    def publish(self, answer: tuple[Any, Any]) -> None:
        """Send an answer; waits as long as the middleware does.

        Raises:
            TypeError: It is of another type.
            RCLError: The middleware refused it. ``InvalidHandle``: the service is gone.
        """
        response, request = answer
        handle = self._service.handle
        with handle, self._support.in_c(response) as memory:
            code = self._send(handle.pointer, ctypes.addressof(request), memory)
        if code:
            raise RCLError(f'{self._service.srv_name}: answer not sent: {take_error()} '
                           f'(code={code})')

    def close(self, wait_s: float = CLOSE_WAIT_S) -> bool:
        """Send what waits; return whether that was done in time."""
        return self._outbox is None or self._outbox.close(wait_s)


def request_id(header: Any) -> _RequestId:
    """Return a copy of the identifier of a request; rclpy shows only its number to Python.

    Args:
        header: As the executor hands it over.

    Raises:
        ConfigError: Another rclpy, whose objects look different.
    """
    shown = header.request_id if isinstance(header, rmw_service_info_t) else header
    if type(shown) is rmw_request_id_t and layout_error() is None:
        address = ctypes.c_void_p.from_address(id(shown) + _WRAPPED).value
        if address:
            found = _RequestId.from_buffer_copy(
                ctypes.string_at(address, ctypes.sizeof(_RequestId)))
            if found.number == shown.sequence_number:
                return found
    raise _unknown(type(shown))


def _unknown(kind: type) -> ConfigError:
    return ConfigError(
        f'service answer: got a header of {kind.__name__} with '
        f'{kind.__basicsize__} B, expected an rmw_request_id_t of {OBJECT_BYTES}. Answers '
        'go out by rclpy and may wait for a stopped client. Install rclpy of ROS 2 Jazzy.')
