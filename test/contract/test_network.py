"""[ci] The guard under which all tests run: no process reaches another host."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

ELSEWHERE = ('192.0.2.1', 9)  # reserved for documentation, never routed


@pytest.fixture
def planted(only_this_host, monkeypatch, tmp_path):
    """Count the attempts of a test apart: the guard's own log must stay empty."""
    log = tmp_path / 'attempts.txt'
    monkeypatch.setenv('REFLEX_GUARD_LOG', str(log))
    return log


def test_a_connection_to_another_host_fails_and_is_noted_can_fail(planted):
    with socket.socket() as there, pytest.raises(ConnectionRefusedError, match='only this host'):
        there.connect(ELSEWHERE)
    with socket.socket(socket.AF_INET6) as there, pytest.raises(ConnectionRefusedError):
        there.connect(('2001:db8::1', 9))
    assert len(planted.read_text().splitlines()) == 2


def test_a_process_that_a_test_starts_is_guarded_too(planted):
    code = f'import socket; socket.create_connection({ELSEWHERE!r}, timeout=1)'
    child = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                           check=False)
    assert child.returncode == 1
    assert 'only this host' in child.stderr
    assert 'only this host' in planted.read_text()


def test_this_host_may_be_reached(only_this_host):
    with (socket.create_server(('127.0.0.1', 0)) as server,
          socket.create_connection(server.getsockname()) as client):
        assert client.getpeername() == server.getsockname()
    folder = os.path.dirname(os.environ['REFLEX_GUARD_LOG'])
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(os.path.join(folder, 'socket'))
        server.listen()
        client.connect(os.path.join(folder, 'socket'))
