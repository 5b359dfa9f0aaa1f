"""Punctuality, permissions, disk, images, GPU, packages: judged from planted measurements."""

from __future__ import annotations

import random

import pytest

from reflex_ros.arm.config import DriverConfig
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ModelError
from reflex_ros.doctor.context import Choices
from reflex_ros.doctor.disk import disk_usage, existing, measure_write
from reflex_ros.doctor.machine import measure_lateness
from reflex_ros.doctor.software import PINS, Cuda
from reflex_ros.ros.camera_log import LatencySample

GIB = 1 << 30


class SluggishClock(ManualClock):
    """A manual clock whose sleeps end late by given amounts, in ns, in turns."""

    def __init__(self, late_ns):
        super().__init__()
        self._late, self._calls = late_ns, 0

    def sleep_until(self, mono_ns):
        super().sleep_until(mono_ns)
        self.advance(self._late[self._calls % len(self._late)])
        self._calls += 1


def test_lateness_is_measured_against_absolute_deadlines():
    late = measure_lateness(SluggishClock([1 * MS, 0, 0]), seconds=6.0, period_ns=20 * MS)
    assert len(late) == 300
    assert sorted(set(late)) == [0.0, 1.0] and late.count(1.0) == 100


def test_a_wake_up_after_the_next_deadline_is_not_caught_up():
    late = measure_lateness(SluggishClock([50 * MS, 0, 0, 0]), seconds=2.0, period_ns=20 * MS)
    assert late[:3] == [50.0, 0.0, 0.0]
    assert len(late) == 66
    assert max(late) == 50.0


def judged(machine, tools, check, **probes):
    (_, finding), = tools.look(machine(**probes), check)
    return finding


@pytest.mark.parametrize(('late', 'level'), [
    ([0.1] * 1000, 'ok'), ([0.1] * 995 + [19.0] * 5, 'ok'), ([0.1] * 999 + [20.0], 'warn'),
    ([0.1] * 985 + [2.0] * 15, 'warn'), ([0.1] * 985 + [10.0] * 15, 'fail'),
])
def test_jitter_is_judged_by_its_tail_and_not_its_mean(machine, tools, late, level):
    random.Random(0).shuffle(late)
    finding = judged(machine, tools, 'clock-jitter', lateness=lambda *arguments: (late, True))
    assert finding.level.value == level
    assert finding.measured['n'] == 1000 and finding.measured['max_ms'] == max(late)
    assert bool(finding.remedy) == (level != 'ok')


def test_jitter_tells_quantiles_priority_and_what_few_ticks_cannot(machine, tools):
    late = ([0.1] * 249 + [5.0], False)
    finding = judged(machine, tools, 'clock-jitter', lateness=lambda *arguments: late)
    assert 'p50 0.10, p99 0.10, p99.9 5.00, max 5.00 ms; n 250' in finding.value
    assert '--seconds 20' in finding.value and 'normal priority' in finding.value
    late = ([0.1] * 1000, True)
    finding = judged(machine, tools, 'clock-jitter', lateness=lambda *arguments: late)
    assert finding.value.endswith('n 1000, FIFO 20')


def test_jitter_is_measured_at_the_priority_and_period_of_the_parameters(machine, tools):
    calls = []

    def lateness(*arguments):
        calls.append(arguments)
        return [0.1], True

    choices = Choices((DriverConfig(),), tools.params(control__realtime_priority=33), seconds=7.0)
    tools.look(machine(choices=choices, lateness=lateness), 'clock-jitter')
    assert calls == [(7.0, 20 * MS, 33)]


