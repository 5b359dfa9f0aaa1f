"""Clock, diagnostics, services and process life at the edge to ROS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from reflex_msgs.srv import Hold, Recover
from rosgraph_msgs.msg import Clock as ClockMsg

from reflex_ros.core.clock import ManualClock
from reflex_ros.core.errors import StaleError
from reflex_ros.core.types import Reply
from reflex_ros.ros.client import BridgeClient, Caller
from reflex_ros.ros.clock import RosClock
from reflex_ros.ros.diagnostics import Diagnosis, Diagnostics, Level, status_to_msg
from reflex_ros.ros.spin import Stop, ensure_log_dir

pytestmark = pytest.mark.ros

PROGRAM = """
import sys
from rclpy.node import Node
from reflex_ros.core.errors import ArmError
from reflex_ros.ros.spin import run_node
from std_msgs.msg import String

class Talker(Node):
    def __init__(self, stop):
        super().__init__('talker')
        self._out = self.create_publisher(String, 'last_words', 1)
        self._stop_request = stop
        self.create_timer(0.05, self._tick)

    def _tick(self):
        print('READY', flush=True)
        if sys.argv[1] == 'arm_error':
            raise ArmError('arm joint3: got fault, expected none. Recover.')
        if sys.argv[1] == 'request':
            self._stop_request.request(4)

    def stop(self):
        self._out.publish(String(data='bye'))
        print('STOPPED', flush=True)

sys.exit(run_node(Talker, args=[]))
"""


def start(mode, ros_env, **environ):
    env = {**os.environ, **environ}
    env = {key: value for key, value in env.items() if value is not None}
    command = [sys.executable, '-c', PROGRAM, mode]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.realtime
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_node_publish_its_last_words(ros_env, number):
    process = start('wait', ros_env)
    assert process.stdout.readline() == 'READY\n'
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert 'STOPPED' in out
    assert (process.returncode, err) == (0, '')


@pytest.mark.realtime
@pytest.mark.parametrize(('mode', 'code'), [('request', 4), ('arm_error', 3)])
def test_the_exit_code_says_how_the_node_ended(ros_env, mode, code):
    process = start(mode, ros_env)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, 'STOPPED' in out) == (code, True)
    assert ('ArmError: arm joint3' in err) == (mode == 'arm_error')


@pytest.mark.realtime
def test_a_node_starts_without_a_home_folder(ros_env):
    process = start('request', ros_env, HOME=None, ROS_HOME=None, ROS_LOG_DIR=None)
    process.communicate(timeout=20)
    assert process.returncode == 4


def test_a_log_folder_is_named_only_where_none_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    known, bare = {'HOME': '/h'}, {}
    ensure_log_dir(known)
    ensure_log_dir(bare)
    assert known == {'HOME': '/h'}
    assert os.path.isdir(bare['ROS_LOG_DIR'])


def test_the_first_request_decides_the_exit_code():
    stop = Stop()
    assert not stop.is_set
    stop.request(3)
    stop.request(0)
    assert (stop.is_set, stop.exit_code) == (True, 3)


@pytest.fixture
def node(ros):
    node = Node('edge')
    yield node
    node.destroy_node()


def spin_until(node, condition, limit=200):
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    while not condition() and (limit := limit - 1):
        executor.spin_once(timeout_sec=0.05)
    executor.remove_node(node)
    executor.shutdown()
    return condition()


def test_steady_time_and_sleep_come_from_the_steady_clock(node):
    steady = ManualClock(mono_ns=5)
    clock = RosClock(node.get_clock(), steady=steady)
    clock.sleep_until(20)
    assert clock.mono_ns() == clock.now().mono_ns == 20
    assert clock.stamp_ns() > 1_700_000_000 * 10**9


@pytest.mark.realtime
def test_stamps_follow_simulated_time(node):
    node.set_parameters([Parameter('use_sim_time', value=True)])
    clock = RosClock(node.get_clock())
    publisher = node.create_publisher(ClockMsg, '/clock', 1)
    msg = ClockMsg()
    msg.clock.sec, msg.clock.nanosec = 12, 34
    timer = node.create_timer(0.01, lambda: publisher.publish(msg), clock=_steady())
    assert spin_until(node, lambda: clock.stamp_ns() == 12_000_000_034)
    node.destroy_timer(timer)


def _steady():
    from rclpy.clock import Clock, ClockType

    return Clock(clock_type=ClockType.STEADY_TIME)


def test_a_status_follows_rep_107():
    diagnosis = Diagnosis(Level.WARN, 'late', {'late_p99_ms': 4.56789, 'count': 3})
    msg = status_to_msg('controller_bridge: tick', diagnosis, hardware_id='piper:can0')
    assert (msg.level, msg.name) == (DiagnosticStatus.WARN, 'controller_bridge: tick')
    assert (msg.hardware_id, msg.message) == ('piper:can0', 'late')
    assert {item.key: item.value for item in msg.values} == {'late_p99_ms': '4.568', 'count': '3'}


def test_diagnostics_ask_every_source(node):
    sent = []
    parts = {part: (lambda p=part: Diagnosis(Level.OK, p)) for part in ('tick', 'arm')}
    diagnostics = Diagnostics(node, 'piper:can0', sources=parts)
    diagnostics._writer.publish = sent.append
    diagnostics.publish()
    diagnostics.close()
    assert [status.name for status in sent[0].status] == ['edge: tick', 'edge: arm']


@pytest.fixture
def bridge(ros):
    """Serve hold (accepts) and recover (refuses) from a node that spins on a thread."""
    server = Node('bridge')
    server.create_service(Hold, 'hold', _accept)
    server.create_service(Recover, 'recover', _refuse)
    executor = SingleThreadedExecutor()
    executor.add_node(server)
    ended = threading.Event()

    def spin():
        while not ended.is_set():
            executor.spin_once(timeout_sec=0.05)

    thread = threading.Thread(target=spin)
    thread.start()
    yield server
    ended.set()
    thread.join()
    executor.shutdown()
    server.destroy_node()


def _accept(request, response):
    response.accepted, response.reason = True, 'holding'
    return response


def _refuse(request, response):
    response.accepted = request.arm_supported
    response.reason = '' if request.arm_supported else 'arm not supported'
    return response


@pytest.mark.realtime
def test_the_client_brings_the_answer_and_its_reason(bridge, node):
    client = BridgeClient(Caller(node, timeout_s=10.0))
    assert client.hold() == Reply(True, 'holding')
    assert client.recover(arm_supported=False) == Reply(False, 'arm not supported')
    assert client.recover(arm_supported=True) == Reply(True, '')


@pytest.mark.realtime
def test_a_missing_service_ends_in_time_and_is_named(node):
    with pytest.raises(StaleError, match='service resume failed: got no such service'):
        BridgeClient(Caller(node, timeout_s=0.1)).resume()


@pytest.mark.realtime
def test_a_silent_service_ends_in_time_and_is_named(node):
    silent = Node('silent')
    silent.create_service(Hold, 'hold', _accept)
    with pytest.raises(StaleError, match='service hold failed: got no answer'):
        BridgeClient(Caller(node, timeout_s=1.0)).hold()
    silent.destroy_node()
