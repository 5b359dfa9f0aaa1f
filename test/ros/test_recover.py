"""The service ``recover`` keeps nobody waiting: a hold is answered while it runs."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter
from reflex_msgs.msg import ControlTick
from reflex_msgs.srv import Hold, Recover

from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import ArmState
from reflex_ros.nodes import bridge_services, controller_bridge
from reflex_ros.nodes.controller_bridge import BridgeNode
from reflex_ros.ros.qos import topic
from reflex_ros.ros.spin import Stop

pytestmark = pytest.mark.ros
HOME = np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.02])
DONE = TransitionCallbackReturn.SUCCESS
LONGEST_S = 2.0


class Plant:
    position = HOME.copy()

    def command(self, joints_rad, gripper_m):
        self.position = np.array([*joints_rad, gripper_m])

    def joint_state(self):
        return self.position, np.zeros(7)


class SlowArm(DirectArm):
    """Clears its faults when the test lets it, or after two seconds."""

    def __init__(self, clock):
        super().__init__(Plant(), clock, limits=piper_limits())
        self.entered, self.may_go_on = threading.Event(), threading.Event()
        self.calls = []

    def clear_faults(self, *, arm_supported):
        self.entered.set()
        self.may_go_on.wait(LONGEST_S)
        reply = super().clear_faults(arm_supported=arm_supported)
        self.calls.append('cleared')
        return reply

    def enable(self, **kwargs):
        self.calls.append('enable')
        return super().enable(**kwargs)

    def disconnect(self):
        self.calls.append('disconnect')
        super().disconnect()


class Rig:
    """An active bridge with a faulted arm, an operator, and one executor for both."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(controller_bridge, 'make_driver', self._make_arm)
        self.stop, self.ticks = Stop(), []
        self.node, self.operator = BridgeNode(self.stop), Node('operator')
        for name, value in {'run.autostart': True, 'run.instruction': 'go'}.items():
            self.node._parameter_overrides[name] = Parameter(name, value=value)
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.executor.add_node(self.operator)
        self.operator.create_subscription(
            ControlTick, 'control_tick', self.ticks.append, topic('control_tick').qos)
        self.recover = self.operator.create_client(Recover, 'recover')
        self.hold = self.operator.create_client(Hold, 'hold')
        assert self.node.trigger_configure() == self.node.trigger_activate() == DONE
        self.bridge = self.node._bridge
        assert self.spin(lambda: self.ticks and self.recover.service_is_ready()
                         and self.hold.service_is_ready())
        self.arm.inject_faults(('arm_estop',))
        assert self.spin(lambda: self.bridge.states.state is ArmState.FAULTED)
        self.arm.calls.clear()

    def _make_arm(self, params, clock):
        self.arm = SlowArm(clock)
        return self.arm

    def spin(self, until, seconds=5.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            self.executor.spin_once(timeout_sec=0.05)
        return bool(until())

    def begin(self):
        """Ask for a recovery and return its answer to come, once the arm works on it."""
        answer = self.recover.call_async(Recover.Request(arm_supported=True))
        assert self.spin(self.arm.entered.is_set)
        return answer

    def close(self):
        self.arm.may_go_on.set()
        self.node.stop()
        self.executor.shutdown()
        for node in (self.node, self.operator):
            node.destroy_node()


@pytest.fixture
def faulted(ros, monkeypatch):
    rig = Rig(monkeypatch)
    yield rig
    rig.close()


def hold_first(rig):
    """Return whether a hold was answered before the recovery that was asked for before it."""
    recovery = rig.begin()
    hold = rig.hold.call_async(Hold.Request())
    assert rig.spin(hold.done)
    assert hold.result().accepted or recovery.done()
    return not recovery.done()


def test_a_hold_is_answered_while_a_recovery_runs(faulted):
    assert hold_first(faulted)


def test_a_hold_is_answered_while_a_recovery_runs_can_fail(faulted, ros, monkeypatch):
    faulted.close()

    def blocking(node, bridge):
        return lambda request, response: bridge_services._answered(
            node, 'recover', bridge.recover(arm_supported=request.arm_supported), response)

    monkeypatch.setattr(bridge_services, '_slow_callback', blocking)
    rig = Rig(monkeypatch)
    faulted.__dict__.update(rig.__dict__)
    assert not hold_first(rig)


def test_ticks_go_on_and_a_second_recovery_is_refused_until_the_first_is_done(faulted):
    recovery, before = faulted.begin(), len(faulted.ticks)
    second = faulted.recover.call_async(Recover.Request(arm_supported=True))
    assert faulted.spin(second.done)
    assert not second.result().accepted and 'under way' in second.result().reason
    assert faulted.spin(lambda: len(faulted.ticks) > before + 10)
    assert not any(tick.is_sent for tick in faulted.ticks[before:]) and not recovery.done()
    faulted.arm.may_go_on.set()
    assert faulted.spin(recovery.done) and recovery.result().accepted
    before = len(faulted.ticks)
    assert faulted.spin(lambda: any(tick.is_sent for tick in faulted.ticks[before:]))
    assert faulted.bridge.states.state is ArmState.ENABLED


def test_a_cleanup_waits_for_the_recovery_and_its_answer_harms_nobody(faulted):
    faulted.begin()
    threading.Timer(0.2, faulted.arm.may_go_on.set).start()
    assert faulted.node.trigger_deactivate() == faulted.node.trigger_cleanup() == DONE
    assert faulted.arm.calls == ['cleared', 'disconnect'], 'and nothing was powered'
    faulted.spin(lambda: False, seconds=0.3)
    assert not faulted.stop.is_set


def test_an_error_that_nobody_raises_on_purpose_ends_the_executor(faulted, monkeypatch):
    """As that of any callback: a bridge that cannot tell what it did must not go on."""
    monkeypatch.setattr(faulted.bridge, 'recover', lambda *, arm_supported: 1 / 0)
    answer = faulted.recover.call_async(Recover.Request(arm_supported=True))
    with pytest.raises(ZeroDivisionError):
        faulted.spin(answer.done)
