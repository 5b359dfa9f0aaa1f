from __future__ import annotations

import threading

import pytest
import yaml
from rosbags.interfaces import QosDurability, QosReliability
from rosbags.rosbag2 import Reader

from reflex_ros.bag.encode import write_run
from reflex_ros.bag.files import BagFiles, BagTopic, offered_qos
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.values import chunk_trace, control_tick, sim_truth, stall_event
from reflex_ros.bag.write import BagWriter, Split
from reflex_ros.core.errors import ConfigError

STORAGES = ('mcap', 'sqlite3')


@pytest.fixture(params=STORAGES)
def storage(request):
    return request.param


def record(folder, topic, ticks, **options):
    writer = BagWriter(folder, [topic], **options)
    writer.start()
    for stamp_ns, data in ticks:
        assert writer.write(topic.name, stamp_ns, data)
    return writer.close()


def test_every_message_comes_back_byte_for_byte(tmp_path, topic, ticks, storage):
    report = record(tmp_path / 'bag', topic, ticks, storage=storage)
    assert report.written == {'/control_tick': len(ticks)}
    assert (report.dropped, report.error) == ({'/control_tick': 0}, '')
    with BagReader(tmp_path / 'bag') as bag:
        assert [(m.stamp_ns, m.data) for m in bag.messages()] == ticks


def test_a_lost_message_can_be_seen(tmp_path, topic, ticks):
    record(tmp_path / 'bag', topic, ticks[:-1])
    with BagReader(tmp_path / 'bag') as bag:
        assert [(m.stamp_ns, m.data) for m in bag.messages()] != ticks


def test_a_bag_says_what_the_publishers_offered(tmp_path, topic, ticks, storage):
    record(tmp_path / 'bag', topic, ticks[:1], storage=storage)
    with Reader(tmp_path / 'bag') as reader:
        (qos,) = reader.connections[0].ext.offered_qos_profiles
        assert (qos.reliability, qos.depth) == (QosReliability.RELIABLE, 100)
        assert reader.connections[0].digest == topic.schema.rihs01


def test_a_bag_carries_the_original_definition(tmp_path, topic, ticks, storage):
    record(tmp_path / 'bag', topic, ticks[:1], storage=storage)
    with BagReader(tmp_path / 'bag') as bag:
        text = bag.topics['/control_tick'].definition
    assert '# What the tick was: a VERDICT_ constant.' in text
    assert 'int64 observation_age_ns -1' in text


def test_a_bag_opens_with_the_mcap_library(tmp_path, topic, ticks, log):
    reader = pytest.importorskip('mcap.reader')
    decoder = pytest.importorskip('mcap_ros2.decoder')
    record(tmp_path / 'bag', topic, ticks)
    with open(tmp_path / 'bag' / 'bag_0.mcap', 'rb') as file:
        mcap = reader.make_reader(file, decoder_factories=[decoder.DecoderFactory()])
        found = [message.index for _, _, _, message in mcap.iter_decoded_messages()]
    assert found == [tick.index for tick in log.ticks]
    with open(tmp_path / 'bag' / 'bag_0.mcap', 'rb') as file:  # as it streams, checksums too
        stream = reader.NonSeekingReader(file, validate_crcs=True)
        assert [message.log_time for _, _, message in stream.iter_messages()] == [
            stamp_ns for stamp_ns, _ in ticks]
    with open(tmp_path / 'bag' / 'bag_0.mcap', 'rb') as file:
        summary = reader.make_reader(file).get_summary()
    (channel,) = summary.channels.values()
    assert set(channel.metadata) == {'offered_qos_profiles', 'topic_type_hash'}
    assert channel.metadata['topic_type_hash'] == topic.schema.rihs01
    assert summary.statistics.message_count == len(ticks)


def test_metadata_has_the_version_that_humble_and_jazzy_read(tmp_path, topic, ticks):
    record(tmp_path / 'bag', topic, ticks)
    text = (tmp_path / 'bag' / 'metadata.yaml').read_text()
    assert 'version: 8' in text
    assert sorted(p.name for p in (tmp_path / 'bag').iterdir()) == ['bag_0.mcap', 'metadata.yaml']


INFINITE = {'sec': 9_223_372_036, 'nsec': 854_775_807}


def test_every_field_of_the_metadata_is_one_that_humble_and_jazzy_read(tmp_path, topic, ticks,
                                                                       storage):
    """Version 8: profiles as text with numbers, type hashes, a distribution, files with times."""
    record(tmp_path / 'bag', topic, ticks, storage=storage)
    loaded = yaml.safe_load((tmp_path / 'bag' / 'metadata.yaml').read_text())
    data = loaded['rosbag2_bagfile_information']
    span = {'starting_time': {'nanoseconds_since_epoch': ticks[0][0]},
            'duration': {'nanoseconds': ticks[-1][0] - ticks[0][0]}, 'message_count': len(ticks)}
    name = f'bag_0.{"mcap" if storage == "mcap" else "db3"}'
    (entry,) = data.pop('topics_with_message_count')
    profiles = yaml.safe_load(entry['topic_metadata'].pop('offered_qos_profiles'))
    assert data == {
        'version': 8, 'storage_identifier': storage, 'relative_file_paths': [name], **span,
        'compression_format': '', 'compression_mode': '', 'custom_data': None,
        'ros_distro': 'jazzy', 'files': [{'path': name, **span}],
    }
    assert entry == {'message_count': len(ticks), 'topic_metadata': {
        'name': '/control_tick', 'type': 'reflex_msgs/msg/ControlTick',
        'serialization_format': 'cdr', 'type_description_hash': topic.schema.rihs01}}
    assert profiles == [{
        'history': 1, 'depth': 100, 'reliability': 1, 'durability': 2, 'liveliness': 1,
        'deadline': INFINITE, 'lifespan': INFINITE, 'liveliness_lease_duration': INFINITE,
        'avoid_ros_namespace_conventions': False}]


