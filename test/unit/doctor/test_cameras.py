"""Camera topics: rate, age, frozen content, encoding."""

from __future__ import annotations

import pytest

from reflex_ros.arm.config import DriverConfig
from reflex_ros.core.clock import MS
from reflex_ros.doctor.cameras import runs
from reflex_ros.doctor.context import Choices
from reflex_ros.ros.camera_log import CameraLog

CHECKS = ('camera-rate', 'camera-age', 'camera-frozen', 'camera-encoding')


@pytest.fixture
def judge(machine, tools):
    """Return ``judge(check, **log) -> finding`` of a camera that differs in this."""
    def make(check, *, log=None, **changes):
        seen = log or tools.camera(**changes)
        context = machine(cameras=lambda topics, seconds, namespace: {tools.topic: seen})
        (_, finding), = tools.look(context, check)
        return finding

    return make


def test_a_healthy_camera_is_fine_and_tells_its_numbers(judge):
    assert {judge(check).level.value for check in CHECKS} == {'ok'}
    assert judge('camera-rate').value == '25.0 Hz of 25.0, largest gap 40 ms'
    assert judge('camera-age').value == 'p50 13, p99 14, max 14 ms'
    assert judge('camera-encoding').value == 'rgb8, 640x480'
    assert judge('camera-frozen').measured == {'longest_run': 1, 'repeats': 0, 'n': 125}


def gap(at):
    return [i * 40 * MS + (200 * MS if i > at else 0) for i in range(125)]


@pytest.mark.parametrize(('check', 'changes', 'level', 'value', 'remedy'), [
    ('camera-rate', {'period_ns': 100 * MS}, 'fail', '10.0 Hz of 25.0',
     'camera.period_s: 0.1000'),
    ('camera-rate', {'period_ns': 50 * MS}, 'warn', '20.0 Hz', 'camera.period_s: 0.0500'),
    ('camera-rate', {'arrivals_ns': gap(60)}, 'warn', 'largest gap 240 ms', 'USB 3'),
    ('camera-rate', {'count': 2}, 'fail', '2 images', 'ros2 topic hz'),
    ('camera-age', {'age_ns': 160 * MS}, 'fail', 'older than 150 ms', 'dds-profile'),
    ('camera-age', {'age_ns': -30 * MS}, 'fail', '30 ms in the future', 'chrony'),
    ('camera-age', {'ages_ns': [10 * MS] * 120 + [400 * MS] * 5}, 'warn', 'miss 150 ms',
     'resolution'),
    ('camera-frozen', {'hashes': [1] * 125}, 'fail', 'frozen: 125 equal', 'dmesg'),
    ('camera-frozen', {'hashes': [*range(120), *[7] * 5]}, 'fail', 'frozen: 5 equal', 'Restart'),
    ('camera-frozen', {'hashes': [i // 2 for i in range(125)]}, 'warn', '62 of 125',
     'lower its rate'),
    ('camera-encoding', {'encoding': 'yuv422_yuy2'}, 'warn', 'needs cv_bridge', 'rgb8'),
    ('camera-encoding', {'errors': ['image rgb8 0x0 does not fit']}, 'fail', 'does not fit',
     'rgb8'),
])
def test_a_fault_has_verdict_value_and_remedy(judge, check, changes, level, value, remedy):
    finding = judge(check, **changes)
    assert finding.level.value == level
    assert value in finding.value and remedy in finding.remedy


@pytest.mark.parametrize(('log', 'value', 'remedy'), [
    (CameraLog('t'), 'nobody publishes it', 'ROS_DOMAIN_ID'),
    (CameraLog('t', kinds=('sensor_msgs/msg/CompressedImage',)), 'a publisher of sensor_msgs/msg',
     'ros2 topic info -v'),
    (CameraLog('t', errors=['broken']), 'no usable image: broken', 'rgb8'),
])
def test_a_silent_camera_is_named_once(judge, log, value, remedy):
    finding = judge('camera-rate', log=log)
    assert finding.level.value == 'fail'
    assert value in finding.value and remedy in finding.remedy
    for check in CHECKS[1:]:
        assert judge(check, log=log).level.value == 'skip'


def test_without_a_camera_nothing_is_watched(machine, tools):
    choices = Choices((DriverConfig(),), tools.params())
    context = machine(choices=choices, cameras=tools.refuse)
    found = tools.look(context, 'camera')
    assert {f.level.value for _, f in found} == {'skip'}
    assert all('--cameras TOPIC' in f.remedy for _, f in found)


def test_without_ros_the_cameras_are_skipped(machine, tools):
    def missing(*arguments):
        raise ImportError('No module named rclpy')

    found = tools.look(machine(cameras=missing), 'camera')
    assert {f.level.value for _, f in found} == {'skip'}
    assert all('rclpy' in f.value for _, f in found)


def test_all_cameras_are_watched_together_and_once(machine, tools):
    calls = []

    def watch(topics, seconds, namespace):
        calls.append((topics, seconds, namespace))
        return {topic: tools.camera(topic) for topic in topics}

    choices = Choices((DriverConfig(),), tools.params(), {'front': 'a', 'wrist': 'b'}, seconds=3.0)
    found = tools.look(machine(choices=choices, cameras=watch), 'camera')
    assert calls == [(('a', 'b'), 3.0, '')]
    assert [f.subject for name, f in found if name == 'camera-age'] == ['a', 'b']


@pytest.mark.parametrize(('hashes', 'expected'), [
    ([], (0, 0)), ([1], (1, 0)), ([1, 1], (2, 1)), ([1, 2, 2, 2, 3, 3], (3, 3))])
def test_runs(hashes, expected):
    assert runs(hashes) == expected
