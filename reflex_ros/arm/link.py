"""Opens, watches and closes the unmodified SDK on one bus.

Four public seams of the SDK object are used: ``callback_function`` (every received frame passes
our decoder first), ``SendCanMessage`` (see ``arm.gate``), ``recv_bus`` (its reader would spin on a
dead bus and never end) and ``CreateCanBus`` (any python-can transport).
"""

from __future__ import annotations

import importlib
import logging
import socket
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reflex_ros.arm import wire
from reflex_ros.arm.arrival import SURE_NS, Arrivals
from reflex_ros.arm.interface import check_interface, read_interface
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ArmError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.arm.feedback import FeedbackBook
    from reflex_ros.arm.gate import CommandGate
    from reflex_ros.arm.interface import InterfaceInfo
    from reflex_ros.core.clock import Clock

SDK_VERSION = '0.6.2'
OPEN_ATTEMPTS = 3
_SLICE_S = SURE_NS / 2 / S
_PAUSE_NS = 10 * MS
_INSTANT_NS = MS
_EMPTY_READS = 100
"""More than a message has characters: one that arrives piece by piece is no closed connection."""

# python-can takes host and port from one dictionary of the process; two drivers must not mix them.
_CAN_RC_LOCK = threading.Lock()


def load_sdk() -> tuple[ModuleType, ModuleType]:
    """Import the SDK and python-can.

    Raises:
        ConfigError: Not installed, or another version than the one this driver was written for.
    """
    try:
        sdk, can = importlib.import_module('piper_sdk'), importlib.import_module('can')
        metadata = importlib.import_module('importlib.metadata')
        version = metadata.version('piper_sdk')
    except ImportError as error:
        raise ConfigError(
            f'piper_sdk: got {error}, expected version {SDK_VERSION}. '
            f'Run `pip install piper_sdk=={SDK_VERSION} "python-can>=4.3,<5"`.'
        ) from error
    if version != SDK_VERSION:
        raise ConfigError(
            f'piper_sdk: got version {version}, expected {SDK_VERSION}: others differ where it '
            f'matters for safety. Run `pip install piper_sdk=={SDK_VERSION}`.'
        )
    return sdk, can


