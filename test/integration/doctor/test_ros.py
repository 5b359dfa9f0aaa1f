"""Camera topics and images between processes, over the real middleware."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import numpy as np
import pytest

pytestmark = [pytest.mark.ros, pytest.mark.realtime]
CAMERAS = {
    'good': {},
    'frozen': {'is_frozen': True},
    'ahead': {'ahead_ns': 60_000_000_000},
    'torn': {'height': 50},
}
"""Name and fault of each camera; ``absent`` is watched too and published by nobody."""
TRIES = 3
"""On a busy machine discovery may take longer than the two seconds that the doctor listens."""


class Camera:
    """Publishes small images at about 20 Hz, in a thread."""

    def __init__(self, node, name, *, height=48, is_frozen=False, ahead_ns=0):
        from reflex_ros.ros.qos import camera_topic, image_topic

        entry = image_topic(camera_topic(name))
        self._publisher = node.create_publisher(entry.message, entry.name, entry.qos)
        self._height, self._is_frozen, self._ahead_ns = height, is_frozen, ahead_ns
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        from reflex_ros.core.clock import SystemClock
        from reflex_ros.ros.images import image_to_msg

        clock, number = SystemClock(), 0
        while not self._end.wait(0.05):
            pixels = np.full((48, 64, 3), 0 if self._is_frozen else number % 251, np.uint8)
            msg = image_to_msg(pixels, stamp_ns=clock.stamp_ns() + self._ahead_ns)
            msg.height = self._height
            self._publisher.publish(msg)
            number += 1

    def stop(self):
        self._end.set()
        self._thread.join()


@pytest.fixture(scope='module')
def findings(tmp_path_factory, make_domain):
    """Visit the cameras once; return the findings by (check, camera)."""
    import rclpy
    from rclpy.node import Node

    folder = tmp_path_factory.mktemp('doctor')
    environ = {'ROS_DOMAIN_ID': str(make_domain()), 'ROS_LOG_DIR': str(folder),
               'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        rclpy.init(args=[])
        node = Node('cameras')
        cameras = [Camera(node, name, **fault) for name, fault in CAMERAS.items()]
        try:
            for _ in range(TRIES):
                found = visit(folder / 'doctor.json')
                if 'frames' in found['camera-rate', 'good'].get('measured', {}):
                    break
        finally:
            for camera in cameras:
                camera.stop()
            node.destroy_node()
            rclpy.try_shutdown()
    return found


def visit(path):
    """Let the doctor look at the cameras; return its findings by (check, camera)."""
    topics = [f'camera/{name}/image_raw' for name in (*CAMERAS, 'absent')]
    code = 'import sys; from reflex_ros.cli.main import main; sys.exit(main(sys.argv[1:]))'
    subprocess.run(
        [sys.executable, '-c', code, 'doctor', '--only', 'camera', '--cameras', *topics,
         '--seconds', '2', '-p', 'camera.period_s:=0.05', '--json', str(path)],
        check=False, capture_output=True, timeout=90)
    found = json.loads(path.read_text())['findings']
    cameras = [f for f in found if '/' in f['subject']]  # others tell of leftovers on this machine
    return {(f['check'], f['subject'].split('/')[1]): f for f in cameras}


def test_a_camera_is_seen_as_it_is(findings):
    assert findings['camera-rate', 'good']['measured']['frames'] > 3
    assert findings['camera-frozen', 'good']['measured']['repeats'] == 0
    assert findings['camera-encoding', 'good']['value'] == 'rgb8, 64x48'
    assert findings['camera-encoding', 'good']['level'] == 'ok'
    assert findings['camera-age', 'good']['measured']['min_ms'] >= 0


@pytest.mark.parametrize(('check', 'camera', 'value'), [
    ('camera-frozen', 'frozen', 'frozen: '),
    ('camera-age', 'ahead', 'in the future'),
    ('camera-encoding', 'torn', 'does not fit its data'),
    ('camera-rate', 'absent', 'nobody publishes it'),
])
def test_a_planted_fault_is_named(findings, check, camera, value):
    assert findings[check, camera]['level'] == 'fail'
    assert value in findings[check, camera]['value']
    assert value not in findings.get((check, 'good'), {'value': ''})['value']


def test_images_travel_between_two_processes(ros_env):
    from reflex_ros.ros.image_latency import measure_latency

    sample = measure_latency(0.4)
    assert sample.error == '' and sample.sent == 10
    assert all(latency > 0 for latency in sample.latencies_ms)


def test_latency_can_fail(ros_env, monkeypatch):
    """Without the other process nothing is called measured."""
    from reflex_ros.ros import image_latency

    monkeypatch.setattr(image_latency.sys, 'executable', '/bin/false')
    sample = image_latency.measure_latency(0.4)
    assert sample.error and sample.latencies_ms == ()
