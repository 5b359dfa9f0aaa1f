"""Hand-off of a ring over its socket: both ends in one process, on loopback only."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, ManualClock, S, SystemClock
from reflex_ros.core.errors import ConfigError, LayoutError, StaleError
from reflex_ros.ring import handshake
from reflex_ros.ring.client import RingClient
from reflex_ros.ring.handoff import RingServer
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.ring import RingWriter

LAYOUT = RingLayout.snapshot((256,), 'float32', model_id='tiny', readers=2)
CLOCK = SystemClock()

pytestmark = pytest.mark.realtime


class Rig:
    """A served ring."""

    def __init__(self, stack, name, **options):
        self.name = name
        self.writer = RingWriter.create(LAYOUT, clock=CLOCK)
        stack.callback(self.writer.close)
        self.server = RingServer(name, self.writer, clock=CLOCK, **options)
        stack.callback(self.server.close)

    def connect(self, **options):
        return RingClient.connect(self.name, timeout_ns=2 * S, clock=CLOCK, **options)

    def dial(self):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        peer.settimeout(5)
        peer.connect(handshake.socket_address(self.name))
        return peer

    def publish(self, value):
        slot = self.writer.begin()
        slot.frame[...] = value
        return self.writer.commit(slot, stamp_ns=1, epoch=1, tokens=1)


@pytest.fixture
def name():
    return handshake.ring_name(f'/test_{os.getpid()}', domain_id=99)


@pytest.fixture
def serve(name):
    with ExitStack() as stack:
        yield lambda **options: Rig(stack, name, **options)


def open_fds():
    return len(os.listdir('/proc/self/fd'))


def shm_files():
    """Return what lies in /dev/shm, without the middleware of other programs."""
    return {name for name in os.listdir('/dev/shm') if 'fastrtps' not in name}


def abstract_names():
    with open('/proc/net/unix') as file:
        return [line.split()[-1] for line in file if '@reflex_ros/' in line]


def wait_until(fact):
    for _ in range(500):
        if fact():
            return
        CLOCK.sleep_until(CLOCK.mono_ns() + 10 * MS)
    raise AssertionError('did not become true within 5 s')


def test_client_reads_what_the_writer_published(serve):
    rig = serve()
    rig.publish(3)
    client = rig.connect(expected=LAYOUT)
    out = np.empty(256, np.float32)
    assert client.reader.copy(client.reader.latest(), out)
    assert (out == 3).all()
    assert client.layout == LAYOUT
    assert client.reader.ring_id == rig.writer.ring_id
    assert client.is_writer_alive
    client.close()


def test_wrong_layout_is_refused_and_the_text_says_what_differs(serve):
    rig = serve()
    before = open_fds()
    with pytest.raises(LayoutError, match=r"model_id: got 'tiny', expected 'pi0'"):
        rig.connect(expected=replace(LAYOUT, model_id='pi0'))
    wait_until(lambda: open_fds() == before)


def test_server_of_another_user_is_refused(serve):
    rig = serve()
    with pytest.raises(ConfigError, match='same user'):
        rig.connect(uid=os.getuid() + 1)


def test_client_of_another_user_gets_no_descriptor(serve):
    rig = serve(uid=os.getuid() + 1)
    with rig.dial() as peer:
        try:
            peer.send(handshake.hello())
            assert handshake.receive(peer) == (b'', ())
        except (BrokenPipeError, ConnectionResetError):
            pass
    wait_until(lambda: rig.server.stats.refused == 1)
    assert rig.server.stats.served == 0


@pytest.mark.skipif(os.getuid() != 0, reason='needs root to become another user')
def test_process_of_another_user_gets_no_descriptor(serve):
    rig = serve()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setuid(65534)
            with rig.dial() as peer:
                peer.send(handshake.hello())
                code = 0 if handshake.receive(peer) == (b'', ()) else 1
        except (BrokenPipeError, ConnectionResetError):
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    wait_until(lambda: rig.server.stats.refused == 1)


@pytest.mark.parametrize('message', [b'GET / HTTP/1.1', b'\x00' * 1000, b'[]', b'{"greeting": 1}'])
def test_garbage_gets_a_refusal_and_the_next_client_is_served(serve, message):
    rig = serve()
    with rig.dial() as peer:
        peer.send(message)
        answer, fds = handshake.receive(peer)
        assert 'handshake failed' in json.loads(answer)['refused']
        assert fds == ()
        assert peer.recv(1) == b''
    rig.connect().close()
    assert rig.server.stats.refused == 1


def test_garbage_after_the_handshake_ends_only_that_connection(serve):
    rig = serve()
    client = rig.connect()
    with rig.dial() as peer:
        peer.send(handshake.hello())
        handshake.close_all(handshake.receive(peer)[1])
        peer.send(b'{"row": "x"}')
        while peer.recv(65536):
            pass
    assert client.is_writer_alive
    client.close()


def test_silent_client_is_dropped_and_does_not_block_others(serve):
    rig = serve(hello_ns=200 * MS)
    with rig.dial() as silent:
        rig.connect().close()
        assert silent.recv(1) == b''
    assert rig.server.stats.refused == 1


def test_garbage_from_a_server_is_refused_without_a_leak(name):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(handshake.socket_address(name))
    listener.listen()
    ends = os.pipe()

    def answer():
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            socket.send_fds(connection, [b'nonsense'], list(ends))
    thread = threading.Thread(target=answer)
    thread.start()
    before = open_fds()
    with pytest.raises(LayoutError, match='handshake failed'):
        RingClient.connect(name, timeout_ns=2 * S, clock=CLOCK)
    thread.join()
    assert open_fds() == before
    listener.close()
    handshake.close_all(ends)


def test_missing_writer_is_an_error_after_the_timeout(name):
    before = open_fds()
    clock = ManualClock()
    with pytest.raises(StaleError, match='within 500 ms'):
        RingClient.connect(name, timeout_ns=500 * MS, clock=clock)
    assert clock.mono_ns() == 500 * MS
    assert open_fds() == before


def test_client_waits_for_a_writer_that_starts_later(serve, name):
    clients = []
    thread = threading.Thread(target=lambda: clients.append(
        RingClient.connect(name, timeout_ns=10 * S, clock=CLOCK)))
    thread.start()
    rig = serve()
    thread.join()
    assert clients[0].reader.ring_id == rig.writer.ring_id
    clients[0].close()


def test_name_in_use_is_refused_when_the_server_is_made(serve, name):
    rig = serve()
    before = open_fds()
    with pytest.raises(ConfigError, match='Stop the other vision_encoder'):
        RingServer(name, rig.writer, clock=CLOCK)
    assert open_fds() == before


def test_closed_server_is_noticed_and_the_last_block_stays_readable(serve):
    rig = serve()
    ref = rig.publish(5)
    client = rig.connect()
    rig.server.close()
    rig.writer.close()
    assert not client.is_writer_alive
    assert client.wait(0)
    out = np.empty(256, np.float32)
    assert client.reader.copy(ref, out)
    assert (out == 5).all()
    client.close()


def test_server_leaves_no_socket_thread_memory_or_descriptor(serve, name):
    before, shm = open_fds(), shm_files()
    rig = serve()
    client = rig.connect()
    assert f'@{name}' in abstract_names()
    client.close()
    rig.server.close()
    rig.server.close()
    rig.writer.close()
    assert f'@{name}' not in abstract_names()
    assert not [thread for thread in threading.enumerate() if thread.name == 'ring_handoff']
    assert open_fds() == before
    assert shm_files() <= shm


def test_open_server_holds_descriptors_can_fail(serve):
    before = open_fds()
    serve()
    assert open_fds() > before


def test_hundred_connections_leak_no_descriptor_and_no_row(serve):
    rig = serve()
    before = open_fds()
    for _ in range(100):
        rig.connect().close()
    wait_until(lambda: open_fds() == before)
    assert rig.server.stats.served == 100
    assert rig.server.readers == 0


def test_more_readers_than_rows_are_refused_by_name(serve):
    rig = serve()
    clients = [rig.connect() for _ in range(LAYOUT.readers)]
    with pytest.raises(ConfigError, match='ring.readers'):
        rig.connect()
    for client in clients:
        client.close()


def test_wakeup_reaches_every_client_and_silence_reaches_none(serve):
    rig = serve()
    clients = [rig.connect() for _ in range(2)]
    assert not clients[0].wait(0)
    rig.publish(1)
    rig.server.notify()
    assert all(client.wait(1 * S) for client in clients)
    assert not any(client.wait(0) for client in clients)
    for client in clients:
        client.close()


def test_row_of_a_lost_connection_is_freed(serve):
    rig = serve()
    client = rig.connect()
    row = rig.writer.control.row_base[client.reader.row]
    assert rig.writer.control.words.get(row) == client.reader.owner
    wait_until(lambda: any(peer.owner for peer in rig.server._peers.values()))
    client._connection.close()
    wait_until(lambda: rig.writer.control.words.get(row) == 0)
