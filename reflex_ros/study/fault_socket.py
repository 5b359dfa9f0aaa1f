"""Runs every fault of the matrix in real time, at the simulator's socket.

The cases of ``fault_cases`` with their causes and outcomes, but each with a simulator process, the
SDK's socket, real threads and real bytes (``fault_socket_rig``), several side by side: what they
do most is wait. Written to ``results/faults/socket.json``.

A machine that is late proves nothing. A run is void, whatever came of it, if a tick began late by
half a period, or was left out, that no fault made late. The ledger does not tell: a tick of a
faulted or held arm names the fault or the hold, and after a stop of the process feedback is old.
It is void, too, if two lags together exceed ``LATE_MS``, at which periods cannot be told apart:
how long after it was due a tick that had found itself on time had sent, at worst, and how late the
simulator's thread, which reads, ran at worst; or if another thread of the loop overslept by
``WOKE_MS``, for which a camera or a policy is called late. Such a run is repeated, at most
``MOST_RUNS`` times; how often is in the row. A run on time is judged as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.machine import describe_machine
from reflex_ros.study.fault_cases import CASES
from reflex_ros.study.fault_matrix import run_case
from reflex_ros.study.fault_pool import Pool
from reflex_ros.study.fault_report import SOCKET, Row, write_socket
from reflex_ros.study.fault_socket_pair import make_socket_rig
from reflex_ros.study.fault_socket_rig import PRIORITY
from reflex_ros.study.results import read_revision

SIDE_BY_SIDE = 4
LATE_MS, WOKE_MS, TICK_MS = 15.0, 60.0, 10.0
MOST_RUNS = 5
LATE = 'tick_late'
CLOCK = SystemClock()


def is_void(row: Row) -> bool:
    """Return whether the machine was late in a way that no fault asked for."""
    case = CASES[row.name]
    is_late = LATE in row.causes and LATE not in (*case.causes, *case.also)
    is_late = is_late or (row.read_late_ms or 0.0) + (row.sent_ms or 0.0) > LATE_MS
    is_late = is_late or (row.tick_ms or 0.0) > TICK_MS
    return is_late or (row.woke_ms or 0.0) > WOKE_MS


def run_on_socket(name: str, *, priority: int = PRIORITY) -> Row:
    """Run one fault in this process until the machine was on time."""
    for runs in range(1, MOST_RUNS + 1):
        with TemporaryDirectory() as folder:
            row = run_case(
                name, Path(folder), make_rig=partial(make_socket_rig, priority=priority))
        row = replace(row, runs=runs)
        if not is_void(row):
            return row
    late = f'the machine was late in {MOST_RUNS} runs: nothing is proven'
    return replace(row, problems=(*row.problems, late))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named faults, or all, and print what is not as specified."""
    parser = argparse.ArgumentParser(prog='reflex_ros.study.fault_socket', description=__doc__)
    parser.add_argument('names', nargs='*', help='faults; all if none is named')
    parser.add_argument('--jobs', type=int, default=SIDE_BY_SIDE, help='faults side by side')
    parser.add_argument('--priority', type=int, default=PRIORITY,
                        help='FIFO priority of bus and ticks, 0 = normal')
    parser.add_argument('--out', type=Path, help=f'write the rows, e.g. to {SOCKET}')
    options = parser.parse_args(arguments)
    names, begun_ns = options.names or list(CASES), CLOCK.mono_ns()
    revision = read_revision()
    rows: dict[str, Row] = {}
    for row in Pool(names, options.jobs, partial(run_on_socket, priority=options.priority)).rows():
        rows[row.name] = row
        print(f'{len(rows)}/{len(names)} {_since(begun_ns):.0f} s: {_line(row)}',
              *row.problems, sep='\n       ', flush=True)
    if options.out:
        write_socket([rows[name] for name in names], options.out, revision=revision,
                     machine=describe_machine(), wall_s=_since(begun_ns),
                     jobs=options.jobs)
    return int(any(row.problems for row in rows.values()))


def _since(begun_ns: int) -> float:
    return (CLOCK.mono_ns() - begun_ns) / S


def _line(row: Row) -> str:
    return (f'{"FAIL" if row.problems else "ok"} {row.name}: {row.behaviour}; struck at '
            f'{row.speed} rad/s, moved {row.moved}; {list(row.causes)} {row.code}; arrivals '
            f'within {row.spread_ms} ms, read {row.read_late_ms} ms late, sent {row.sent_ms} '
            f'ms after due, began {row.tick_ms} ms late, woke {row.woke_ms} ms late, '
            f'runs {row.runs}')


if __name__ == '__main__':
    sys.exit(main())
