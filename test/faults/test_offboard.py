"""Encoder and policy on another machine: its own network namespace and its own steady clock.

Real nodes and real middleware, with a cable between the two namespaces that delays, loses and is
cut. Neither namespace has a way to anywhere else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.core.clock import MS

HERE = Path(__file__).parent
PATIENCE_S = 120.0
DOMAIN = '163'
DELAY_MS, LOSS, CUT_S, MAX_AGE_MS = 50, 0.25, 4.0, 1000
AHEAD_S = 98_000
OWN_STEADY_CLOCK = ('unshare', '--time', '--monotonic', str(AHEAD_S), '--kill-child')
PERIOD_S = 0.02
ACCELERATION = 20.0
"""Limit of the simulated arm (config/sim.yaml), rad/s^2."""


def reason_without_namespaces():
    """Return why two namespaces cannot be had here, '' if they can."""
    for tool in ('unshare', 'nsenter', 'ip'):
        if shutil.which(tool) is None:
            return f'{tool} is not installed'
    tried = subprocess.run(
        ['unshare', '--net', 'ip', 'tuntap', 'add', 'dev', 'tried0', 'mode', 'tap'],
        capture_output=True, text=True, check=False)
    said = (tried.stderr.strip() or 'refused').splitlines()[-1]
    if tried.returncode:
        return f'no network namespace with a TAP device: {said}'
    return '' if has_own_clock() else 'no time namespace: with one steady clock it is one machine'


def has_own_clock():
    """Return whether a process may have another steady clock."""
    tried = subprocess.run([*OWN_STEADY_CLOCK, 'true'], capture_output=True, check=False)
    return tried.returncode == 0


REASON = reason_without_namespaces()
pytestmark = [
    pytest.mark.faults, pytest.mark.ros, pytest.mark.realtime, pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=REASON),
]


class TwoMachines:
    """A robot and a machine for inference, with a cable between them."""

    def __init__(self, folder, *words, **environment):
        self.folders = {part: folder / part for part in ('robot', 'inference')}
        self._all = []
        self.cable = self._start(
            [sys.executable, str(HERE / 'link_pair.py')], folder / 'cable.log',
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        pid, *namespaces = self.cable.stdout.readline().split()
        peers = ('10.77.0.2', '10.77.0.1')
        for (part, path), namespace, peer in zip(
                self.folders.items(), namespaces, peers, strict=True):
            clock = OWN_STEADY_CLOCK if part == 'inference' else ()
            mute = words if part == 'inference' else ()
            given = {name: value.format(peer=peer) for name, value in environment.items()}
            self._start(
                [*clock, 'nsenter', f'--net=/proc/{pid}/fd/{namespace}', sys.executable,
                 str(HERE / 'far_side.py'), part, str(path), *mute],
                folder / f'{part}.log', stdin=subprocess.DEVNULL,
                env={**os.environ, 'ROS_DOMAIN_ID': DOMAIN,
                     'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET', **given})
        self.logs = [folder / f'{part}.log' for part in ('robot', 'inference', 'cable')]

    def _start(self, command, log, **settings):
        with open(log, 'wb') as out:
            settings = {'stdout': out, 'stderr': subprocess.STDOUT, **settings}
            if settings['stdout'] is subprocess.PIPE:
                settings['stderr'] = out
            process = subprocess.Popen(command, start_new_session=True, **settings)
        self._all.append(process)
        return process

    def quality(self, delay_ms, loss):
        """Make the cable that slow and that bad, each way."""
        self.cable.stdin.write(f'{delay_ms} {loss}\n')
        self.cable.stdin.flush()

    @property
    def ticks(self):
        """Return the records of the ledger so far, one for each tick."""
        from reflex_ros.core.errors import LayoutError
        from reflex_ros.core.ledger import GAP, LedgerReader, record_dtype

        try:
            records = LedgerReader(self.folders['robot'] / 'ledger.bin').records()
        except (OSError, LayoutError):
            return np.empty(0, record_dtype(7))
        return records[(records['flags'] & GAP) == 0]

    def tracks(self, seconds=1.0):
        """Wait until the arm has followed live chunks for so long without a pause."""
        end, count = time.monotonic() + PATIENCE_S, round(seconds / PERIOD_S)
        while True:
            ticks = self.ticks[-count:]
            if len(ticks) == count and covered(ticks).all():
                return
            assert time.monotonic() < end, 'the arm never followed:\n' + '\n'.join(
                path.read_text(errors='replace')[-3000:] for path in self.logs)
            time.sleep(0.1)

    def during(self, seconds):
        """Return the ticks of the next seconds."""
        first = len(self.ticks)
        time.sleep(seconds)
        return self.ticks[first:]

    def kill_nodes(self):
        """Kill encoder and policy; their supervisor lives and starts them again in a second."""
        lines = (self.folders['inference'] / 'supervisor.jsonl').read_text().splitlines()
        started = [line for line in map(json.loads, lines) if line['event'] == 'started']
        os.kill(started[-1]['pid'], signal.SIGKILL)

    def end(self):
        """Stop both sides, the robot last; then pull the cable out."""
        for path in reversed(self.folders.values()):
            path.mkdir(exist_ok=True)
            (path / 'stop').touch()
        for process in reversed(self._all[1:]):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.cable.stdin.close()
        self.cable.wait(10)


def covered(ticks):
    """Return which ticks a live chunk covered."""
    from reflex_ros.core.ledger import COVERED

    return (ticks['flags'] & COVERED) != 0


def stalls(ticks):
    """Return how many stalled ticks each cause has; what is only late is this machine's doing."""
    from reflex_ros.core.ledger import CAUSE_CODES, IN_MOTION

    stalled = ticks[((ticks['flags'] & IN_MOTION) != 0) & ~covered(ticks)]
    found = Counter(CAUSE_CODES[code].value for code in stalled['cause'])
    found.pop('tick_late', None)
    return found


