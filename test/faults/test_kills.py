"""kill -9 of each process at random instants: nothing moves unasked and no tick is lost.

The real nodes, the SDK on the wire and a simulator of its own process (``killing``), several
stages side by side; nothing judges how long anything took. 20 kills of each process in
``make faults``, 200 in ``make soak``; the counts go to ``results/faults/kills.json``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.machine import describe_machine
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.sim import can_codec as codec
from reflex_ros.study.fault_report import KILLED as VICTIMS
from reflex_ros.study.fault_report import KILLS, kill_lines, write_kills
from reflex_ros.study.results import read_revision

pytestmark = [pytest.mark.ros, pytest.mark.realtime, pytest.mark.slow, pytest.mark.timeout(0)]

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
SIDE_BY_SIDE = 3
TELL_S = 20.0
CLOCK = SystemClock()


def load_killing():
    spec = importlib.util.spec_from_file_location('killing', HERE / 'killing.py')
    module = sys.modules['killing'] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Crowd:
    """Stages in processes of their own, some of them side by side, and how far they are."""

    def __init__(self, victims, kills, folder, tell):
        self._waiting, self._kills, self._folder, self._tell = list(victims), kills, folder, tell
        self._selector, self._running = selectors.DefaultSelector(), {}
        self._at, self.found = {}, {}

    def run(self):
        begun_ns = told_ns = CLOCK.mono_ns()
        while self._waiting or self._running:
            while self._waiting and len(self._running) < SIDE_BY_SIDE:
                self._start(self._waiting.pop(0))
            for key, _ in self._selector.select(TELL_S):
                self._hear(key.fileobj)
            if CLOCK.mono_ns() - told_ns > TELL_S * 1e9:
                told_ns = CLOCK.mono_ns()
                self._tell(f'kills, {(told_ns - begun_ns) / 1e9:.0f} s: '
                           + ', '.join(self._at.values()))
        return (CLOCK.mono_ns() - begun_ns) / 1e9

    def _start(self, victim):
        number = VICTIMS.index(victim)
        env = {**os.environ, 'ROS_DOMAIN_ID': str(5 * (os.getpid() % 20) + number + 1),
               'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
               'ROS_LOG_DIR': str(self._folder / 'ros_log'),
               # a process that is killed leaves its shared memory, and who meets that waits for it
               'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4'}
        out = (self._folder / f'{victim}.txt').open('w')
        process = subprocess.Popen(
            [sys.executable, str(HERE / 'killing.py'), victim, str(self._kills),
             str(self._folder / victim), '--seed', str(number)],
            env=env, stdout=subprocess.PIPE, stderr=out, text=True)
        self._running[process.stdout] = (victim, process, out)
        self._selector.register(process.stdout, selectors.EVENT_READ)

    def _hear(self, pipe):
        victim, process, out = self._running[pipe]
        line = pipe.readline()
        if line.startswith('{'):
            self.found[victim] = json.loads(line)
        elif line:
            self._at[victim] = ' '.join(line.split()[:2])
        else:
            self._selector.unregister(pipe)
            self._running.pop(pipe)
            process.wait()
            out.close()
            if victim not in self.found:
                self.found[victim] = {'victim': victim, 'kills': 0, 'problems': [
                    (self._folder / f'{victim}.txt').read_text()[-3000:]]}


RUNS = {}


@pytest.fixture
def found(request, tmp_path_factory, tell):
    """Return what came of the kills of one process; all that were chosen are done at once."""
    kills, victim = request.param
    if kills not in RUNS:
        chosen = {param[1] for item in request.session.items if hasattr(item, 'callspec')
                  and (param := item.callspec.params.get('found')) and param[0] == kills}
        victims = [name for name in VICTIMS if name in chosen]
        revision = read_revision()
        crowd = Crowd(victims, kills, tmp_path_factory.mktemp(f'kills-{kills}-'), tell)
        seconds = crowd.run()
        RUNS[kills] = crowd.found
        write_kills([crowd.found[name] for name in victims], ROOT / KILLS, kills=kills,
                    revision=revision, machine=describe_machine(), wall_s=seconds,
                    jobs=SIDE_BY_SIDE)
    return RUNS[kills][victim]


@pytest.mark.parametrize('found', [
    pytest.param((count, victim), marks=mark, id=f'{victim}-{count}')
    for count, mark in ((20, pytest.mark.faults), (200, pytest.mark.soak))
    for victim in VICTIMS], indirect=True)
def test_a_killed_process_moves_nothing_unasked_and_loses_no_tick(found, request):
    count, victim = request.node.callspec.params['found']
    assert found['problems'] == []
    assert found['kills'] == count and found['frames'] > 100 * count
    assert found['gaps'] == (count if victim == 'controller_bridge' else 0)
    if victim in ('policy', 'vision_encoder'):
        assert found['causes']['node_dead'] > count and found['moved'] > 0.05
    if victim == 'controller_bridge':
        assert found['moved'] < 0.02, 'the arm stays at the last command of the dead bridge'


def test_the_page_has_whole_runs_without_a_problem_and_names_what_was_not_run():
    if not (ROOT / KILLS).is_file():
        pytest.skip(f'{KILLS} is written by make faults or make soak, which were not run yet')
    runs = json.loads((ROOT / KILLS).read_text(encoding='utf-8'))['runs']
    for kills, run in runs.items():
        assert {row['kills'] for row in run['rows']} == {int(kills)}
        assert [row['victim'] for row in run['rows'] if row['problems']] == []
    head = kill_lines(ROOT)[0]
    assert f'{max(runs, key=int)} kills of each process' in head
    done = {row['victim'] for row in runs[max(runs, key=int)]['rows']}
    not_run = head.partition('Not run: ')[2]
    assert all((f'`{name}`' in not_run) == (name not in done) for name in VICTIMS)


# ---- planted ---------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def killing():
    return load_killing()


def frames_of(rows, start_ns=0):
    from reflex_ros.sim.can_tap import TAP_DTYPE

    out = []
    for n, row in enumerate(rows):
        mdeg = np.round(np.degrees(row[:6]) * 1e3).astype(int)
        for joint in (1, 3, 5):
            frame = codec.encode(codec.JointTarget(joint, int(mdeg[joint - 1]), int(mdeg[joint])))
            out.append((start_ns + n * 20_000_000, frame.can_id, 0, 8, 0,
                        np.frombuffer(frame.data, np.uint8)))
    return np.array(out, TAP_DTYPE)


STILL = np.tile([0.0, 1.0, -1.0, 0.0, 0.2, 0.0], (20, 1))


def test_a_jump_on_the_wire_is_seen_can_fail(killing):
    found = killing.Found('policy')
    killing.judge_tap(found, frames_of(STILL))
    assert found.problems == [] and found.frames == 60
    jump = STILL.copy()
    jump[10:, 0] += 0.2
    killing.judge_tap(found, frames_of(jump))
    assert any('velocity' in text for text in found.problems)


def test_a_frame_off_the_list_is_seen_can_fail(killing):
    found, frames = killing.Found('policy'), frames_of(STILL)
    frames['can_id'][-1] = 0x474
    killing.judge_tap(found, frames)
    assert 'sent 0x474' in found.problems


def test_a_command_without_a_bridge_is_seen_can_fail(killing):
    found, frames = killing.Found('controller_bridge'), frames_of(STILL)
    killing.judge_pauses(found, frames, [(10**9, 2 * 10**9)])
    assert found.problems == []
    killing.judge_pauses(found, frames, [(10_000_000, 10**9)])
    assert found.problems == ['a command arrived after the death of the bridge']


def test_a_bridge_that_finds_the_arm_elsewhere_is_seen_can_fail(killing):
    found, frames = killing.Found('controller_bridge'), frames_of(STILL)
    frames['mono_ns'][30:] += 10**9
    killing.judge_handover(found, frames)
    assert found.moved == 0.0
    aside = STILL + np.where(np.arange(20) >= 10, 0.05, 0.0)[:, None]
    frames['data'] = frames_of(aside)['data']
    killing.judge_handover(found, frames)
    assert abs(found.moved - 0.05) < 1e-4


def test_a_lost_tick_is_seen_can_fail(killing, tmp_path):
    from reflex_ros.core.clock import ManualClock
    from reflex_ros.core.ledger import LedgerWriter
    from reflex_ros.core.types import Cause

    clock = ManualClock(10**9)
    for name, second in (('whole', 5), ('torn', 7)):
        writer = LedgerWriter.create(tmp_path / name, period_ns=20_000_000, start=clock.now(),
                                     joint_names=JOINT_NAMES)
        writer.gap(0, 5, Cause.NODE_DEAD)
        writer.gap(second, 2, Cause.NODE_DEAD)
        writer.close()
    assert killing.account(tmp_path / 'whole') == (7, 2, [])
    assert killing.account(tmp_path / 'torn')[2]


def test_a_ledger_that_grows_is_read_as_a_whole_one(killing, tmp_path):
    from reflex_ros.core.clock import ManualClock
    from reflex_ros.core.ledger import LedgerReader, LedgerWriter
    from reflex_ros.core.types import Cause

    path = tmp_path / 'ledger.bin'
    writer = LedgerWriter.create(path, period_ns=20_000_000, start=ManualClock(10**9).now(),
                                 joint_names=JOINT_NAMES)
    tail = killing.Tail(path)
    for n in range(30):
        writer.gap(n, 1, Cause.NODE_DEAD)
        if n % 7 == 0:
            assert len(tail.records()) == n + 1
    assert tail.records().tobytes() == LedgerReader(path).records().tobytes()
    writer.close()