@pytest.mark.parametrize(('free', 'level'), [
    (11 * GIB, 'ok'), (9 * GIB, 'warn'), (GIB // 2, 'fail')])
def test_disk_space(machine, tools, free, level):
    finding = judged(machine, tools, 'disk-space', disk=lambda folder: (500 * GIB, free))
    assert finding.level.value == level
    assert f'{free / GIB:.1f} GiB of 500 free' in finding.value
    assert level == 'ok' or '--runs DIR' in finding.remedy


@pytest.mark.parametrize(('rate', 'level'), [(50e6, 'ok'), (1.5e6, 'warn'), (0.5e6, 'fail')])
def test_disk_write(machine, tools, rate, level):
    finding = judged(machine, tools, 'disk-write', write_rate=lambda folder: rate)
    assert finding.level.value == level and f'{rate / 1e6:.0f} MB/s' in finding.value


def test_recorded_images_need_a_faster_disk(machine, tools):
    chosen = tools.params(recorder__images=True)
    choices = Choices((DriverConfig(),), chosen, {'a': 'a', 'b': 'b'})
    context = machine(choices=choices, write_rate=lambda folder: 40e6)
    (_, finding), = tools.look(context, 'disk-write')
    assert finding.level.value == 'fail' and 'a bag needs 47' in finding.value


def test_a_disk_that_cannot_be_written_is_a_failure(machine, tools):
    def refuse(folder):
        raise PermissionError(13, 'Permission denied')

    finding = judged(machine, tools, 'disk-write', write_rate=refuse)
    assert finding.level.value == 'fail' and 'Permission denied' in finding.value
    assert 'sudo chown' in finding.remedy
    assert judged(machine, tools, 'disk-space', disk=refuse).level.value == 'skip'


def test_nothing_is_written_onto_a_full_disk(machine, tools):
    finding = judged(machine, tools, 'disk-write', disk=lambda folder: (GIB, 1000),
                     write_rate=tools.refuse)
    assert finding.level.value == 'skip'


def test_the_write_rate_leaves_no_file(tmp_path):
    clock = SluggishClock([0])
    assert measure_write(tmp_path / 'not' / 'there', clock, size=2 << 20) > 0
    assert list(tmp_path.iterdir()) == []
    assert existing(tmp_path / 'not' / 'there') == tmp_path
    total, free = disk_usage(tmp_path / 'not' / 'there')
    assert total >= free > 0


@pytest.mark.parametrize(('sample', 'level', 'value'), [
    (LatencySample((3.0,) * 100, 100), 'ok', 'p50 3.0, p99 3.0, max 3.0 ms; 100 of 100'),
    (LatencySample((13.0,) * 100, 100), 'warn', 'p50 13.0'),
    (LatencySample((3.0,) * 90, 100), 'warn', '90 of 100'),
    (LatencySample((45.0,) * 100, 100), 'fail', 'p50 45.0'),
    (LatencySample((3.0,) * 70, 100), 'fail', '70 of 100'),
    (LatencySample((), 100), 'fail', 'none of 100'),
    (LatencySample(error='the other process could not publish'), 'fail', 'could not publish'),
])
def test_image_latency(machine, tools, sample, level, value):
    finding = judged(machine, tools, 'image-latency', latency=lambda seconds: sample)
    assert finding.level.value == level and value in finding.value


def test_slow_images_are_sent_to_the_profile_only_if_there_is_none(machine, tools):
    slow = LatencySample((13.0,) * 100, 100)
    with_profile = judged(machine, tools, 'image-latency', latency=lambda seconds: slow)
    assert 'export' not in with_profile.remedy
    (_, without), = tools.look(
        machine('jetson', latency=lambda seconds: slow), 'image-latency')
    assert 'export FASTRTPS_DEFAULT_PROFILES_FILE=' in without.remedy


@pytest.mark.parametrize(('free', 'level'), [(500 << 20, 'ok'), (10 << 20, 'warn')])
def test_shared_memory(machine, tools, free, level):
    finding = judged(machine, tools, 'shared-memory', disk=lambda folder: (GIB, free))
    assert finding.level.value == level and '1 files of Fast DDS' in finding.value
    assert level == 'ok' or '--shm-size' in finding.remedy


def left_behind(port, *, mapped):
    """Return a change of a machine: ports of two domains, of which a process has some mapped."""
    def change(folder):
        (folder / 'dev/shm' / f'fastrtps_port{port}').touch()
        (folder / 'dev/shm' / f'fastrtps_port{port}_el').touch()
        maps = folder / 'proc/77/maps'
        maps.parent.mkdir(parents=True)
        maps.write_text(''.join(f'7f00-7f01 rw-s 0 00:18 5 /dev/shm/{name}\n' for name in mapped))

    return change


PORT = 7400 + 250 * 7 + 11  # domain 7


@pytest.mark.parametrize(('port', 'mapped', 'level', 'value'), [
    (PORT, ('fastrtps_1a2b3c4d5e6f7788',), 'warn',
     f'2 files of Fast DDS, 1 of them used by no process; fastrtps_port{PORT} left'),
    (PORT, (f'fastrtps_port{PORT}',), 'ok', '2 files of Fast DDS, 1 of them used by no process'),
    (PORT + 250, (), 'ok', '2 files of Fast DDS, 2 of them used by no process'),
], ids=['dead port', 'port in use', 'another domain'])
def test_ports_that_killed_processes_left_are_named(machine, tools, port, mapped, level, value):
    (_, finding), = tools.look(machine(change=left_behind(port, mapped=mapped)), 'shared-memory')
    assert finding.level.value == level and value in finding.value
    assert level == 'ok' or 'fastdds shm clean' in finding.remedy


def test_a_camera_that_is_not_heard_beside_dead_ports_says_so(machine, tools):
    found = {}
    for port in (PORT, PORT + 250):
        context = machine(change=left_behind(port, mapped=()), cameras=lambda topics, *rest: {
            topic: tools.camera(topic, count=0, kinds=()) for topic in topics})
        (_, found[port]), = tools.look(context, 'camera-rate')
    assert 'killed processes left 1 ports of shared memory' in found[PORT].value
    assert found[PORT].level.value == 'fail' and 'fastdds shm clean' in found[PORT].remedy
    assert 'nobody publishes it' in found[PORT + 250].value, 'and only then'


@pytest.mark.parametrize(('text', 'level'), [
    (None, 'fail'), ('no xml', 'fail'), ('<a><b></a>', 'fail'),
    ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', 'fail'), ('<dds/>', 'warn'),
    ('<p><transport_descriptor><type>SHM</type></transport_descriptor></p>', 'warn'),
    ('<p xmlns="x"><transport_descriptor><type>SHM</type><segment_size>8388608</segment_size>'
     '</transport_descriptor></p>', 'ok'),
])
def test_profiles(machine, tools, text, level):
    def change(folder):
        file = folder / 'opt/reflex/fastdds.xml'
        file.unlink() if text is None else file.write_text(text)

    (_, finding), = tools.look(machine(change=change), 'dds-profile')
    assert finding.level.value == level


def test_another_middleware_needs_no_profile(machine, tools):
    context = machine(environ={'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'})
    found = dict(tools.look(context, 'dds-profile', 'ros-environment'))
    assert found['dds-profile'].level.value == 'skip'
    assert found['ros-environment'].level.value == 'warn'


@pytest.mark.parametrize(('environ', 'level', 'remedy'), [
    ({}, 'ok', ''),
    ({'ROS_DOMAIN_ID': '233'}, 'fail', 'export ROS_DOMAIN_ID'),
    ({'ROS_DOMAIN_ID': 'seven'}, 'fail', 'export ROS_DOMAIN_ID'),
    ({'ROS_DOMAIN_ID': '', 'ROS_AUTOMATIC_DISCOVERY_RANGE': ''}, 'warn', 'LOCALHOST'),
    ({'ROS_LOCALHOST_ONLY': '1'}, 'warn', 'unset ROS_LOCALHOST_ONLY'),
    ({'ROS_DISTRO': 'humble'}, 'warn', 'jazzy'),
])
def test_the_ros_environment(machine, tools, environ, level, remedy):
    (_, finding), = tools.look(machine(environ=environ), 'ros-environment')
    assert finding.level.value == level and remedy in finding.remedy


def test_without_ros_the_environment_fails(machine, tools):
    context = machine(environ={'ROS_DISTRO': ''}, version=lambda name: None)
    (_, finding), = tools.look(context, 'ros-environment')
    assert finding.level.value == 'fail' and 'setup.bash' in finding.remedy


def test_messages_that_do_not_load_are_a_failure(machine, tools):
    def broken():
        raise OSError('libreflex_msgs.so: undefined symbol')

    finding = judged(machine, tools, 'ros-messages', messages=broken)
    assert finding.level.value == 'fail' and 'undefined symbol' in finding.value
    assert 'colcon build --packages-select reflex_msgs' in finding.remedy


@pytest.mark.parametrize(('changed', 'level', 'value'), [
    ({}, 'ok', '10 as tested'), ({'torch': '2.13.0+cu126'}, 'ok', 'torch 2.13.0+cu126'),
    ({'numpy': '1.26.4'}, 'ok', 'numpy 1.26.4'),
    ({'numpy': '2.9.0'}, 'warn', 'numpy 2.9.0 (tested: 2.4.6)'),
    ({'ruckig': None}, 'fail', 'missing: ruckig'),
    ({'piper_sdk': '0.6.1'}, 'fail', 'piper_sdk 0.6.1 (tested: 0.6.2)'),
])
def test_packages(machine, tools, changed, level, value):
    finding = judged(machine, tools, 'ros-packages', version={**PINS, **changed}.get)
    assert finding.level.value == level and value in finding.value
    assert level == 'ok' or 'make setup' in finding.remedy


def test_another_python_is_a_failure(machine, tools, monkeypatch):
    import sys

    monkeypatch.setattr(sys, 'version_info', (3, 10, 2))
    finding = judged(machine, tools, 'ros-packages')
    assert finding.level.value == 'fail' and 'make setup PYTHON=' in finding.remedy


def test_the_pins_are_those_of_the_requirements(tools):
    texts = [(tools.root / 'requirements' / name).read_text()
             for name in ('runtime.txt', 'robot.txt', 'numpy1.txt')]
    pinned = {line.split('==')[0]: line.split('==')[1]
              for line in '\n'.join(texts[:2]).splitlines() if '==' in line}
    assert {name: pinned[name] for name in PINS} == dict(PINS)
    assert 'numpy==1.26.4' in texts[2]


@pytest.mark.parametrize(('name', 'cuda', 'level', 'value', 'remedy'), [
    ('robot_x86', Cuda('12.6', True, 'RTX 4090', GIB, 24 * GIB), 'ok', 'RTX 4090, CUDA 12.6', ''),
    ('robot_x86', Cuda(), 'warn', 'RTX 4090, 550.120, 24564 MiB: torch is a CPU build',
     'pip install'),
    ('robot_x86', Cuda('12.6'), 'warn', 'torch finds no device', 'nvidia-smi'),
    ('jetson', Cuda(), 'warn', 'R36 (release)', 'JetPack'),
    ('jetson', Cuda('12.6', error='no kernel image'), 'warn', 'no kernel image', 'JetPack'),
])
def test_the_gpu(machine, tools, name, cuda, level, value, remedy):
    (_, finding), = tools.look(machine(name, cuda=lambda: cuda), 'gpu')
    assert finding.level.value == level
    assert value in finding.value and remedy in finding.remedy


def test_without_a_gpu_there_is_nothing_to_mend(machine, tools):
    answers = {'nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader': ''}
    (_, finding), = tools.look(machine(answers=answers, cuda=Cuda), 'gpu')
    assert finding.level.value == 'skip' and 'CPU' in finding.value


def test_a_refused_checkpoint_is_a_failure_with_its_remedy(machine, tools):
    def refuse(choices):
        raise ModelError('checkpoint is damaged x: got sha256 1, expected 2. Copy it again.')

    finding = judged(machine, tools, 'checkpoint', checkpoint=refuse)
    assert finding.level.value == 'fail'
    assert (finding.value, finding.remedy) == (
        'checkpoint is damaged x: got sha256 1, expected 2', 'Copy it again.')


def test_a_checkpoint_without_manifest_is_a_warning(machine, tools):
    found = {'family': 'pi0', 'folder': 'c', 'files': 5, 'model_id': 'abc', 'manifest': False}
    finding = judged(machine, tools, 'checkpoint', checkpoint=lambda choices: found)
    assert finding.level.value == 'warn' and 'write_manifest' in finding.remedy


def test_a_measurement_is_announced_with_its_length(machine, tools):
    told = []
    choices = Choices((DriverConfig(),), tools.params(), {'main': tools.topic}, seconds=2.0)
    context = machine(choices=choices, progress=lambda *what: told.append(what))
    tools.look(context, 'arm', 'camera', 'machine', 'dds', 'disk', 'model')
    assert ('clock at 50 Hz', 2.0) in told and ('watching the cameras', 2.0) in told
    assert [what for what, _ in told if 'arm' in what] == ['listening to the arm on can0']


def test_time_is_in_seconds():
    clock = ManualClock()
    measure_lateness(clock, seconds=1.0, period_ns=20 * MS)
    assert clock.mono_ns() == pytest.approx(S, abs=40 * MS)
