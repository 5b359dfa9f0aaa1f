"""The ring keeps the last seconds, writes them once per event and never waits for the disk."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.bag import snapshot as module
from reflex_ros.bag.compress import ImageCompressor
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.schema import find_schema, typestore_of
from reflex_ros.bag.snapshot import AFTER_NS, SnapshotRing, is_fault
from reflex_ros.bag.values import image
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import LayoutError
from reflex_ros.core.types import Cause

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
        options = {'length_ns': 10 * S, 'capacity_bytes': 10_000, 'latched': ('/task',),
                   **options}
        made = SnapshotRing(tmp_path, (topic, camera, task), **options)
        made.begin()
        return made

    return make


def feed(ring, ticks, *, from_s, to_s):
    """Send one tick every 20 ms of a span."""
    data = ticks[0][1]
    for step in range(round(from_s * 50), round(to_s * 50)):
        ring.take('/control_tick', step * 20 * MS, data)


def test_the_last_seconds_and_what_follows_are_written(ring, ticks, tmp_path):
    kept = ring()
    feed(kept, ticks, from_s=0, to_s=30)
    assert kept.trigger('stall', 30 * S)
    feed(kept, ticks, from_s=30, to_s=33)
    kept.close()
    with BagReader(tmp_path / 'snapshot_1') as bag:
        stamps = [message.stamp_ns for message in bag.messages('/control_tick')]
    assert stamps[-1] == 30 * S + AFTER_NS
    assert stamps[0] == stamps[-1] - 10 * S
    assert kept.report.written['/control_tick'] == len(stamps)


def test_one_event_makes_one_snapshot(ring, ticks, tmp_path):
    kept = ring()
    feed(kept, ticks, from_s=0, to_s=5)
    assert kept.trigger('stall', 5 * S)
    assert not kept.trigger('stall', 5 * S)
    feed(kept, ticks, from_s=5, to_s=10)
    assert not kept.trigger('stall', 10 * S)
    feed(kept, ticks, from_s=10, to_s=18)
    assert kept.trigger('fault', 18 * S)
    kept.close()
    assert (tmp_path / 'snapshot_2').is_dir()
    assert not (tmp_path / 'snapshot_3').exists()


def test_snapshots_that_are_written_at_once_have_folders_of_their_own(
    ring, ticks, tmp_path, monkeypatch
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
        feed(kept, ticks, from_s=at, to_s=at + 5)
        assert kept.trigger('stall', (at + 5) * S)
        feed(kept, ticks, from_s=at + 5, to_s=at + 10)
    go_on.set()
    kept.close()
    assert len(started) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ['snapshot_1', 'snapshot_2']
    for name in ('snapshot_1', 'snapshot_2'):
        with BagReader(tmp_path / name) as bag:
            assert bag.topics


def test_without_an_event_nothing_is_written(ring, ticks, tmp_path):
    kept = ring()
    feed(kept, ticks, from_s=0, to_s=20)
    kept.close()
    assert not list(tmp_path.glob('snapshot*'))


def test_images_give_way_to_their_bound_and_ticks_do_not(ring, ticks, tmp_path):
    data, _ = raw_image(1)
    kept = ring(capacity_bytes=5 * len(data))
    for step in range(100):
        kept.take('/camera', step * 40 * MS, data)
    feed(kept, ticks, from_s=0, to_s=4)
    kept.trigger('request', 4 * S)
    kept.close()
    with BagReader(tmp_path / 'snapshot_1') as bag:
        assert bag.topics['/camera'].messages == 5
        assert bag.topics['/control_tick'].messages == 200


def test_what_was_latched_long_ago_is_in_every_snapshot(ring, ticks, tmp_path):
    kept = ring()
    header = STORE.types['std_msgs/msg/Header'](
        stamp=STORE.types['builtin_interfaces/msg/Time'](sec=0, nanosec=0), frame_id='go')
    kept.take('/task', 0, bytes(STORE.serialize_cdr(header, 'std_msgs/msg/Header')))
    feed(kept, ticks, from_s=0, to_s=60)
    kept.trigger('request', 60 * S)
    kept.close()
    with BagReader(tmp_path / 'snapshot_1') as bag:
        assert [value.frame_id for _, _, value in bag.values('/task')] == ['go']


def test_a_ready_command_lies_beside_it(ring, ticks, tmp_path, monkeypatch):
    kept = ring()
    feed(kept, ticks, from_s=0, to_s=1)
    kept.trigger('stall: denoise_late', 1 * S)
    kept.close()
    command = tmp_path / 'snapshot_1' / module.COMMAND
    assert os.access(command, os.X_OK) and 'denoise_late' in command.read_text()
    tool = tmp_path / 'bin' / 'reflex-ros'
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tool.chmod(0o755)
    said = subprocess.run([str(command), '--seed', '3'], capture_output=True, text=True,
                          check=True, env={'PATH': f'{tool.parent}:/usr/bin:/bin'}).stdout.split()
    assert said == ['replay', str(tmp_path / 'snapshot_1'), '--virtual', '--output',
                    str(tmp_path / 'snapshot_1_again'), '--seed', '3']


def test_a_full_disk_is_said_and_the_ring_goes_on(ring, ticks, tmp_path, monkeypatch):
    said = []
    kept = ring(said=said.append)
    feed(kept, ticks, from_s=0, to_s=1)

    def refuse(self, topic, stamp_ns, data):
        raise OSError(28, 'No space left on device')

    with monkeypatch.context() as patched:
        patched.setattr(module.BagFiles, 'write', refuse)
        kept.trigger('stall', 1 * S)
        feed(kept, ticks, from_s=1, to_s=4)
        for thread in list(kept._threads):
            thread.join()
    assert 'No space left' in said[0] and kept.report.dropped['/control_tick'] > 0
    feed(kept, ticks, from_s=4, to_s=20)
    assert kept.trigger('stall', 20 * S)
    kept.close()
    assert 'snapshot:' in said[1]


def test_only_a_fault_of_the_arm_looks_like_one(log, encoder):
    tick = log.ticks[0]
    assert is_fault(encoder.encode(replace(tick, cause=Cause.ARM_FAULT)))
    others = [cause for cause in Cause if cause is not Cause.ARM_FAULT]
    assert not any(is_fault(encoder.encode(replace(tick, cause=cause))) for cause in others)


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
