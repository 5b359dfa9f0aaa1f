"""Identity of processes."""

from __future__ import annotations

import os
import signal

import pytest

from reflex_ros.ring import owner as module
from reflex_ros.ring.owner import FOREIGN, PID_BITS, is_owner_alive, process_owner


def test_living_process_is_its_own_owner():
    owner = process_owner(os.getpid())
    assert owner & ((1 << PID_BITS) - 1) == os.getpid()
    assert is_owner_alive(owner)


def test_reused_pid_is_another_owner():
    assert not is_owner_alive(process_owner(os.getpid()) + (1 << PID_BITS))


def test_zombie_and_reaped_process_are_dead():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    owner = process_owner(pid)
    assert is_owner_alive(owner)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not is_owner_alive(owner)
    os.waitpid(pid, 0)
    assert not is_owner_alive(owner)
    assert process_owner(pid) == 0


def test_process_of_another_pid_namespace_is_never_declared_dead():
    assert is_owner_alive(FOREIGN | 12345)


def test_nobody_is_not_alive():
    assert not is_owner_alive(0)


@pytest.mark.parametrize('name', ['a) R 1 2 (b', ') Z 1 (', 'plain'])
def test_program_name_cannot_fake_the_fields(tmp_path, monkeypatch, name):
    fields = ' '.join(str(i) for i in range(4, 53))
    text = f'77 ({name}) S {fields}\n'
    (tmp_path / 'stat').write_text(text)
    real_open = open
    monkeypatch.setattr(module, 'open', lambda *_: real_open(tmp_path / 'stat', 'rb'),
                        raising=False)
    assert process_owner(77) == 22 << PID_BITS | 77
