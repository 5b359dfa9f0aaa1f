"""How images travel: the DDS profile, what they take, and what the kernel allows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from reflex_ros.core.stats import quantiles
from reflex_ros.doctor.leftovers import CLEAN, dead_ports, files, unused
from reflex_ros.doctor.model import Finding, fail, ok, skip, warn

if TYPE_CHECKING:
    from reflex_ros.doctor.context import Context
    from reflex_ros.doctor.host import Host

PACKAGED = Path(__file__).resolve().parents[1] / 'data' / 'dds' / 'fastdds.xml'
VARIABLES = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
SEGMENT_BYTES = 4 << 20
"""Four raw images of 640 x 480; the default segment holds half of one."""
LATENCY_WARN_MS, LATENCY_FAIL_MS = 10.0, 40.0
"""With the profile 3 ms were measured, without 13; 40 is a whole frame at 25 Hz."""
LOST_WARN, LOST_FAIL = 0.02, 0.2
SOCKET_BYTES = 2 << 20
SHM_BYTES = 64 << 20
USE_PROFILE = f'export FASTRTPS_DEFAULT_PROFILES_FILE={PACKAGED}   # cameras too, then start anew'


def profile(context: Context) -> Iterable[Finding]:
    """Judge the Fast DDS profile of the environment."""
    environ = context.host.environ
    middleware = environ.get('RMW_IMPLEMENTATION') or 'rmw_fastrtps_cpp'
    if middleware != 'rmw_fastrtps_cpp':
        return [skip(f'{middleware} takes no Fast DDS profile')]
    named = next((environ[name] for name in VARIABLES if environ.get(name)), '')
    if not named:
        return [warn('none in this terminal: images between cameras and nodes take the slow way',
                     USE_PROFILE)]
    text = context.host.read(named)
    if text is None:
        return [fail(f'{named} cannot be read', USE_PROFILE)]
    sizes = _segments(text)
    if sizes is None:
        return [fail(f'{named} is no XML profile', USE_PROFILE)]
    if not sizes:
        return [warn(f'{named} has no shared-memory transport', USE_PROFILE, segment_bytes=0)]
    if min(sizes) < SEGMENT_BYTES:
        return [warn(f'shared-memory segment {min(sizes) / 2**20:.1f} MiB, less than four images',
                     USE_PROFILE, segment_bytes=min(sizes))]
    return [ok(f'shared-memory segment {min(sizes) / 2**20:.0f} MiB', segment_bytes=min(sizes))]


def _segments(text: str) -> list[int] | None:
    """Return the sizes of the shared-memory segments in a profile, None if it is no XML."""
    if '<!ENTITY' in text:
        return None
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        return None
    found = []
    for element in root.iter():
        if element.tag.rpartition('}')[2] != 'transport_descriptor':
            continue
        parts = {part.tag.rpartition('}')[2]: (part.text or '').strip() for part in element}
        if parts.get('type') == 'SHM':
            size = parts.get('segment_size', '')
            found.append(int(size) if size.isdigit() else 1 << 19)
    return found


def latency(context: Context) -> Iterable[Finding]:
    """Judge what an image takes from one process to another."""
    seconds = context.choices.seconds
    context.measuring('image latency', seconds)
    try:
        sample = context.probes.latency(seconds)
    except ImportError as error:
        return [skip(f'ROS is not here: {error}', 'See ros')]
    if sample.error:
        return [fail(sample.error, 'End other programs; see ros-environment and '
                     'shared-memory.')]
    found = quantiles(sample.latencies_ms)
    received, sent = len(sample.latencies_ms), sample.sent
    lost = 1.0 - received / sent if sent else 1.0
    measured = {'p50_ms': found['p50'], 'p99_ms': found['p99'], 'max_ms': found['max'],
                'n': received, 'sent': sent} if received else {'n': 0, 'sent': sent}
    if not received:
        return [fail(f'none of {sent} images arrived', f'{CLEAN}; {USE_PROFILE}',
                     about=measured)]
    text = (f'640x480 between two processes: p50 {found["p50"]:.1f}, p99 {found["p99"]:.1f}, '
            f'max {found["max"]:.1f} ms; {received} of {sent}')
    has_profile = any(context.host.environ.get(name) for name in VARIABLES)
    todo = 'End other programs; see clock-jitter and dds-profile.' if has_profile else USE_PROFILE
    if found['p50'] >= LATENCY_FAIL_MS or lost > LOST_FAIL:
        return [fail(text, todo, about=measured)]
    if found['p50'] >= LATENCY_WARN_MS or lost > LOST_WARN:
        return [warn(text, todo, about=measured)]
    return [ok(text, about=measured)]


def sockets(context: Context) -> Iterable[Finding]:
    """Judge the largest receive buffer of a socket."""
    size = context.host.number('/proc/sys/net/core/rmem_max')
    if size is None:
        return [skip('/proc/sys/net/core/rmem_max cannot be read')]
    text = f'{size / 2**20:.2f} MiB'
    if size < SOCKET_BYTES:
        return [warn(f'{text}: images over the network or without shared memory are lost',
                     'echo net.core.rmem_max=8388608 | sudo tee /etc/sysctl.d/60-ros.conf && '
                     'sudo sysctl --system', bytes=size)]
    return [ok(text, bytes=size)]


def shared_memory(context: Context) -> Iterable[Finding]:
    """Judge room in /dev/shm, and what killed processes left there."""
    host = context.host
    size, free = _shm(host, context)
    if size is None or free is None:
        return [skip('/dev/shm cannot be read')]
    every, left, ports = files(host), unused(host), dead_ports(host)
    about = {'bytes': size, 'free_bytes': free, 'fastdds_files': len(every),
             'unused_files': None if left is None else len(left), 'dead_ports': len(ports)}
    text = f'{free / 2**20:.0f} of {size / 2**20:.0f} MiB free, {len(every)} files of Fast DDS'
    if left:
        text += f', {len(left)} of them used by no process'
    if free < SHM_BYTES:
        return [warn(text, f'{CLEAN}; in a container: --shm-size 1g, or --ipc host', about=about)]
    if ports:
        return [warn(f'{text}; {", ".join(ports[:3])} left in this domain by processes that were '
                     'killed: nodes hear nothing for seconds', CLEAN, about=about)]
    return [ok(text, about=about)]


def _shm(host: Host, context: Context) -> tuple[int | None, int | None]:
    if not host.has('/dev/shm'):
        return None, None
    try:
        return context.probes.disk(Path('/dev/shm'))
    except OSError:
        return None, None
