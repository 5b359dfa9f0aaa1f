"""An emulated arm behind a small socketcand server in this process, and drivers on it."""

from __future__ import annotations

import select
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.driver import PiperDriver
from reflex_ros.arm.protocol import Arm
from reflex_ros.core.clock import SystemClock
from reflex_ros.sim.emulator import PERIOD_NS, Emulator, EmulatorConfig
from reflex_ros.sim.plant import KinematicPlant

QUEUE_BYTES = 65536


class Client:
    """One TCP connection: bytes that wait, and whether it listens to frames."""

    def __init__(self, sock):
        self.sock = sock
        self.text = ''
        self.pending = bytearray(b'< hi >')
        self.raw_since_ns = None
        sock.setblocking(False)

    def flush(self):
        if self.pending:
            try:
                del self.pending[:self.sock.send(self.pending)]
            except BlockingIOError:
                # The SDK never reads on its second connection.
                if len(self.pending) > QUEUE_BYTES:
                    self.pending.clear()
            except OSError:
                self.pending.clear()  # gone; the next read removes it


class BusServer(threading.Thread):
    """Serves one emulated arm as ``can0``; ``commands`` lists what the host sent."""

    def __init__(self, config=None, plant=None):
        super().__init__(daemon=True)
        self.clock = SystemClock()
        self.plant = plant or KinematicPlant(self.clock)
        self.arm = Emulator(self.plant, self.clock.mono_ns(), config=config)
        self.commands = []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.clients = []
        self.is_running = True

    def run(self):
        due_ns = self.clock.mono_ns()
        while self.is_running:
            wait_s = max(0.0, (due_ns - self.clock.mono_ns()) * 1e-9)
            socks = [self.listener, *(c.sock for c in self.clients)]
            for sock in select.select(socks, [], [], min(wait_s, 0.002))[0]:
                self._read(sock)
            now_ns = self.clock.mono_ns()
            self._put(self.arm.due(now_ns), now_ns)
            if now_ns >= due_ns:
                self._put(self.arm.step(now_ns), now_ns)
                due_ns = max(due_ns + PERIOD_NS, now_ns)
        for client in self.clients:
            client.sock.close()
        self.listener.close()

    def stop(self):
        """Close every connection, as the death of the process would."""
        self.is_running = False
        self.join(5)

    def inject(self, fault):
        self.arm.faults.inject(fault, self.clock.mono_ns())

    def _read(self, sock):
        if sock is self.listener:
            client = Client(sock.accept()[0])
            client.flush()
            self.clients.append(client)
            return
        client = next(c for c in self.clients if c.sock is sock)
        try:
            data = sock.recv(65536)
        except OSError:
            data = b''
        if not data:
            self.clients.remove(client)
            sock.close()
            return
        client.text += data.decode('ascii')
        while '>' in client.text:
            words, client.text = client.text.split('>', 1)
            self._obey(client, words.strip(' <').split())

    def _obey(self, client, words):
        if words[0] in ('open', 'rawmode'):
            client.sock.send(b'< ok >')
            if words[0] == 'rawmode':
                client.raw_since_ns = self.clock.mono_ns() + 10_000_000
        elif words[0] == 'send':
            data = bytes(int(word, 16) for word in words[3:])
            self.commands.append((int(words[1], 16), data))
            self.arm.receive(int(words[1], 16), data, self.clock.mono_ns())

    def _put(self, frames, now_ns):
        stamp = time.time()
        blob = ''.join(f'< frame {f.can_id:03X} {stamp:.6f} {f.data.hex()} >' for f in frames)
        for client in self.clients:
            if client.raw_since_ns is not None and now_ns >= client.raw_since_ns:
                client.pending += blob.encode()
                client.flush()


@pytest.fixture
def serve():
    """Return a factory of running servers: ``serve(plant=None, **emulator_config)``."""
    servers = []

    def make(plant=None, **config):
        server = BusServer(EmulatorConfig(**config), plant)
        server.start()
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def server(serve):
    """Return a healthy emulated arm on a bus."""
    return serve()


@pytest.fixture
def drive(tmp_path):
    """Return a factory of drivers, ``drive(server, **config)``; disconnected at the end.

    Feedback may be a second old unless a test says otherwise: a busy machine stalls for longer
    than the 100 ms that count on a robot.
    """
    drivers = []

    def make(server, **config):
        config = {'feedback_timeout_ns': 1_000_000_000, **config}
        driver = PiperDriver(DriverConfig(
            transport='socketcand', port=server.port, lock_dir=tmp_path, **config))
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.disconnect()


@pytest.fixture
def driver(server, drive):
    """Return a connected, checked and enabled driver."""
    return ready(drive(server))


def ready(arm: Arm):
    arm.connect()
    arm.check()
    arm.enable()
    return arm


@pytest.fixture
def wait():
    """Return ``wait(condition, seconds) -> seconds it took``; fails if it never held."""
    def until(condition, seconds=2.0):
        start = time.monotonic()
        while not condition():
            assert time.monotonic() - start < seconds, 'never happened'
            time.sleep(0.002)
        return time.monotonic() - start
    return until


@pytest.fixture
def stream():
    """Return ``stream(arm, position, seconds) -> results`` that sends at 50 Hz."""
    def send(arm, position, seconds, *, each=lambda k: 0.0):
        results = []
        start = time.monotonic()
        for k in range(round(seconds * 50)):
            command = position.copy()
            command[0] += each(k)
            results.append(arm.send(command))
            time.sleep(max(0.0, start + 0.02 * (k + 1) - time.monotonic()))
        return results
    return send


@pytest.fixture
def tools():
    """Return helpers that are not fixtures by themselves."""
    return SimpleNamespace(ready=ready)
