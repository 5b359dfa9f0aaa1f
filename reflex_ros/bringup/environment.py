"""Environment of the children: middleware, domain, threads, and ports that nobody uses."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from reflex_ros.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOOPBACK = '127.0.0.1'
MAX_DOMAIN = 100
"""Largest domain id whose ports all lie below those that the kernel hands out."""
_DOMAIN_BASE, _DOMAIN_GAIN = 7400, 250
_PARTICIPANTS = 12
"""Participants of a domain whose ports are looked at; each has two."""


def child_environment(
    base: Mapping[str, str], *, logs: Path, domain: int | None = None
) -> dict[str, str]:
    """Return the environment of the nodes: ``base`` with what is not set in it.

    Nothing is taken away, since the ROS installation itself lives in it.

    Args:
        base: Environment of the supervisor.
        logs: Folder of ROS' own logs; makes a start without a home folder work.
        domain: Domain id of a graph that stays on this machine; None leaves the choice of domain
            and range to ``base``, as on a robot.
    """
    environment = {
        'OMP_NUM_THREADS': '1',
        # Spinning workers would take the cores that the control loop needs.
        'OMP_WAIT_POLICY': 'PASSIVE',
        'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp',
        'FASTRTPS_DEFAULT_PROFILES_FILE': str(dds_profile()),
        **base,
        'ROS_LOG_DIR': str(logs),
        'PYTHONUNBUFFERED': '1',
        # rclpy refuses a command line that a locale without UTF-8 has decoded.
        'PYTHONUTF8': '1',
    }
    if domain is not None:
        environment['ROS_DOMAIN_ID'] = str(domain)
        environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    return environment


def dds_profile() -> Path:
    """Return the packaged Fast DDS profile."""
    return Path(__file__).resolve().parents[1] / 'data' / 'dds' / 'fastdds.xml'


def choose_domain(environment: Mapping[str, str], *, seed: int | None = None) -> int:
    """Return the domain id of the environment, else one that nobody on this machine uses.

    Args:
        environment: Where ``ROS_DOMAIN_ID`` is looked for.
        seed: Where the search starts, so that simultaneous starts do not meet; default the pid.

    Raises:
        ConfigError: The id is no number in range, or no domain is free.
    """
    named = environment.get('ROS_DOMAIN_ID', '')
    if named:
        if not (named.isdecimal() and int(named) <= 232):
            raise ConfigError(
                f'ROS_DOMAIN_ID is wrong: got {named!r}, expected 0 to 232. Correct or unset it.'
            )
        return int(named)
    first = os.getpid() if seed is None else seed
    for offset in range(MAX_DOMAIN):
        domain = 1 + (first + offset) % MAX_DOMAIN
        if is_domain_free(domain):
            return domain
    raise ConfigError(
        f'no free ROS domain: got {MAX_DOMAIN} busy ones, expected one of 1 to {MAX_DOMAIN}. '
        'End what is left of other runs or set ROS_DOMAIN_ID.'
    )


def is_domain_free(domain: int, *, is_free: Callable[[int], bool] | None = None) -> bool:
    """Return whether no participant of the domain has a port on this machine.

    Args:
        domain: Domain id.
        is_free: Tells whether a UDP port is free; default: by binding it.
    """
    check = is_free or _is_udp_free
    base = _DOMAIN_BASE + _DOMAIN_GAIN * domain
    unicast = (base + 10 + offset for offset in range(2 * _PARTICIPANTS))
    return all(check(port) for port in (base, base + 1, *unicast))


def free_tcp_port() -> int:
    """Return a TCP port of the loopback that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _is_udp_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(('', port))
        except OSError:
            return False
    return True
