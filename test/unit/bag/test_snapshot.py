"""The ring keeps the last seconds, writes them once per event and never waits for the disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.bag import snapshot as module
from reflex_ros.bag.compress import ImageCompressor, Squeezer
from reflex_ros.bag.events import REST_NS, tick_state
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.bag.frames import FrameRing
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.schema import find_schema, typestore_of
from reflex_ros.bag.snapshot import AFTER_NS, LONGEST_NS, SnapshotRing
from reflex_ros.bag.values import image
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import LayoutError
from reflex_ros.core.types import Cause

ROOT = Path(__file__).parents[3]
RAW = find_schema('sensor_msgs/msg/Image')
STORE = typestore_of([(RAW.type, RAW.text)])


def raw_image(fill, encoding='rgb8', size=(4, 6)):
    height, width = size
    types = STORE.types
    header = types['std_msgs/msg/Header'](
        stamp=types['builtin_interfaces/msg/Time'](sec=1, nanosec=2), frame_id='main')
    rng = np.random.default_rng(fill)
    data = rng.integers(0, 256, height * width * 3, np.uint8)
    msg = types[RAW.type](header=header, height=height, width=width, encoding=encoding,
                          is_bigendian=0, step=width * 3, data=data)
    return bytes(STORE.serialize_cdr(msg, RAW.type)), data.reshape(height, width, 3)


@pytest.fixture
def ring(tmp_path, topic):
    camera = BagTopic('/camera', RAW, (), True)
    task = BagTopic('/task', find_schema('std_msgs/msg/Header'))

    def make(**options):
        options = {'length_ns': 60 * S, 'capacity_bytes': 10_000, 'latched': ('/task',),
                   **options}
        made = SnapshotRing(tmp_path, (topic, camera, task), **options)
        made.begin()
        return made

    return make


@pytest.fixture(scope='module')
def words(log, encoder):
    """Return serialized ticks of a run that is well, that stalls, and whose arm is at fault."""
    tick = next(tick for tick in log.ticks if tick.in_motion and tick.is_covered)
    stalled = replace(tick, cause=Cause.DENOISE_LATE, is_covered=False)
    faulty = replace(tick, cause=Cause.ARM_FAULT, in_motion=False, is_covered=False)
    waiting = replace(tick, cause=Cause.SYNC_WAIT, is_covered=False)
    return {name: encoder.encode(value) for name, value in (
        ('well', tick), ('stall', stalled), ('fault', faulty), ('sync', waiting))}


def feed(ring, data, *, from_s, to_s):
    """Send one tick every 20 ms of a span."""
    for step in range(round(from_s * 50), round(to_s * 50)):
        ring.take('/control_tick', step * 20 * MS, data)


def stamps(folder, topic='/control_tick'):
    with BagReader(folder) as bag:
        return [message.stamp_ns for message in bag.messages(topic)]


def snapshots(folder):
    return sorted(path.name for path in folder.glob('snapshot_*'))


def test_the_last_seconds_and_what_follows_are_written(ring, words, tmp_path):
    kept = ring(length_ns=10 * S)
    feed(kept, words['well'], from_s=0, to_s=30)
    assert kept.trigger('request', 30 * S)
    feed(kept, words['well'], from_s=30, to_s=33)
    kept.close()
    found = stamps(tmp_path / 'snapshot_1')
    assert found[-1] == 30 * S + AFTER_NS
    assert found[0] == found[-1] - 10 * S
    assert kept.report.written['/control_tick'] == len(found)


@pytest.mark.parametrize('kind', ['stall', 'fault'])
def test_a_snapshot_holds_the_begin_and_the_end_of_its_event(ring, words, tmp_path, kind):
    kept = ring()
    feed(kept, words['well'], from_s=0, to_s=20)
    feed(kept, words[kind], from_s=20, to_s=24)
    assert snapshots(tmp_path) == []
    feed(kept, words['well'], from_s=24, to_s=40)
    kept.close()
    assert snapshots(tmp_path) == ['snapshot_1']
    found = stamps(tmp_path / 'snapshot_1')
    assert found[0] == 0 and found[-1] == 24 * S - 20 * MS + AFTER_NS


def test_an_event_that_does_not_end_is_written_all_the_same_and_once(ring, words, tmp_path):
    kept = ring()
    feed(kept, words['well'], from_s=0, to_s=20)
    feed(kept, words['fault'], from_s=20, to_s=320)
    for thread in list(kept._threads):
        thread.join()
    assert stamps(tmp_path / 'snapshot_1')[-1] == 20 * S + LONGEST_NS
    kept.close()
    assert snapshots(tmp_path) == ['snapshot_1']


def test_trouble_that_flickers_is_one_event(ring, words, tmp_path):
    kept = ring()
    for at in range(0, 120, 4):
        feed(kept, words['well'], from_s=at, to_s=at + 3)
        feed(kept, words['stall'], from_s=at + 3, to_s=at + 4)
    kept.close()
    assert snapshots(tmp_path) == ['snapshot_1']


def test_the_next_event_is_never_lost_to_the_pause_after_a_snapshot(ring, words, tmp_path):
    kept = ring()
    feed(kept, words['stall'], from_s=0, to_s=1)
    again_s = 1 + REST_NS // S
    feed(kept, words['well'], from_s=1, to_s=again_s)
    feed(kept, words['stall'], from_s=again_s, to_s=again_s + 1)
    feed(kept, words['well'], from_s=again_s + 1, to_s=100)
    kept.close()
    assert snapshots(tmp_path) == ['snapshot_1', 'snapshot_2']
    first, second = (stamps(tmp_path / name) for name in snapshots(tmp_path))
    assert second[0] <= again_s * S <= second[-1] - AFTER_NS
    assert second[-1] - first[-1] >= 30 * S - 20 * MS


def test_waits_that_were_asked_for_are_no_event(ring, words, tmp_path):
    kept = ring()
    feed(kept, words['sync'], from_s=0, to_s=60)
    kept.close()
    assert snapshots(tmp_path) == []


def test_a_request_is_answered_at_once_and_only_one_is_due(ring, words, tmp_path):
    kept = ring()
    feed(kept, words['well'], from_s=0, to_s=5)
    assert kept.trigger('request', 5 * S)
    assert not kept.trigger('request', 5 * S)
    feed(kept, words['well'], from_s=5, to_s=8)
    assert kept.trigger('request', 8 * S)
    kept.close()
    assert snapshots(tmp_path) == ['snapshot_1', 'snapshot_2']


def test_ticks_of_another_program_are_kept_and_no_event(ring, words, tmp_path):
    kept = ring()
    for data in (b'', b'\0', bytes(40), b'\0\1\0\0' + b'\xff' * 90):
        kept.take('/control_tick', 5, data)
    feed(kept, words['stall'], from_s=1, to_s=2)
    kept.close()
    assert len(stamps(tmp_path / 'snapshot_1')) == 54


def test_snapshots_that_are_written_at_once_have_folders_of_their_own(
    ring, words, tmp_path, monkeypatch
):
    """The first thread has not made its folder yet when the second one starts."""
    kept, started, go_on = ring(), [], threading.Event()
    right = BagFiles.open

    def late(files):
        started.append(files)
        assert go_on.wait(20)
        right(files)

    monkeypatch.setattr(BagFiles, 'open', late)
    for at in (0, 20):
        feed(kept, words['well'], from_s=at, to_s=at + 5)
        assert kept.trigger('request', (at + 5) * S)
        feed(kept, words['well'], from_s=at + 5, to_s=at + 10)
    go_on.set()
    kept.close()
    assert len(started) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ['snapshot_1', 'snapshot_2']
    for name in ('snapshot_1', 'snapshot_2'):
        assert stamps(tmp_path / name)


def test_without_an_event_nothing_is_written(ring, words, tmp_path):
    kept = ring()
    feed(kept, words['well'], from_s=0, to_s=20)
    kept.close()
    assert not list(tmp_path.glob('snapshot*'))


def test_images_give_way_to_their_bound_and_ticks_do_not(ring, words, tmp_path):
    data, _ = raw_image(1)
    kept = ring(capacity_bytes=5 * len(data))
    for step in range(100):
        kept.take('/camera', step * 40 * MS, data)
    feed(kept, words['well'], from_s=0, to_s=4)
    kept.trigger('request', 4 * S)
    kept.close()
    with BagReader(tmp_path / 'snapshot_1') as bag:
        assert bag.topics['/camera'].messages == 5
        assert bag.topics['/control_tick'].messages == 200


def test_what_was_latched_long_ago_is_in_every_snapshot(ring, words, tmp_path):
    kept = ring()
    header = STORE.types['std_msgs/msg/Header'](
        stamp=STORE.types['builtin_interfaces/msg/Time'](sec=0, nanosec=0), frame_id='go')
    kept.take('/task', 0, bytes(STORE.serialize_cdr(header, 'std_msgs/msg/Header')))
    feed(kept, words['well'], from_s=0, to_s=60)
    kept.trigger('request', 60 * S)
    kept.close()
    with BagReader(tmp_path / 'snapshot_1') as bag:
        assert [value.frame_id for _, _, value in bag.values('/task')] == ['go']


@pytest.fixture
def recorded(tmp_path):
    """Return a run folder with a snapshot of the first two seconds of a run with images."""
    source = ROOT / 'test' / 'data' / 'replay'
    with BagReader(source / 'bag') as bag:
        topics = [
            BagTopic(name, find_schema(info.type), info.qos, info.type == RAW.type)
            for name, info in bag.topics.items()
        ]
        messages = [(m.topic, m.stamp_ns, m.data) for m in bag.messages()]
    run = tmp_path / 'a run'
    run.mkdir()
    shutil.copytree(source / 'params', run / 'params')
    squeeze = Squeezer(ImageCompressor('png'), {'/camera/main/image_raw/compressed':
                                                '/camera/main/image_raw'})
    camera = next(topic for topic in topics if topic.is_bulk)
    topics.append(BagTopic('/camera/main/image_raw/compressed', find_schema(
        'sensor_msgs/msg/CompressedImage'), camera.qos, True))
    topics[topics.index(camera)] = replace(camera, is_optional=True)
    kept = SnapshotRing(run, topics, length_ns=60 * S, capacity_bytes=2**24, squeeze=squeeze)
    kept.begin()
    start_ns = next(stamp for name, stamp, _ in messages if name == '/control_tick')
    for name, stamp_ns, data in messages:
        if stamp_ns < start_ns + 2 * S:
            kept.take(f'{name}/compressed' if name == camera.name else name, stamp_ns, data)
    kept.trigger('request', start_ns + 2 * S)
    kept.close()
    return run


def test_the_command_beside_a_snapshot_replays_it(recorded, tmp_path):
    """As anybody runs it: from elsewhere, without reflex-ros in the path, and twice."""
    command = recorded / 'snapshot_1' / module.COMMAND
    shutil.move(recorded / 'snapshot_1', tmp_path / 'moved')
    command = tmp_path / 'moved' / module.COMMAND
    assert os.access(command, os.X_OK)
    environment = {**os.environ, 'PATH': '/usr/bin:/bin'}
    done = subprocess.run([str(command)], capture_output=True, text=True,
                          env=environment, cwd='/', check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / 'moved_again' / 'replay.json').read_text())
    assert report['content'] in done.stdout
    with BagReader(tmp_path / 'moved_again' / 'bag') as bag:
        assert bag.topics['/control_tick'].messages > 80
        assert bag.topics['/camera/main/image_raw/compressed'].messages > 40


def test_the_command_takes_a_free_name_and_passes_options_on(ring, words, tmp_path):
    kept = ring()
    feed(kept, words['well'], from_s=0, to_s=1)
    kept.trigger('request', 1 * S)
    kept.close()
    (tmp_path / 'snapshot_1_again').mkdir()
    tool = tmp_path / 'bin' / 'reflex-ros'
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tool.chmod(0o755)
    command = tmp_path / 'snapshot_1' / module.COMMAND
    said = subprocess.run([str(command), '--seed', '3'], capture_output=True, text=True,
                          check=True, env={'PATH': f'{tool.parent}:/usr/bin:/bin'}).stdout.split()
    assert said == ['replay', str(tmp_path / 'snapshot_1'), '--virtual', '--output',
                    str(tmp_path / 'snapshot_1_again_2'), '--seed', '3']


def test_a_full_disk_is_said_and_the_ring_goes_on(ring, words, tmp_path, monkeypatch):
    said, failed = [], []
    kept = ring(said=said.append, failed=failed.append)
    feed(kept, words['well'], from_s=0, to_s=1)

    def refuse(self, topic, stamp_ns, data):
        raise OSError(28, 'No space left on device')

    with monkeypatch.context() as patched:
        patched.setattr(module.BagFiles, 'write', refuse)
        kept.trigger('request', 1 * S)
        feed(kept, words['well'], from_s=1, to_s=4)
        for thread in list(kept._threads):
            thread.join()
    assert 'No space left' in failed[0] and kept.report.dropped['/control_tick'] == 151
    feed(kept, words['well'], from_s=4, to_s=20)
    assert kept.trigger('request', 20 * S)
    kept.close()
    assert 'snapshot:' in said[0]


def test_a_tick_is_read_without_decoding_it(log, encoder):
    for tick in (*log.ticks[::7], *(replace(log.ticks[0], cause=cause) for cause in Cause)):
        state = tick_state(encoder.encode(tick))
        assert (state.cause, state.in_motion, state.is_covered) == (
            tick.cause.value, tick.in_motion, tick.is_covered)


# ---- images ------------------------------------------------------------------------------------


def squeezer(kind='png'):
    return Squeezer(ImageCompressor(kind), {'/camera/compressed': '/camera'})


def test_frames_are_kept_compressed_and_their_bound_holds_at_any_time():
    plain = np.zeros((48, 64, 3), np.uint8)
    data = raw_bytes(plain)
    frames = FrameRing(4 * len(data), squeezer())
    for number in range(200):
        frames.take(number, '/camera/compressed', data)
        frames.trim(0)
        assert frames.bytes <= 4 * len(data)
        for _ in range(1000):
            if not frames._waiting:
                break
            threading.Event().wait(0.002)
    kept = frames.rows()
    frames.close()
    assert len(kept) > 12 and all(len(frame.data) < 500 for frame in kept[:-2])
    assert frames.bytes == sum(len(frame.data) for frame in kept)


def raw_bytes(pixels, encoding='rgb8'):
    types = STORE.types
    header = types['std_msgs/msg/Header'](
        stamp=types['builtin_interfaces/msg/Time'](sec=1, nanosec=2), frame_id='main')
    height, width = pixels.shape[:2]
    step = pixels[0].nbytes if height else 0
    msg = types[RAW.type](header=header, height=height, width=width, encoding=encoding,
                          is_bigendian=0, step=step, data=pixels.reshape(-1).view(np.uint8))
    return bytes(STORE.serialize_cdr(msg, RAW.type))


ODD = {
    'depth': (np.zeros((4, 6), np.uint16), '16UC1'),
    'bayer': (np.zeros((4, 6), np.uint8), 'bayer_rggb8'),
    'alpha': (np.zeros((4, 6, 4), np.uint8), 'rgba8'),
    'empty': (np.zeros((0, 0, 3), np.uint8), 'rgb8'),
    'too wide for JPEG': (np.zeros((1, 70_000, 3), np.uint8), 'rgb8'),
    'of no encoding': (np.zeros((4, 6, 3), np.uint8), ''),
}


@pytest.mark.parametrize('kind', ODD)
@pytest.mark.parametrize('data', ['odd', 'torn'])
def test_an_odd_image_is_recorded_as_it_came_and_named(tmp_path, topic, kind, data):
    from reflex_ros.bag.recording import Recording
    from reflex_ros.bag.write import BagWriter

    odd = raw_bytes(*ODD[kind]) if data == 'odd' else raw_bytes(*ODD[kind])[:30]
    usual, _ = raw_image(1)
    small = BagTopic('/camera/compressed', find_schema('sensor_msgs/msg/CompressedImage'), (),
                     True)
    raw = BagTopic('/camera', RAW, (), True, is_optional=True)
    topics = [topic, small, raw]
    writer = BagWriter(tmp_path / 'bag', topics, squeeze=squeezer('jpeg'))
    made = Recording(writer, tmp_path / 'bag', {t.name: t.schema.type for t in topics})
    kept = SnapshotRing(tmp_path, topics, length_ns=10 * S, capacity_bytes=10**7,
                        squeeze=squeezer('jpeg'))
    for taker in (made, kept):
        taker.start()
        taker.begin()
        for stamp_ns, image_data in enumerate((usual, odd, usual), 1):
            taker.take('/camera/compressed', stamp_ns, image_data)
    kept.trigger('request', 5)
    reports = made.close(), kept.close()
    for report, folder in zip(reports, (tmp_path / 'bag', tmp_path / 'snapshot_1'), strict=True):
        assert (report.error, sum(report.dropped.values())) == ('', 0)
        assert list(report.odd) == ['/camera']
        assert stamps(folder, '/camera/compressed') == [1, 3]
        with BagReader(folder) as bag:
            assert [(m.stamp_ns, m.data) for m in bag.messages('/camera')] == [(2, odd)]
    said = json.loads((tmp_path / 'bag' / 'recorder.json').read_text())['topics']['/camera']
    assert said['stored_as_it_came'] == reports[0].odd['/camera'] != ''


def test_an_image_of_any_size_is_recorded(tmp_path):
    from reflex_ros.bag.write import BagWriter

    writer = BagWriter(tmp_path / 'bag', [BagTopic('/camera', RAW, (), True)],
                       capacity_bytes=1000)
    writer.start()
    assert writer.write('/camera', 1, raw_bytes(np.zeros((100, 100, 3), np.uint8)))
    assert writer.close().written == {'/camera': 1}


# ---- compression -------------------------------------------------------------------------------


def test_png_keeps_every_pixel():
    compress = ImageCompressor('png')
    data, pixels = raw_image(3)
    store = typestore_of([(compress.schema.type, compress.schema.text)])
    msg = store.deserialize_cdr(compress(data), compress.schema.type)
    assert (image(msg) == pixels).all()
    assert (msg.header.stamp.sec, msg.header.frame_id) == (1, 'main')
    assert msg.format == 'rgb8; png compressed'


def test_jpeg_is_close():
    compress = ImageCompressor('jpeg')
    data, _ = raw_image(3, size=(64, 64))
    store = typestore_of([(compress.schema.type, compress.schema.text)])
    packed = compress(data)
    assert len(packed) < len(data)
    assert image(store.deserialize_cdr(packed, compress.schema.type)).shape == (64, 64, 3)


def test_an_encoding_that_is_not_known_is_refused():
    data, _ = raw_image(1, encoding='16UC1')
    with pytest.raises(LayoutError, match=r'recorder\.compression'):
        ImageCompressor('png')(data)
