"""Emulated arms behind a socketcand server on loopback, for the unmodified SDK.

One thread serves every client and steps every arm at 200 Hz on absolute deadlines; a late cycle
is skipped and counted, never caught up. By hand::

    python -m reflex_ros.sim.can_server --port 0 --channel can0 [--faults FILE]
"""

from __future__ import annotations

import argparse
import json
import selectors
import signal
import socket
import sys
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import EXIT_DONE, ConfigError, ReflexError
from reflex_ros.sim.can_tap import CommandTap
from reflex_ros.sim.emulator import FIRMWARE, PERIOD_NS, Emulator, EmulatorConfig
from reflex_ros.sim.faults import load_faults
from reflex_ros.sim.injector import FaultInjector
from reflex_ros.sim.plant import KinematicPlant
from reflex_ros.sim.socketcand import OK, Client, format_frames, parse_send

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from reflex_ros.core.clock import Clock
    from reflex_ros.sim.can_codec import CanFrame

HOST = '127.0.0.1'
PORT = 29536
FLUSH_TICKS = 200
STOP_TIMEOUT_S = 2.0
NO_SUCH_BUS = b'< error could not open bus >'


@dataclass(frozen=True, slots=True)
class ServerStats:
    """Counters since ``start``.

    Attributes:
        ticks: Cycles of 5 ms that ran. ``missed_ticks``: cycles skipped because of lateness.
        late_max_ns: Worst lateness of a cycle.
        clients: Connections open now. ``connections``: accepted so far.
        frames_sent: Frames the arms put on the bus, by channel, whoever listened.
        dropped_writes: Cycles that a client which does not read has lost, over all clients.
        malformed: Messages that are not the protocol.
        received: Frames from hosts, by channel and id.
    """

    ticks: int = 0
    missed_ticks: int = 0
    late_max_ns: int = 0
    clients: int = 0
    connections: int = 0
    frames_sent: dict[str, int] = field(default_factory=dict)
    dropped_writes: int = 0
    malformed: int = 0
    received: dict[str, dict[int, int]] = field(default_factory=dict)


