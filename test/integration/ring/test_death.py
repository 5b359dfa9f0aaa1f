"""Real processes that die, and the stress program with its negative control."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import StaleError
from reflex_ros.ring import handshake
from reflex_ros.ring.client import RingClient
from reflex_ros.ring.words import X86

ROOT = Path(__file__).parents[3]
STRESS = ROOT / 'test' / 'soak' / 'ring_stress.py'
CLOCK = SystemClock()

pytestmark = pytest.mark.realtime

ENCODER = """
import sys, time
from reflex_ros.core.clock import SystemClock
from reflex_ros.ring.handoff import RingServer
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.ring import RingWriter
clock = SystemClock()
writer = RingWriter.create(RingLayout.snapshot((4096,), 'float32', model_id='m'), clock=clock)
server = RingServer(sys.argv[1], writer, clock=clock)
while True:
    slot = writer.begin()
    slot.frame[...] = slot.seq
    writer.commit(slot, stamp_ns=slot.seq, epoch=1, tokens=1)
    server.notify()
    time.sleep(0.002)
"""

HOLDER = """
import signal, sys
from reflex_ros.core.clock import S, SystemClock
from reflex_ros.ring.client import RingClient
client = RingClient.connect(sys.argv[1], timeout_ns=10 * S, clock=SystemClock(), lease_ns=900 * S)
while (ref := client.reader.latest()) is None or not client.reader.hold(ref):
    pass
print('held', flush=True)
signal.pause()
"""


def shm_files():
    """Return what lies in /dev/shm, without the middleware of other programs."""
    return {name for name in os.listdir('/dev/shm') if 'fastrtps' not in name}


def environment():
    return {**os.environ, 'PYTHONPATH': str(ROOT)}


def start(code, *arguments):
    return subprocess.Popen([sys.executable, '-c', code, *arguments], env=environment(),
                            stdout=subprocess.PIPE, text=True)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def stress(*arguments, seconds=100):
    done = subprocess.run([sys.executable, str(STRESS), *arguments], env=environment(), text=True,
                          capture_output=True, timeout=seconds, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def name():
    return handshake.ring_name(f'/death_{os.getpid()}', domain_id=99)


def test_reader_keeps_the_last_block_of_a_killed_writer_and_meets_its_successor(name):
    shm = shm_files()
    encoder = start(ENCODER, name)
    client = RingClient.connect(name, timeout_ns=20 * S, clock=CLOCK)
    assert client.wait(5 * S)
    kill(encoder)
    assert not client.is_writer_alive
    out = np.empty(4096, np.float32)
    ref = client.reader.latest()
    assert client.reader.copy(ref, out)
    assert (out == ref.seq).all()
    with pytest.raises(StaleError):
        RingClient.connect(name, timeout_ns=0, clock=CLOCK)
    successor = start(ENCODER, name)
    second = RingClient.connect(name, timeout_ns=20 * S, clock=CLOCK)
    assert second.reader.ring_id != client.reader.ring_id
    assert second.is_writer_alive
    for ended in (client, second):
        ended.close()
    kill(successor)
    assert shm_files() <= shm
    with open('/proc/net/unix') as file:
        assert f'@{name}' not in file.read()


def test_killed_reader_with_an_endless_lease_frees_its_only_row(name):
    encoder = start(ENCODER, name)
    for _ in range(2):
        holder = start(HOLDER, name)
        assert holder.stdout.readline() == 'held\n'
        kill(holder)
    client = RingClient.connect(name, timeout_ns=5 * S, clock=CLOCK)
    client.close()
    kill(encoder)


@pytest.mark.slow
@pytest.mark.parametrize('words', ['libatomic', pytest.param('plain', marks=pytest.mark.skipif(
    platform.machine() not in X86, reason='plain words need the order of x86'))])
def test_no_torn_block_among_20000_is_accepted(words):
    code, found = stress('bulk', '--writes', '20000', '--kib', '64', '--readers', '2',
                         '--words', words)
    assert (code, found['bad']) == (0, 0)
    assert found['writer']['steals'] == 0
    assert all(reader['accepted'] > 100 for reader in found['readers'])


@pytest.mark.slow
def test_no_torn_block_is_accepted_across_20_kills_in_mid_write():
    code, found = stress('kill', '--kills', '20', '--kib', '256')
    assert (code, found['bad'], found['is_monotonic']) == (0, 0, True)
    assert found['torn_slots'] >= 20
    assert found['repaired'] == found['torn_slots']
    assert found['generation'] == found['kills'] + 1
    assert all(reader['epochs'] > 5 for reader in found['readers'])


def test_slow_reader_without_a_lease_rejects_what_it_tore():
    code, found = stress('bulk', '--kind', 'leaseless', '--writes', '3000', '--slots', '3',
                         '--pause-s', '0.002')
    assert (code, found['bad']) == (0, 0)
    assert found['readers'][0]['torn'] > 0


def test_slow_reader_without_lease_and_check_accepts_torn_blocks_can_fail():
    code, found = stress('control', '--writes', '3000')
    assert code == 1
    assert found['readers'][0]['bad'] > 0
    assert found['readers'][0]['bad_checksum'] > 0


def test_killed_readers_cost_the_writer_no_steal():
    code, found = stress('killreader', '--kills', '8')
    assert code == 0
    assert (found['steals'], found['swept']) == (0, 8)


def test_death_is_noticed_without_reading_a_block(name):
    encoder = start(ENCODER, name)
    client = RingClient.connect(name, timeout_ns=20 * S, clock=CLOCK)
    encoder.send_signal(signal.SIGKILL)
    encoder.wait()
    assert not client.is_writer_alive
    client.close()
    encoder.stdout.close()
