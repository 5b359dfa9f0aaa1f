#!/usr/bin/env python3
"""Whether the newest run of a folder still records control ticks; the health check of the images.

    health.py RUNS [--within SECONDS]

Exit code 0 if the last tick in the ledger of the newest run folder is at most that old, else 1,
with one line that says what was found. Reads a few records of the ledger, no ROS, no arm: it may
run every few seconds beside a control loop. A tick is recorded whether the arm moves, holds or is
in fault, so this says that the bridge lives, not that all is well; that stands on /diagnostics.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path

import numpy as np

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.errors import ReflexError
from reflex_ros.core.ledger import HEADER_BYTES, LedgerReader, record_dtype

WITHIN_S = 1.0
"""Fifty ticks: far above any lateness, far below what a person notices too late."""


def newest_ledger(runs: Path) -> Path | None:
    """Return the ledger of the run folder with the latest name, which starts with the date."""
    ledgers = sorted(runs.glob('*/ledger.bin'), key=lambda path: path.parent.name)
    return ledgers[-1] if ledgers else None


def end_of_records(path: Path) -> int | None:
    """Return the steady instant up to which a ledger has records, None if it has none.

    Whole records come first and the reserved room behind them is zero, so the last one is found
    by halving; a day of records takes two dozen reads.
    """
    header = LedgerReader(path).header
    dtype = record_dtype(len(header.joint_names))
    with open(path, 'rb') as file:
        def read(index: int) -> bytes:
            file.seek(HEADER_BYTES + index * dtype.itemsize)
            return file.read(dtype.itemsize)

        low, high = 0, (path.stat().st_size - HEADER_BYTES) // dtype.itemsize
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if is_whole(read(middle)) else (low, middle)
        if low == 0:
            return None
        record = np.frombuffer(read(low - 1), dtype)[0]
    return header.due_ns(int(record['index']) + int(record['count']))


def is_whole(record: bytes) -> bool:
    """Return whether a record's check sum is that of its content."""
    return len(record) > 4 and zlib.crc32(record[4:]) == int.from_bytes(record[:4], 'little')


def judge(runs: Path, now_ns: int, within_s: float = WITHIN_S) -> tuple[bool, str]:
    """Return whether the newest run is alive, and why.

    Args:
        runs: Folder of the run folders.
        now_ns: Steady clock; a container shares it with its host.
        within_s: Oldest last tick.
    """
    ledger = newest_ledger(runs)
    if ledger is None:
        return False, f'no run in {runs}: got no ledger, expected */ledger.bin. Start a run.'
    name = ledger.parent.name
    try:
        end_ns = end_of_records(ledger)
    except (ReflexError, OSError) as error:
        return False, f'{name}: {error}'
    if end_ns is None:
        return False, f'{name}: no tick yet, expected one once the bridge is active.'
    age_s = (now_ns - end_ns) / 1e9
    if not -within_s <= age_s <= within_s:
        return False, (f'{name}: last tick {age_s:.1f} s ago, expected at most {within_s:g} s. '
                       'Look at the logs of the run folder.')
    return True, f'{name}: ticking'


def main(arguments: list[str] | None = None) -> int:
    """Print the judgement and return the exit code."""
    parser = argparse.ArgumentParser(description='Whether the newest run still records ticks.')
    parser.add_argument('runs', type=Path, help='folder of the run folders')
    parser.add_argument('--within', type=float, default=WITHIN_S, metavar='SECONDS',
                        help=f'oldest last tick (default {WITHIN_S:g} s)')
    given = parser.parse_args(arguments)
    is_alive, text = judge(given.runs, SystemClock().mono_ns(), given.within)
    print(text)
    return 0 if is_alive else 1


if __name__ == '__main__':
    sys.exit(main())
