"""Every fault of the matrix in real time: a simulator process, the SDK's socket and real threads.

What reached the simulator's socket is judged by its own codec, by order and by the elapsed time
(``fault_arrivals``). ``make faults`` runs all, side by side, and writes
``results/faults/socket.json``; one stands for the others in every run of the tests.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('piper_sdk')

from reflex_ros.arm.arrival import Arrivals
from reflex_ros.arm.driver import PiperDriver
from reflex_ros.arm.protocol import Sent
from reflex_ros.study import fault_actions as do
from reflex_ros.study.fault_cases import CASES, Outcome
from reflex_ros.study.fault_matrix import ALLOWED, run_case
from reflex_ros.study.fault_report import SOCKET, matrix_lines, read_matrix
from reflex_ros.study.fault_rig import RigOptions
from reflex_ros.study.fault_socket import MOST_RUNS, is_void, run_on_socket
from reflex_ros.study.fault_socket_rig import SocketRig

pytestmark = [pytest.mark.can, pytest.mark.realtime]

ROOT = Path(__file__).parents[2]
AREAS = {'camera', 'clock', 'process', 'ring', 'message', 'checkpoint', 'CAN', 'arm', 'operator'}
SHORT = RigOptions(duration_s=4.2)
MOVING = 1.5


def on_time(folder, name, **changes):
    """Return the row and the rig of a run in which the machine was on time."""
    for n in range(MOST_RUNS):
        rigs = []

        def make(where, options, rigs=rigs):
            rigs.append(SocketRig(where, options))
            return rigs[0]

        row = run_case(name, folder / str(n), replace(CASES[name], **changes), make_rig=make)
        if not is_void(row):
            return row, rigs[0]
    pytest.skip(f'the machine was late in {MOST_RUNS} runs')


def test_a_hold_at_speed_comes_to_rest_within_the_limits(tmp_path):
    row, rig = on_time(tmp_path, 'hold', options=SHORT)
    assert row.problems == () and row.causes == ('operator',)
    assert row.speed > MOVING and 0.2 < row.moved < 0.6, 'v² / 2a and the lag of the drives'
    assert {record.can_id for record in rig.bus.recent()} <= ALLOWED


# ---- all of them, once -----------------------------------------------------------------------


@pytest.fixture(scope='module')
def live(tell_lines):
    """Return every row by its name; they are run side by side and tell how far they are."""
    tell_lines(sys.executable, '-m', 'reflex_ros.study.fault_socket', '--out', str(ROOT / SOCKET))
    return {row['name']: row for row in read_matrix(ROOT / SOCKET)}


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize('name', CASES)
def test_every_fault_leads_to_what_is_specified_at_the_socket(live, name):
    row = live[name]
    assert row['problems'] == []
    assert not CASES[name].is_moving or row['speed'] > MOVING


def test_the_page_has_every_fault_at_the_socket_and_none_with_a_problem():
    if not (ROOT / SOCKET).is_file():
        pytest.skip(f'{SOCKET} is written by make faults, which was not run yet')
    found = read_matrix(ROOT / SOCKET)
    assert [row['name'] for row in found] == list(CASES) and len(found) >= 40
    assert {row['area'] for row in found} == AREAS
    assert [row['name'] for row in found if row['problems']] == []
    at_speed = [row for row in found if CASES[row['name']].is_moving]
    assert len(at_speed) >= 40 and all(row['speed'] > MOVING for row in at_speed)
    data = json.loads((ROOT / SOCKET).read_text(encoding='utf-8'))
    assert set(data['machine']) == {'cpu', 'cores', 'memory_gib'}
    assert f'{len(found)} of them, of 9 areas' in matrix_lines(ROOT)[1]


# ---- beyond the table ------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_a_bridge_process_that_is_stopped_at_speed_makes_no_wrong_command(tmp_path):
    """Whoever wakes first: what waited in the socket is no state of now."""
    row, rig = on_time(tmp_path, 'loop stands still for 0.8 s',
                       act=lambda rig: rig.stop_process(0.8), also=('arm_fault', 'plan_end'))
    assert rig.judge(0.0).violations == ()
    assert 'arm_fault' in row.causes and rig.seen[0] == 'feedback_lost' and rig.accounted()
    assert set(rig.seen) <= {'feedback_lost', 'status_lost'}, 'the slowest frames come last'


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_what_waited_in_the_socket_is_taken_for_now_can_fail(tmp_path, monkeypatch):
    ages = []
    stamp = Arrivals.stamp

    def now(self, now_ns, bus_s):
        ages.append(now_ns - stamp(self, now_ns, bus_s))
        return now_ns

    monkeypatch.setattr(Arrivals, 'stamp', now)
    on_time(tmp_path, 'loop stands still for 0.8 s', act=lambda rig: rig.stop_process(0.8),
            also=('arm_fault', 'plan_end'))
    assert max(ages) > 0.7e9 and sum(age > 0.1e9 for age in ages) > 500


# ---- planted: every check goes red at the socket too -----------------------------------------


def sent(monkeypatch, change):
    """Let ``change(driver, send, number, command)`` send what the bridge commands."""
    send, numbers = PiperDriver.send, {}

    def changed(self, position):
        number = numbers[id(self)] = numbers.get(id(self), 0) + 1
        return change(self, send, number, np.array(position))

    monkeypatch.setattr(PiperDriver, 'send', changed)


def text(tmp_path):
    row, _ = on_time(tmp_path, 'hold', options=SHORT, act=lambda rig: None,
                     outcome=Outcome.GOES_ON, causes=())
    return '\n'.join(row.problems)


AT = 140
"""A tick at which the arm is at speed."""


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_a_jump_at_the_socket_is_found_can_fail(tmp_path, monkeypatch):
    def jump(driver, send, number, command):
        command[2] += 0.05 * (number >= AT)
        return send(driver, command)

    sent(monkeypatch, jump)
    assert 'joint 3: acceleration' in text(tmp_path)


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_an_overspeed_at_the_socket_is_found_can_fail(tmp_path, monkeypatch):
    def fast(driver, send, number, command):
        command[0] -= 0.07 * min(max(0, number - 60), 20)
        return send(driver, command)

    sent(monkeypatch, fast)
    found = text(tmp_path)
    assert 'joint 1: speed over the elapsed time' in found and ' rad in ' in found


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_a_burst_at_the_socket_is_found_can_fail(tmp_path, monkeypatch):
    kept = []

    def catch_up(driver, send, number, command):
        if number in (AT, AT + 1):
            kept.append(command)
            return Sent.whole(7)
        for late in (*kept, command):
            is_sent = send(driver, late)
        kept.clear()
        return is_sent

    sent(monkeypatch, catch_up)
    assert 'a second command in one period' in text(tmp_path)


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_a_fault_that_does_not_come_is_seen_at_the_socket_can_fail(tmp_path):
    row, _ = on_time(tmp_path, 'hold', options=SHORT, act=do.delay_chunks(0.0, 0.1))
    assert 'cause operator is missing' in '\n'.join(row.problems)


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_a_machine_that_is_late_while_the_arm_is_held_makes_a_run_void_can_fail(
        tmp_path, monkeypatch):
    """The ledger says operator, as it should; what the machine did is measured beside it."""
    def slow(driver, send, number, command):
        time.sleep(0.05 * (number == AT + 60))
        return send(driver, command)

    sent(monkeypatch, slow)
    row = run_case('hold', tmp_path, replace(CASES['hold'], options=SHORT), make_rig=SocketRig)
    assert 'tick_late' not in row.causes and row.tick_ms > 29.0 and is_void(row)


def test_a_late_machine_makes_a_run_void_can_fail():
    row = replace(run_row('hold'), read_late_ms=2.0, sent_ms=9.0)
    assert not is_void(row)
    assert is_void(replace(row, read_late_ms=7.0)) and is_void(replace(row, sent_ms=14.0))
    assert is_void(replace(row, tick_ms=10.5)) and not is_void(replace(row, tick_ms=9.5))
    assert is_void(replace(row, causes=('tick_late',))) and is_void(replace(row, woke_ms=70.0))
    assert not is_void(replace(run_row('two ticks skipped'), causes=('tick_late',)))


def run_row(name):
    from reflex_ros.study.fault_report import Row

    case = CASES[name]
    return Row(name, case.area, case.where, '', 0.0, 0.0, None, (), '', case.outcome.value)


def test_a_run_that_is_always_late_fails_can_fail(monkeypatch):
    import reflex_ros.study.fault_socket as runner

    monkeypatch.setattr(runner, 'run_case', lambda name, folder, make_rig: replace(
        run_row(name), read_late_ms=99.0))
    row = run_on_socket('hold')
    assert row.runs == MOST_RUNS and 'nothing is proven' in row.problems[-1]
