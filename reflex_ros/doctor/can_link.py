"""A CAN interface, as sysfs and ``ip -details -statistics`` tell it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reflex_ros.doctor.host import dig, whole
from reflex_ros.doctor.model import Finding, fail, ok, skip, warn

if TYPE_CHECKING:
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.doctor.context import Context
    from reflex_ros.doctor.host import Host

MIN_QUEUE = 100
"""Frames; 50 Hz commands are five frames each, so this is 0.4 s of a stalled bus."""
ERROR_PASSIVE = 128
ERROR_WARNING = 96
"""Error counters at which ISO 11898-1 changes the state of a node."""
_IFF_UP = 1
_BAD_STATES = ('BUS-OFF', 'STOPPED', 'SLEEPING')
_COUNTERS = ('restarts', 'bus_error', 'error_warning', 'error_passive', 'bus_off')


@dataclass(frozen=True, slots=True)
class CanFacts:
    """What is known; None and '' where it is not.

    Attributes:
        exists, is_up: Whether it is there and up.
        has_details: Whether the ``ip`` tool answered.
        kind: ``can``, ``vxcan``, ``vcan``.
        bitrate: bit/s. ``state``: e.g. ``ERROR-ACTIVE``. ``restart_ms``: 0 = never.
        queue: Frames that the kernel queues for sending.
        errors_tx, errors_rx: Error counters of the controller.
        counters: ``restarts``, ``bus_error``, ``error_warning``, ``error_passive``, ``bus_off``
            since the interface came up.
        dropped: Frames that the kernel dropped, both directions.
    """

    exists: bool = False
    is_up: bool = False
    has_details: bool = False
    kind: str = ''
    bitrate: int | None = None
    state: str = ''
    restart_ms: int | None = None
    queue: int | None = None
    errors_tx: int | None = None
    errors_rx: int | None = None
    counters: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    dropped: int = 0


def read_can(host: Host, channel: str) -> CanFacts:
    """Return what a machine says of an interface."""
    folder = f'/sys/class/net/{channel}'
    if '/' in channel or not host.has(folder):
        return CanFacts()
    flags = host.number(f'{folder}/flags', 16)
    answer = host.json_answer(
        'ip', '-json', '-details', '-statistics', 'link', 'show', 'dev', channel)
    link = answer[0] if isinstance(answer, list) and answer else None
    data = dig(link, 'linkinfo', 'info_data')
    return CanFacts(
        exists=True,
        is_up=bool((flags or 0) & _IFF_UP),
        has_details=isinstance(link, dict),
        kind=_text(dig(link, 'linkinfo', 'info_kind')),
        bitrate=whole(dig(data, 'bittiming', 'bitrate')),
        state=_text(dig(data, 'state')),
        restart_ms=whole(dig(data, 'restart_ms')),
        queue=host.number(f'{folder}/tx_queue_len'),
        errors_tx=whole(dig(data, 'berr_counter', 'tx')),
        errors_rx=whole(dig(data, 'berr_counter', 'rx')),
        counters=_counters(dig(link, 'linkinfo', 'info_xstats')),
        dropped=sum(whole(dig(link, 'stats64', way, 'dropped')) or 0 for way in ('rx', 'tx')),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ''


def _counters(found: Any) -> Mapping[str, int]:
    return MappingProxyType(
        {name: count for name in _COUNTERS if (count := whole(dig(found, name))) is not None})


def up_command(arm: DriverConfig) -> str:
    """Return the command that brings an interface up."""
    return (f'sudo ip link set {arm.channel} up type can bitrate {arm.bitrate} restart-ms 100')


def _again(arm: DriverConfig) -> str:
    return f'sudo ip link set {arm.channel} down && {up_command(arm)}'


# ---- checks ----------------------------------------------------------------------------------


def interface(context: Context) -> Iterable[Finding]:
    """Judge whether each interface is there, up and of a kind that the SDK can use."""
    for arm, facts in _each(context):
        if arm.transport != 'socketcan':
            yield skip(f'reached by {arm.transport}, not through the kernel', subject=arm.bus_name)
        elif not facts.exists:
            others = ', '.join(_candidates(context.host)) or 'none'
            yield fail(f'no such interface (CAN interfaces here: {others})',
                       'Plug the adapter in, then: ip link show type can', subject=arm.channel)
        elif facts.kind == 'vcan':
            yield fail('vcan, which drops what the SDK sends',
                       'Use a vxcan pair: sudo ip link add dev vxcan0 type vxcan peer name vxcan1',
                       subject=arm.channel, kind=facts.kind)
        elif not facts.is_up:
            yield fail('down', up_command(arm), subject=arm.channel, kind=facts.kind)
        else:
            kind = facts.kind or 'kind unknown'
            yield ok(f'up, {kind}', subject=arm.channel, kind=facts.kind)


def bitrate(context: Context) -> Iterable[Finding]:
    """Judge the bit rate of each interface."""
    for arm, facts in _usable(context):
        if facts.kind == 'vxcan':
            yield skip('vxcan has no bit rate', subject=arm.channel)
        elif not facts.has_details:
            yield warn('unknown: the ip tool gave no JSON', 'sudo apt-get install iproute2',
                       subject=arm.channel)
        elif facts.bitrate != arm.bitrate:
            got = 'none set' if facts.bitrate is None else f'{facts.bitrate} bit/s'
            yield fail(f'{got}, the arm has {arm.bitrate}', _again(arm), subject=arm.channel,
                       bitrate=facts.bitrate)
        else:
            yield ok(f'{facts.bitrate} bit/s', subject=arm.channel, bitrate=facts.bitrate)


def state(context: Context) -> Iterable[Finding]:
    """Judge the state of each controller."""
    for arm, facts in _usable(context):
        name = facts.state or 'unknown'
        about = {'state': facts.state, 'errors_tx': facts.errors_tx, 'errors_rx': facts.errors_rx}
        errors = _error_counters(facts)
        if facts.kind == 'vxcan':
            yield skip('vxcan has no controller', subject=arm.channel)
        elif facts.state in _BAD_STATES:
            yield fail(f'{name}{errors}', 'Check cable, termination and power, then: '
                       f'{_again(arm)}', subject=arm.channel, about=about)
        elif facts.state != 'ERROR-ACTIVE':
            yield warn(f'{name}{errors}', 'Check cable, termination (120 ohm at both ends), power '
                       f'of the arm: ip -details link show {arm.channel}',
                       subject=arm.channel, about=about)
        elif max(facts.errors_tx or 0, facts.errors_rx or 0) >= ERROR_WARNING:
            yield warn(f'{name}{errors}', 'Check cable, termination and plug.',
                       subject=arm.channel, about=about)
        else:
            yield ok(f'{name}{errors}', subject=arm.channel, about=about)


def _error_counters(facts: CanFacts) -> str:
    if facts.errors_tx is None or facts.errors_rx is None:
        return ''
    return f', error counters tx {facts.errors_tx} rx {facts.errors_rx}'


def restart(context: Context) -> Iterable[Finding]:
    """Judge whether each controller comes back from bus-off by itself."""
    for arm, facts in _usable(context):
        if facts.kind == 'vxcan':
            yield skip('vxcan knows no bus-off', subject=arm.channel)
        elif not facts.restart_ms:
            got = 'never' if facts.restart_ms == 0 else 'unknown'
            yield warn(f'{got} after bus-off', _again(arm), subject=arm.channel,
                       restart_ms=facts.restart_ms)
        else:
            yield ok(f'{facts.restart_ms} ms after bus-off', subject=arm.channel,
                     restart_ms=facts.restart_ms)


def queue(context: Context) -> Iterable[Finding]:
    """Judge the send queue of each interface."""
    for arm, facts in _usable(context):
        if facts.queue is None or facts.queue < MIN_QUEUE:
            got = 'unknown' if facts.queue is None else f'{facts.queue} frames'
            yield warn(got, f'sudo ip link set {arm.channel} txqueuelen 1000',
                       subject=arm.channel, frames=facts.queue)
        else:
            yield ok(f'{facts.queue} frames', subject=arm.channel, frames=facts.queue)


def errors(context: Context) -> Iterable[Finding]:
    """Judge what went wrong on each bus since it came up."""
    for arm, facts in _usable(context):
        if facts.kind == 'vxcan' or not facts.counters:
            yield skip('the driver counts no errors', subject=arm.channel)
            continue
        bad = {name: n for name, n in facts.counters.items() if n}
        text = ', '.join(f'{name.replace("_", " ")} {n}' for name, n in facts.counters.items())
        about = {**facts.counters, 'dropped': facts.dropped}
        if facts.dropped:
            bad['dropped'] = facts.dropped
            text += f', dropped {facts.dropped}'
        if bad:
            yield warn(text, 'Counted since the interface came up: check cable and termination, '
                       f'then start anew: {_again(arm)}', subject=arm.channel, about=about)
        else:
            yield ok('none since it came up', subject=arm.channel, about=about)


def _candidates(host: Host) -> list[str]:
    """Return the interfaces whose hardware type is CAN."""
    return [name for name in host.names('/sys/class/net')
            if host.number(f'/sys/class/net/{name}/type') == 280]


def _each(context: Context) -> Iterable[tuple[DriverConfig, CanFacts]]:
    for arm in context.choices.arms:
        yield arm, context.can(arm.channel) if arm.transport == 'socketcan' else CanFacts()


def _usable(context: Context) -> Iterable[tuple[DriverConfig, CanFacts]]:
    """Yield the interfaces that are there and up; the others have one line already."""
    for arm, facts in _each(context):
        if arm.transport == 'socketcan' and facts.exists and facts.is_up:
            yield arm, facts
