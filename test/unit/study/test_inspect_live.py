"""A look at a running graph: what has to arrive, by which name, and that nothing is sent."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from rclpy.context import Context
from rclpy.node import Node
from reflex_msgs.msg import Task
from sensor_msgs.msg import JointState

from reflex_ros.core.errors import StaleError
from reflex_ros.ros.glance import Glance, glance
from reflex_ros.ros.images import image_to_msg
from reflex_ros.ros.qos import image_topic, topic
from reflex_ros.study.inspect import Source, look, open_subject, robot_of

pytestmark = pytest.mark.ros

TINY = Path(__file__).resolve().parents[3] / 'reflex_ros' / 'data' / 'tiny'
NAMES = ['joint1', 'joint2', 'joint3', 'joint4', 'joint5', 'joint6', 'gripper']
STATE = [0.1, 1.45, -1.0, 0.0, 0.7, 0.0, 0.03]
IMAGE = np.full((64, 64, 3), 77, np.uint8)


class Listener:
    """A node that can only listen: anything else fails."""

    def __init__(self):
        self.heard = {}

    def create_subscription(self, kind, name, callback, qos):
        self.heard[name] = callback


def test_a_glance_waits_for_every_camera_and_joint_and_only_listens():
    node = Listener()
    cameras = {'base': 'eye/image', 'wrist': 'hand/image/compressed'}
    looking = Glance(node, cameras, ('a', 'b'))
    assert set(node.heard) == {'eye/image', 'hand/image/compressed', 'joint_states', 'task'}
    node.heard['eye/image'](image_to_msg(IMAGE, stamp_ns=5))
    node.heard['joint_states'](JointState(name=['a'], position=[1.0]))
    missing = ' '.join(looking.missing())
    assert 'hand/image/compressed (wrist)' in missing and 'eye' not in missing
    assert 'joint_states of a, b (got only a)' in missing
    node.heard['joint_states'](JointState(name=['b', 'a'], position=[2.0, 1.0]))
    assert looking.missing() == ('hand/image/compressed (wrist)',)
    assert looking.seen.joints == {'a': 1.0, 'b': 2.0}
    stamp_ns, image = looking.seen.images['base']
    assert stamp_ns == 5 and np.array_equal(image, IMAGE)


def test_an_instruction_is_not_waited_for():
    node = Listener()
    looking = Glance(node, {}, ('a',))
    node.heard['joint_states'](JointState(name=['a'], position=[1.0]))
    assert looking.missing() == () and looking.seen.instruction == ''
    node.heard['task'](Task(instruction='go'))
    assert looking.seen.instruction == 'go'


@pytest.fixture
def publishers(ros_env):
    """Publish one camera and the joints from another context until the test ends."""
    import rclpy

    context, stop = Context(), threading.Event()
    rclpy.init(args=[], context=context)
    node = Node('talker', context=context, namespace='/robot', use_global_arguments=False)
    image, joints = image_topic('camera/main/image_raw'), topic('joint_states')
    images, states, tasks = (
        node.create_publisher(e.message, e.name, e.qos) for e in (image, joints, topic('task'))
    )
    tasks.publish(Task(instruction='hold still'))

    def publish():
        while not stop.wait(0.05):
            images.publish(image_to_msg(IMAGE, stamp_ns=1))
            states.publish(JointState(name=NAMES, position=STATE))

    thread = threading.Thread(target=publish)
    thread.start()
    yield
    stop.set()
    thread.join()
    node.destroy_node()
    rclpy.shutdown(context=context)


def test_a_live_look_is_what_the_topics_carry(publishers):
    subject = open_subject(TINY, robot_of((), {}))
    sight = look(subject, Source(is_live=True, namespace='/robot', wait_s=20.0))
    assert sight.origin == 'live, /robot' and sight.prompt == 'hold still'
    assert np.array_equal(np.round(sight.views[0].pixels * 255), IMAGE)
    assert sight.state.tolist() == STATE and sight.chunk.shape == (50, 7)


def test_a_silent_graph_is_refused_in_time_by_name(ros_env):
    with pytest.raises(StaleError, match=r'camera/main/image_raw \(main\), joint_states of a'):
        glance({'main': 'camera/main/image_raw'}, joints=('a',), namespace='/no', timeout_s=0.2)
