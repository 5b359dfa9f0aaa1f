"""The health check sees a bridge that ticks, and one that does not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.core.clock import MS, Instant, S, SystemClock
from reflex_ros.core.ledger import BLOCK_RECORDS, LedgerWriter
from reflex_ros.core.types import ArmState, Cause, ControlTick, Verdict

SCRIPT = Path(__file__).parents[3] / 'docker' / 'health.py'
PERIOD = 20 * MS
START = Instant(mono_ns=50 * S, stamp_ns=1_700_000_000 * S)


@pytest.fixture(scope='module')
def health():
    spec = importlib.util.spec_from_file_location('health', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tick(index):
    return ControlTick(
        number=index + 1, stamp_ns=START.stamp_ns + index * PERIOD, index=index,
        due_ns=START.mono_ns + index * PERIOD, late_ns=0, verdict=Verdict.HELD,
        cause=Cause.OPERATOR, arm_state=ArmState.HOLDING, epoch=1, chunk_id=0, row=-1.0,
        is_sent=True, in_motion=False, is_covered=False, observation_age_ns=-1,
        tracking_error=0.0, setpoint=np.empty(0), command=np.zeros(7), measured=np.zeros(7),
    )


def make_run(runs, name='20260101T000000Z-reflex', start=START):
    (runs / name).mkdir(parents=True)
    return LedgerWriter.create(runs / name / 'ledger.bin', period_ns=PERIOD, start=start)


def test_a_run_that_ticks_is_alive_while_its_ledger_is_written(health, tmp_path):
    with make_run(tmp_path) as writer:
        for index in range(100):
            writer.append(tick(index))
        assert health.judge(tmp_path, START.mono_ns + 100 * PERIOD) == (
            True, '20260101T000000Z-reflex: ticking')


def test_a_run_whose_last_tick_is_old_is_not_alive(health, tmp_path):
    with make_run(tmp_path) as writer:
        writer.append(tick(0))
        alive, text = health.judge(tmp_path, START.mono_ns + PERIOD + 1500 * MS)
    assert not alive and 'last tick 1.5 s ago' in text


def test_a_ledger_of_another_boot_is_not_alive(health, tmp_path):
    with make_run(tmp_path) as writer:
        writer.append(tick(0))
    alive, text = health.judge(tmp_path, START.mono_ns - 40 * S)
    assert not alive and '-40.0 s' in text


def test_only_the_newest_run_counts(health, tmp_path):
    with make_run(tmp_path) as old:
        old.append(tick(0))
    make_run(tmp_path, '20260101T000001Z-reflex').close()
    alive, text = health.judge(tmp_path, START.mono_ns + PERIOD)
    assert not alive and text.startswith('20260101T000001Z-reflex: no tick yet')


def test_a_torn_record_and_a_damaged_ledger_are_not_alive(health, tmp_path):
    with make_run(tmp_path) as writer:
        writer.append(tick(0))
    file = tmp_path / '20260101T000000Z-reflex' / 'ledger.bin'
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert 'no tick yet' in health.judge(tmp_path, START.mono_ns)[1]
    file.write_bytes(b'nonsense')
    assert not health.judge(tmp_path, START.mono_ns)[0]


@pytest.mark.parametrize('count', [1, 2, BLOCK_RECORDS - 1, BLOCK_RECORDS, BLOCK_RECORDS + 1])
def test_the_end_is_found_by_halving(health, tmp_path, count):
    with make_run(tmp_path) as writer:
        for index in range(count):
            writer.gap(index, 1, Cause.NONE)
        found = health.end_of_records(tmp_path / '20260101T000000Z-reflex' / 'ledger.bin')
    assert found == START.mono_ns + count * PERIOD


def test_the_program_says_it_with_its_exit_code(tmp_path):
    def check(*more):
        return subprocess.run([sys.executable, str(SCRIPT), str(tmp_path), *more],
                              capture_output=True, text=True, check=False)

    nothing = check()
    assert nothing.returncode == 1 and 'no run in' in nothing.stdout
    with make_run(tmp_path, start=SystemClock().now()) as writer:
        writer.append(tick(0))
        assert check('--within', '1000').returncode == 0
        assert check('--within', '0').returncode == 1
