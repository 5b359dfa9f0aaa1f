from __future__ import annotations

import socket
from pathlib import Path

import pytest

from reflex_ros.bringup.environment import (
    child_environment,
    choose_domain,
    dds_profile,
    free_tcp_port,
    is_domain_free,
)
from reflex_ros.core.errors import ConfigError

LOGS = Path('run/logs')


def test_children_get_what_is_missing_and_lose_nothing():
    base = {'LD_LIBRARY_PATH': 'x', '_ROS_WHEELS_BOOTSTRAP_COMPLETE': '1', 'OMP_NUM_THREADS': '4'}
    environment = child_environment(base, logs=LOGS, domain=7)
    assert base.items() <= environment.items()
    assert environment['ROS_DOMAIN_ID'] == '7'
    assert environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] == 'LOCALHOST'
    assert environment['OMP_WAIT_POLICY'] == 'PASSIVE'
    assert Path(environment['FASTRTPS_DEFAULT_PROFILES_FILE']) == dds_profile()
    assert environment['ROS_LOG_DIR'] == str(LOGS)
    assert environment['PYTHONUTF8'] == '1'


def test_a_robot_keeps_its_domain_range_and_middleware():
    base = {'ROS_DOMAIN_ID': '5', 'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'}
    environment = child_environment(base, logs=LOGS)
    assert base.items() <= environment.items()
    assert 'ROS_AUTOMATIC_DISCOVERY_RANGE' not in environment


def test_the_packaged_profile_exists():
    assert dds_profile().is_file()


def test_a_domain_of_the_environment_is_kept():
    assert choose_domain({'ROS_DOMAIN_ID': '42'}) == 42


@pytest.mark.parametrize('text', ['x', '-1', '233', '1.5'])
def test_a_wrong_domain_is_refused(text):
    with pytest.raises(ConfigError, match='ROS_DOMAIN_ID is wrong'):
        choose_domain({'ROS_DOMAIN_ID': text})


def test_a_chosen_domain_is_in_range_and_follows_the_seed():
    assert 1 <= choose_domain({}) <= 100
    assert len({choose_domain({}, seed=seed) for seed in (1, 2, 3)}) >= 2


def test_a_domain_with_a_participant_is_not_free():
    domain = choose_domain({}, seed=61)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        participant.bind(('', 7400 + 250 * domain + 12))
        assert not is_domain_free(domain)
        assert choose_domain({}, seed=domain - 1) != domain


def test_all_ports_of_all_domains_lie_below_those_the_kernel_hands_out():
    ports = []
    for domain in range(1, 101):
        is_domain_free(domain, is_free=lambda port: ports.append(port) or True)
    assert max(ports) < 32768


def test_a_free_port_can_be_bound():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(('127.0.0.1', free_tcp_port()))
