"""A bag that holds less than its metadata promise is told from a whole one, and repaired."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from reflex_ros.bag.check import check_bag, is_torn
from reflex_ros.bag.files import BagFiles
from reflex_ros.bag.mcap_scan import McapScan
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.repair import needs_repair, repair
from reflex_ros.cli.main import main

COUNT = 400


@pytest.fixture(params=['mcap', 'sqlite3'])
def storage(request):
    return request.param


@pytest.fixture
def bag(tmp_path, topic, ticks, storage):
    """Return the folder of a bag of two parts and several chunks."""
    files = BagFiles(tmp_path / 'bag', [topic], storage=storage)
    files.open()
    for number in range(COUNT):
        files.write(topic.name, number + 1, ticks[number % 50][1])
        if number % 50 == 49:
            files.flush()
        if number == 249:
            files.split()
    files.close()
    return tmp_path / 'bag'


def part(bag, number=1):
    return next(bag.glob(f'bag_{number}.*'))


def stamps(folder):
    with BagReader(folder) as reader:
        return [message.stamp_ns for message in reader.messages()]


def test_a_whole_bag_has_no_damage(bag):
    checked = check_bag(bag)
    assert checked.notes == []
    assert checked.promised == checked.found == {'/control_tick': COUNT}
    assert not any(is_torn(part(bag, number)) for number in (0, 1))
    assert not needs_repair(bag)


@pytest.mark.parametrize('share', [0.9, 0.5, 0.2])
def test_a_truncated_bag_with_metadata_is_no_whole_one(bag, share, capsys):
    path = part(bag)
    path.write_bytes(path.read_bytes()[:round(path.stat().st_size * share)])
    assert is_torn(path) and needs_repair(bag)
    assert check_bag(bag).notes
    assert main(['repair', str(bag)]) == 0
    said = capsys.readouterr().out
    found = stamps(bag)
    # pages of a database are not in the order of its messages
    assert 250 <= len(found) < COUNT and set(found) <= set(range(1, COUNT + 1))
    assert found[:250] == list(range(1, 251)) and len(set(found)) == len(found)
    assert f'/control_tick: {len(found)} of {COUNT} messages are there' in said
    assert 'nothing to repair' not in said
    assert check_bag(bag).notes == []


def test_a_part_that_is_missing_is_named_and_the_rest_saved(bag):
    part(bag).unlink()
    (missing, count) = check_bag(bag).notes
    assert missing == f'bag_1{part(bag, 0).suffix} is missing'
    assert count == f'/control_tick: 250 of {COUNT} messages are there'
    assert repair(bag).missing == (missing, count)
    assert stamps(bag) == list(range(1, 251))


def test_a_part_of_another_bag_is_found_by_its_count(bag, tmp_path, topic, ticks, storage):
    other = BagFiles(tmp_path / 'other', [topic], storage=storage)
    other.open()
    other.write(topic.name, 7, ticks[0][1])
    other.close()
    part(bag).write_bytes(next((tmp_path / 'other').glob('other_0.*')).read_bytes())
    assert check_bag(bag).notes == [f'/control_tick: 251 of {COUNT} messages are there']


def test_changed_bytes_of_a_chunk_are_found_and_only_that_chunk_is_lost(tmp_path, topic, ticks):
    files = BagFiles(tmp_path / 'bag', [topic])
    files.open()
    for number in range(200):
        files.write(topic.name, number + 1, ticks[number % 50][1])
        if number % 50 == 49:
            files.flush()
    files.close()
    path = tmp_path / 'bag' / 'bag_0.mcap'
    data = bytearray(path.read_bytes())
    where = data.index(ticks[10][1], data.index(ticks[49][1]))  # in the second chunk
    data[where + 60] ^= 0xFF
    path.write_bytes(data)
    damage, count = check_bag(tmp_path / 'bag').notes
    assert 'bag_0.mcap: ' in damage and 'were changed' in damage
    assert count == '/control_tick: 150 of 200 messages are there'
    assert repair(tmp_path / 'bag').messages == {'/control_tick': 150}
    assert stamps(tmp_path / 'bag') == [*range(1, 51), *range(101, 201)]


def test_a_scan_without_checksums_can_fail_the_last_test(tmp_path, topic, ticks):
    """A changed byte comes back as if it were right where the chunk has no checksum."""
    files = BagFiles(tmp_path / 'bag', [topic])
    files.open()
    files.write(topic.name, *ticks[0])
    files.close()
    data = bytearray((tmp_path / 'bag' / 'bag_0.mcap').read_bytes())
    chunk = data.rindex(b'\x06', 0, data.index(ticks[0][1]) - 40)
    while int.from_bytes(data[chunk + 1:chunk + 9], 'little') > len(data):
        chunk = data.rindex(b'\x06', 0, chunk)
    data[data.index(ticks[0][1]) + 60] ^= 0xFF
    assert list(McapScan(memoryview(bytes(data))).messages()) == []
    data[chunk + 9 + 24:chunk + 9 + 28] = bytes(4)
    assert len(list(McapScan(memoryview(bytes(data))).messages())) == 1


def test_a_damaged_record_costs_what_it_hides_and_no_more(tmp_path, topic, ticks):
    """The head of the second of four chunks is destroyed; the topics are known all the same."""
    files = BagFiles(tmp_path / 'bag', [topic])
    files.open()
    heads = []
    for number in range(200):
        if number % 50 == 0:
            heads.append(next((tmp_path / 'bag').glob('*.mcap')).stat().st_size)
        files.write(topic.name, number + 1, ticks[number % 50][1])
        if number % 50 == 49:
            files.flush()
    files.close()
    path = tmp_path / 'bag' / 'bag_0.mcap'
    data = bytearray(path.read_bytes())
    data[heads[1]:heads[1] + 9] = b'\xff' * 9
    data[30:40] = bytes(10)  # in the records of the topics, which the end has once more
    path.write_bytes(data)
    assert check_bag(tmp_path / 'bag').damage
    result = repair(tmp_path / 'bag')
    assert result.messages == {'/control_tick': 150}
    assert any('cannot be read' in text for text in result.missing)
    assert stamps(tmp_path / 'bag') == [*range(1, 51), *range(101, 201)]


def test_damaged_pages_of_a_database_are_found(tmp_path, topic, ticks):
    files = BagFiles(tmp_path / 'bag', [topic], storage='sqlite3')
    files.open()
    for number in range(COUNT):
        files.write(topic.name, number + 1, ticks[0][1])
    files.close()
    path = tmp_path / 'bag' / 'bag_0.db3'
    with closing(sqlite3.connect(path)) as base:
        (size,) = base.execute('PRAGMA page_size').fetchone()
    data = bytearray(path.read_bytes())
    page = data.rindex(ticks[0][1]) // size
    data[page * size:(page + 1) * size] = bytes(size)
    path.write_bytes(data)
    assert 'damaged pages' in check_bag(tmp_path / 'bag').notes[0]
    result = repair(tmp_path / 'bag')
    assert 0 < result.messages['/control_tick'] < COUNT
    assert any('cannot be read' in text or 'are there' in text for text in result.missing)


def test_unreadable_metadata_are_made_anew(bag):
    (bag / 'metadata.yaml').write_text('rosbag2_bagfile_information: [1, 2')
    assert 'metadata.yaml cannot be read' in check_bag(bag).notes[0]
    assert repair(bag).messages == {'/control_tick': COUNT}
    assert stamps(bag) == list(range(1, COUNT + 1))