def ages_ms(ticks):
    """Return the ages of the observations behind the ticks with a live chunk."""
    return ticks['observation_age_ns'][covered(ticks)] / MS


def accelerations(ticks):
    """Return the accelerations of the commands, where three were sent in a row, rad/s^2."""
    from reflex_ros.core.ledger import SENT

    joints, index = ticks['command'][:, :6].astype(float), ticks['index'].astype(int)
    is_sent = (ticks['flags'] & SENT) != 0
    whole = is_sent[2:] & is_sent[1:-1] & is_sent[:-2] & (index[2:] - index[:-2] == 2)
    return np.abs(np.diff(joints, n=2, axis=0) / PERIOD_S**2)[whole]


def assert_goes_on(ticks, most):
    """The arm follows, with no more than a share of stalled ticks."""
    assert len(ticks) > 50
    share = sum(stalls(ticks).values()) / len(ticks)
    assert share <= most, stalls(ticks)


def assert_cut_is_named(ticks):
    """The arm stands still at the end, within its limits on the way, and the cause is the link."""
    found = stalls(ticks)
    assert set(found) == {'transport'}, found
    assert found['transport'] > 0.5 * CUT_S / PERIOD_S
    rest = ticks['command'][-25:, :6]
    assert np.ptp(rest, axis=0).max() < 1e-4, 'it did not come to rest'
    assert accelerations(ticks).max() < 1.01 * ACCELERATION


