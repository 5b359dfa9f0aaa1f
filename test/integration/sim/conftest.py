"""Running servers, the unmodified SDK on them, and a client that speaks the protocol by hand."""

from __future__ import annotations

import json
import logging
import socket
from types import SimpleNamespace

import pytest

from reflex_ros.core.clock import SystemClock
from reflex_ros.sim.can_codec import CanFrame
from reflex_ros.sim.can_server import CanServer
from reflex_ros.sim.emulator import Emulator, EmulatorConfig
from reflex_ros.sim.plant import KinematicPlant


@pytest.fixture
def clock():
    return SystemClock()


@pytest.fixture
def wait_for(clock):
    """Return a function that polls a condition until it holds or the time is up."""

    def wait(condition, timeout_s=5.0):
        end_ns = clock.mono_ns() + round(timeout_s * 1e9)
        while not (result := condition()) and clock.mono_ns() < end_ns:
            clock.sleep_until(clock.mono_ns() + 5_000_000)
        return result

    return wait


@pytest.fixture
def serve(clock):
    """Return a factory of running servers: ``serve('can0', ..., **emulator_config)``."""
    servers = []

    def make(*channels, port=0, before_tick=None, tap_path=None, **config):
        arms = {
            name: Emulator(KinematicPlant(clock), clock.mono_ns(), config=EmulatorConfig(**config))
            for name in channels or ('can0',)
        }
        server = CanServer(arms, clock, port=port, before_tick=before_tick, tap_path=tap_path)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def sdk(monkeypatch, request):
    """Return a factory of connected SDK instances: ``sdk(port, channel)``."""
    piper_sdk = pytest.importorskip('piper_sdk')
    logging.getLogger('can').setLevel(logging.CRITICAL)
    made = []

    def make(port, channel):
        config = {'host': '127.0.0.1', 'port': port, 'tcp_tune': True}
        monkeypatch.setenv('CAN_CONFIG', json.dumps(config))
        arm = piper_sdk.C_PiperInterface_V2(
            channel, judge_flag=False, can_auto_init=False,
            logger_level=piper_sdk.LogLevel.CRITICAL)
        arm.CreateCanBus(channel, bustype='socketcand', judge_flag=False)
        arm.ConnectPort()
        made.append(arm)
        return arm

    yield make
    # A reader on a closed bus would spin for the rest of the session.
    for arm in made:
        arm.DisconnectPort()


class RawClient:
    """A socketcand client without python-can; reads only when asked."""

    def __init__(self, port, receive_bytes=None):
        self.sock = socket.socket()
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(5)
        self.sock.connect(('127.0.0.1', port))
        self.text = b''
        self.greeting = self.sock.recv(64)

    def ask(self, text):
        """Send one message and return the answer, which arrives alone."""
        self.sock.sendall(text)
        return self.sock.recv(64)

    def enter(self, channel='can0'):
        assert self.ask(f'< open {channel} >'.encode()) == b'< ok >'
        assert self.ask(b'< rawmode >') == b'< ok >'
        return self

    def send(self, can_id, data):
        text = ' '.join(f'{byte:x}' for byte in data)
        self.sock.sendall(f'< send {can_id:03X} {len(data)} {text} >'.encode())

    def frames(self, count):
        """Return the next ``count`` frames."""
        out = []
        while len(out) < count:
            *parts, self.text = (self.text + self.sock.recv(65536)).split(b'>')
            out += [CanFrame(int(words[2], 16), bytes.fromhex(words[4].decode()))
                    for words in (part.split() for part in parts)]
        return out


@pytest.fixture
def raw_client():
    """Return a factory of raw clients: ``raw_client(port)``."""
    clients = []

    def make(port, **options):
        client = RawClient(port, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.sock.close()


@pytest.fixture
def joint_target():
    """Return a pose inside every range and its three frames."""
    mdeg = (10_000, 40_000, -50_000, 5_000, 20_000, -30_000)
    data = [b''.join(v.to_bytes(4, 'big', signed=True) for v in mdeg[n:n + 2]) for n in (0, 2, 4)]
    return SimpleNamespace(mdeg=mdeg, frames=list(zip((0x155, 0x156, 0x157), data, strict=True)))
