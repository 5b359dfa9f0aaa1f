"""Recorded machines, healthy and broken: verdict, value and remedy of what is read from them."""

from __future__ import annotations

import json

import pytest

from reflex_ros.doctor.registry import CHECKS

PROBED = {'checkpoint', 'clock-jitter', 'disk-space', 'disk-write', 'gpu', 'image-latency',
          'ring-store', 'ros-messages', 'ros-packages', 'shared-memory'}
MACHINES = {
    'robot_x86': {},
    'jetson': {'can-restart': 'warn', 'can-queue': 'warn', 'cpu-governor': 'warn',
               'realtime': 'warn', 'memlock': 'warn', 'socket-buffer': 'warn',
               'dds-profile': 'warn', 'ros-environment': 'warn'},
    'no_can': {'can-interface': 'fail', **dict.fromkeys(
        ('can-bitrate', 'can-state', 'can-restart', 'can-queue', 'can-errors'), 'skip')},
    'down': {'can-interface': 'fail', **dict.fromkeys(
        ('can-bitrate', 'can-state', 'can-restart', 'can-queue', 'can-errors'), 'skip')},
    'bus_off': {'can-state': 'fail', 'can-restart': 'warn', 'can-errors': 'warn'},
    'error_passive': {'can-state': 'warn', 'can-errors': 'warn'},
    'error_warning': {'can-state': 'warn', 'can-errors': 'warn'},
    'wrong_bitrate': {'can-bitrate': 'fail'},
    'old_ip': {'can-bitrate': 'warn', 'can-state': 'warn', 'can-restart': 'warn',
               'can-errors': 'skip'},
    'vcan': {'can-interface': 'fail', 'can-bitrate': 'fail', 'can-state': 'warn',
             'can-restart': 'warn', 'can-errors': 'skip'},
    'vxcan': dict.fromkeys(('can-bitrate', 'can-state', 'can-restart', 'can-errors'), 'skip'),
    'tiny_rmem': {'socket-buffer': 'warn'},
    'no_rt': {'cpu-governor': 'warn', 'realtime': 'warn', 'memlock': 'warn'},
    'small_segment': {'dds-profile': 'warn'},
}


def test_every_recorded_machine_is_judged(tools):
    assert {path.name for path in tools.data.iterdir()} == set(MACHINES)


@pytest.mark.parametrize('name', MACHINES)
def test_a_machine_has_the_expected_verdicts_and_no_other(machine, tools, name):
    expected = {check.name: 'ok' for check in CHECKS} | MACHINES[name]
    assert tools.levels(machine(name)) == expected


def test_the_verdicts_can_fail(machine, tools):
    def slow(folder):
        (folder / 'proc/sys/net/core/rmem_max').write_text('1000\n')

    assert tools.levels(machine(change=slow), 'socket-buffer') == {'socket-buffer': 'warn'}
    assert tools.levels(machine(), 'socket-buffer') == {'socket-buffer': 'ok'}


