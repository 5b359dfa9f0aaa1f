"""The supervisor with real processes, real lifecycle services and signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip('rclpy')
pytestmark = [pytest.mark.ros, pytest.mark.realtime, pytest.mark.slow]

RUN = Path(__file__).with_name('run_fake.py')
START_S = 40.0
"""Longest start of five Python processes on a busy machine."""


class Run:
    """One supervisor in a process of its own; ``finish`` checks that it leaves nothing."""

    def __init__(self, folder, seconds, *options):
        self.folder = folder
        environment = {k: v for k, v in os.environ.items() if k not in ('HOME', 'ROS_DOMAIN_ID')}
        with open(folder / 'out.txt', 'wb') as out:
            self.process = subprocess.Popen(
                [sys.executable, str(RUN), str(folder), str(seconds), *options],
                stdout=out, stderr=subprocess.STDOUT, env=environment)

    def events(self, name=''):
        path = self.folder / 'supervisor.jsonl'
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines]
        return [event for event in events if name in ('', event['event'])]

    def wait_for(self, event, count=1):
        end = time.monotonic() + START_S
        while len(self.events(event)) < count:
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < end, self.output()
            time.sleep(0.02)
        return self.events(event)[count - 1]

    def pid(self, name):
        return [event['pid'] for event in self.events('started') if event['node'] == name][-1]

    def marks(self):
        return [line.split() for line in (self.folder / 'marks').read_text().splitlines()]

    def output(self):
        return (self.folder / 'out.txt').read_text()

    def finish(self):
        code = self.process.wait(START_S)
        assert not self.survivors()
        return code

    def survivors(self):
        """Return processes that carry the run folder in their command line or environment."""
        found = []
        for path in Path('/proc').glob('[0-9]*'):
            try:
                is_ours = str(self.folder).encode() in (path / 'environ').read_bytes()
                state = (path / 'stat').read_text().rsplit(')', 1)[1].split()[0]
            except OSError:
                continue
            if is_ours and state != 'Z':
                found.append((path / 'cmdline').read_text())
        return found


@pytest.fixture
def start(tmp_path):
    runs = []

    def make(seconds, *options):
        runs.append(Run(tmp_path, seconds, *options))
        return runs[-1]

    yield make
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


def segments_of(pids):
    """Return the Fast DDS segments that the processes have mapped.

    Port files are left out: participants of other domains use the same names.
    """
    maps = ''.join(Path(f'/proc/{pid}/maps').read_text() for pid in pids)
    return set(re.findall(r'/dev/shm/(fastrtps_[0-9a-f]{16})', maps))


def test_a_run_comes_up_in_order_and_leaves_no_process_and_no_shared_memory(start):
    run = start(0, 'inference:child=1')
    run.wait_for('active')
    segments = segments_of(event['pid'] for event in run.events('started'))
    assert segments
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0
    marks = [f'{what} {node}' for what, node, _ in run.marks()]
    nodes = ['simulator', 'controller_bridge', 'vision_encoder', 'policy', 'recorder']
    assert marks == [f'configure {node}' for node in nodes] + [
        'activate recorder', 'activate simulator', 'activate vision_encoder', 'activate policy',
        'activate controller_bridge']
    assert {event['exit_code'] for event in run.events('exited')} == {0}
    assert not [name for name in segments if Path('/dev/shm', name).exists()]


def test_a_killed_stage_is_noticed_and_comes_back_while_the_rest_goes_on(start):
    run = start(0)
    run.wait_for('active')
    others = {name: run.pid(name) for name in ('simulator', 'controller_bridge', 'recorder')}
    os.kill(run.pid('inference'), signal.SIGKILL)
    died = run.wait_for('died')
    assert (died['node'], died['exit_code']) == ('inference', -9)
    run.wait_for('restarted')
    assert {name: run.pid(name) for name in others} == others
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0


def test_a_lost_bridge_ends_the_run_with_three_and_frees_what_it_left(start):
    run = start(0, 'recorder:stubborn=1')
    run.wait_for('active')
    time.sleep(2.5)
    segments = segments_of([run.pid('controller_bridge'), run.pid('recorder')])
    os.kill(run.pid('controller_bridge'), signal.SIGKILL)
    assert run.finish() == 3
    assert 'recorder: did not stop in time: killed' in run.output()
    assert not [name for name in segments if Path('/dev/shm', name).exists()]


def test_a_refused_configuration_ends_with_two_and_shows_the_last_words(start):
    run = start(0, 'controller_bridge:refuse=2')
    assert run.finish() == 2
    assert 'arm.port: got nonsense, expected sense. Correct it.' in run.output()
    assert not run.events('activated')


def test_children_stop_when_the_supervisor_is_killed(start):
    run = start(0)
    run.wait_for('active')
    run.process.kill()
    run.process.wait()
    end = time.monotonic() + 5.0
    while run.survivors() and time.monotonic() < end:
        time.sleep(0.05)
    assert not run.survivors()
