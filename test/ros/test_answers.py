"""Whatever a client does, the next request is served: answers leave aside, and so do log lines."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
import rclpy
import rclpy.logging
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import Log
from rclpy._rclpy_pybind11 import InvalidHandle, RCLError, rmw_request_id_t
from rclpy.executors import SingleThreadedExecutor
from reflex_msgs.srv import Hold, SetInstruction
from std_srvs.srv import Trigger

from reflex_ros.core.clock import MS, ManualClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.ros import answers as answers_module
from reflex_ros.ros.answers import Answers, request_id
from reflex_ros.ros.diagnostics import Diagnosis, Diagnostics, Level
from reflex_ros.ros.lifecycle import ROSOUT, ReflexNode
from reflex_ros.ros.log import NodeLog
from reflex_ros.ros.publish import Outbox
from reflex_ros.ros.spin import Stop

pytestmark = pytest.mark.ros
BLOCKED_S = 1.5


class Stuck:
    """Stands for ``rcl_send_response`` to a stopped client: waits in C until it is let go."""

    def __init__(self):
        self._semaphore = ctypes.create_string_buffer(64)
        self._libc = ctypes.CDLL(None)
        self._libc.sem_init(self._semaphore, 0, 0)
        self.waits = threading.Event()

    def __call__(self, service, request, response):
        self.waits.set()
        return self._libc.sem_wait(self._semaphore)

    def let_go(self):
        self._libc.sem_post(self._semaphore)


def hold_beside_a_stuck_answer(rig, *, send=None):
    """Return when a hold was served, s after another client asked whose answer is stuck."""
    stuck, asked = Stuck(), rig.node._answers[rig.service('set_instruction')]
    asked._send = stuck
    if send is not None:
        rig.service('set_instruction').send_response = send(asked)
    begin = time.monotonic()
    rig.instruct.call_async(SetInstruction.Request(instruction='another'))
    threading.Timer(BLOCKED_S, stuck.let_go).start()
    assert rig.spin(stuck.waits.is_set)
    answer = rig.hold.call_async(Hold.Request())
    assert rig.spin(answer.done) and answer.result().accepted
    took = time.monotonic() - begin
    time.sleep(max(0.0, BLOCKED_S - took) + 0.2)  # the thread that was stuck ends with the test
    return took


def test_a_hold_is_served_while_the_answer_to_another_client_is_stuck(make_bridge):
    rig = make_bridge()
    before = len(rig.ticks)
    assert hold_beside_a_stuck_answer(rig) < BLOCKED_S / 2
    assert rig.spin(lambda: len(rig.ticks) > before + 10)
    late = [tick.late_ns for tick in rig.ticks[before:]]
    assert max(late) < BLOCKED_S * 1e9 / 2, 'the control loop did not wait for it'


def test_a_hold_beside_a_stuck_answer_can_fail(make_bridge):
    def in_the_executor(asked):
        """As rclpy does it, but without the lock: with it nothing here would ever run again."""
        def send(response, header):
            asked.publish((response, request_id(header)))
        return send

    assert hold_beside_a_stuck_answer(make_bridge(), send=in_the_executor) > BLOCKED_S / 2


CLIENT = """
import os, signal, sys
import rclpy
from reflex_msgs.msg import ControlTick
from reflex_msgs.srv import Hold, SetInstruction
from reflex_ros.ros.qos import topic
rclpy.init()
node = rclpy.create_node('stopped')
clients = [node.create_client(kind, name) for kind, name in (
    (Hold, 'hold'), (SetInstruction, 'set_instruction'))]