class CanLink:
    """One open bus with the SDK's reader on it.

    Args:
        config: Transport and channel.
        clock: Stamps received frames.
        book: Takes every received frame.
        gate: Guards every sent frame.
        read_info: Reader of the kernel interface, for tests.
    """

    def __init__(
        self,
        config: DriverConfig,
        clock: Clock,
        *,
        book: FeedbackBook,
        gate: CommandGate,
        read_info: Callable[[str], InterfaceInfo] = read_interface,
    ) -> None:
        self._config = config
        self._clock, self._mono_ns = clock, clock.mono_ns
        self._book = book
        self._gate = gate
        self._read_info = read_info
        self._piper: Any = None
        self._receive: Callable[[float], tuple[Any, bool]] | None = None
        self._reader: threading.Thread | None = None
        self._closing = threading.Event()
        self._reader_idle = threading.Event()
        self._empty = self._empty_ns = 0
        self._arrivals = Arrivals(clock.mono_ns())
        self._error: type[Exception] = OSError
        self.lost_reason = ''
        self.error_frames = 0
        self.warnings: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Return whether the bus is open and its reader gets somewhere."""
        return self._piper is not None and not self.lost_reason

    @property
    def sdk(self) -> Any:
        """Return the SDK interface.

        Raises:
            ArmError: The bus is not open.
        """
        if self._piper is None:
            raise ArmError(
                f'CAN bus {self._config.bus_name}: got it closed, expected it open. '
                'Call connect() first.',
                code='not_connected',
            )
        return self._piper

    def open(self) -> None:
        """Open the bus and start the SDK's reader; sends nothing. Blocks for up to ten seconds.

        Raises:
            ConfigError: The SDK is missing or has the wrong version.
            ArmError: The interface or the server cannot be used.
        """
        sdk, can = load_sdk()
        self._error = can.CanOperationError
        if self._config.transport == 'socketcan':
            self.warnings = check_interface(
                self._config.channel, self._config.bitrate, read=self._read_info)
        else:
            self._probe()
        self._closing.clear()
        self._reader_idle.clear()
        self._reader, self._empty, self.lost_reason = None, 0, ''
        piper = sdk.C_PiperInterface_V2(
            self._config.bus_name,  # key of the SDK's singletons: unique per bus, not per channel
            judge_flag=False,
            can_auto_init=False,
            logger_level=sdk.LogLevel.CRITICAL,
        )
        logging.getLogger('can').setLevel(logging.CRITICAL)
        self._create_bus(piper, can)
        self._hook(piper.GetCanBus())
        self._piper = piper
        piper.ConnectPort(piper_init=False)

    def close(self) -> None:
        """Stop the reader, then close the bus; motors are left as they are."""
        piper, self._piper = self._piper, None
        if piper is None:
            return
        self._gate.remove()
        self._closing.set()
        # The reader must have left the socket before it is closed under it.
        self._reader_idle.wait(timeout=0.5)
        piper.DisconnectPort()
        reader = self._reader
        if reader is not None and reader is not threading.current_thread():
            reader.join(timeout=2.0)

    def _create_bus(self, piper: Any, can: ModuleType) -> None:
        for _ in range(OPEN_ATTEMPTS):
            self._arrivals = Arrivals(self._mono_ns())  # before there is a bus nothing waits
            try:
                with self._transport_options(can), warnings.catch_warnings():
                    warnings.simplefilter('ignore', DeprecationWarning)
                    piper.CreateCanBus(
                        self._config.channel,
                        bustype=self._config.transport,
                        expected_bitrate=self._config.bitrate,
                        judge_flag=False,
                    )
            except ConnectionError as error:
                raise self._cannot_open(str(error)) from error
            # The SDK swallows errors of the backend and leaves the bus empty.
            if piper.GetCanBus().recv_bus is not None:
                return
            self._clock.sleep_until(self._clock.mono_ns() + 100 * MS)
        raise self._cannot_open('an error of the CAN backend')

    @contextmanager
    def _transport_options(self, can: ModuleType) -> Iterator[None]:
        with _CAN_RC_LOCK:
            before = dict(can.rc)
            if self._config.transport == 'socketcand':
                can.rc.update(host=self._config.host, port=self._config.port, tcp_tune=True)
            try:
                yield
            finally:
                can.rc.clear()
                can.rc.update(before)

    def _probe(self) -> None:
        # python-can retries a refused connection for ten seconds without a pause.
        address = (self._config.host, self._config.port)
        try:
            socket.create_connection(address, timeout=2.0).close()
        except OSError as error:
            raise ArmError(
                f'CAN server {address[0]}:{address[1]}: got {error}, expected a socketcand '
                'server. Start the simulator or socketcand, or correct host and port.',
                code='can_unreachable',
            ) from error

    def _hook(self, can_bus: Any) -> None:
        original = can_bus.callback_function

        def on_message(message: Any) -> None:
            self._on_message(message)
            if message.arbitration_id not in wire.FEEDBACK_IDS:
                original(message)

        can_bus.callback_function = on_message
        self._receive = can_bus.recv_bus._recv_internal
        can_bus.recv_bus._recv_internal = self._guarded_receive
        self._gate.install(can_bus)

    def _on_message(self, message: Any) -> None:
        if message.is_error_frame:
            self.error_frames += 1
            return
        frame, stamp_s = wire.Frame(message.arbitration_id, bytes(message.data)), message.timestamp
        at_ns = self._arrivals.stamp(self._mono_ns(), stamp_s)
        self._book.on_frame(frame, mono_ns=at_ns, stamp_s=stamp_s)
        if frame.can_id in wire.COMMAND_IDS and not self._gate.is_own(frame, at_ns):
            self._book.on_foreign(frame.can_id, mono_ns=at_ns)

    def _guarded_receive(self, timeout: float | None) -> tuple[Any, bool]:
        """Receive in slices; leave the socket when closing, pause instead of spinning.

        What comes 3000 times a second is taken here and goes no further: the SDK's getters, which
        mix two cycles, are not used, and its way to them costs more than everything else.
        """
        if self._reader is None:
            self._reader = threading.current_thread()
        slice_s = _SLICE_S if timeout is None else min(timeout, _SLICE_S)
        while True:
            asked_ns = self._mono_ns()
            message, is_filtered = self._receive_one(0.0)
            if message is None:  # what comes now has not waited
                self._arrivals.empty(asked_ns)
                message, is_filtered = self._receive_one(slice_s)
            if message is None:
                self._count_empty(self._mono_ns())
                return message, is_filtered
            self._empty = 0
            if message.arbitration_id not in wire.FEEDBACK_IDS:
                return message, is_filtered
            self._on_message(message)

    def _receive_one(self, timeout: float) -> tuple[Any, bool]:
        if self._closing.is_set():
            self._reader_idle.set()
            self._pause()
            raise self._error('closed by the driver')
        assert self._receive is not None
        try:
            return self._receive(timeout)
        except Exception as error:
            self._lose(f'{type(error).__name__}: {error}'.splitlines()[0])
            self._pause()
            raise

    def _count_empty(self, now_ns: int) -> None:
        """Find a closed TCP connection: readable at once and for ever, and never a frame."""
        is_instant = now_ns - self._empty_ns <= _INSTANT_NS
        self._empty, self._empty_ns = self._empty + 1 if is_instant else 0, now_ns
        if self._empty >= _EMPTY_READS:
            self._lose('the server closed the connection')
            self._pause()

    def _lose(self, reason: str) -> None:
        if not self.lost_reason:
            self.lost_reason = reason

    def _pause(self) -> None:
        self._clock.sleep_until(self._clock.mono_ns() + _PAUSE_NS)

    def _cannot_open(self, got: str) -> ArmError:
        return ArmError(
            f'CAN bus {self._config.bus_name} ({self._config.transport}): got {got}, expected it '
            'to open. Check that the channel exists on the server or machine.',
            code='can_open',
        )


def wait_until(clock: Clock, is_met: Callable[[], bool], *, timeout_ns: int) -> bool:
    """Poll ``is_met`` every 5 ms; return whether it held within ``timeout_ns``. Blocks."""
    end_ns = clock.mono_ns() + min(timeout_ns, 60 * S)
    while not is_met():
        now_ns = clock.mono_ns()
        if now_ns >= end_ns:
            return False
        clock.sleep_until(now_ns + 5 * MS)
    return True
