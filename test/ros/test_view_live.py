"""[ros] A running graph in the viewer: everything on one timeline, cameras as they appear."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('rerun.chunk', reason='rerun-sdk (requirements/view.txt)')
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rerun.chunk import RrdReader

from reflex_ros.cli.main import main
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.report.view_live import describe, follow
from reflex_ros.report.view_rerun import Viewer
from reflex_ros.ros.convert import control_tick_to_msg, plan_to_msg
from reflex_ros.ros.images import image_to_msg
from reflex_ros.ros.qos import image_topic, topic
from reflex_ros.study.episode import EpisodeSpec, run_episode

pytestmark = pytest.mark.ros
TICKS, FRAMES = 60, 5


class Graph:
    """Publishes ticks, plans, joint states and frames of a run, one of each at a time."""

    def __init__(self, log):
        self._log, self._context, self._sent = log, Context(), 0
        rclpy.init(args=[], context=self._context)
        self._node = Node('publisher', context=self._context, use_global_arguments=False)
        entries = {name: topic(name) for name in ('control_tick', 'plan', 'joint_states')}
        entries['camera/main/image_raw'] = image_topic('camera/main/image_raw')
        self._publishers = {
            name: self._node.create_publisher(entry.message, entry.name, entry.qos)
            for name, entry in entries.items()}

    def publish(self):
        """Publish what comes next, once somebody hears it."""
        camera = self._publishers['camera/main/image_raw']
        if not self._publishers['control_tick'].get_subscription_count() or self._sent >= TICKS:
            return
        if self._sent == TICKS // 2 and not camera.get_subscription_count():
            return  # the camera is found within a second
        tick, send = self._log.ticks[-TICKS + self._sent], self._publishers
        send['control_tick'].publish(control_tick_to_msg(tick))
        joints = topic('joint_states').message(name=list(JOINT_NAMES),
                                               position=[float(v) for v in tick.measured])
        joints.header.stamp.sec, joints.header.stamp.nanosec = divmod(tick.stamp_ns, 10**9)
        send['joint_states'].publish(joints)
        for plan in self._log.plans[-2:-1] if self._sent == 0 else ():
            send['plan'].publish(plan_to_msg(plan))
        camera.publish(image_to_msg(np.full((8, 8, 3), self._sent, np.uint8),
                                    stamp_ns=tick.stamp_ns, frame_id='main'))
        self._sent += 1

    def close(self):
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)


@pytest.fixture
def graph(ros_env):
    made = Graph(run_episode(EpisodeSpec(duration_s=2.0, seed=1)).log)
    yield made
    made.close()


def rows_of(path):
    found, timelines = {}, set()
    for part in RrdReader(path).stream():
        timelines |= set(part.timeline_names)
        if not part.is_static:
            entity = str(part.entity_path).lstrip('/')
            found[entity] = found.get(entity, 0) + part.num_rows
    return found, timelines


def test_a_running_graph_is_on_one_timeline(graph, tmp_path):
    path = tmp_path / 'live.rrd'

    def until(found):
        graph.publish()
        frames = found.frames.get('camera/main', 0)
        return found.messages - frames >= 2 * TICKS + 1 and frames >= FRAMES

    shown = follow(Viewer(), output=path, duration_s=20.0, until=until)
    rows, timelines = rows_of(path)
    assert shown.ticks == TICKS and shown.left_out == {}
    assert timelines == {'ros_time'}
    for kind in ('command', 'measured', 'state'):
        assert rows[f'joints/joint1/{kind}'] == TICKS, kind
    assert rows['joints/joint1/plan'] > 5 and rows['camera/main'] == shown.frames['camera/main']
    assert 'camera/main' in describe(shown)


def test_a_graph_of_another_namespace_can_fail_to_be_heard(graph, tmp_path):
    def until(found):
        graph.publish()
        return False

    shown = follow(Viewer(), output=tmp_path / 'x.rrd', namespace='elsewhere', duration_s=1.5,
                   until=until)
    assert shown.messages == 0 and 'nothing was heard' in describe(shown)


@pytest.mark.parametrize(('options', 'said'), [
    (['--live'], 'goes nowhere'), ([], 'got neither'), (['bag', '--live'], 'got both'),
    (['bag', '--connect', 'x'], 'expected them with --live alone'),
    (['--live', '--output', 'x.mcap'], "expected '.rrd'"),
])
def test_wrong_options_are_input(options, said, capsys):
    assert main(['view', *options]) == 2
    assert said in capsys.readouterr().err
