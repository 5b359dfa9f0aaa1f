"""One holder per channel, named to the second."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from reflex_ros.arm.lock import ChannelLock, runtime_dir
from reflex_ros.core.errors import ArmError

HOLD = """
import sys
from pathlib import Path
from reflex_ros.arm.lock import ChannelLock
lock = ChannelLock('can0', folder=Path(sys.argv[1]))
lock.acquire()
print('held', flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """Return another process that holds the lock; it ends when its input closes."""
    process = subprocess.Popen(
        [sys.executable, '-c', HOLD, str(tmp_path)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**os.environ, 'PYTHONPATH': os.getcwd()})
    assert process.stdout.readline() == b'held\n'
    yield process
    process.kill()
    process.communicate()


def test_second_process_is_refused_and_told_the_holder(other, tmp_path):
    with pytest.raises(ArmError, match=f'process {other.pid}') as caught:
        ChannelLock('can0', folder=tmp_path).acquire()
    assert caught.value.code == 'channel_in_use'


def test_lock_of_a_killed_process_is_free(other, tmp_path):
    other.kill()
    other.wait()
    lock = ChannelLock('can0', folder=tmp_path)
    lock.acquire()
    assert lock.is_held
    lock.release()


def test_second_driver_in_this_process_is_refused_until_release(tmp_path):
    first, second = (ChannelLock('can0', folder=tmp_path) for _ in range(2))
    first.acquire()
    first.acquire()
    with pytest.raises(ArmError, match=str(os.getpid())):
        second.acquire()
    first.release()
    first.release()
    second.acquire()
    second.release()


def test_other_channel_is_free(tmp_path):
    locks = [ChannelLock(name, folder=tmp_path) for name in ('can0', 'can1', 'can0@h:1')]
    for lock in locks:
        lock.acquire()
    assert len({lock.path for lock in locks}) == 3
    for lock in locks:
        lock.release()


def test_runtime_dir_falls_back_to_a_private_folder(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_RUNTIME_DIR', str(tmp_path / 'missing'))
    monkeypatch.setattr('tempfile.gettempdir', lambda: str(tmp_path))
    folder = runtime_dir()
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
