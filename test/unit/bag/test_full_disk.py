"""On a full disk a bag is complete, counts exactly what it holds, and says why it ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess

import pytest
import yaml

from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.bag.metadata import METADATA, ROOT
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.recording import Recording
from reflex_ros.bag.run_folder import RECORDER_REPORT
from reflex_ros.bag.write import BagWriter, Split
from reflex_ros.core.errors import ConfigError

STORAGES = ('mcap', 'sqlite3')


@pytest.fixture(params=STORAGES)
def storage(request):
    return request.param


@pytest.fixture
def small_disk(tmp_path):
    """Return a file system of 2 MiB that nothing else writes to."""
    folder = tmp_path / 'disk'
    folder.mkdir()
    mount = shutil.which('mount')
    if mount is None or os.geteuid() != 0:
        pytest.skip('a small file system can be mounted by root only')
    done = subprocess.run([mount, '-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', str(folder)],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f'no small file system can be mounted here: {done.stderr.strip()}')
    yield folder
    subprocess.run(['umount', '-l', str(folder)], check=True)


def fill(folder, topic, data, *, storage, split=None, messages=400):
    """Record more than there is room for; return the report and the bag's."""
    writer = BagWriter(folder, [topic], storage=storage, split=split)
    made = Recording(writer, folder, {topic.name: topic.schema.type})
    made.start()
    made.begin()
    for stamp_ns in range(1, messages + 1):
        made.take(topic.name, stamp_ns, data)
    report = made.close()
    return report, json.loads((folder / RECORDER_REPORT).read_text())


def gorge(path):
    """Take all the room that there is."""
    with open(path, 'wb', buffering=0) as file:
        for size in (65_536, 512):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def check(folder, topic, report, written, *, messages=400):
    """Compare what the recorder says with what is on the disk."""
    counts = report.written[topic.name], report.dropped[topic.name]
    assert sum(counts) == messages
    with BagReader(folder) as bag:
        stamps = [message.stamp_ns for message in bag.messages()]
        assert bag.topics[topic.name].messages == len(stamps)
    assert stamps == list(range(1, counts[0] + 1))
    loaded = yaml.safe_load((folder / METADATA).read_text())[ROOT]
    assert loaded['message_count'] == sum(part['message_count'] for part in loaded['files'])
    assert loaded['message_count'] == counts[0]
    entry = written['topics'][topic.name]
    assert (entry['received'], entry['written'], entry['dropped']) == (messages, *counts)
    return counts[0]


@pytest.mark.parametrize('split', [None, Split(after_bytes=300_000)])
def test_a_really_full_disk_leaves_a_whole_bag(small_disk, topic, ticks, storage, split):
    data = ticks[0][1] + bytes(10_000)  # decoders ignore what follows a message
    report, written = fill(small_disk / 'bag', topic, data, storage=storage, split=split)
    assert 'No space left' in report.error and 'No space left' in written['error']
    assert 0 < check(small_disk / 'bag', topic, report, written) < 200
    hidden = [path.name for path in (small_disk / 'bag').iterdir() if path.name[0] == '.']
    assert hidden == []


def test_a_disk_that_another_program_fills_leaves_a_whole_bag(small_disk, topic, ticks, storage):
    """The last byte is taken by others, so that only reserved room is left."""
    files = BagFiles(small_disk / 'bag', [topic], storage=storage)
    files.open()
    data = ticks[0][1]
    for stamp_ns in range(1, 301):
        files.write(topic.name, stamp_ns, data)
    files.flush()
    gorge(small_disk / 'other')

    def write_on():
        for stamp_ns in range(301, 2000):
            files.write(topic.name, stamp_ns, data + bytes(2000))

    with pytest.raises(OSError, match='No space left'):
        write_on()
    files.close()
    with BagReader(small_disk / 'bag') as bag:
        stamps = [message.stamp_ns for message in bag.messages()]
        assert bag.topics[topic.name].messages == len(stamps)
    assert stamps == list(range(1, 301))
    assert files.counts == {topic.name: 300}


def test_a_disk_that_is_full_at_once_is_refused(small_disk, topic):
    gorge(small_disk / 'other')
    with pytest.raises(ConfigError, match='expected a new folder on a disk with room|writable'):
        BagWriter(small_disk / 'bag', [topic]).start()


# ---- the same without a file system of one's own ---------------------------------------------


class Disk:
    """Has room for so many bytes; counts what is written, as a file system does."""

    def __init__(self, monkeypatch, room):
        self.room = room
        self.pwrite, self.truncate = os.pwrite, os.ftruncate
        monkeypatch.setattr(os, 'pwrite', self._pwrite)

    def _pwrite(self, file, data, offset):
        grown = max(0, offset + len(data) - os.fstat(file).st_size)
        if grown > self.room:
            if len(data) - (grown - self.room) <= 0 or not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[:len(data) - (grown - self.room)]
            grown = self.room
        self.room -= grown
        return self.pwrite(file, data, offset)


@pytest.mark.parametrize('room', [20_000, 60_000, 61_000, 64_321])
def test_a_full_disk_is_reported_and_what_was_written_can_be_read(tmp_path, topic, ticks, room,
                                                                  monkeypatch):
    monkeypatch.setattr('reflex_ros.bag.store_mcap.CHUNK_BYTES', 5_000)
    data = ticks[0][1]
    disk = Disk(monkeypatch, room)
    report, written = fill(tmp_path / 'bag', topic, data, storage='mcap')
    assert 'No space left' in report.error
    check(tmp_path / 'bag', topic, report, written)
    assert disk.room >= 0


def test_the_end_takes_the_room_of_the_last_chunks_if_there_is_no_other(tmp_path, topic, ticks,
                                                                       monkeypatch):
    monkeypatch.setattr('reflex_ros.bag.store_mcap.CHUNK_BYTES', 5_000)
    files = BagFiles(tmp_path / 'bag', [topic])
    files.open()
    for stamp_ns in range(1, 301):
        files.write(topic.name, stamp_ns, ticks[0][1])
    files.flush()
    Disk(monkeypatch, 0)
    files._metadata.fill = lambda text: (tmp_path / 'bag' / METADATA).write_text(text)
    files.close()
    with BagReader(tmp_path / 'bag') as bag:
        stamps = [message.stamp_ns for message in bag.messages()]
    assert 200 < len(stamps) < 300
    assert stamps == list(range(1, len(stamps) + 1))
    assert files.counts == {topic.name: len(stamps)}


def test_the_disk_of_these_tests_can_fail_them(tmp_path, topic, ticks, storage, monkeypatch):
    """Counting what was handed over, as the disk's buffer invites to, is seen at once."""
    report, written = fill(tmp_path / 'bag', topic, ticks[0][1], storage=storage)
    assert report.error == ''
    report.written[topic.name] -= 1
    report.dropped[topic.name] += 1
    with pytest.raises(AssertionError):
        check(tmp_path / 'bag', topic, report, written)


def test_an_optional_topic_without_messages_is_not_in_the_bag(tmp_path, topic, ticks, storage):
    raw = BagTopic('/raw', topic.schema, is_optional=True)
    for name, stamps in (('bag', 0), ('other', 1)):
        files = BagFiles(tmp_path / name, [topic, raw], storage=storage)
        files.open()
        files.write(topic.name, *ticks[0])
        if stamps:
            files.write('/raw', *ticks[1])
        files.close()
    with BagReader(tmp_path / 'bag') as bag, BagReader(tmp_path / 'other') as other:
        assert list(bag.topics) == ['/control_tick']
        assert other.topics['/raw'].messages == 1
        assert len(list(other.messages('/raw'))) == 1
