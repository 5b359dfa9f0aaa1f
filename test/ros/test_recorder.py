"""The recorder as a process of its own, against real publishers in another one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy

from reflex_ros.bag.read import BagReader
from reflex_ros.bag.repair import repair
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.params import defaults
from reflex_ros.ros.client import Caller, LifecycleClient
from reflex_ros.ros.qos import image_topic, qos_profile, topic
from reflex_ros.ros.recording import topics_to_record
from reflex_ros.ros.recording_qos import check_compatible, reader_qos
from reflex_ros.ros.spin import Stop

pytestmark = [pytest.mark.ros, pytest.mark.realtime]

PUBLISHER = """
import json, sys, threading
import numpy as np
import rclpy
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import QoSProfile, QoSReliabilityPolicy
from reflex_msgs.msg import ControlTick, Plan, StageStatus
from reflex_ros.ros.images import image_to_msg
from reflex_ros.ros.qos import image_topic, topic

rclpy.init(args=[])
node = Node('talker', namespace=sys.argv[1])
ticks, plans, statuses, images = (
    node.create_publisher(entry.message, entry.name, entry.qos)
    for entry in (topic('control_tick'), topic('plan'), topic('stage_status'),
                  image_topic('camera/main/image_raw'))
)
def send(publisher, message, number):
    message.number = number
    publisher.publish(message)
send(plans, Plan(arm_state='tracking'), 1)
print('ready', flush=True)
# A publisher knows its reader sooner than the reader knows it.
sys.stdin.readline()
while not all(p.get_subscription_count() for p in (ticks, statuses, images)):
    threading.Event().wait(0.02)
threading.Event().wait(1.0)
print('matched', flush=True)
numbers = {'control_tick': 0, 'stage_status': 0}
image = np.full((48, 64, 3), 7, np.uint8)
for line in sys.stdin:
    for _ in range(int(line)):
        number = numbers['control_tick'] = numbers['control_tick'] + 1
        send(ticks, ControlTick(), number)
        for name in ('policy', 'vision_encoder'):
            send(statuses, StageStatus(node=name), number)
        stamp_ns = node.get_clock().now().nanoseconds
        images.publish(image_to_msg(image, stamp_ns=stamp_ns, frame_id='main'))
        threading.Event().wait(0.004)
    for publisher in (ticks, statuses):
        assert publisher.wait_for_all_acked(Duration(seconds=20))
    print(json.dumps(numbers), flush=True)
