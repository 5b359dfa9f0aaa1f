"""The nodes through their life: configured, active and cleaned up again and again."""

from __future__ import annotations

import gc
import os
import time

import numpy as np
import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter
from reflex_msgs.msg import ActionChunk, ControlTick, StageStatus
from sensor_msgs.msg import JointState

from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.clock import MS
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.nodes import controller_bridge
from reflex_ros.nodes.controller_bridge import BridgeNode
from reflex_ros.nodes.inference import make as make_inference
from reflex_ros.ros.lifecycle import ENTITIES
from reflex_ros.ros.qos import topic
from reflex_ros.ros.spin import Stop

pytestmark = pytest.mark.ros
HOME = np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.02])
DONE = TransitionCallbackReturn.SUCCESS


class Plant:
    def __init__(self):
        self.position = HOME.copy()

    def command(self, joints_rad, gripper_m):
        self.position = np.array([*joints_rad, gripper_m])

    def joint_state(self):
        return self.position, np.zeros(7)


@pytest.fixture
def life(ros, monkeypatch):
    """Return a maker of nodes whose stop requests are kept, spun by one executor."""
    monkeypatch.setattr(
        controller_bridge, 'make_driver',
        lambda params, clock: DirectArm(Plant(), clock, limits=piper_limits()))
    executor, made = SingleThreadedExecutor(), []

    class Life:
        stop = Stop()

        def add(self, node, **parameters):
            for name, value in parameters.items():
                node._parameter_overrides[name] = Parameter(name, value=value)
            made.append(node)
            executor.add_node(node)
            return node

        def spin(self, seconds=0.0, until=None):
            end = time.monotonic() + (seconds or 5.0)
            while time.monotonic() < end and not (until and until()):
                executor.spin_once(timeout_sec=0.01)
            return until is None or until()

    yield Life()
    for node in made:
        if hasattr(node, 'stop'):
            node.stop()
    executor.shutdown()
    for node in made:
        node.destroy_node()


def make_bridge(life):
    return life.add(BridgeNode(life.stop), **{'run.autostart': True, 'run.instruction': 'go'})


def make_oracles(life):
    """Return policy and encoder, in this order."""
    return [life.add(node, **{'policy.name': 'oracle'}) for node in make_inference(life.stop)]


def open_files():
    gc.collect()  # files of earlier tests are not this one's
    return len(os.listdir('/proc/self/fd'))


def entities(node):
    return {kind: len(list(getattr(node, f'{kind}s'))) for kind in ENTITIES}


def walk(nodes, *transitions):
    for name in transitions:
        for node in nodes:
            assert getattr(node, f'trigger_{name}')() == DONE, (name, node.get_name())


@pytest.mark.parametrize('make', [
    lambda life: [make_bridge(life)], lambda life: make_oracles(life)[::-1],
], ids=['bridge', 'inference'])
def test_fifty_cycles_leave_nothing_behind(life, make):
    nodes = make(life)
    before = [entities(node) for node in nodes]
    walk(nodes, 'configure', 'cleanup')
    files = open_files()
    for _ in range(49):
        walk(nodes, 'configure', 'cleanup')
    assert [entities(node) for node in nodes] == before
    assert open_files() - files <= 2
    assert not life.stop.is_set


def test_every_node_can_be_activated_twice(life):
    nodes = [make_bridge(life), *make_oracles(life)[::-1]]
    ticks, statuses = [], []
    listener = life.add(Node('listener'))
    for name, kind, got in (('control_tick', ControlTick, ticks),
                            ('stage_status', StageStatus, statuses)):
        listener.create_subscription(kind, name, got.append, topic(name).qos)
    walk(nodes, 'configure')
    for _ in range(2):
        ticks.clear()
        statuses.clear()
        walk(nodes, 'activate')
        assert life.spin(until=lambda: len(ticks) > 20 and len(statuses) > 4)
        assert all(t.is_sent for t in ticks if t.late_ns < 10 * MS)
        walk(nodes, 'deactivate')
    last = []
    for _ in range(20):  # what was published before may still be on its way
        last.append(len(ticks))
        ticks.clear()
        life.spin(0.3)
        if not ticks:
            break
    assert not ticks, last
    assert not life.stop.is_set


def test_a_cleaned_up_bridge_hears_nothing_and_dies_of_nothing(life):
    bridge = make_bridge(life)
    talker = life.add(Node('talker'))
    chunks = talker.create_publisher(ActionChunk, 'action_chunk', topic('action_chunk').qos)
    states = talker.create_publisher(StageStatus, 'stage_status', topic('stage_status').qos)
    walk([bridge], 'configure')
    assert life.spin(until=lambda: chunks.get_subscription_count() == 1)
    chunks.publish(ActionChunk())
    states.publish(StageStatus(schema_version=StageStatus.SCHEMA_VERSION))
    assert life.spin(until=lambda: bridge.malformed == 1)
    walk([bridge], 'activate', 'deactivate', 'cleanup')
    states.publish(StageStatus(schema_version=StageStatus.SCHEMA_VERSION))
    life.spin(0.3)
    assert bridge.malformed == 1 and not life.stop.is_set


def test_a_joint_state_with_fewer_positions_than_names_is_dropped(life):
    policy = make_oracles(life)[0]
    talker = life.add(Node('talker'))
    states = talker.create_publisher(JointState, 'joint_states', topic('joint_states').qos)
    walk([policy], 'configure', 'activate')
    assert life.spin(until=lambda: states.get_subscription_count() == 1)
    states.publish(JointState(name=list(JOINT_NAMES), position=[0.0] * 6))
    states.publish(JointState(name=['a', 'b'], position=[0.0] * 2))
    assert life.spin(until=lambda: policy.malformed == 2)
    assert not life.stop.is_set


def test_a_permuted_joint_state_is_bound_by_name(life):
    policy = make_oracles(life)[0]
    walk([policy], 'configure')
    msg = JointState(name=list(JOINT_NAMES[::-1]), position=[float(i) for i in range(7)])
    msg.header.stamp.sec = 5
    policy._on_joint_state(msg)
    assert policy._stage._states.at(5_000_000_000).tolist() == [6.0, 5, 4, 3, 2, 1, 0]


def test_hold_is_answered_while_the_loop_runs(life):
    from reflex_msgs.srv import Hold

    bridge = make_bridge(life)
    client = life.add(Node('operator')).create_client(Hold, 'hold')
    walk([bridge], 'configure', 'activate')
    assert life.spin(until=client.service_is_ready)
    future = client.call_async(Hold.Request())
    assert life.spin(until=future.done) and future.result().accepted
