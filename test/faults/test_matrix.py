"""Every fault of the matrix: the driver, the bridge and an emulated arm on a virtual clock.

What reached the arm is judged on its virtual bus by the simulator's own codec; what reaches the
simulator's socket in real time is judged in ``test_socket_matrix``. ``make faults`` runs all and
writes ``results/faults/matrix.json``; a few stand for the others in every run of the tests.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('piper_sdk')

from reflex_ros.arm.link import CanLink
from reflex_ros.core.limits import Limited, Limiter
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.mover import Mover
from reflex_ros.stages.sender import Sender
from reflex_ros.study import fault_actions as do
from reflex_ros.study.fault_bus import VirtualBus, VirtualLink
from reflex_ros.study.fault_cases import CASES, SCRIPTS, Outcome
from reflex_ros.study.fault_matrix import run_case, unexplained
from reflex_ros.study.fault_report import RESULT, matrix_lines, read_matrix, write_matrix
from reflex_ros.study.fault_rig import FaultRig
from reflex_ros.study.fault_swing import FaultyOracle

ROOT = Path(__file__).parents[2]
FEW = ('policy dies', 'chunk that jumps inside', 'bus off for 0.5 s',
       'ten ticks skipped', 'one frame not taken')
AREAS = {'camera', 'clock', 'process', 'ring', 'message', 'checkpoint', 'CAN', 'arm', 'operator'}


@pytest.fixture(scope='module')
def rows(tell_lines):
    """Return every row by its name; all run side by side and the file of the page is written."""
    tell_lines(sys.executable, '-m', 'reflex_ros.study.fault_matrix', '--out', str(ROOT / RESULT))
    return {row['name']: row for row in read_matrix(ROOT / RESULT)}


@pytest.mark.parametrize('name', FEW)
def test_a_fault_leads_to_what_is_specified(tmp_path, name):
    assert run_case(name, tmp_path).problems == ()


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize('name', CASES)
def test_every_fault_leads_to_what_is_specified(rows, name):
    assert rows[name]['problems'] == []


def test_there_are_faults_of_every_area():
    assert len(CASES) >= 40
    assert {case.area for case in CASES.values()} == AREAS
    used = {case.script for case in CASES.values()} - {''}
    assert used == {path.stem for path in SCRIPTS.glob('*.yaml')}


def test_the_page_has_every_fault_and_none_with_a_problem():
    if not (ROOT / RESULT).is_file():
        pytest.skip(f'{RESULT} is written by make faults, which was not run yet')
    found = read_matrix(ROOT / RESULT)
    assert [row['name'] for row in found] == list(CASES)
    assert [row['name'] for row in found if row['problems']] == []


# ---- planted: every check goes red -----------------------------------------------------------


def problems(tmp_path, name, **changes):
    return '\n'.join(run_case(name, tmp_path, replace(CASES[name], **changes)).problems)


def test_a_missing_limiter_is_seen_can_fail(tmp_path, monkeypatch):
    def unlimited(self, setpoint):
        self._position, self._velocity = setpoint.position.copy(), setpoint.velocity.copy()
        return Limited(setpoint.position, setpoint.velocity, ())

    monkeypatch.setattr(Limiter, 'step', unlimited)
    text = problems(tmp_path, 'chunk that jumps inside')
    assert 'acceleration' in text and 'jerk' in text


@pytest.mark.parametrize('name', ['two ticks skipped', 'ten ticks skipped'])
def test_a_start_at_full_speed_after_a_gap_is_seen_can_fail(tmp_path, monkeypatch, name):
    monkeypatch.setattr(Mover, '_after_gap', lambda self, due_ns: None)
    assert 'acceleration' in problems(tmp_path, name)


def test_a_frame_that_stops_other_joints_is_seen_can_fail(tmp_path, monkeypatch):
    undo = Limiter.undo
    monkeypatch.setattr(Limiter, 'undo', lambda self, joints: undo(self) if joints.any() else None)
    assert 'acceleration' in problems(tmp_path, 'one frame not taken')


def test_a_command_that_leaves_after_a_freeze_is_seen_can_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(Sender, '_is_late', lambda self, due_ns: False)
    text = problems(tmp_path, 'stands still within a tick')
    assert 'speed over the elapsed time' in text and 'cause tick_late is missing' in text


def test_a_seam_that_is_not_blended_is_seen_can_fail(tmp_path):
    case = CASES['chunk that steps at its seam']
    options = replace(case.options, params={'chunk.blend_above_rad': 0.5})
    assert 'no trace of a chunk' in problems(tmp_path, 'chunk that steps at its seam',
                                             options=options)


def test_an_arm_that_stands_still_proves_nothing_can_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(FaultyOracle, '_swing', lambda self, request, rows: rows)
    assert 'when the fault came' in problems(tmp_path, 'hold')


def test_a_fault_that_does_not_come_is_seen_can_fail(tmp_path):
    text = problems(tmp_path, 'policy dies', act=lambda rig: None)
    assert 'cause node_dead is missing' in text
    assert 'executed in the last second' in text


def test_another_cause_code_or_end_is_seen_can_fail(tmp_path):
    text = problems(tmp_path, 'policy dies', causes=('clock',), outcome=Outcome.RECOVERS)
    assert 'cause clock is missing' in text and 'cause node_dead was not expected' in text
    assert 'does not move on' in text


def test_a_sprint_is_seen_can_fail(tmp_path):
    assert 'commands went at 2.1' in problems(tmp_path, 'one chunk that jumps by 0.3 rad',
                                              fastest=1.0)


def test_a_tick_that_is_held_for_nothing_is_seen_can_fail():
    assert unexplained([('ramping', 'none'), ('fresh', 'none'), ('held', 'plan_end')]) == []
    assert unexplained([('fresh', 'none'), ('held', 'none'), ('stopped', 'none')]) == [
        '2 ticks were held and have no cause']


def test_a_fault_that_is_overlooked_is_seen_can_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(Bridge, '_watch_arm', lambda self, *args: ())
    text = problems(tmp_path, 'bus off for 0.5 s')
    assert 'did not enter the state faulted' in text


def test_motion_before_the_check_is_seen_can_fail(tmp_path, monkeypatch):
    start = VirtualLink.open

    def eager(self):
        start(self)
        self._bus.send(0x471, bytes([7, 2, 0, 0, 0, 0, 0, 0]))

    monkeypatch.setattr(VirtualLink, 'open', eager)
    assert "sent ['0x471']" in problems(tmp_path, 'wrong limits')


def test_an_id_that_is_not_allowed_is_seen_can_fail(tmp_path):
    def write_flash(rig):
        do.hold(rig)
        rig.bus.send(0x474, bytes(8))

    assert '0x474' in problems(tmp_path, 'hold', act=write_flash)


def test_a_lost_record_is_seen_can_fail(tmp_path, monkeypatch):
    records = FaultRig.records
    monkeypatch.setattr(FaultRig, 'records', lambda self: np.delete(records(self), 130))
    assert 'every tick exactly once' in problems(tmp_path, 'hold')


def test_the_virtual_link_has_what_the_driver_uses_of_the_real_one():
    used = {'open', 'close', 'is_open', 'sdk'}
    assert used <= set(dir(VirtualLink)) and used <= set(dir(CanLink))
    assert callable(VirtualBus.send)


def test_the_file_is_the_same_every_time(tmp_path):
    row = run_case('wrong limits', tmp_path)
    for name in ('a.json', 'b.json'):
        write_matrix([row], tmp_path / name)
    assert (tmp_path / 'a.json').read_bytes() == (tmp_path / 'b.json').read_bytes()
    assert json.loads((tmp_path / 'a.json').read_text())['rows'][0]['name'] == 'wrong limits'


def test_the_table_has_a_row_for_each_fault_and_says_when_nothing_was_run(tmp_path):
    row = run_case('hold', tmp_path / 'run')
    assert 'Not run' in matrix_lines(tmp_path)[0]
    write_matrix([row], tmp_path / RESULT)
    lines = matrix_lines(tmp_path)
    assert '1 faults of 1 areas' in lines[0] and len(lines) == 6
    assert 'In real time: not run' in lines[1]
    assert lines[-1].startswith('| hold | operator: hold service | 1.60 | held 3.52 s |')
    assert '`operator`' in lines[-1] and lines[-1].endswith('| held at rest |  |  |  |  |')