@pytest.fixture(scope='module')
def story(tmp_path_factory):
    """Return the ticks of each part of one run, and what the bridge said of the link."""
    folder = tmp_path_factory.mktemp('offboard')
    machines, told = TwoMachines(folder), {}
    try:
        machines.tracks()
        told['clean'] = machines.during(5.0)
        machines.quality(DELAY_MS, 0.0)
        time.sleep(3.0)
        told['delay'] = machines.during(6.0)
        machines.quality(2, LOSS)
        time.sleep(3.0)
        told['loss'] = machines.during(8.0)
        machines.quality(0, 0.0)
        machines.tracks(3.0)
        machines.quality(0, 1.0)
        told['cut'] = machines.during(CUT_S)
        machines.quality(0, 0.0)
        machines.tracks(2.0)
        told['back'] = machines.during(3.0)
        machines.kill_nodes()
        told['dead'] = machines.during(2.0)
        machines.tracks()
    finally:
        machines.end()
    for name, ticks in told.items():
        print(name, len(ticks), dict(stalls(ticks)), ages_ms(ticks)[::25].round())
    told['link'] = link_diagnoses(machines.folders['robot'])
    told['steady'] = [msg.sent_ns - int(told['back'][-1]['due_ns'])
                      for msg in recorded(machines.folders['robot'], '/stage_status')]
    return told


def recorded(folder, topic):
    """Yield the messages of a topic in the bag."""
    from reflex_ros.bag.read import BagReader
    from reflex_ros.bag.run_folder import RunFolder

    for bag in RunFolder(folder).bags:
        with BagReader(bag) as reader:
            yield from (msg for _, _, msg in reader.values(topic))


def link_diagnoses(folder):
    """Return level and values of each diagnosis of the link in the bag."""
    return [(int(status.level), {pair.key: float(pair.value) for pair in status.values})
            for msg in recorded(folder, '/diagnostics') for status in msg.status
            if status.name == 'controller_bridge: link']


@pytest.mark.timeout(600)
def test_the_arm_follows_a_policy_on_another_machine(story):
    assert_goes_on(story['clean'], 0.05)


def test_the_other_machine_counts_from_another_instant(story):
    assert all(abs(ahead_ns / 1e9 - AHEAD_S) < 120 for ahead_ns in story['steady'])


def test_delay_makes_observations_older_and_nothing_else(story):
    assert_goes_on(story['delay'], 0.2)
    ages = ages_ms(story['delay'])
    assert ages.min() >= 2 * DELAY_MS, 'an image and a chunk are under way for so long'
    assert ages.max() <= MAX_AGE_MS


def test_loss_is_named(story):
    found = stalls(story['loss'])
    assert sum(found.values()) > 10, 'too little was lost to say anything'
    assert found['transport'] >= 0.8 * sum(found.values()), found
    assert accelerations(story['loss']).max() < 1.01 * ACCELERATION


def test_at_a_cut_the_arm_decelerates_and_the_link_is_named(story):
    assert_cut_is_named(story['cut'])


def test_the_arm_goes_on_when_the_link_is_back(story):
    assert_goes_on(story['back'], 0.05)


def test_dead_nodes_are_told_from_a_dead_link(story):
    found = stalls(story['dead'])
    assert found['node_dead'] > 10
    assert found['node_dead'] >= 0.8 * sum(found.values()), found


def test_the_offset_of_the_clocks_is_measured_and_shown(story):
    """Both have the same ROS time here, so the truth is 0; a delay makes the bound larger."""
    values = [values for _, values in story['link'] if 'ahead_ms' in values]
    assert len(values) > 10
    for told in values:
        assert abs(told['ahead_ms']) <= 1.01 * told['bound_ms'] + 0.1, told
    assert min(told['bound_ms'] for told in values) < DELAY_MS / 2
    assert max(told['bound_ms'] for told in values) >= 0.9 * DELAY_MS
    assert max(level for level, _ in story['link']) == 2, 'the cut is an error'


@pytest.mark.timeout(600)
def test_a_cut_without_a_witness_can_fail(tmp_path):
    """With nobody who answers beside the nodes, and peers named instead of multicast."""
    machines = TwoMachines(
        tmp_path, 'mute', ROS_AUTOMATIC_DISCOVERY_RANGE='LOCALHOST', ROS_STATIC_PEERS='{peer}')
    try:
        machines.tracks()
        machines.quality(0, 1.0)
        ticks = machines.during(CUT_S)
    finally:
        machines.end()
    assert stalls(ticks)['node_dead'] > 50
    with pytest.raises(AssertionError, match='node_dead'):
        assert_cut_is_named(ticks)
