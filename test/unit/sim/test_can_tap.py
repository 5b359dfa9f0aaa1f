"""The record of received commands, in memory and on disk."""

from __future__ import annotations

import pytest

from reflex_ros.core.clock import Instant
from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.can_codec import CanFrame
from reflex_ros.sim.can_tap import CommandTap, TapRecord, read_tap

JOINTS = CanFrame(0x155, bytes(range(8)))
SHORT = CanFrame(0x471, b'\x07\x02')


def test_frames_are_counted_by_channel_and_id():
    tap = CommandTap(('left', 'right'))
    for channel, frame in (('left', JOINTS), ('left', JOINTS), ('right', SHORT)):
        tap.record(channel, frame, 1)
    assert tap.counts('left') == {0x155: 2}
    assert tap.counts('right') == {0x471: 1}


def test_the_newest_frames_are_kept_with_their_time():
    tap = CommandTap(('can0', 'can1'), recent_frames=3)
    for n in range(5):
        tap.record('can0' if n % 2 else 'can1', JOINTS if n < 4 else SHORT, 10 * n)
    assert [record.mono_ns for record in tap.recent()] == [20, 30, 40]
    assert tap.recent('can0') == (TapRecord(30, 'can0', 0x155, JOINTS.data),)
    assert [r.mono_ns for r in tap.recent(ids=[0x155])] == [20, 30]
    assert [r.mono_ns for r in tap.recent(since_ns=30)] == [30, 40]
    assert tap.counts('can1') == {0x155: 2, 0x471: 1}


def test_a_file_holds_every_frame_and_both_clocks(tmp_path):
    path = tmp_path / 'tap.bin'
    tap = CommandTap(('left', 'right'), path=path, start=Instant(7, 9), recent_frames=1)
    tap.record('right', JOINTS, 123)
    tap.record('left', SHORT, 456)
    tap.close()
    head, records = read_tap(path)
    assert (head['channels'], head['start_ns'], head['start_stamp_ns']) == (
        ['left', 'right'], 7, 9)
    assert records['mono_ns'].tolist() == [123, 456]
    assert records['can_id'].tolist() == [0x155, 0x471]
    assert records['channel'].tolist() == [1, 0]
    assert records['length'].tolist() == [8, 2]
    assert bytes(records['data'][0]) == JOINTS.data
    assert bytes(records['data'][1]) == SHORT.data + bytes(6)


def test_a_torn_last_record_is_left_out(tmp_path):
    path = tmp_path / 'tap.bin'
    tap = CommandTap(('can0',), path=path)
    tap.record('can0', JOINTS, 1)
    tap.record('can0', JOINTS, 2)
    tap.close()
    path.write_bytes(path.read_bytes()[:-5])
    assert read_tap(path)[1]['mono_ns'].tolist() == [1]


@pytest.mark.parametrize('content', [b'', b'{}\n', b'{"schema": 9}\n', b'\x00\x01', b'[]\n'])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / 'other.bin'
    path.write_bytes(content)
    with pytest.raises(ConfigError, match='other.bin'):
        read_tap(path)


def test_a_full_disk_ends_the_file_and_nothing_else():
    tap = CommandTap(('can0',), path='/dev/full')
    for stamp_ns in range(1000):
        tap.record('can0', JOINTS, stamp_ns)
        tap.flush()
    tap.close()
    assert 'No space left' in tap.error
    assert tap.counts('can0') == {JOINTS.can_id: 1000}


def test_an_unwritable_path_is_named(tmp_path):
    with pytest.raises(ConfigError, match='nowhere'):
        CommandTap(('can0',), path=tmp_path / 'nowhere' / 'tap.bin')
