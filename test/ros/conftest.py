"""A bridge node over an arm without a bus, an operator's node, and one executor for both."""

from __future__ import annotations

import time

import numpy as np
import pytest

from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.limits import piper_limits

HOME = np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.02])


class Plant:
    position = HOME.copy()

    def command(self, joints_rad, gripper_m):
        self.position = np.array([*joints_rad, gripper_m])

    def joint_state(self):
        return self.position, np.zeros(7)


def direct_arm(clock):
    return DirectArm(Plant(), clock, limits=piper_limits())


class BridgeRig:
    """An active bridge that ticks, and clients of an operator; ``make_arm(clock)`` is its arm."""

    def __init__(self, monkeypatch, make_arm=direct_arm):
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.lifecycle import TransitionCallbackReturn
        from rclpy.node import Node
        from rclpy.parameter import Parameter
        from reflex_msgs.msg import ControlTick
        from reflex_msgs.srv import Hold, Recover, SetInstruction

        from reflex_ros.nodes import controller_bridge
        from reflex_ros.ros.qos import topic
        from reflex_ros.ros.spin import Stop

        def made(params, clock):
            self.arm = make_arm(clock)
            return self.arm

        monkeypatch.setattr(controller_bridge, 'make_driver', made)
        self.stop, self.ticks = Stop(), []
        self.node, self.operator = controller_bridge.BridgeNode(self.stop), Node('operator')
        for name, value in {'run.autostart': True, 'run.instruction': 'go'}.items():
            self.node._parameter_overrides[name] = Parameter(name, value=value)
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.executor.add_node(self.operator)
        self.operator.create_subscription(
            ControlTick, 'control_tick', self.ticks.append, topic('control_tick').qos)
        self.recover = self.operator.create_client(Recover, 'recover')
        self.hold = self.operator.create_client(Hold, 'hold')
        self.instruct = self.operator.create_client(SetInstruction, 'set_instruction')
        done = TransitionCallbackReturn.SUCCESS
        assert self.node.trigger_configure() == self.node.trigger_activate() == done
        self.bridge = self.node._bridge
        clients = (self.recover, self.hold, self.instruct)
        assert self.spin(lambda: self.ticks and all(c.service_is_ready() for c in clients))

    def spin(self, until, seconds=5.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            self.executor.spin_once(timeout_sec=0.05)
        return bool(until())

    def service(self, name):
        return next(s for s in self.node.services if s.srv_name == name)

    def close(self):
        self.node.stop()
        self.executor.shutdown()
        for node in (self.node, self.operator):
            node.destroy_node()


@pytest.fixture
def make_bridge(ros, monkeypatch):
    """Return a maker of rigs, ``make_bridge(make_arm)``; closed at the end, newest first."""
    made = []

    def make(make_arm=direct_arm):
        made.append(BridgeRig(monkeypatch, make_arm))
        return made[-1]

    yield make
    for rig in reversed(made):
        rig.close()
