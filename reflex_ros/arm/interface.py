"""State of a kernel CAN interface, read before it is used; the SDK only says "ERROR"."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reflex_ros.core.errors import ArmError

if TYPE_CHECKING:
    from collections.abc import Callable

_IFF_UP = 1
_MIN_QUEUE = 100


@dataclass(frozen=True, slots=True)
class InterfaceInfo:
    """What the kernel says about an interface.

    Attributes:
        exists, is_up: Whether it is there and up.
        kind: ``can`` (hardware), ``vxcan``, ``vcan``, '' if unknown.
        bitrate: bit/s, None if none is set or the ``ip`` tool is missing.
        has_details: Whether the ``ip`` tool answered.
        state: CAN state, e.g. ``ERROR-ACTIVE``, ``BUS-OFF``; '' if unknown.
        queue_length: Frames that the kernel queues for sending.
        restart_ms: Automatic restart after bus-off, 0 = never.
    """

    exists: bool
    is_up: bool = False
    kind: str = ''
    bitrate: int | None = None
    has_details: bool = False
    state: str = ''
    queue_length: int = 0
    restart_ms: int = 0


def read_interface(channel: str) -> InterfaceInfo:
    """Read an interface from sysfs and from ``ip -details``; blocks for up to two seconds."""
    folder = Path('/sys/class/net') / channel
    try:
        flags = int((folder / 'flags').read_text(), 16)
        queue_length = int((folder / 'tx_queue_len').read_text())
    except (OSError, ValueError):
        return InterfaceInfo(exists=False)
    command = ['ip', '-json', '-details', 'link', 'show', 'dev', channel]
    try:
        answer = subprocess.run(command, capture_output=True, check=True, timeout=2)
        link = json.loads(answer.stdout)[0]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return InterfaceInfo(exists=True, is_up=bool(flags & _IFF_UP), queue_length=queue_length)
    return _from_ip(link, is_up=bool(flags & _IFF_UP), queue_length=queue_length)


def _from_ip(link: dict[str, Any], *, is_up: bool, queue_length: int) -> InterfaceInfo:
    info = link.get('linkinfo', {})
    data = info.get('info_data', {})
    return InterfaceInfo(
        exists=True,
        is_up=is_up,
        kind=info.get('info_kind', ''),
        bitrate=data.get('bittiming', {}).get('bitrate'),
        has_details=True,
        state=data.get('state', ''),
        queue_length=queue_length,
        restart_ms=data.get('restart_ms', 0),
    )


def check_interface(
    channel: str, bitrate: int, *, read: Callable[[str], InterfaceInfo] = read_interface,
) -> tuple[str, ...]:
    """Refuse an interface that cannot work; return warnings about one that can.

    Raises:
        ArmError: Missing, down, of the wrong kind, at the wrong bitrate, or bus-off.
    """
    info = read(channel)
    up = f'sudo ip link set {channel} up type can bitrate {bitrate} restart-ms 100'
    if not info.exists:
        raise _refuse(channel, 'no such interface', 'an interface', 'Plug the CAN adapter in; '
                      'list them with `ip link show type can`.', 'can_interface_missing')
    if not info.is_up:
        raise _refuse(channel, 'it down', 'it up', f'Run `{up}`.', 'can_interface_down')
    if info.kind == 'vcan':
        raise _refuse(channel, 'a vcan interface', 'can or vxcan',
                      'The SDK sends without loopback, which vcan drops: use a vxcan pair.',
                      'can_interface_kind')
    if info.state == 'BUS-OFF':
        raise _refuse(channel, 'BUS-OFF', 'ERROR-ACTIVE', 'Check cable and power, then '
                      f'`sudo ip link set {channel} down` and `{up}`.', 'can_bus_off')
    if info.has_details and info.kind != 'vxcan' and info.bitrate != bitrate:
        raise _refuse(channel, f'bitrate {info.bitrate}', f'{bitrate} (bit/s)',
                      f'Run `sudo ip link set {channel} down`, then `{up}`.', 'can_bitrate')
    return tuple(_warnings(channel, info))


def _warnings(channel: str, info: InterfaceInfo) -> list[str]:
    found = []
    if not info.has_details:
        found.append(f'{channel}: bitrate not verified, the `ip` tool did not answer. '
                     'Install iproute2.')
    if info.state == 'ERROR-PASSIVE':
        found.append(f'{channel} is ERROR-PASSIVE. Check cable, termination and adapter.')
    if info.kind == 'can' and not info.restart_ms:
        found.append(f'{channel} does not restart after bus-off. Set restart-ms 100.')
    if info.queue_length < _MIN_QUEUE:
        found.append(f'{channel} queues {info.queue_length} frames only. '
                     f'Run `sudo ip link set {channel} txqueuelen 1000`.')
    return found


def _refuse(channel: str, got: str, expected: str, todo: str, code: str) -> ArmError:
    return ArmError(f'CAN interface {channel}: got {got}, expected {expected}. {todo}', code=code)
