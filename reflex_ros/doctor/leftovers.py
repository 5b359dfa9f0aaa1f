"""Shared memory of Fast DDS that killed processes left behind, and what it does to a domain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reflex_ros.doctor.host import Host

SHM = '/dev/shm'
FIRST_PORT, PORTS_PER_DOMAIN = 7400, 250
CLEAN = 'fastdds shm clean; without that tool end every ROS program and rm /dev/shm/*fastrtps_*'
_FILE = re.compile(r'fastrtps_\w+')
_PORT = re.compile(r'fastrtps_port(\d+)')
_MAPPED = re.compile(r'/dev/shm/(fastrtps_\w+)')


def files(host: Host) -> tuple[str, ...]:
    """Return every file of Fast DDS, in use or not, without the locks beside them."""
    return tuple(name for name in host.names(SHM)
                 if _FILE.fullmatch(name) and not name.endswith('_el'))


def unused(host: Host) -> tuple[str, ...] | None:
    """Return the files that no process has mapped; None where processes cannot be seen."""
    maps = [host.read(f'/proc/{pid}/maps') for pid in host.names('/proc') if pid.isdigit()]
    if not any(text is not None for text in maps):
        return None
    mapped = {name for text in maps if text for name in _MAPPED.findall(text)}
    return tuple(name for name in files(host) if name not in mapped)


def dead_ports(host: Host) -> tuple[str, ...]:
    """Return the unused ports of this terminal's domain.

    A node that meets one waits for its dead listener: for seconds it hears and says nothing.
    """
    domain = host.environ.get('ROS_DOMAIN_ID') or '0'
    if not domain.isdigit():
        return ()
    first = FIRST_PORT + PORTS_PER_DOMAIN * int(domain)
    found = [(name, _PORT.fullmatch(name)) for name in unused(host) or ()]
    return tuple(name for name, port in found
                 if port and first <= int(port.group(1)) < first + PORTS_PER_DOMAIN)