@pytest.mark.parametrize(('name', 'check', 'value', 'remedy'), [
    ('no_can', 'can-interface', 'no such interface (CAN interfaces here: none)',
     'ip link show type can'),
    ('down', 'can-interface', 'down',
     'sudo ip link set can0 up type can bitrate 1000000 restart-ms 100'),
    ('vcan', 'can-interface', 'vcan', 'sudo ip link add dev vxcan0 type vxcan peer name vxcan1'),
    ('wrong_bitrate', 'can-bitrate', '500000 bit/s, the arm has 1000000',
     'sudo ip link set can0 down && sudo ip link set can0 up type can bitrate 1000000'),
    ('old_ip', 'can-bitrate', 'unknown', 'sudo apt-get install iproute2'),
    ('bus_off', 'can-state', 'BUS-OFF, error counters tx 248 rx 0', 'sudo ip link set can0 down'),
    ('bus_off', 'can-restart', 'never after bus-off', 'restart-ms 100'),
    ('bus_off', 'can-errors', 'bus off 1, dropped 12', 'sudo ip link set can0 down'),
    ('error_passive', 'can-state', 'ERROR-PASSIVE, error counters tx 128 rx 0', '120 ohm'),
    ('error_warning', 'can-state', 'rx 101', 'Check cable'),
    ('jetson', 'can-queue', '10 frames', 'sudo ip link set can0 txqueuelen 1000'),
    ('jetson', 'cpu-governor', 'schedutil on 8 cores', 'sudo jetson_clocks'),
    ('no_rt', 'cpu-governor', 'powersave on 4 cores', 'sudo cpupower frequency-set'),
    ('no_rt', 'realtime', 'SCHED_FIFO 20 refused, rtprio 0', 'sudo usermod -aG realtime'),
    ('no_rt', 'memlock', '8 MiB', '/etc/security/limits.d'),
    ('tiny_rmem', 'socket-buffer', '0.20 MiB', 'net.core.rmem_max=8388608'),
    ('small_segment', 'dds-profile', '0.5 MiB', 'export FASTRTPS_DEFAULT_PROFILES_FILE='),
    ('jetson', 'dds-profile', 'none in this terminal', 'export FASTRTPS_DEFAULT_PROFILES_FILE='),
    ('jetson', 'ros-environment', 'humble', 'source /opt/ros/jazzy/setup.bash'),
])
def test_a_planted_fault_has_value_and_remedy(machine, tools, name, check, value, remedy):
    (_, finding), = tools.look(machine(name), check)
    assert value in finding.value and remedy in finding.remedy


@pytest.mark.parametrize(('check', 'value', 'measured'), [
    ('can-interface', 'up, can', {'kind': 'can'}),
    ('can-bitrate', '1000000 bit/s', {'bitrate': 1000000}),
    ('can-state', 'ERROR-ACTIVE, error counters tx 0 rx 0',
     {'state': 'ERROR-ACTIVE', 'errors_tx': 0, 'errors_rx': 0}),
    ('can-restart', '100 ms after bus-off', {'restart_ms': 100}),
    ('can-queue', '1000 frames', {'frames': 1000}),
    ('cpu-governor', 'performance on 4 cores', {'governors': ['performance'], 'cores': 4}),
    ('realtime', 'SCHED_FIFO 20 permitted, rtprio 98, PREEMPT_RT kernel',
     {'rtprio': 98, 'fifo': True, 'wanted': 20, 'kernel': 'PREEMPT_RT kernel'}),
    ('memlock', 'unlimited', {'bytes': None}),
    ('socket-buffer', '8.00 MiB', {'bytes': 8388608}),
    ('dds-profile', 'shared-memory segment 16 MiB', {'segment_bytes': 16777216}),
])
def test_a_healthy_machine_tells_its_values_and_needs_no_remedy(
    machine, tools, check, value, measured
):
    (_, finding), = tools.look(machine(), check)
    assert (finding.value, finding.remedy) == (value, '')
    assert dict(finding.measured) == measured


def test_other_can_interfaces_are_named_where_the_wanted_one_is_missing(machine, tools):
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.doctor.context import Choices

    choices = Choices((DriverConfig(channel='can9'),), tools.params())
    (_, finding), = tools.look(machine(choices=choices), 'can-interface')
    assert finding.level.value == 'fail' and 'CAN interfaces here: can0' in finding.value


def test_two_arms_have_a_line_each(machine, tools):
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.doctor.context import Choices

    arms = DriverConfig(channel='can0'), DriverConfig(channel='can1')
    found = tools.look(machine(choices=Choices(arms, tools.params())), 'can-interface')
    assert [(f.subject, f.level.value) for _, f in found] == [('can0', 'ok'), ('can1', 'fail')]


def test_a_channel_cannot_leave_its_folder(machine, tools):
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.doctor.context import Choices

    choices = Choices((DriverConfig(channel='../../../proc'),), tools.params())
    (_, finding), = tools.look(machine(choices=choices), 'can-interface')
    assert finding.level.value == 'fail' and 'no such interface' in finding.value


def test_descriptions_say_what_a_machine_is(tools):
    for name in MACHINES:
        found = json.loads((tools.data / name / 'machine.json').read_text())
        assert found['about'].endswith('.')
