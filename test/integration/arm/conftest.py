"""An emulated arm on a socketcand bus of its own, and drivers on it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from reflex_ros.arm import wire
from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.driver import PiperDriver
from reflex_ros.arm.protocol import Arm
from reflex_ros.core.clock import SystemClock
from reflex_ros.sim.can_server import CanServer
from reflex_ros.sim.emulator import Emulator, EmulatorConfig
from reflex_ros.sim.plant import KinematicPlant


class Bus:
    """One emulated arm as ``can0`` on a free port; ``commands`` lists what the host sent."""

    def __init__(self, config, plant):
        self.clock = SystemClock()
        plant = plant or KinematicPlant(self.clock)
        self.arm = Emulator(plant, self.clock.mono_ns(), config=config)
        self.server = CanServer({'can0': self.arm}, self.clock, port=0)
        self.server.start()
        self.port = self.server.port
        self._since = 0

    @property
    def commands(self):
        return [(r.can_id, r.data) for r in self.server.tap.recent()][self._since:]

    def tap(self):
        """Return everything that arrived, whatever a test has forgotten."""
        return [(r.can_id, r.data) for r in self.server.tap.recent()]

    def forget(self):
        """Let ``commands`` start here."""
        self._since = len(self.server.tap.recent())

    def inject(self, fault):
        self.arm.faults.inject(fault, self.clock.mono_ns())

    def pull(self):
        """Cut every connection; the server goes on."""
        for client in tuple(self.server._clients):
            client.sock.shutdown(2)

    def stop(self):
        self.server.stop()


@pytest.fixture
def serve():
    """Return a factory of running servers: ``serve(plant=None, **emulator_config)``."""
    servers = []

    def make(plant=None, **config):
        servers.append(Bus(EmulatorConfig(**config), plant))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()
    forbidden = [frame for server in servers for frame in server.tap()
                 if wire.is_forbidden(wire.Frame(*frame))]
    assert not forbidden, 'frames that must never leave the driver'


@pytest.fixture
def server(serve):
    """Return a healthy emulated arm on a bus."""
    return serve()


@pytest.fixture
def simulator(tmp_path):
    """Return an emulated arm in a process of its own, with its ``port``; killed at the end.

    What it is sent lies where the search at the end of the session finds it.
    """
    process = subprocess.Popen(
        [sys.executable, '-m', 'reflex_ros.sim.can_server', '--port', '0',
         '--tap', str(tmp_path / 'can_tap.bin')], stdout=subprocess.PIPE)
    process.port = json.loads(process.stdout.readline())['port']
    yield process
    process.kill()
    process.communicate()


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