node.create_subscription(ControlTick, 'control_tick', print, topic('control_tick').qos)
assert all(client.wait_for_service(20.0) for client in clients)
clients[1].call_async(SetInstruction.Request(instruction='last words'))
print('asked', flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_client_that_was_stopped_keeps_no_hold_waiting(make_bridge):
    """It is a client of ``hold``, too: the middleware writes it every answer of that service."""
    rig = make_bridge()
    epoch = rig.bridge.epoch
    client = subprocess.Popen([sys.executable, '-c', CLIENT], stdout=subprocess.DEVNULL)
    try:
        assert rig.spin(lambda: rig.bridge.epoch > epoch, 30.0), 'the client never asked'
        assert rig.spin(lambda: stopped(client.pid), 10.0)
        for _ in range(10):
            answer, begin = rig.hold.call_async(Hold.Request()), time.monotonic()
            assert rig.spin(answer.done) and answer.result().accepted
            assert time.monotonic() - begin < 2.0
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()


def stopped(pid):
    with open(f'/proc/{pid}/stat') as file:
        return file.read().rpartition(') ')[2].startswith('T')


# ---- answers -----------------------------------------------------------------------------------


@pytest.fixture
def service(ros):
    """Return a node with a service whose answers leave aside, and what failed."""
    node, failed = rclpy.create_node('server'), []

    def serve(request, response):
        response.success, response.message = True, 'Gelenk ä'
        return response

    service = node.create_service(Trigger, 'ask', serve)
    yield node, service, Answers(service, failed.append), failed
    node.destroy_node()


def test_each_client_gets_the_answer_to_its_own_request(service):
    node, _, answers, failed = service
    clients = [node.create_client(Trigger, 'ask') for _ in range(3)]
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    end = time.monotonic() + 20.0
    while not all(client.service_is_ready() for client in clients):
        assert time.monotonic() < end
        executor.spin_once(timeout_sec=0.05)
    asked = [client.call_async(Trigger.Request()) for client in clients]
    while not all(answer.done() for answer in asked):
        assert time.monotonic() < end
        executor.spin_once(timeout_sec=0.05)
    assert {answer.result().message for answer in asked} == {'Gelenk ä'}
    assert answers.close() and failed == []


def test_with_another_rclpy_the_answer_goes_out_all_the_same(service, monkeypatch):
    node, _, answers, failed = service
    monkeypatch.setattr(answers_module, 'OBJECT_BYTES', 64)
    client = node.create_client(Trigger, 'ask')
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    end = time.monotonic() + 20.0
    for _ in range(2):
        asked = client.call_async(Trigger.Request())
        while not asked.done():
            assert time.monotonic() < end
            executor.spin_once(timeout_sec=0.05)
        assert asked.result().message == 'Gelenk ä'
    assert [type(error) for error in failed] == [ConfigError], 'told once'
    assert answers.close()


def test_an_answer_of_another_type_or_of_a_service_that_is_gone_fails_alone(service):
    node, made, answers, failed = service
    header = answers_module._RequestId()
    with pytest.raises(TypeError, match='expected a Trigger_Response'):
        answers.publish((Hold.Response(), header))
    node.destroy_service(made)
    with pytest.raises(InvalidHandle):
        answers.publish((Trigger.Response(), header))


def test_a_request_that_is_no_such_object_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match='expected an rmw_request_id_t'):
        request_id(object.__new__(type('rmw_request_id_t', (), {})))
    assert rmw_request_id_t.__basicsize__ == answers_module.OBJECT_BYTES, 'what rclpy this is'


# ---- diagnostics, log --------------------------------------------------------------------------


def test_diagnostics_wait_for_nobody(ros):
    """A node with an outbox has its diagnostics published there."""
    node, stuck = rclpy.create_node('server'), threading.Event()
    node.aside = Outbox(lambda error: None)

    class Waiting:
        def publish(self, msg):
            stuck.wait(20.0)

    diagnostics = Diagnostics(node, 'piper', sources={'arm': lambda: Diagnosis(Level.OK, 'ok')})
    diagnostics._writer = Waiting()
    for _ in range(3):
        diagnostics.publish()  # a publish that waited would end here
    assert node.aside.backlog >= 2
    stuck.set()
    assert node.aside.close()
    node.destroy_node()


LOGGING = """
import os, sys, threading, time
import rclpy
from reflex_ros.ros.lifecycle import ROSOUT, ReflexNode
from reflex_ros.ros.log import NodeLog
rclpy.init()
node = rclpy.create_node('talks')
log = NodeLog(node.get_logger()) if {aside} else node.get_logger()
read, write = os.pipe()
os.set_blocking(write, False)
try:
    while os.write(write, bytes(512)):
        pass
except BlockingIOError:
    os.set_blocking(write, True)
os.dup2(write, 2)  # a terminal that nobody reads
threading.Thread(target=log.info, args=('one line',), daemon=True).start()
for _ in range(50):
    time.sleep(0.01)
print('goes on', flush=True)
os._exit(0)
"""


def run_talking(*, aside, wait_s):
    return subprocess.run([sys.executable, '-c', LOGGING.format(aside=aside)],
                          stdout=subprocess.PIPE, text=True, timeout=wait_s, check=True).stdout


def test_a_terminal_that_nobody_reads_stops_no_thread():
    assert run_talking(aside=True, wait_s=60).strip() == 'goes on'


def test_a_terminal_that_nobody_reads_stops_no_thread_can_fail():
    with pytest.raises(subprocess.TimeoutExpired):
        run_talking(aside=False, wait_s=8)


