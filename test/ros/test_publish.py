"""A publish that waits stops neither the process nor the control loop."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
import rclpy
from rclpy._rclpy_pybind11 import RCLError
from rclpy.executors import SingleThreadedExecutor
from reflex_msgs.msg import ControlTick
from sensor_msgs.msg import Image, JointState

from reflex_ros.nodes.bridge_diagnostics import BACKLOG, topics_diagnosis
from reflex_ros.ros.diagnostics import Level
from reflex_ros.ros.publish import Outbox, Publisher

pytestmark = pytest.mark.ros
WAIT_S = 20.0
# The middleware's call is replaced by one that waits in C, as a publish to a stopped reader does.
BLOCKED = """
import ctypes, threading
from contextlib import nullcontext
from types import SimpleNamespace
from sensor_msgs.msg import JointState
from reflex_ros.ros.publish import Publisher

libc = ctypes.{library}(None)
semaphore = ctypes.create_string_buffer(64)
libc.sem_init(semaphore, 0, 0)
class Handle(nullcontext):
    pointer = ctypes.addressof(semaphore)

publisher = Publisher(SimpleNamespace(handle=Handle(), topic_name='t', msg_type=JointState))
libc.sem_wait.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
publisher._send = libc.sem_wait
thread = threading.Thread(target=publisher.publish, args=(JointState(),), daemon=True)
thread.start()
thread.join(0.2)
print('waits' if thread.is_alive() else 'returned', flush=True)
libc.sem_post(semaphore)
thread.join()
print('done', flush=True)
"""


@pytest.fixture
def node(ros):
    node = rclpy.create_node('publisher')
    yield node
    node.destroy_node()


@pytest.mark.parametrize('msg', [
    JointState(name=['joint1', 'Gelenk ä'], position=[0.1, -2.5]),
    Image(height=48, width=64, encoding='rgb8', step=192, data=bytes(range(256)) * 36),
])
def test_what_is_read_is_what_was_published(node, msg):
    got = []
    node.create_subscription(type(msg), 'topic', got.append, 10)
    publisher = Publisher(node.create_publisher(type(msg), 'topic', 10))
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    for _ in range(200):
        publisher.publish(msg)
        executor.spin_once(timeout_sec=0.1)
        if got:
            break
    assert got and got[0] == msg


def test_the_bytes_are_those_that_rclpy_publishes(node):
    """Readers of bags compare lengths; ``serialize_message`` may leave bytes at the end."""
    msg, got = ControlTick(verdict=ControlTick.VERDICT_FRESH, measured=[0.5] * 7), []
    node.create_subscription(ControlTick, 'topic', got.append, 10, raw=True)
    rclpys = node.create_publisher(ControlTick, 'topic', 10)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    for publish in (rclpys.publish, Publisher(rclpys).publish):
        before = len(got)
        for _ in range(200):
            publish(msg)
            executor.spin_once(timeout_sec=0.1)
            if len(got) > before:
                break
    assert len(got) > 1 and len({bytes(data) for data in got}) == 1


def test_a_message_of_another_type_is_refused(node):
    publisher = Publisher(node.create_publisher(JointState, 'topic', 10))
    with pytest.raises(TypeError, match='got a Image, expected a JointState'):
        publisher.publish(Image())


def run_blocked(library, wait_s):
    return subprocess.run([sys.executable, '-c', BLOCKED.format(library=library)],
                          capture_output=True, text=True, timeout=wait_s, check=True).stdout


def test_other_threads_run_while_a_publish_waits():
    assert run_blocked('CDLL', 60).split() == ['waits', 'done']


def test_other_threads_run_while_a_publish_waits_can_fail():
    with pytest.raises(subprocess.TimeoutExpired) as found:  # a call that keeps the lock
        run_blocked('PyDLL', 8)
    assert b'waits' not in (found.value.stdout or b'')


def test_a_refused_publish_says_which_topic_and_why(ros):
    context = rclpy.Context()
    context.init([])
    node = rclpy.create_node('refused', context=context)
    publisher = Publisher(node.create_publisher(JointState, 'joint_states', 10))
    context.shutdown()
    with pytest.raises(RCLError, match=r'/joint_states: not published: .*context is invalid'):
        publisher.publish(JointState())
    node.destroy_node()


class Slow:
    """A publisher that waits until it is let go."""

    def __init__(self):
        self.go, self.waits = threading.Event(), threading.Event()
        self.published = []

    def publish(self, msg):
        self.waits.set()
        assert self.go.wait(WAIT_S)
        if msg == 'bad':
            raise RCLError('refused')
        self.published.append(msg)


def test_who_posts_never_waits_and_all_is_published_in_order():
    slow, failed = Slow(), []
    outbox = Outbox(failed.append)
    for msg in ('a', 'bad', 'b', 'c'):
        outbox.post(slow, msg)  # a post that waited would end here
    assert slow.waits.wait(WAIT_S) and slow.published == [] and outbox.backlog == 3
    slow.go.set()
    assert outbox.close(WAIT_S)
    assert slow.published == ['a', 'b', 'c']
    assert [str(error) for error in failed] == ['refused']


def test_messages_beyond_the_capacity_are_counted():
    slow = Slow()
    outbox = Outbox(lambda error: None, capacity=2)
    outbox.post(slow, 0)
    assert slow.waits.wait(WAIT_S)
    for msg in range(1, 6):
        outbox.post(slow, msg)
    assert outbox.dropped == 3 and outbox.backlog == 2
    assert topics_diagnosis(outbox.backlog, outbox.dropped).level is Level.WARN
    assert not outbox.close(wait_s=0.05)  # says so, and the node ends all the same
    slow.go.set()


def test_publishing_that_falls_behind_is_diagnosed():
    assert topics_diagnosis(BACKLOG, 0).level is Level.OK
    behind = topics_diagnosis(BACKLOG + 1, 0)
    assert behind.level is Level.WARN and 'the arm is not affected' in behind.message
