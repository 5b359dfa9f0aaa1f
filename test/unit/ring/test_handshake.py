"""Names and messages of the hand-off."""

from __future__ import annotations

import json
import os
import socket

import pytest

from reflex_ros.core.errors import LayoutError
from reflex_ros.ring import handshake


def test_name_tells_user_domain_namespace_and_ring():
    assert handshake.ring_name('/left_arm', domain_id=7, uid=1000) == (
        'reflex_ros/1000/7/left_arm/kv')
    assert handshake.ring_name('/', domain_id=0) == f'reflex_ros/{os.getuid()}/0//kv'


@pytest.mark.parametrize('change', [{'domain_id': 8}, {'uid': 1001}, {'ring': 'other'}])
def test_any_part_changes_the_name(change):
    base = {'domain_id': 7, 'uid': 1000}
    assert handshake.ring_name('/a', **{**base, **change}) != handshake.ring_name('/a', **base)


def test_long_namespaces_stay_apart_and_fit_the_address():
    names = {handshake.ring_name('/' + 'n' * 200 + end, domain_id=1) for end in 'ab'}
    assert len(names) == 2
    assert all(len(name.encode()) < 107 for name in names)


@pytest.mark.parametrize('message', [
    b'', b'\xff\xfe', b'GET / HTTP/1.1', b'[]', b'"x"', b'{', b'[' * 50_000,
    json.dumps({'greeting': 'other', 'version': 1}).encode(),
    json.dumps({'greeting': handshake.GREETING, 'version': 99}).encode()])
def test_garbage_is_no_greeting(message):
    with pytest.raises(LayoutError, match='handshake failed'):
        handshake.require_hello(message)


def test_greeting_is_one():
    handshake.require_hello(handshake.hello())


@pytest.fixture
def pair():
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ends
    for end in ends:
        end.close()


def open_fds():
    return len(os.listdir('/proc/self/fd'))


def test_descriptors_arrive_and_are_not_inherited(pair):
    read_end, write_end = os.pipe()
    socket.send_fds(pair[0], [b'hi'], [write_end])
    message, fds = handshake.receive(pair[1])
    assert message == b'hi'
    assert not os.get_inheritable(fds[0])
    os.write(fds[0], b'x')
    assert os.read(read_end, 1) == b'x'
    handshake.close_all((*fds, read_end, write_end))


def test_dropped_descriptors_are_an_error_and_leak_none(pair):
    ends = os.pipe()
    before = open_fds()
    socket.send_fds(pair[0], [b'hi'], [ends[0]] * 6)
    with pytest.raises(LayoutError, match='truncated'):
        handshake.receive(pair[1], most=2)
    assert open_fds() == before
    handshake.close_all(ends)


def test_truncated_message_is_an_error(pair):
    pair[0].send(b'x' * (handshake.MOST_BYTES + 1))
    with pytest.raises(LayoutError, match='truncated'):
        handshake.receive(pair[1])


def test_end_of_the_peer_is_an_empty_message(pair):
    pair[0].close()
    assert handshake.receive(pair[1]) == (b'', ())
