from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from reflex_ros.bag.files import BagFiles, lock_bag
from reflex_ros.bag.mcap_scan import McapScan
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.repair import needs_repair, repair
from reflex_ros.core.errors import ConfigError, LayoutError

ROOT = Path(__file__).parents[3]
RECORDER = textwrap.dedent("""
    import sys, threading
    from reflex_ros.bag.files import BagFiles, BagTopic, offered_qos
    from reflex_ros.bag.schema import find_schema
    folder, storage, messages, split = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    qos = offered_qos(is_reliable=True, is_latched=False, depth=7)
    schema = find_schema('reflex_msgs/msg/SlotRef', shares=[%r])
    files = BagFiles(folder, [BagTopic('/slot', schema, (qos,))], storage=storage)
    files.open()
    for i in range(messages):
        files.write('/slot', 1000 + i, bytes([0, 1, 0, 0]) + i.to_bytes(4, 'little') + bytes(12))
        if split == 'split' and i == messages // 2:
            files.split()
    files.flush()
    print('written', flush=True)
    threading.Event().wait()
""")


def kill_recorder(folder, storage='mcap', messages=300, split='whole'):
    code = RECORDER.replace('%r', f'__import__("pathlib").Path({str(ROOT)!r})')
    process = subprocess.Popen([sys.executable, '-c', code, str(folder), storage, str(messages),
                                split], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout.readline() == 'written\n'
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def slots(folder):
    with BagReader(folder) as bag:
        return [(stamp_ns, value.slot) for _, stamp_ns, value in bag.values('/slot')]


EXPECTED = [(1000 + i, i) for i in range(300)]


@pytest.mark.parametrize('split', ['whole', 'split'])
@pytest.mark.parametrize('storage', ['mcap', 'sqlite3'])
def test_nothing_flushed_is_lost_to_a_kill(tmp_path, storage, split):
    folder = tmp_path / 'bag'
    kill_recorder(folder, storage, split=split)
    assert needs_repair(folder)
    with pytest.raises(ConfigError, match='repair'):
        BagReader(folder)
    result = repair(folder)
    assert (result.messages, result.lost_bytes) == ({'/slot': 300}, 0)
    assert slots(folder) == EXPECTED
    with BagReader(folder) as bag:
        assert bag.topics['/slot'].qos[0].depth == 7
        assert '# Index of the slot in the ring, from 0.' in bag.topics['/slot'].definition
    assert (tmp_path / 'bag.damaged').is_dir()
    assert not needs_repair(folder)


def test_a_torn_file_keeps_its_whole_messages(tmp_path):
    folder = tmp_path / 'bag'
    kill_recorder(folder)
    path = folder / 'bag_0.mcap'
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 6000])
    result = repair(folder)
    found = slots(folder)
    assert 0 < len(found) < 300
    assert found == EXPECTED[: len(found)]
    assert result.lost_bytes < 100


def test_a_file_that_ends_in_zeros_keeps_its_whole_messages(tmp_path):
    folder = tmp_path / 'bag'
    kill_recorder(folder)
    path = folder / 'bag_0.mcap'
    path.write_bytes(path.read_bytes() + bytes(5000))
    assert repair(folder).lost_bytes == 5000
    assert slots(folder) == EXPECTED


def test_no_cut_makes_the_scan_fail(tmp_path, topic, ticks):
    files = BagFiles(tmp_path / 'bag', [topic])
    files.open()
    for stamp_ns, data in ticks[:5]:
        files.write(topic.name, stamp_ns, data)
    files.close()
    whole = (tmp_path / 'bag' / 'bag_0.mcap').read_bytes()
    counts = []
    for cut in range(whole.index(ticks[0][1]) - 200, len(whole)):
        scan = McapScan(memoryview(whole[:cut]))
        found = [data for _, _, data in scan.messages()]
        assert found == [data for _, data in ticks[: len(found)]]
        counts.append(len(found))
    assert sorted(set(counts)) == [0, 1, 2, 3, 4, 5]
    assert counts == sorted(counts)


def test_a_complete_bag_is_left_as_it_is(tmp_path, topic, ticks):
    files = BagFiles(tmp_path / 'bag', [topic])
    files.open()
    files.write(topic.name, *ticks[0])
    files.close()
    assert repair(tmp_path / 'bag').kept is None
    assert not (tmp_path / 'bag.damaged').exists()


def test_a_bag_that_is_being_recorded_is_not_touched(tmp_path, topic, ticks):
    files = BagFiles(tmp_path / 'bag', [topic])
    files.open()
    files.write(topic.name, *ticks[0])
    files.flush()
    with pytest.raises(ConfigError, match='Stop its recorder'):
        repair(tmp_path / 'bag')
    files.close()
    with BagReader(tmp_path / 'bag') as bag:
        assert len(list(bag.messages())) == 1


def test_a_lock_ends_with_its_holder(tmp_path):
    os.close(lock_bag(tmp_path))
    os.close(lock_bag(tmp_path))


def test_reports_of_the_recorder_are_kept(tmp_path):
    folder = tmp_path / 'bag'
    kill_recorder(folder)
    (folder / 'recorder.json').write_text('{}')
    repair(folder)
    assert (folder / 'recorder.json').read_text() == '{}'


def test_a_folder_without_data_cannot_be_repaired(tmp_path):
    with pytest.raises(ConfigError, match=r'no \.mcap or \.db3'):
        repair(tmp_path)


@pytest.mark.parametrize('name', ['x.mcap', 'x.db3'])
def test_a_file_of_another_kind_is_refused_and_kept(tmp_path, name):
    folder = tmp_path / 'bag'
    folder.mkdir()
    (folder / name).write_bytes(b'this is no bag at all, but some text')
    with pytest.raises(LayoutError):
        repair(folder)
    assert (folder / name).read_bytes().startswith(b'this')


def test_nothing_is_deleted_when_a_repair_is_repeated(tmp_path):
    folder = tmp_path / 'bag'
    kill_recorder(folder)
    (tmp_path / 'bag.damaged').mkdir()
    with pytest.raises(ConfigError, match='bag.damaged'):
        repair(folder)
    assert needs_repair(folder)
