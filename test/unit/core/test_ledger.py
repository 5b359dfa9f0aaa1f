"""The ledger file: layout, growth, and what a death of its writer leaves."""

from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest

from reflex_ros.core.clock import MS, Instant, S
from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.core.ledger import (
    BLOCK_RECORDS,
    CAUSE_CODES,
    COVERED,
    GAP,
    HEADER_BYTES,
    IN_MOTION,
    SENT,
    VERDICT_CODES,
    LedgerReader,
    LedgerWriter,
    record_dtype,
    to_records,
)
from reflex_ros.core.types import JOINT_NAMES, ArmState, Cause, ControlTick, Verdict

PERIOD = 20 * MS
START = Instant(mono_ns=50 * S, stamp_ns=1_700_000_000 * S)
SIZE = record_dtype(7).itemsize
NOTHING = np.empty(0)


def tick(index, **fields):
    values = {
        'verdict': Verdict.FRESH, 'cause': Cause.NONE, 'arm_state': ArmState.TRACKING,
        'is_sent': True, 'in_motion': True, 'is_covered': True, 'command': np.arange(7) + index,
    } | fields
    return ControlTick(
        number=index + 1, stamp_ns=START.stamp_ns + index * PERIOD, index=index,
        due_ns=START.mono_ns + index * PERIOD, late_ns=150_000, epoch=1_700_000_000, chunk_id=4,
        row=2.5, observation_age_ns=90 * MS, tracking_error=0.02, setpoint=np.zeros(7),
        measured=np.ones(7), **values,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'ledger.bin'


@pytest.fixture
def writer(path):
    with LedgerWriter.create(path, period_ns=PERIOD, start=START, run_id='r1') as writer:
        yield writer


def at(index):
    """Return the instant just after tick ``index - 1`` and before tick ``index`` is due."""
    return Instant(START.mono_ns + index * PERIOD, START.stamp_ns + index * PERIOD)


def test_record_of_seven_joints_has_128_bytes():
    assert SIZE == 128
    assert record_dtype(14).itemsize == 184


@pytest.mark.parametrize('joints', [7, 14])
def test_a_record_is_written_as_the_table_of_ticks_has_it(tmp_path, joints):
    rng = np.random.default_rng(joints)
    ticks = [
        tick(i, cause=CAUSE_CODES[i % len(CAUSE_CODES)],
             verdict=VERDICT_CODES[i % len(VERDICT_CODES)], is_sent=bool(i & 1),
             in_motion=bool(i & 2), is_covered=bool(i & 4),
             command=NOTHING if i % 5 == 0 else rng.normal(size=joints) * 10.0 ** rng.integers(9),
             ) for i in range(40)]
    path = tmp_path / 'ledger.bin'
    names = tuple(f'joint{i}' for i in range(joints))
    with LedgerWriter.create(path, period_ns=PERIOD, start=START, joint_names=names) as writer:
        for each in ticks:
            writer.append(each)
    found, wanted = LedgerReader(path).records(), to_records(ticks, joints=joints)
    found['check'] = 0
    assert found.tobytes() == wanted.tobytes()


def test_record_keeps_every_field_of_the_tick(path, writer):
    writer.append(tick(0, verdict=Verdict.LIMITED, cause=Cause.LIMIT, is_sent=False))
    record = LedgerReader(path).records()[0]
    assert VERDICT_CODES[record['verdict']] is Verdict.LIMITED
    assert CAUSE_CODES[record['cause']] is Cause.LIMIT
    assert record['flags'] == IN_MOTION | COVERED
    assert (record['index'], record['count'], record['chunk_id'], record['row']) == (0, 1, 4, 2.5)
    assert record['due_ns'] == START.mono_ns
    assert record['stamp_ns'] == START.stamp_ns
    assert record['late_ns'] == 150_000
    assert record['observation_age_ns'] == 90 * MS
    assert record['epoch'] == 1_700_000_000
    assert record['tracking_error'] == np.float32(0.02)
    np.testing.assert_array_equal(record['command'], np.arange(7))
    np.testing.assert_array_equal(record['measured'], np.ones(7))


def test_tick_without_command_keeps_nan_and_no_sent_flag(path, writer):
    writer.append(tick(0, command=NOTHING, is_sent=False))
    writer.append(tick(1))
    first, second = LedgerReader(path).records()
    assert np.isnan(first['command']).all()
    assert not first['flags'] & SENT
    assert second['flags'] & SENT


def test_header_comes_back(path, writer):
    header = LedgerReader(path).header
    assert (header.period_ns, header.start_ns, header.run_id) == (PERIOD, START.mono_ns, 'r1')
    assert header.joint_names == JOINT_NAMES


def test_file_grows_in_blocks_and_is_cut_on_close(path):
    writer = LedgerWriter.create(path, period_ns=PERIOD, start=START)
    block = BLOCK_RECORDS * SIZE
    for index in range(BLOCK_RECORDS + 1):
        writer.append(tick(index))
    assert path.stat().st_size == HEADER_BYTES + 2 * block
    writer.close()
    writer.close()
    assert path.stat().st_size == HEADER_BYTES + (BLOCK_RECORDS + 1) * SIZE
    assert len(LedgerReader(path).records()) == BLOCK_RECORDS + 1


def test_missing_ticks_become_a_gap_without_cause(path, writer):
    writer.append(tick(0))
    writer.append(tick(5))
    records = LedgerReader(path).records()
    assert records['count'].tolist() == [1, 4, 1]
    assert records[1]['flags'] == GAP | IN_MOTION
    assert CAUSE_CODES[records[1]['cause']] is Cause.NONE
    assert records[1]['due_ns'] == START.mono_ns + PERIOD


def test_tick_older_than_the_last_is_refused(writer):
    writer.append(tick(3))
    with pytest.raises(ValueError, match='expected index >= 4'):
        writer.append(tick(3))


def test_reopened_ledger_adds_up_to_steady_time_over_period(path):
    with LedgerWriter.create(path, period_ns=PERIOD, start=START) as writer:
        for index in range(10):
            writer.append(tick(index))
    with LedgerWriter.reopen(path, at(60)) as writer:
        assert writer.next_index == 60
        writer.append(tick(60))
    reader = LedgerReader(path)
    records = reader.records()
    assert records['count'].tolist() == [1] * 10 + [50, 1]
    assert CAUSE_CODES[records[10]['cause']] is Cause.NODE_DEAD
    assert VERDICT_CODES[records[10]['verdict']] is Verdict.STOPPED
    assert records['count'].sum() == reader.header.ticks_due(at(61).mono_ns) == 61


def test_gap_rests_if_the_last_tick_rested(path):
    with LedgerWriter.create(path, period_ns=PERIOD, start=START) as writer:
        writer.append(tick(0, in_motion=False))
    LedgerWriter.reopen(path, at(5)).close()
    assert LedgerReader(path).records()[1]['flags'] == GAP


def test_reopening_at_once_writes_no_gap(path):
    with LedgerWriter.create(path, period_ns=PERIOD, start=START) as writer:
        writer.append(tick(0))
    LedgerWriter.reopen(path, at(1)).close()
    assert len(LedgerReader(path).records()) == 1


def test_ledger_killed_before_its_first_tick_reopens(path):
    LedgerWriter.create(path, period_ns=PERIOD, start=START).close()
    LedgerWriter.reopen(path, at(3)).close()
    assert LedgerReader(path).records()['count'].tolist() == [3]


@pytest.mark.parametrize('kept', [0, 1, 4, 5, 64, 127])
def test_torn_record_is_left_out_and_rewritten(path, kept):
    with LedgerWriter.create(path, period_ns=PERIOD, start=START) as writer:
        for index in range(3):
            writer.append(tick(index))
    data = bytearray(path.read_bytes())
    start = HEADER_BYTES + SIZE
    data[start + kept : start + SIZE] = bytes(SIZE - kept)
    path.write_bytes(data)
    assert LedgerReader(path).records()['index'].tolist() == [0]
    with LedgerWriter.reopen(path, at(2)) as writer:
        writer.append(tick(2))
        # The whole record behind the torn one is older than the gap and must not come back.
        assert LedgerReader(path).records()['index'].tolist() == [0, 1, 2]
        assert LedgerReader(path).records()['count'].tolist() == [1, 1, 1]


def test_torn_record_check_can_fail(path):
    with LedgerWriter.create(path, period_ns=PERIOD, start=START) as writer:
        writer.append(tick(0))
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 60] ^= 1
    path.write_bytes(data)
    assert len(LedgerReader(path).records()) == 0