class CanServer:
    """Serves emulated arms, one per channel name, on one TCP port.

    ``start`` and ``stop`` are for one thread; everything else is safe from any. The emulators
    belong to the server's thread while it runs; inject faults through ``emulator.faults``.

    Args:
        emulators: Arms by channel name, e.g. ``{'can0': ...}``.
        clock: Steady deadlines and the stamps of the frames; a real one.
        host: Address to listen on. ``port``: 0 = any free one.
        tap_path: File for every received frame; None = memory only.
        before_tick: Called with the steady time (ns) before the arms step, e.g. to advance the
            physics that stands behind them.
    """

    def __init__(
        self,
        emulators: Mapping[str, Emulator],
        clock: Clock,
        *,
        host: str = HOST,
        port: int = PORT,
        tap_path: Path | str | None = None,
        before_tick: Callable[[int], None] | None = None,
    ) -> None:
        if not emulators or any(not name or name.split() != [name] for name in emulators):
            raise ConfigError(
                f'CAN server channels: got {list(emulators)}, expected names without blanks, at '
                'least one. Name each arm, e.g. can0.'
            )
        self.emulators = MappingProxyType(dict(emulators))
        self.tap = CommandTap(tuple(emulators), path=tap_path, start=clock.now())
        self._clock = clock
        self._address = (host, port)
        self._before_tick = before_tick
        self._listener: socket.socket | None = None
        self._selector: selectors.BaseSelector | None = None
        self._waker: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._error: Exception | None = None
        self._clients: set[Client] = set()
        self._ticks = self._missed = self._late_max_ns = self._connections = 0
        self._gone_malformed = self._gone_dropped = 0
        self._sent: Counter[str] = Counter()

    @property
    def port(self) -> int:
        """Return the port that the server listens on.

        Raises:
            ConfigError: It has not been started.
        """
        if self._listener is None:
            raise ConfigError('CAN server port: got none, expected a started server. Start it.')
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def is_running(self) -> bool:
        """Return whether the server's thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Listen and serve from a thread of its own.

        Raises:
            ConfigError: The address cannot be listened on, or the server runs already.
        """
        if self._thread is not None:
            raise ConfigError('CAN server start: got a running server, expected a stopped one. '
                              'Stop it first.')
        self._listener = _listen(*self._address)
        self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._waker[0], selectors.EVENT_READ, None)
        self._is_stopping = False
        self._error = None
        self._thread = threading.Thread(target=self._run, name='can-server', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and close every connection; a stopped server can be started again.

        Raises:
            Exception: Whatever ended the server's thread before.
        """
        if self._thread is None or self._waker is None:
            return
        self._is_stopping = True
        self._waker[1].send(b'x')
        self._thread.join(STOP_TIMEOUT_S)
        self._thread = None
        for client in tuple(self._clients):
            self._forget(client)
        for sock in (self._listener, *self._waker):
            if sock is not None:
                sock.close()
        if self._selector is not None:
            self._selector.close()
        self._listener = self._waker = self._selector = None
        self.tap.flush()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop for good and close the tap's file."""
        try:
            self.stop()
        finally:
            self.tap.close()

    def stats(self) -> ServerStats:
        """Return the counters."""
        clients = tuple(self._clients)
        return ServerStats(
            ticks=self._ticks,
            missed_ticks=self._missed,
            late_max_ns=self._late_max_ns,
            clients=len(clients),
            connections=self._connections,
            frames_sent={name: self._sent[name] for name in self.emulators},
            dropped_writes=self._gone_dropped + sum(c.dropped_blobs for c in clients),
            malformed=self._gone_malformed + sum(c.malformed for c in clients),
            received={name: self.tap.counts(name) for name in self.emulators},
        )

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            self._error = error  # stop() raises it; a thread has nobody to raise to

    def _serve(self) -> None:
        assert self._selector is not None
        due_ns = self._clock.mono_ns() + PERIOD_NS
        while not self._is_stopping:
            now_ns = self._clock.mono_ns()
            if now_ns >= due_ns:
                missed = (now_ns - due_ns) // PERIOD_NS
                self._missed += missed
                self._late_max_ns = max(self._late_max_ns, now_ns - due_ns)
                due_ns += (missed + 1) * PERIOD_NS
                self._tick(now_ns)
                continue
            waits = [e.next_due_ns for e in self.emulators.values()]
            wake_ns = min([due_ns, *(t for t in waits if t is not None)])
            for key, _ in self._selector.select(max(0, wake_ns - now_ns) / S):
                if key.data is not None:
                    key.data()
            self._send_due(self._clock.mono_ns())

    def _tick(self, now_ns: int) -> None:
        self._ticks += 1
        if self._before_tick is not None:
            self._before_tick(now_ns)
        for name, emulator in self.emulators.items():
            self._send(name, emulator.due(now_ns) + emulator.step(now_ns), now_ns)
        if self._ticks % FLUSH_TICKS == 0:
            self.tap.flush()

    def _send_due(self, now_ns: int) -> None:
        for name, emulator in self.emulators.items():
            due_ns = emulator.next_due_ns
            if due_ns is not None and due_ns <= now_ns:
                self._send(name, emulator.due(now_ns), now_ns)

    def _send(self, channel: str, frames: list[CanFrame], now_ns: int) -> None:
        if not frames:
            return
        self._sent[channel] += len(frames)
        listeners = [c for c in self._clients if c.is_raw and c.channel == channel]
        if not listeners:
            return
        blob = format_frames(frames, self._clock.stamp_ns())
        for client in listeners:
            client.write(blob, now_ns)
            if client.is_gone:
                self._forget(client)

    def _accept(self) -> None:
        assert self._listener is not None and self._selector is not None
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the peer left between the event and the call
            return
        client = Client(sock)
        self._connections += 1
        self._clients.add(client)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._read(client))

    def _read(self, client: Client) -> None:
        messages = client.read()
        now_ns = self._clock.mono_ns()
        for words in messages:
            self._message(client, words, now_ns)
        if client.is_gone:
            self._forget(client)

    def _message(self, client: Client, words: list[bytes], now_ns: int) -> None:
        verb = words[0]
        if verb == b'send' and client.channel is not None:
            frame = parse_send(words)
            if frame is None:
                client.malformed += 1
                return
            self.tap.record(client.channel, frame, now_ns)
            self.emulators[client.channel].receive(frame.can_id, frame.data, now_ns)
        elif verb == b'open' and len(words) == 2:
            name = words[1].decode('ascii', 'replace')
            client.channel = name if name in self.emulators else None
            client.write_now(OK if client.channel else NO_SUCH_BUS)
        elif verb == b'rawmode' and client.channel is not None:
            client.enter_raw(now_ns)
        elif verb == b'echo':
            client.write_now(b'< echo >')
        else:
            client.malformed += 1

    def _forget(self, client: Client) -> None:
        if client not in self._clients:
            return
        self._clients.discard(client)
        self._gone_malformed += client.malformed
        self._gone_dropped += client.dropped_blobs
        if self._selector is not None:
            self._selector.unregister(client.sock)
        client.close()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(16)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(
            f'CAN server port {port} on {host}: got {error}, expected a free port. '
            'Stop what uses it, or choose another (0 = any).'
        ) from error
    return listener


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve kinematic arms until interrupted; print the port first, the counters last (JSON)."""
    parser = argparse.ArgumentParser(prog='reflex_ros.sim.can_server', description=main.__doc__)
    parser.add_argument('--host', default=HOST)
    parser.add_argument('--port', type=int, default=PORT, help='0 = any free one')
    parser.add_argument('--channel', action='append', help='once per arm; default can0')
    parser.add_argument('--faults', help='YAML fault script, for every arm')
    parser.add_argument('--tap', help='file for every received frame')
    parser.add_argument('--firmware', default=FIRMWARE, help='version that the arm reports')
    parser.add_argument('--leader', action='store_true', help='start in leader mode')
    options = parser.parse_args(arguments)
    try:
        return _serve_until_signal(options)
    except ReflexError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _serve_until_signal(options: argparse.Namespace) -> int:
    clock = SystemClock()
    script = load_faults(options.faults) if options.faults else None
    config = EmulatorConfig(firmware=options.firmware, is_leader=options.leader)
    arms = {
        name: Emulator(KinematicPlant(clock), clock.mono_ns(), config=config,
                       faults=FaultInjector(script))
        for name in options.channel or ['can0']
    }
    server = CanServer(arms, clock, host=options.host, port=options.port, tap_path=options.tap)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    print(json.dumps({'port': server.port, 'channels': list(arms)}), flush=True)
    while server.is_running and not stop.wait(0.5):
        pass
    stats = server.stats()
    server.close()
    print(json.dumps(asdict(stats)), flush=True)
    return EXIT_DONE


if __name__ == '__main__':
    sys.exit(main())
