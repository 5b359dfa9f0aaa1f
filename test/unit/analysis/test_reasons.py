"""Why a bag cannot be read is said for its run folder too; one compressed by file can be read."""

from __future__ import annotations

import shutil

import pytest
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.rosbag2.enums import CompressionFormat, CompressionMode

from reflex_ros.analysis import source
from reflex_ros.analysis.figures import analyse
from reflex_ros.cli.main import main
from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.report.run_data import load_run
from reflex_ros.report.view import export
from reflex_ros.stages.replay_source import read_recorded


@pytest.fixture(scope='module')
def bag(stalled, tmp_path_factory):
    return stalled.write(tmp_path_factory.mktemp('whole') / 'bag', images=False, is_brief=True)


@pytest.fixture
def run(bag, tmp_path):
    shutil.copytree(bag, tmp_path / 'run' / 'bag')
    return tmp_path / 'run'


def newer(bag):
    path = bag / 'metadata.yaml'
    path.write_text(path.read_text().replace('version: 8', 'version: 99'))
    return 'got metadata version 99, expected at most 9'


def without_file(bag):
    next(bag.glob('*.mcap')).unlink()
    return 'got metadata.yaml without the files that it names'


def cut(bag):
    data = next(bag.glob('*.mcap'))
    data.write_bytes(data.read_bytes()[:300])
    return 'damaged'


@pytest.mark.parametrize('spoil', [
    newer, without_file, pytest.param(cut, marks=pytest.mark.soak)])
def test_the_reason_is_told_for_the_folder_as_for_the_bag(run, spoil, capsys):
    reason = spoil(run / 'bag')
    for path in (run / 'bag', run):
        with pytest.raises(ReflexError) as error:
            analyse(path)
        assert reason in str(error.value)
        assert main(['report', str(path)]) == 2
        assert reason in capsys.readouterr().err


def test_the_reason_can_fail(run, monkeypatch):
    reason = newer(run / 'bag')
    monkeypatch.setattr(source, 'NEWEST_METADATA', 99)
    found = analyse(run)
    assert found.summary.ticks and not any(reason in note for note in found.notes)


def compressed(bag, folder, storage, mode=CompressionMode.FILE):
    """Write a bag again, compressed."""
    folder.parent.mkdir()
    with Reader(bag) as reader:
        writer = Writer(folder, version=9, storage_plugin=storage)
        writer.set_compression(mode, CompressionFormat.ZSTD)
        with writer:
            ids = {c.id: writer.add_connection(
                c.topic, c.msgtype, msgdef=c.msgdef.data, rihs01=c.digest,
                offered_qos_profiles=c.ext.offered_qos_profiles) for c in reader.connections}
            for connection, stamp_ns, data in reader.messages():
                writer.write(ids[connection.id], stamp_ns, data)
    return folder


@pytest.mark.parametrize('storage', [
    StoragePlugin.MCAP, pytest.param(StoragePlugin.SQLITE3, marks=pytest.mark.soak)])
def test_a_bag_compressed_by_file_is_read_everywhere(bag, tmp_path, storage):
    run = compressed(bag, tmp_path / 'run' / 'bag', storage).parent
    assert [path.suffix for path in (run / 'bag').iterdir() if path.suffix != '.yaml'] == ['.zstd']
    ticks = analyse(bag).summary.ticks
    assert ticks == analyse(run).summary.ticks == analyse(run / 'bag').summary.ticks
    assert ticks == len(load_run(run).records) == len(read_recorded(run / 'bag').ticks)


def test_a_bag_compressed_by_file_is_viewed(bag, tmp_path):
    pytest.importorskip('rerun', reason='rerun-sdk is not installed')
    run = compressed(bag, tmp_path / 'run' / 'bag', StoragePlugin.MCAP).parent
    assert export(run).ticks == analyse(bag).summary.ticks


def test_a_compressed_file_that_is_cut_is_refused_by_name(bag, tmp_path):
    run = compressed(bag, tmp_path / 'run' / 'bag', StoragePlugin.MCAP).parent
    data = next((run / 'bag').glob('*.zstd'))
    data.write_bytes(data.read_bytes()[:-200])
    for path in (run, run / 'bag'):
        with pytest.raises(ConfigError, match='compressed as a whole'):
            analyse(path)