APPENDER = """
import sys
from test_ledger import PERIOD, START, tick
from reflex_ros.core.ledger import LedgerWriter
writer = LedgerWriter.create(sys.argv[1], period_ns=PERIOD, start=START)
for index in range(10_000_000):
    writer.append(tick(index))
    if index % 500 == 0:
        print(index, flush=True)
"""


@pytest.mark.parametrize('lines', [1, 4, 11])
def test_killed_writer_leaves_a_prefix_and_the_sum_still_fits(path, lines):
    environment = os.environ | {'PYTHONPATH': os.pathsep.join([os.path.dirname(__file__),
                                                               *filter(None, sys.path)])}
    child = subprocess.Popen([sys.executable, '-c', APPENDER, str(path)],
                             stdout=subprocess.PIPE, text=True, env=environment)
    said = [int(child.stdout.readline()) for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    records = LedgerReader(path).records()
    assert len(records) > said[-1]
    np.testing.assert_array_equal(records['index'], np.arange(len(records)))
    np.testing.assert_array_equal(records['command'][:, 0], np.arange(len(records)))
    later = len(records) + 250
    with LedgerWriter.reopen(path, at(later)) as writer:
        writer.append(tick(later))
    reader = LedgerReader(path)
    assert reader.records()['count'].sum() == reader.header.ticks_due(at(later + 1).mono_ns)
    assert reader.records()[-2]['count'] == 250


def test_reader_sees_whole_records_while_the_writer_runs(path, writer):
    reader, lengths = LedgerReader(path), []

    def write():
        for index in range(6000):
            writer.append(tick(index))

    thread = threading.Thread(target=write)
    thread.start()
    while thread.is_alive():
        records = reader.records()
        np.testing.assert_array_equal(records['command'][:, 6], np.arange(len(records)) + 6)
        lengths.append(len(records))
    thread.join()
    assert lengths == sorted(lengths)
    assert len(reader.records()) == 6000


def test_full_disk_loses_ticks_and_not_the_bridge(path, writer, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, 'full')

    reserve = os.posix_fallocate
    monkeypatch.setattr(os, 'posix_fallocate', full)
    assert not writer.append(tick(0))
    assert not writer.append(tick(1))
    assert writer.lost == 2
    monkeypatch.setattr(os, 'posix_fallocate', reserve)
    assert writer.append(tick(2))
    assert LedgerReader(path).records()['count'].tolist() == [2, 1]


def test_second_writer_is_refused(path, writer):
    with pytest.raises(ConfigError, match='has a writer'):
        LedgerWriter.reopen(path, at(1))


def test_existing_ledger_is_not_overwritten(path, writer):
    with pytest.raises(ConfigError, match='Reopen it'):
        LedgerWriter.create(path, period_ns=PERIOD, start=START)
    assert os.listdir(path.parent) == ['ledger.bin']


def test_steady_clock_that_restarted_is_refused_and_nothing_lost(path):
    with LedgerWriter.create(path, period_ns=PERIOD, start=START) as writer:
        for index in range(100):
            writer.append(tick(index))
    for _ in range(2):
        with pytest.raises(ConfigError, match='another boot'):
            LedgerWriter.reopen(path, at(50))
    assert len(LedgerReader(path).records()) == 100


def test_wrong_period_is_refused(path):
    with pytest.raises(ConfigError, match='expected > 0'):
        LedgerWriter.create(path, period_ns=0, start=START)


@pytest.mark.parametrize('damage', ['empty', 'other', 'header', 'table'])
def test_file_that_is_no_ledger_is_refused(path, damage):
    LedgerWriter.create(path, period_ns=PERIOD, start=START).close()
    data = bytearray(path.read_bytes())
    if damage == 'table':
        text = path.read_bytes().replace(b'"tick_late"', b'"tick_lath"')
        path.write_bytes(with_fresh_check(text))
    else:
        data[20] ^= damage == 'header'
        path.write_bytes({'empty': b'', 'other': b'x' * 5000, 'header': data}[damage])
    with pytest.raises(LayoutError):
        LedgerReader(path)


def with_fresh_check(data):
    length = struct.unpack_from('<I', data, 8)[0]
    return data[:12] + struct.pack('<I', zlib.crc32(data[16 : 16 + length])) + data[16:]


def test_two_arms_fit_one_ledger(path):
    names = [f'{side}_{name}' for side in ('left', 'right') for name in JOINT_NAMES]
    with LedgerWriter.create(path, period_ns=PERIOD, start=START, joint_names=names) as writer:
        writer.append(tick(0, command=np.arange(14)))
    reader = LedgerReader(path)
    assert reader.header.joint_names[7] == 'right_joint1'
    np.testing.assert_array_equal(reader.records()[0]['command'], np.arange(14))
