"""Damaged, truncated, empty, foreign and future bags: a clear error, or a part and its gaps."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest

from reflex_ros.analysis.figures import Analysis, analyse
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.core.errors import ConfigError, ReflexError

STORAGES = ('mcap', pytest.param('sqlite3', marks=pytest.mark.soak))


@pytest.fixture(scope='module', params=STORAGES)
def bag(request, stalled, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / 'bag'
    return stalled.write(folder, images=False, is_brief=True, storage=request.param)


@pytest.fixture
def copy(bag, tmp_path):
    return shutil.copytree(bag, tmp_path / 'bag')


def data_of(folder):
    return next(p for p in folder.iterdir() if p.suffix in ('.mcap', '.db3'))


def outcome(path):
    """Return an analysis or the clear error; anything else is a crash."""
    try:
        return analyse(path)
    except ReflexError as error:
        text = str(error)
        assert ('got' in text and 'expected' in text) or len(text) > 40
        return text


def test_a_whole_bag_lacks_no_message(bag):
    notes = analyse(bag).notes
    assert not any('missing' in n or 'could be read' in n or 'damaged' in n for n in notes)


def test_a_bag_without_metadata_is_read_as_far_as_it_is_whole(bag, copy):
    (copy / 'metadata.yaml').unlink()
    found = analyse(copy)
    assert found.summary.ticks == analyse(bag).summary.ticks
    assert any('read as far as it is whole' in note for note in found.notes)
    assert not (copy / 'metadata.yaml').exists(), 'a report changes nothing'


@pytest.mark.parametrize('share', [
    pytest.param(0.3, marks=pytest.mark.soak), 0.6, pytest.param(0.95, marks=pytest.mark.soak)])
@pytest.mark.parametrize('has_metadata', [True, False])
def test_a_truncated_bag_gives_a_part_and_says_so(copy, share, has_metadata):
    data = data_of(copy)
    data.write_bytes(data.read_bytes()[: int(share * data.stat().st_size)])
    if not has_metadata:
        (copy / 'metadata.yaml').unlink()
    found = outcome(copy)
    assert isinstance(found, str) or found.notes
    if data.suffix == '.mcap':
        assert isinstance(found, Analysis) and 0 < found.summary.ticks < 250


@pytest.mark.parametrize('seed', range(2))
def test_flipped_bytes_never_crash(copy, seed):
    flip(data_of(copy), seed)
    outcome(copy)


@pytest.mark.soak
@pytest.mark.parametrize('seed', range(2, 150))
def test_flipped_bytes_never_crash_many(copy, seed):
    flip(data_of(copy), seed)
    outcome(copy)


def flip(path, seed):
    rng = np.random.default_rng(seed)
    data = bytearray(path.read_bytes())
    for at in rng.integers(0, len(data), 1 + 40 * (seed % 3)):
        data[at] ^= int(rng.integers(1, 256))
    path.write_bytes(bytes(data))


def test_empty_files_are_refused(copy):
    data_of(copy).write_bytes(b'')
    assert 'no ticks' in outcome(copy)
    (copy / 'metadata.yaml').unlink()
    assert 'no ticks' in outcome(copy)


def test_damaged_metadata_do_not_hide_the_messages(copy):
    (copy / 'metadata.yaml').write_text('rosbag2_bagfile_information: [')
    assert analyse(copy).summary.ticks > 150


def test_a_bag_of_a_newer_rosbag2_is_refused(copy):
    path = copy / 'metadata.yaml'
    path.write_text(path.read_text().replace('version: 8', 'version: 11'))
    with pytest.raises(ConfigError, match='metadata version 11, expected at most 9'):
        analyse(copy)


def test_a_folder_without_a_bag_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='a folder without bag data'):
        analyse(tmp_path)
    with pytest.raises(ConfigError, match='no such file or folder'):
        analyse(tmp_path / 'nothing')
    (tmp_path / 'x.txt').write_text('x')
    with pytest.raises(ConfigError, match=r'a \.txt file'):
        analyse(tmp_path / 'x.txt')


def test_a_bag_of_another_program_is_refused(stalled, write_rows, tmp_path):
    types, rows = stalled.messages()
    name = '/camera/main/image_raw'
    write_rows(tmp_path / 'bag', {name: types[name]}, [r for r in rows if r[0] == name][:3])
    with pytest.raises(ConfigError, match='topics of other programs'):
        analyse(tmp_path / 'bag')


def test_an_empty_bag_is_refused(stalled, write_rows, tmp_path):
    types, _ = stalled.messages(images=False, is_brief=True)
    write_rows(tmp_path / 'bag', types, [])
    with pytest.raises(ConfigError, match='without a readable message'):
        analyse(tmp_path / 'bag')


def test_messages_of_a_future_version_are_named(stalled, write_rows, tmp_path):
    types, rows = stalled.messages(images=False, is_brief=True)
    future = [(topic, stamp, newer(data) if topic == '/chunk_trace' else data)
              for topic, stamp, data in rows]
    write_rows(tmp_path / 'bag', types, future)
    found = analyse(tmp_path / 'bag')
    assert found.summary.ticks > 150
    assert any('/chunk_trace' in n and 'got schema 2' in n for n in found.notes)
    assert not found.figures['reaction_p50_ms'].is_measured


def test_a_tick_off_the_grid_is_left_out_and_said(stalled, write_rows, tmp_path):
    from dataclasses import replace

    from reflex_ros.bag.encode import Encoder

    types, rows = stalled.messages(images=False, is_brief=True)
    tick = stalled.run.log.ticks[50]
    torn = Encoder().encode(replace(tick, due_ns=tick.due_ns - 30_000_000_000))
    at = [i for i, row in enumerate(rows) if row[0] == '/control_tick'][50]
    rows[at] = ('/control_tick', rows[at][1], torn)
    write_rows(tmp_path / 'bag', types, rows)
    found = analyse(tmp_path / 'bag')
    assert found.summary.ticks == len(stalled.run.log.ticks) - 1
    assert any(note.startswith('1 of 202 ticks are left out') for note in found.notes)


def newer(data):
    """Return a message with schema version 2, which stands behind header and number."""
    at = 4 + 24
    assert data[at : at + 2] == b'\x01\x00'
    return data[:at] + b'\x02\x00' + data[at + 2:]


def test_two_suites_in_one_bag_are_refused(stalled, write_rows, tmp_path):
    types, rows = stalled.messages(images=False, is_brief=True)
    both = {**types, '/left/control_tick': types['/control_tick']}
    ticks = [('/left/control_tick', s, d) for t, s, d in rows if t == '/control_tick']
    write_rows(tmp_path / 'bag', both, [*rows, *ticks])
    with pytest.raises(ConfigError, match='two suites'):
        analyse(tmp_path / 'bag')


def test_only_the_chunk_whose_bytes_were_changed_is_left_out(stalled, tmp_path):
    types, rows = stalled.messages()
    rows = [row for row in rows if 'image' not in row[0]]
    files = BagFiles(tmp_path / 'bag', [BagTopic(name, kind) for name, kind in types.items()])
    files.open()
    for number, row in enumerate(rows, 1):
        files.write(*row)
        if number % 200 == 0:
            files.flush()
    files.close()
    whole = analyse(tmp_path / 'bag')
    data = data_of(tmp_path / 'bag')
    changed = bytearray(data.read_bytes())
    where = changed.index(rows[500][2])
    changed[where + 40] ^= 1
    data.write_bytes(changed)
    found = analyse(tmp_path / 'bag')
    assert any('bytes from byte' in note and 'were changed' in note for note in found.notes)
    read = [sum(analysis.run.recorded.read.values()) for analysis in (whole, found)]
    assert read == [len(rows), len(rows) - 200]
    assert any('messages could be read' in note for note in found.notes)


HALF_DONE = """
import os, sqlite3, sys
base = sqlite3.connect(sys.argv[1])
base.execute('PRAGMA cache_size=1')
for number in range(400):
    base.execute('INSERT INTO messages (topic_id, timestamp, data) VALUES (1, 5, ?)',
                 (bytes(9000),))
base.execute('UPDATE messages SET timestamp = timestamp + 1')
os._exit(9)
"""


def test_what_a_killed_writer_left_half_done_is_not_read_and_not_changed(stalled, tmp_path):
    folder = stalled.write(tmp_path / 'bag', images=False, is_brief=True, storage='sqlite3')
    whole = analyse(folder)
    data = data_of(folder)
    subprocess.run([sys.executable, '-c', HALF_DONE, str(data)], check=False)
    journal = data.with_name(f'{data.name}-journal')
    assert journal.stat().st_size
    (folder / 'metadata.yaml').unlink()
    before = data.read_bytes(), journal.read_bytes()
    found = analyse(folder)
    assert found.summary.ticks == whole.summary.ticks
    assert sum(found.run.recorded.read.values()) == sum(whole.run.recorded.read.values())
    assert (data.read_bytes(), journal.read_bytes()) == before, 'a report changes nothing'
