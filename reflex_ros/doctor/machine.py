"""This machine: how punctual it is, and what it lets a control loop do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import MS, S
from reflex_ros.core.stats import quantiles
from reflex_ros.doctor.model import Finding, fail, ok, skip, warn

if TYPE_CHECKING:
    from reflex_ros.core.clock import Clock
    from reflex_ros.doctor.context import Context

JITTER_HZ = 50.0
P99_WARN_MS, P99_FAIL_MS = 2.0, 10.0
"""A tenth and a half of a tick of 20 ms."""
MAX_WARN_MS = 20.0
"""One whole tick missed."""
ENOUGH_TICKS = 1000
"""Below, the 99.9 % quantile is the maximum."""
MEMLOCK_BYTES = 64 << 20
GOVERNORS = ('performance',)
_GOVERNOR = '/sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor'
_LIMITS = 'printf "@realtime - rtprio 98\\n@realtime - memlock unlimited\\n" | sudo tee ' \
    '/etc/security/limits.d/99-realtime.conf'
REALTIME = (f'sudo groupadd -f realtime && sudo usermod -aG realtime $USER && {_LIMITS}'
            ' ; then log out and in. In a container: --ulimit rtprio=98 --cap-add SYS_NICE')


def measure_lateness(clock: Clock, *, seconds: float, period_ns: int) -> list[float]:
    """Return how late each wake-up of a loop on absolute deadlines was, ms. Blocks.

    A wake-up that is late by more than a period skips the deadlines that passed, as the bridge
    does; nothing is caught up.
    """
    late = []
    start_ns = due_ns = clock.mono_ns() + period_ns
    while due_ns < start_ns + round(seconds * S):
        clock.sleep_until(due_ns)
        now_ns = clock.mono_ns()
        late.append((now_ns - due_ns) / MS)
        due_ns += period_ns * max(1, -((due_ns - now_ns) // period_ns))
    return late


def jitter(context: Context) -> Iterable[Finding]:
    """Judge the tail of the lateness of this machine."""
    seconds = context.choices.seconds
    context.measuring('clock at 50 Hz', seconds)
    priority = int(context.choices.params['control.realtime_priority'])  # type: ignore[arg-type]
    late, is_realtime = context.probes.lateness(seconds, round(S / JITTER_HZ), priority)
    if not late:
        return [skip('no tick was measured', 'Give --seconds 5')]
    found = quantiles(late)
    p999 = float(np.sort(late)[max(0, int(np.ceil(0.999 * len(late) - 1e-9)) - 1)])
    measured = {'p50_ms': found['p50'], 'p99_ms': found['p99'], 'p99_9_ms': p999,
                'max_ms': found['max'], 'n': len(late), 'realtime': is_realtime}
    how = f'FIFO {priority}' if is_realtime else 'normal priority'
    few = '' if len(late) >= ENOUGH_TICKS else ' (p99.9 wants n >= 1000: --seconds 20)'
    text = (f'late p50 {found["p50"]:.2f}, p99 {found["p99"]:.2f}, p99.9 {p999:.2f}, '
            f'max {found["max"]:.2f} ms; n {len(late)}{few}, {how}')
    todo = ('End other programs, set the governor, give realtime permission (see realtime); on a '
            'robot install a PREEMPT_RT kernel: sudo pro enable realtime-kernel')
    if found['p99'] >= P99_FAIL_MS:
        return [fail(text, todo, about=measured)]
    if found['p99'] >= P99_WARN_MS or found['max'] >= MAX_WARN_MS:
        return [warn(text, todo, about=measured)]
    return [ok(text, about=measured)]


def limit(context: Context, name: str) -> float | None:
    """Return a soft limit of this process in the kernel's unit; inf, or None if unknown."""
    for line in (context.host.read('/proc/self/limits') or '').splitlines():
        if line.startswith(name):
            words = line[len(name):].split()
            if words[:1] == ['unlimited']:
                return float('inf')
            return float(words[0]) if words and words[0].isdigit() else None
    return None


def realtime(context: Context) -> Iterable[Finding]:
    """Judge whether the control loop may have its priority."""
    wanted = int(context.choices.params['control.realtime_priority'])  # type: ignore[arg-type]
    allowed = limit(context, 'Max realtime priority')
    is_given = context.probes.fifo(max(1, wanted))
    shown = 'unknown' if allowed is None else f'{allowed:.0f}'
    kernel = _kernel(context)
    measured = {'rtprio': None if allowed is None else int(allowed), 'fifo': is_given,
                'wanted': wanted, 'kernel': kernel}
    if is_given:
        text = f'SCHED_FIFO {max(1, wanted)} permitted, rtprio {shown}, {kernel}'
        return [ok(text, about=measured)]
    if not wanted:
        return [ok('not asked for: control.realtime_priority is 0', about=measured)]
    return [warn(f'SCHED_FIFO {wanted} refused, rtprio {shown}: the loop runs at normal priority',
                 REALTIME, about=measured)]


def _kernel(context: Context) -> str:
    if context.host.read('/sys/kernel/realtime') == '1':
        return 'PREEMPT_RT kernel'
    return 'PREEMPT_RT kernel' if 'PREEMPT_RT' in (
        context.host.read('/proc/version') or '') else 'ordinary kernel'


def memlock(context: Context) -> Iterable[Finding]:
    """Judge how much memory may be locked."""
    found = limit(context, 'Max locked memory')
    if found is None:
        return [skip('limit unknown: /proc/self/limits has no such line')]
    text = 'unlimited' if found == float('inf') else f'{found / 2**20:.0f} MiB'
    about = {'bytes': None if found == float('inf') else int(found)}
    return [ok(text, about=about) if found >= MEMLOCK_BYTES else warn(text, REALTIME, about=about)]


def governor(context: Context) -> Iterable[Finding]:
    """Judge the frequency governor of each core."""
    found = {}
    for cpu in context.host.names('/sys/devices/system/cpu'):
        text = context.host.read(_GOVERNOR.format(cpu=cpu)) if cpu[3:].isdigit() else None
        if text:
            found[cpu] = text.split()[0]
    if not found:
        return [skip('not readable; usual in a container or a virtual machine')]
    kinds = sorted(set(found.values()))
    if set(kinds) <= set(GOVERNORS):
        return [ok(f'{kinds[0]} on {len(found)} cores', governors=kinds, cores=len(found))]
    todo = 'sudo cpupower frequency-set -g performance'
    if context.host.has('/etc/nv_tegra_release'):
        todo = 'sudo nvpmodel -m 0 && sudo jetson_clocks'
    return [warn(f'{", ".join(kinds)} on {len(found)} cores', todo, governors=kinds,
                 cores=len(found))]