"""


class Process:
    """A process that says when it is ready and is gone after the test."""

    def __init__(self, *command, **environ):
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ask(self, line):
        self.process.stdin.write(f'{line}\n')
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self, number=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@pytest.fixture
def processes():
    started = []

    def start(*command):
        started.append(Process(*command))
        return started[-1]

    yield start
    for process in started:
        process.end(signal.SIGKILL)


@pytest.fixture
def talker(processes, ros_env):
    process = processes(sys.executable, '-c', PUBLISHER, '/run')
    assert process.process.stdout.readline() == 'ready\n'
    return process


@pytest.fixture
def recorder(processes, ros, tmp_path):
    """Return a started recorder and the client that moves it through its states."""

    def start(*assignments):
        arguments = [f'run.folder:={tmp_path}', *assignments]
        process = processes(
            sys.executable,
            '-m',
            'reflex_ros.nodes.recorder',
            '--ros-args',
            '-r',
            '__ns:=/run',
            *(word for a in arguments for word in ('-p', a)),
        )
        node = ros.create_node('operator')
        return process, LifecycleClient(Caller(node, timeout_s=20.0), '/run/recorder')

    return start


def wait_for(condition, timeout_s=20.0):
    """Wait for a condition of another process; there is no event to wait on."""
    from reflex_ros.core.clock import S, SystemClock

    clock = SystemClock()
    until_ns = clock.mono_ns() + round(timeout_s * S)
    while not condition():
        assert clock.mono_ns() < until_ns, 'the condition did not come true'
        clock.sleep_until(clock.mono_ns() + S // 50)


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob('*') if path.is_file())


def test_counts_equal_those_of_the_publishers(talker, recorder, tmp_path):
    process, client = recorder()
    assert client.change('configure')
    assert client.change('activate')
    assert talker.ask('match') == 'matched\n'
    sent = json.loads(talker.ask(100))
    assert client.change('deactivate')
    code, errors = process.end()
    assert code == 0, errors

    report = json.loads((tmp_path / 'bag' / 'recorder.json').read_text())
    assert report['error'] == ''
    ticks = report['topics']['/run/control_tick']
    assert ticks['publishers'][''] == {
        'messages': sent['control_tick'],
        'first': 1,
        'last': 100,
        'missing': 0,
        'gaps': 0,
        'restarts': 0,
    }
    assert (ticks['written'], ticks['dropped']) == (100, 0)
    statuses = report['topics']['/run/stage_status']['publishers']
    assert {name: log['messages'] for name, log in statuses.items()} == {
        'policy': 100,
        'vision_encoder': 100,
    }
    with BagReader(tmp_path / 'bag') as bag:
        found = [value.number for _, _, value in bag.values('/run/control_tick')]
        assert found == list(range(1, 101))
        # The plan was published before the recorder existed, and is latched.
        assert [value.number for _, _, value in bag.values('/run/plan')] == [1]
        assert bag.topics['/run/plan'].qos[0].durability.name == 'TRANSIENT_LOCAL'
        assert not any('image' in name for name in bag.topics)
    assert len(list((tmp_path / 'strip').glob('*.png'))) >= 1


def test_images_are_recorded_where_asked(talker, recorder, tmp_path):
    process, client = recorder('recorder.images:=true', 'recorder.storage:=sqlite3')
    assert client.change('configure')
    assert client.change('activate')
    assert talker.ask('match') == 'matched\n'
    talker.ask(20)
    code, errors = process.end()
    assert code == 0, errors
    with BagReader(tmp_path / 'bag') as bag:
        images = [value for _, _, value in bag.values('/run/camera/main/image_raw')]
    assert len(images) > 10
    assert set(images[0].data) == {7}
    assert not (tmp_path / 'strip').exists()


def test_images_are_compressed_without_loss_where_asked(talker, recorder, tmp_path):
    from reflex_ros.bag.values import image

    process, client = recorder('recorder.images:=true', 'recorder.compression:=png')
    assert client.change('configure')
    assert client.change('activate')
    assert talker.ask('match') == 'matched\n'
    talker.ask(20)
    code, errors = process.end()
    assert code == 0, errors
    with BagReader(tmp_path / 'bag') as bag:
        assert '/run/camera/main/image_raw' not in bag.topics
        found = [image(v) for _, _, v in bag.values('/run/camera/main/image_raw/compressed')]
    assert len(found) > 10
    assert {int(pixel) for pixel in found[0].ravel()} == {7}


def test_a_snapshot_is_written_on_request_and_nothing_before(talker, recorder, ros, tmp_path):
    from std_srvs.srv import Trigger

    process, client = recorder('recorder.snapshot_s:=60.0')
    assert client.change('configure')
    assert client.change('activate')
    assert talker.ask('match') == 'matched\n'
    talker.ask(50)
    assert not list(tmp_path.glob('snapshot*')) and not (tmp_path / 'bag').exists()
    caller = Caller(ros.create_node('asker'), timeout_s=20.0)
    answer = caller.call('/run/recorder/snapshot', Trigger, Trigger.Request())
    assert answer.success, answer.message
    assert not caller.call('/run/recorder/snapshot', Trigger, Trigger.Request()).success
    code, errors = process.end()
    assert code == 0, errors
    with BagReader(tmp_path / 'snapshot_1') as bag:
        assert bag.topics['/run/control_tick'].messages == 50
        assert bag.topics['/run/plan'].messages == 1
        # frames are in it without recorder.images, compressed
        assert bag.topics['/run/camera/main/image_raw/compressed'].messages > 30
        assert '/run/camera/main/image_raw' not in bag.topics
    assert (tmp_path / 'snapshot_1' / 'replay.sh').is_file()


def test_a_killed_recorder_leaves_a_bag_that_can_be_repaired(talker, recorder, tmp_path):
    process, client = recorder()
    assert client.change('configure')
    assert client.change('activate')
    assert talker.ask('match') == 'matched\n'
    talker.ask(50)
    before = size(tmp_path / 'bag')
    wait_for(lambda: size(tmp_path / 'bag') == before or size(tmp_path / 'bag') > 10_000)
    talker.ask(1)
    wait_for(lambda: size(tmp_path / 'bag') > before)
    process.end(signal.SIGKILL)
    with pytest.raises(ConfigError, match='repair'):
        BagReader(tmp_path / 'bag')
    repair(tmp_path / 'bag')
    with BagReader(tmp_path / 'bag') as bag:
        found = [value.number for _, _, value in bag.values('/run/control_tick')]
    assert len(found) >= 50
    assert found == list(range(1, len(found) + 1))


@pytest.fixture
def small_disk(tmp_path):
    """Return the run folder on a file system of 1 MiB."""
    mount = shutil.which('mount')
    if mount is None or os.geteuid() != 0:
        pytest.skip('a small file system can be mounted by root only')
    done = subprocess.run([mount, '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', str(tmp_path)],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f'no small file system can be mounted here: {done.stderr.strip()}')
    yield tmp_path
    subprocess.run(['umount', '-l', str(tmp_path)], check=True)


def test_on_a_full_disk_the_recorder_says_so_and_stays(talker, small_disk, recorder, ros):
    """Its end would make the supervisor restart it, and end the run in the end."""
    from diagnostic_msgs.msg import DiagnosticArray

    process, client = recorder('recorder.images:=true', 'recorder.compression:=none')
    assert client.change('configure')
    assert client.change('activate')
    assert talker.ask('match') == 'matched\n'
    talker.ask(150)
    found = []
    node = ros.create_node('listener')
    node.create_subscription(
        DiagnosticArray, '/diagnostics', lambda msg: found.extend(
            status for status in msg.status if status.name == 'recorder: bag'),
        topic('/diagnostics').qos)
    errors = []

    def is_said():
        ros.spin_once(node, timeout_sec=0.05)
        errors[:] = [s for s in found if s.level == s.ERROR]
        return len(errors) >= 2

    wait_for(is_said)
    assert 'recording ended early' in errors[0].message and 'No space' in errors[0].message
    talker.ask(5)
    assert process.process.poll() is None
    assert client.change('deactivate')
    code, said = process.end()
    assert code == 2 and 'ended early' in said
    report = json.loads((small_disk / 'bag' / 'recorder.json').read_text())
    assert 'No space' in report['error']
    with BagReader(small_disk / 'bag') as bag:
        held = {name: info.messages for name, info in bag.topics.items()}
        assert sum(held.values()) == len(list(bag.messages())) > 0
    for name, counts in report['topics'].items():
        assert counts['written'] == held[name], name
        assert counts['received'] == counts['written'] + counts['dropped'], name


def test_a_restarted_recorder_writes_a_bag_of_its_own(recorder, tmp_path):
    (tmp_path / 'bag').mkdir()
    (tmp_path / 'bag' / 'bag_0.mcap').write_bytes(b'first')
    process, client = recorder()
    assert client.change('configure')
    assert process.end()[0] == 0
    assert (tmp_path / 'bag_2' / 'metadata.yaml').is_file()
    assert (tmp_path / 'bag' / 'bag_0.mcap').read_bytes() == b'first'


def test_an_unknown_topic_ends_with_the_code_of_wrong_input(recorder):
    process, client = recorder('recorder.topics:=[control_tik]')
    assert not client.change('configure')
    _, errors = process.process.communicate(timeout=20)
    assert process.process.returncode == 2
    assert "got 'control_tik'" in errors
    assert 'Nearest: control_tick.' in errors


def profile(*, best_effort=False, latched=False):
    reliability = QoSReliabilityPolicy
    durability = QoSDurabilityPolicy
    return QoSProfile(
        depth=5,
        reliability=reliability.BEST_EFFORT if best_effort else reliability.RELIABLE,
        durability=durability.TRANSIENT_LOCAL if latched else durability.VOLATILE,
    )


def test_a_best_effort_camera_with_a_reliable_reader_is_an_error():
    camera = image_topic('camera/main/image_raw')
    with pytest.raises(ConfigError, match=r'best-effort publisher \(webcam\), expected reliable'):
        check_compatible(camera, profile(best_effort=True), profile(), 'webcam')


def test_a_best_effort_camera_can_be_recorded_by_default():
    camera = image_topic('camera/main/image_raw')
    for offered in (profile(best_effort=True), profile()):
        check_compatible(camera, offered, reader_qos(camera), 'webcam')


def test_a_plan_that_is_not_latched_is_an_error():
    with pytest.raises(ConfigError, match='expected reliable, latched'):
        check_compatible(topic('plan'), profile(), reader_qos(topic('plan')), 'other_bridge')


def test_a_publisher_that_cannot_be_heard_stops_the_recorder(ros, recorder):
    node = ros.create_node('careless', namespace='/run')
    entry = topic('control_tick')
    node.create_publisher(entry.message, entry.name, profile(best_effort=True))
    process, client = recorder()
    assert client.change('configure')
    wait_for(lambda: node.count_subscribers('/run/control_tick') == 1)
    assert not client.change('activate')
    _, errors = process.process.communicate(timeout=20)
    assert process.process.returncode == 2
    # the name of a node may be known later than its publisher
    assert re.search(r'control_tick cannot be recorded: got a best-effort publisher '
                     r'\((careless|_NODE_NAME_UNKNOWN_)\)', errors)


def test_every_topic_is_heard_deeply_enough_for_a_second():
    for entry in topics_to_record(defaults('recorder')):
        asked = reader_qos(entry)
        assert asked.depth >= 1000
        assert asked.reliability == qos_profile(entry.profile).reliability


def test_chosen_topics_replace_all():
    params = {**defaults('recorder'), 'recorder.topics': ('plan', 'camera/x/image_raw')}
    assert [entry.name for entry in topics_to_record(params)] == ['plan', 'camera/x/image_raw']


def test_cameras_are_added_by_their_topics():
    params = {
        **defaults('recorder'),
        'recorder.images': True,
        'camera.topics': ('left/image_raw/compressed',),
    }
    entry = topics_to_record(params)[-1]
    assert entry.type == 'sensor_msgs/msg/CompressedImage'
    assert not Stop().is_set
