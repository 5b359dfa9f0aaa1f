"""The text protocol: framing, handshake, and clients that send nonsense or never read."""

from __future__ import annotations

import random
import socket

import can
import pytest
from can.interfaces.socketcand.socketcand import (
    convert_ascii_message_to_can_message,
    convert_can_message_to_ascii_message,
)

from reflex_ros.core.clock import MS
from reflex_ros.sim.can_codec import CanFrame
from reflex_ros.sim.socketcand import (
    HOLD_NS,
    MAX_MESSAGE_BYTES,
    RETRY_NS,
    Client,
    format_frames,
    parse_send,
)


@pytest.fixture
def pair():
    """Return (client object of the server, the peer's socket)."""
    listener = socket.create_server(('127.0.0.1', 0))
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(listener.getsockname())
    peer.settimeout(5)
    client = Client(listener.accept()[0])
    yield client, peer
    client.close()
    peer.close()
    listener.close()


def read_until(client, count):
    messages = []
    while len(messages) < count and not client.is_gone:
        messages += client.read()
    return messages


def test_frames_are_text_that_python_can_reads_back():
    frames = [CanFrame(0x2A5, bytes(range(8))), CanFrame(0x4AF, b'S-V1.8-3')]
    text = format_frames(frames, 1_700_000_000_012_345_678).decode()
    assert text.startswith('< frame 2A5 1700000000.012345 0001020304050607 >< frame 4AF ')
    parts = [part + '>' for part in text.split('>')[:-1]]
    read = [convert_ascii_message_to_can_message(part) for part in parts]
    assert [CanFrame(m.arbitration_id, bytes(m.data)) for m in read] == frames
    assert read[0].timestamp == pytest.approx(1_700_000_000.012345, abs=1e-6)
    assert not read[0].is_extended_id


def test_what_python_can_sends_is_parsed():
    rng = random.Random(1)
    for size in range(9):
        frame = CanFrame(rng.randrange(0x800), rng.randbytes(size))
        message = can.Message(arbitration_id=frame.can_id, data=frame.data, dlc=size,
                              is_extended_id=False)
        text = convert_can_message_to_ascii_message(message)
        assert parse_send(text.strip('<> ').encode().split()) == frame


@pytest.mark.parametrize('text', [
    b'send', b'send 155', b'send 155 2 1', b'send 155 1 1 2', b'send 155 9 1 2 3 4 5 6 7 8 9',
    b'send 155 1 100', b'send 155 1 zz', b'send xyz 1 1', b'send 800 0', b'send 15500000 1 1',
    b'send -15 0', b'send 155 -1', b'send 155 1 -1',
])
def test_malformed_sends_are_refused(text):
    assert parse_send(text.split()) is None


def test_a_message_in_pieces_is_one_message(pair):
    client, peer = pair
    for piece in (b'< se', b'nd 155 1', b' ff >< ec', b'ho >'):
        peer.sendall(piece)
    assert read_until(client, 2) == [[b'send', b'155', b'1', b'ff'], [b'echo']]
    assert client.malformed == 0


def test_noise_between_messages_is_counted_and_skipped(pair):
    client, peer = pair
    peer.sendall(b'\xff\x00noise>< > junk < echo >')
    assert read_until(client, 1) == [[b'echo']]
    assert client.malformed == 2


def test_an_endless_message_is_thrown_away(pair):
    client, peer = pair
    peer.sendall(b'<' * (MAX_MESSAGE_BYTES + 1))
    while client.malformed == 0:
        assert client.read() == []
    peer.sendall(b'< echo >')
    assert read_until(client, 1) == [[b'echo']]


def test_frames_wait_for_the_end_of_the_handshake(pair):
    client, peer = pair
    assert peer.recv(100) == b'< hi >'
    client.enter_raw(1000)
    assert peer.recv(100) == b'< ok >'
    client.write(b'early', 1001)
    peer.settimeout(0.05)
    with pytest.raises(TimeoutError):
        peer.recv(100)
    client.write(b'late', 1000 + HOLD_NS)
    assert peer.recv(5) == b'early'


def test_queued_and_new_frames_arrive_whole_and_in_order(pair):
    client, peer = pair
    peer.recv(100)
    client.enter_raw(0)
    peer.recv(100)
    client.write(b'1', 1)
    client.write(b'2', 2)
    client.write(b'3', HOLD_NS)
    client.write(b'4', HOLD_NS + 1)
    got = b''
    while len(got) < 4:
        got += peer.recv(100)
    assert got == b'1234'


def test_a_client_that_never_reads_loses_whole_blobs_and_nothing_blocks(pair):
    client, peer = pair
    peer.recv(100)
    blob = b'[' + b'x' * 2000 + b']'
    now_ns, writes = 0, 2000
    for _ in range(writes):
        now_ns += 5 * MS
        client.write(blob, now_ns)
    assert 0 < client.dropped_blobs < writes
    assert not client.is_gone
    got = b''
    peer.settimeout(0.5)
    kept = writes - client.dropped_blobs
    while len(got) < kept * len(blob):
        try:
            got += peer.recv(1 << 20)
        except TimeoutError:
            now_ns += RETRY_NS
            client.write(blob, now_ns)  # reading again lets it send again
            kept += 1
    assert got[:len(got) // len(blob) * len(blob)] == blob * (len(got) // len(blob))


def test_a_peer_that_left_is_noticed(pair):
    client, peer = pair
    peer.close()
    assert read_until(client, 1) == []
    assert client.is_gone
