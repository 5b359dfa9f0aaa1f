"""What the bridge says of itself, and what the operator's command line makes of it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from reflex_ros.arm.protocol import ArmReport, BusStats
from reflex_ros.arm.wire import CYCLIC_IDS
from reflex_ros.core.clock import MS
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import JOINT_NAMES, ArmState, Cause, ControlTick, Plan, Verdict
from reflex_ros.nodes.bridge_diagnostics import arm_diagnosis, bus_diagnosis, tick_diagnosis
from reflex_ros.ros.convert import plan_to_msg
from reflex_ros.ros.diagnostics import Diagnosis, Diagnostics, Level
from reflex_ros.ros.operator import Operator
from reflex_ros.ros.qos import topic

pytestmark = pytest.mark.ros
NOTHING = np.empty(0)
RATES = {i: 40.0 if 0x261 <= i <= 0x266 else 200.0 for i in CYCLIC_IDS}


def tick(verdict=Verdict.FRESH, cause=Cause.NONE, due_ms=1000):
    return ControlTick(
        number=1, stamp_ns=0, index=1, due_ns=due_ms * MS, late_ns=0, verdict=verdict, cause=cause,
        arm_state=ArmState.TRACKING, epoch=1, chunk_id=1, row=0.0, is_sent=True, in_motion=True,
        is_covered=True, observation_age_ns=0, tracking_error=0.0, setpoint=NOTHING,
        command=NOTHING, measured=NOTHING)


def parts(*, faults=(), warnings=(), contact='', load='', state=ArmState.TRACKING, reason=''):
    report = ArmReport('S-V1.8-9', NOTHING, piper_limits(), 0.07, 1, 0, (), warnings=warnings)
    delay = SimpleNamespace(value_ns=50 * MS)
    bridge = SimpleNamespace(report=report, contact=contact, latency=delay, delta=delay,
                             states=SimpleNamespace(state=state, reason=reason),
                             overload=lambda: load)
    arm = SimpleNamespace(faults=lambda: faults, stats=BusStats)
    return arm_diagnosis(arm, bridge)


def test_a_cause_comes_with_what_to_do():
    found = tick_diagnosis(tick(Verdict.HELD, Cause.CAMERA_FROZEN), 1010 * MS)
    assert found.level is Level.WARN and 'restart the driver of the camera' in found.message


def test_a_loop_that_stands_still_is_an_error():
    assert tick_diagnosis(tick(), 1400 * MS).level is Level.OK
    stuck = tick_diagnosis(tick(), 1600 * MS)
    assert stuck.level is Level.ERROR and 'stands still for 0.6 s' in stuck.message


def test_a_fault_comes_with_what_to_do():
    found = parts(faults=('arm_estop', 'joint2_stall'), state=ArmState.FAULTED)
    assert found.level is Level.ERROR
    assert 'Emergency stop is latched. Remove the cause' in found.message
    assert 'joint2_stall: Motor stalled.' in found.message


@pytest.mark.parametrize(('reason', 'words'), [
    ('feedback_lost, joint2_stall', ('No joint feedback for 100 ms', 'joint2_stall: Motor')),
    ('Command joint1: got 3.0, expected 2.0 (rad).', ('got 3.0, expected 2.0 (rad).',)),
    ('', ('a fault',))])
def test_a_latched_fault_is_told_until_the_arm_is_recovered(reason, words):
    """Its cause may be gone: the arm is at fault and says why all the same."""
    found = parts(state=ArmState.FAULTED, reason=reason, warnings=('Firmware is old.',))
    assert found.level is Level.ERROR and found.message.startswith('faulted: ')
    assert all(part in found.message for part in (*words, 'recover'))


def test_contact_and_the_warnings_of_the_check_reach_the_operator():
    assert parts().level is Level.OK and parts().message == 'tracking'
    assert 'gave way' in parts(contact='contact at joint2: it gave way').message
    assert parts(load='High load: joint2 9.0 N·m.').level is Level.WARN
    found = parts(warnings=('Firmware S-V1.8-3 is old.',))
    assert found.level is Level.WARN and 'Firmware S-V1.8-3 is old.' in found.message


def test_the_bus_has_a_table_of_rates_by_id():
    found = bus_diagnosis(BusStats(is_connected=True, rates_hz=RATES))
    assert found.level is Level.OK and found.values['hz_2a5'] == 200.0
    assert {f'hz_{i:x}' for i in CYCLIC_IDS} <= set(found.values)


@pytest.mark.parametrize('stats', [
    BusStats(is_connected=True, rates_hz={**RATES, 0x2A5: 90.0}),
    BusStats(is_connected=True, rates_hz=RATES, foreign_frames=1),
    BusStats(is_connected=False),
], ids=['slow id', 'foreign', 'closed'])
def test_the_bus_can_fail(stats):
    assert bus_diagnosis(stats).level is not Level.OK


@pytest.fixture
def graph(ros):
    """Serve a plan and the diagnostics of a bridge from a thread; return an operator."""
    bridge, node = Node('controller_bridge'), Node('operator')
    entry = topic('plan')
    plan = bridge.create_publisher(entry.message, entry.name, entry.qos)
    plan.publish(plan_to_msg(Plan(1, 0, 7, ArmState.FAULTED, JOINT_NAMES)))
    diagnostics = Diagnostics(bridge, 'piper:can0', sources={
        'arm': lambda: Diagnosis(Level.ERROR, 'faulted: arm_estop: Emergency stop is latched.'),
        'tick': lambda: Diagnosis(Level.OK, 'fresh')})
    executor, ended = SingleThreadedExecutor(), threading.Event()
    executor.add_node(bridge)

    def spin():
        while not ended.is_set():
            executor.spin_once(timeout_sec=0.02)
            diagnostics.publish()

    thread = threading.Thread(target=spin)
    thread.start()
    operator = Operator(timeout_s=20.0)
    operator._node = node
    yield operator
    ended.set()
    thread.join()
    executor.shutdown()
    bridge.destroy_node()
    node.destroy_node()


def test_the_status_says_what_is_wrong(graph):
    text = graph.status()
    assert 'arm faulted, epoch 7' in text
    assert 'ERROR arm: faulted: arm_estop: Emergency stop is latched.' in text
    assert 'tick' not in text, 'what is well needs no line'