class Logger:
    name = 'talks'
    level = 'its own'

    def is_enabled_for(self, severity):
        return int(severity) >= 20


def test_lines_are_throttled_by_place_and_written_in_order(ros):
    clock, written = ManualClock(), []
    log = NodeLog(Logger(), clock)
    log._write = lambda location, severity, name, form, text: written.append((severity, text))
    for _ in range(4):
        log.error('often', throttle_duration_sec=1.0)
        log.warning('always')
        clock.advance(400 * MS)
    assert not log.debug('below the level')
    assert log.close() and log.level == 'its own'
    assert [text for _, text in written].count(b'often') == 2
    assert [severity for severity, text in written if text == b'always'] == [30] * 4


def test_a_line_reaches_the_terminal_with_name_and_level(ros, capfd):
    node = rclpy.create_node('talks')
    log = NodeLog(node.get_logger())
    log.fatal('50 % of Gelenk ä is %s lost')
    assert log.close()
    node.destroy_node()
    out, err = capfd.readouterr()
    assert '[FATAL]' in out + err and '[talks]: 50 % of Gelenk ä is %s lost' in out + err


# ---- lines of C code, which wait with the interpreter's lock -----------------------------------


@pytest.fixture
def node(ros):
    made = ReflexNode('recorder', Stop())
    yield made
    made.destroy_node()


def ask(node, **transition):
    request = ChangeState.Request()
    for name, value in transition.items():
        setattr(request.transition, name, value)
    return node._LifecycleNodeMixin__on_change_state(request, ChangeState.Response()).success


@pytest.mark.parametrize('transition', [{'id': 3}, {'label': 'activate'}, {'label': 'none'}])
def test_a_transition_that_does_not_exist_is_refused_without_a_line_in_c(node, capfd, transition):
    assert not ask(node, **transition)
    assert node._log.close()
    said = ''.join(capfd.readouterr())
    assert 'refused: no transition' in said and 'from the state unconfigured' in said
    assert 'rcl' not in said


def test_a_transition_that_does_not_exist_is_refused_can_fail(node, capfd):
    with pytest.raises(RCLError):
        node._state_machine.trigger_transition_by_id(3, True)
    assert 'rcl_lifecycle' in ''.join(capfd.readouterr())


def test_a_transition_by_id_or_label_is_made(node):
    assert ask(node, id=1) and ask(node, label='activate')
    assert node._state_machine.current_state[1] == 'active'


def test_a_node_with_another_rclpy_says_so_when_configured(node, capfd, monkeypatch):
    assert ask(node, label='configure') and ask(node, label='cleanup')
    monkeypatch.setattr(answers_module, 'OBJECT_BYTES', 64)
    assert ask(node, label='configure')
    assert node._log.close()
    assert ''.join(capfd.readouterr()).count('expected an rmw_request_id_t of 64') == 1


def test_a_line_is_on_rosout_once_with_its_place_and_is_kept_for_late_readers(node):
    heard, reader = [], rclpy.create_node('console')
    node.get_logger().warning('50 % of Gelenk ä')
    reader.create_subscription(Log, '/rosout', heard.append, ROSOUT)
    executor = SingleThreadedExecutor()
    executor.add_node(reader)
    end = time.monotonic() + 20.0
    while not heard and time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)
    executor.spin_once(timeout_sec=0.1)
    reader.destroy_node()
    line, = (line for line in heard if line.name == 'recorder')
    assert (line.msg, line.level, line.file) == ('50 % of Gelenk ä', 30, __file__)
    assert abs(line.stamp.sec - time.time()) < 30 and line.function.startswith('test_a_line_is')


def test_a_reader_of_rosout_that_was_stopped_keeps_no_line_in_c_waiting(ros):
    """It is written outside the log's lock."""
    waits, stuck, node = threading.Event(), threading.Event(), rclpy.create_node('talks')

    class Waiting:
        def publish(self, msg):
            waits.set()
            stuck.wait(20.0)

    log = NodeLog(node.get_logger(), rosout=Waiting())
    log.info('one')
    assert waits.wait(20.0)
    begin = time.monotonic()
    rclpy.logging.get_logger('rcl').info('a line in C')
    assert time.monotonic() - begin < 5.0
    stuck.set()
    assert log.close()
    node.destroy_node()


def test_no_node_publishes_rosout_when_told_so(capfd):
    rclpy.init(args=['--ros-args', '--disable-rosout-logs'])
    try:
        node = ReflexNode('talks', Stop())
        assert not node.get_publishers_info_by_topic('/rosout')
        node.destroy_node()
    finally:
        rclpy.shutdown()
