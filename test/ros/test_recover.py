"""The service ``recover`` keeps nobody waiting: a hold is answered while it runs."""

from __future__ import annotations

import threading

import numpy as np
import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node
from reflex_msgs.srv import Hold, Recover

from reflex_ros.arm.direct import DirectArm
from reflex_ros.arm.protocol import recovery_ns
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import ArmState
from reflex_ros.nodes import bridge_services
from reflex_ros.ros import client
from reflex_ros.ros.operator import Operator

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

    def clear_faults(self, **kwargs):
        self.entered.set()
        self.may_go_on.wait(LONGEST_S)
        reply = super().clear_faults(**kwargs)
        self.calls.append('cleared')
        return reply

    def enable(self, **kwargs):
        self.calls.append('enable')
        return super().enable(**kwargs)

    def disconnect(self):
        self.calls.append('disconnect')
        super().disconnect()


def begin(rig):
    """Ask for a recovery and return its answer to come, once the arm works on it."""
    answer = rig.recover.call_async(Recover.Request(arm_supported=True))
    assert rig.spin(rig.arm.entered.is_set)
    return answer


@pytest.fixture
def make_faulted(make_bridge):
    made = []

    def make():
        made.append(make_bridge(SlowArm))
        made[-1].arm.inject_faults(('arm_estop',))
        assert made[-1].spin(lambda: made[-1].bridge.states.state is ArmState.FAULTED)
        made[-1].arm.calls.clear()
        return made[-1]

    yield make
    for rig in made:
        rig.arm.may_go_on.set()


@pytest.fixture
def faulted(make_faulted):
    return make_faulted()


def hold_first(rig):
    """Return whether a hold was answered before the recovery that was asked for before it."""
    recovery = begin(rig)
    hold = rig.hold.call_async(Hold.Request())
    assert rig.spin(hold.done)
    assert hold.result().accepted or recovery.done()
    return not recovery.done()


def test_a_hold_is_answered_while_a_recovery_runs(faulted):
    assert hold_first(faulted)


def test_a_hold_is_answered_while_a_recovery_runs_can_fail(make_faulted, monkeypatch):
    def blocking(node, bridge):
        return lambda request, response: bridge_services._answered(
            node, 'recover', bridge.recover(arm_supported=request.arm_supported), response)

    monkeypatch.setattr(bridge_services, '_slow_callback', blocking)
    assert not hold_first(make_faulted())


def test_ticks_go_on_and_a_second_recovery_is_refused_until_the_first_is_done(faulted):
    recovery, before = begin(faulted), len(faulted.ticks)
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
    begin(faulted)
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


def recovered_from_outside(rig, say):
    """Let an operator's command line recover the arm; return its answer or its error."""
    operator, found = Operator(timeout_s=20.0), []
    operator._node = Node('command_line')
    caller = client.Caller(operator._node, timeout_s=20.0)
    operator.bridge = client.BridgeClient(caller)

    def ask():
        try:
            found.append(operator.recover(say, arm_supported=True))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert rig.spin(lambda: found, 20.0)
    thread.join()
    caller.close()
    operator._node.destroy_node()
    return found[0]


def test_the_command_line_says_how_far_it_is_until_the_answer_comes(faulted, monkeypatch):
    monkeypatch.setattr(client, 'SLICE_S', 0.1)
    lines = []

    def say(text):
        lines.append(text)
        if len(lines) == 3:
            faulted.arm.may_go_on.set()

    reply = recovered_from_outside(faulted, say)
    assert reply.accepted and len(lines) >= 3
    assert 'of at most 60: the arm is faulted' in lines[0]


def test_a_command_line_that_gives_up_too_early_can_fail(faulted, monkeypatch):
    monkeypatch.setattr('reflex_ros.ros.operator.recovery_ns', lambda joints: 300_000_000)
    error = recovered_from_outside(faulted, lambda text: None)
    assert 'no answer' in str(error) and 'within 0.3 s' in str(error)


def test_two_arms_are_waited_for_twice_as_long():
    assert recovery_ns(14) == 2 * recovery_ns(7) == 2 * recovery_ns(0)