def test_a_run_comes_back_as_it_was(tmp_path, log, storage):
    truths = log.truths
    write_run(tmp_path / 'bag', [*log.ticks, *log.traces, *log.stalls, *truths], storage=storage)
    decode = {'/control_tick': control_tick, '/chunk_trace': chunk_trace,
              '/stall_event': stall_event, '/sim_truth': sim_truth}
    found = {name: [] for name in decode}
    with BagReader(tmp_path / 'bag') as bag:
        for name, _, value in bag.values():
            found[name].append(decode[name](value))
    assert found['/control_tick'] == log.ticks
    assert sorted(found['/chunk_trace'], key=lambda t: t.number) == log.traces
    assert found['/stall_event'] == log.stalls
    assert found['/sim_truth'] == truths
    assert found['/control_tick'][50].command.tolist() == log.ticks[50].command.tolist()
    assert found['/sim_truth'][3].objects.keys() == truths[3].objects.keys()


@pytest.mark.parametrize('split', [Split(after_ns=500_000_000), Split(after_bytes=10_000)])
def test_parts_of_a_split_bag_read_as_one(tmp_path, topic, ticks, storage, split):
    record(tmp_path / 'bag', topic, ticks, storage=storage, split=split)
    assert len(list((tmp_path / 'bag').glob('bag_*'))) > 3
    with BagReader(tmp_path / 'bag') as bag:
        assert bag.topics['/control_tick'].messages == len(ticks)
        assert [(m.stamp_ns, m.data) for m in bag.messages()] == ticks


def test_a_bag_without_messages_is_complete(tmp_path, topic, storage):
    record(tmp_path / 'bag', topic, [], storage=storage)
    with BagReader(tmp_path / 'bag') as bag:
        assert list(bag.messages()) == []


def test_a_second_recorder_is_refused(tmp_path, topic):
    (tmp_path / 'bag').mkdir()
    with pytest.raises(ConfigError, match='cannot be created'):
        BagWriter(tmp_path / 'bag', [topic]).start()


def test_an_unknown_storage_is_refused(tmp_path, topic):
    with pytest.raises(ConfigError, match="got 'rosbag1'"):
        BagFiles(tmp_path / 'bag', [topic], storage='rosbag1')


def test_a_topic_named_twice_is_refused(tmp_path, topic):
    with pytest.raises(ConfigError, match='/control_tick twice'):
        BagFiles(tmp_path / 'bag', [topic, topic])


class StuckDisk(BagFiles):
    """Takes nothing until it is told."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.go = threading.Event()
        self.is_stuck = threading.Event()

    def write(self, topic, stamp_ns, data):
        self.is_stuck.set()
        assert self.go.wait(20.0)
        super().write(topic, stamp_ns, data)


@pytest.fixture
def stuck(tmp_path, topic, encoder, monkeypatch):
    monkeypatch.setattr('reflex_ros.bag.write.BagFiles', StuckDisk)
    images = BagTopic('/image', encoder.schemas['SimTruth'], is_bulk=True)
    writer = BagWriter(tmp_path / 'bag', [topic, images], capacity_bytes=1000)
    writer.start()
    assert writer.write('/control_tick', 1, bytes(100))
    assert writer._files.is_stuck.wait(20.0)
    yield writer
    writer._files.go.set()
    writer.close()


def test_a_stuck_disk_costs_counted_messages_and_never_blocks(stuck):
    taken = [stuck.write('/control_tick', 2 + i, bytes(100)) for i in range(12)]
    assert taken == [True] * 9 + [False] * 3
    assert stuck.report.dropped['/control_tick'] == 3
    stuck._files.go.set()
    report = stuck.close()
    assert report.written['/control_tick'] + report.dropped['/control_tick'] == 13


def test_images_are_given_up_before_small_messages(stuck):
    assert stuck.write('/image', 2, bytes(400))
    assert not stuck.write('/image', 3, bytes(400))
    assert stuck.write('/control_tick', 4, bytes(400))


def test_room_comes_back_when_the_disk_does(stuck):
    assert stuck.write('/control_tick', 2, bytes(900))
    assert not stuck.write('/control_tick', 3, bytes(900))
    stuck._files.go.set()
    assert stuck.close().written['/control_tick'] == 2


def test_closing_twice_is_harmless(tmp_path, topic, ticks):
    writer = BagWriter(tmp_path / 'bag', [topic])
    writer.start()
    writer.write('/control_tick', *ticks[0])
    assert writer.close() == writer.close()
    assert not writer.write('/control_tick', *ticks[0])


def test_offered_profiles_are_told_apart():
    latched = offered_qos(is_reliable=True, is_latched=True, depth=1)
    assert latched != offered_qos(is_reliable=False, is_latched=True, depth=1)
    assert latched.durability is QosDurability.TRANSIENT_LOCAL
