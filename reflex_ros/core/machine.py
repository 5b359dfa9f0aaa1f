"""The machine that produced a figure, without its name or paths."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe_machine(cpuinfo: Path = Path('/proc/cpuinfo')) -> dict[str, object]:
    """Return CPU model, logical cores usable by this process, and memory in GiB."""
    return {
        'cpu': _model(cpuinfo) or platform.machine(),
        'cores': len(os.sched_getaffinity(0)),
        'memory_gib': round(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30, 1),
    }


def _model(cpuinfo: Path) -> str:
    if not cpuinfo.is_file():
        return ''
    for line in cpuinfo.read_text(encoding='utf-8', errors='replace').splitlines():
        key, _, value = line.partition(':')
        if key.strip() in ('model name', 'Model'):
            return ' '.join(value.split())
    return ''
