"""How late control ticks run, what an SDK call costs, and what the bridge costs.

Runs the demonstration with the real nodes at 50 and 200 Hz, on an idle machine and with one busy
program per core, and reads the lateness of every tick from the ledger. Writes
``results/tick/<utc>-<sha7>.json`` and ``docs/images/tick-bench.png``; about ten minutes on a quiet
machine. ``--draw`` only draws the newest result again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.driver import PiperDriver
from reflex_ros.core.clock import MS, S, SystemClock, cpu_ns
from reflex_ros.core.ledger import CAUSE_CODES, GAP, SENT, LedgerReader
from reflex_ros.study.results import newest, read_revision, write_result
from reflex_ros.study.tick_report import PICTURE, tails, write_picture

MAIN = 'import sys; from reflex_ros.cli.main import main; sys.exit(main())'
BUSY = 'while True: pass'
CLOCK = SystemClock()
WARMUP_NS = 2 * S
"""Left out after the first executed chunk and after the load began."""
PATIENCE_S = 180.0
LOOP = 5_000_000


# ---- lateness --------------------------------------------------------------------------------


class Run:
    """One demonstration with an oracle and its ledger."""

    def __init__(self, runs: Path, rate_hz: float, seconds: float) -> None:
        self._runs = runs
        self._log = (runs / 'demo.log').open('wb')
        self._process = subprocess.Popen(
            [sys.executable, '-c', MAIN, 'demo', '--policy', 'oracle', '--runs', str(runs),
             '--duration', f'{seconds:.0f}', '-p', f'control.rate_hz:={rate_hz:.1f}',
             '-p', 'safety.feedback_timeout_s:=1.0'],
            stdout=self._log, stderr=subprocess.STDOUT)

    @property
    def folder(self) -> Path:
        """Return the run folder."""
        return next(path for path in self._runs.iterdir() if path.is_dir())

    def records(self) -> Any:
        """Return the records of the ledger so far."""
        return LedgerReader(self.folder / 'ledger.bin').records()

    def await_ticks(self, since_ns: int, count: int, *, must_move: bool = False) -> None:
        """Wait until so many ticks were due after a steady instant, at will one with a chunk."""
        end_ns = CLOCK.mono_ns() + round(PATIENCE_S * S)
        while self._process.poll() is None:
            try:
                found = self.records()
                own = found[found['due_ns'] >= since_ns]
                if own['count'].sum() >= count and (not must_move or own['chunk_id'].any()):
                    return
                end_ns = max(end_ns, CLOCK.mono_ns() + 20 * S) if len(found) else end_ns
            except (OSError, StopIteration, ValueError):
                pass
            if CLOCK.mono_ns() > end_ns:
                break
            time.sleep(0.25)
        raise SystemExit(f'{count} ticks never came:\n{self.text[-2000:]}')

    @property
    def text(self) -> str:
        """Return what the demonstration said."""
        return (self._runs / 'demo.log').read_text(errors='replace')

    def bridge_pid(self) -> int:
        """Return the process of the bridge."""
        lines = (self.folder / 'supervisor.jsonl').read_text().splitlines()
        return next(event['pid'] for event in map(json.loads, lines)
                    if event['node'] == 'controller_bridge' and event['event'] == 'started')

    def end(self) -> int:
        """Stop the demonstration; return its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        code = self._process.wait(PATIENCE_S)
        self._log.close()
        return code


@contextmanager
def load(is_loaded: bool) -> Iterator[int]:
    """Keep every core busy while the block runs; yield by how many programs."""
    count = len(os.sched_getaffinity(0)) if is_loaded else 0
    busy = [subprocess.Popen([sys.executable, '-c', BUSY]) for _ in range(count)]
    try:
        yield count
    finally:
        for process in busy:
            process.kill()
            process.wait()


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used so far, user and system."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def lateness(runs: Path, rate_hz: float, *, is_loaded: bool, ticks: int,
             cpu_seconds: float) -> dict[str, Any]:
    """Run once and return the tails of the lateness and the CPU share of the bridge."""
    runs.mkdir()
    seconds = max(ticks / rate_hz, cpu_seconds) + PATIENCE_S
    run = Run(runs, rate_hz, seconds)
    try:
        run.await_ticks(0, round(rate_hz), must_move=True)
        with load(is_loaded) as programs:
            since_ns = CLOCK.mono_ns() + WARMUP_NS
            run.await_ticks(since_ns, 1)
            pid, start_ns = run.bridge_pid(), CLOCK.mono_ns()
            used_s = cpu_s(pid)
            CLOCK.sleep_until(start_ns + round(cpu_seconds * S))
            share = (cpu_s(pid) - used_s) * S / (CLOCK.mono_ns() - start_ns)
            run.await_ticks(since_ns, ticks)
        found = run.records()
    finally:
        code = run.end()
    own = found[found['due_ns'] >= since_ns]
    own = own[np.cumsum(own['count']) <= ticks + 1]
    period_ns = round(1e9 / rate_hz)
    return {
        'rate_hz': rate_hz, 'load': 'loaded' if is_loaded else 'idle', 'programs': programs,
        'late_ms': tails(own['late_ns'] / MS), 'late_share': share_of(
            2 * own['late_ns'] > period_ns, own), 'sent_share': share_of(
            (own['flags'] & SENT) != 0, own), 'gaps': int(((own['flags'] & GAP) != 0).sum()),
        'causes': causes(own), 'bridge_cpu_share': share, 'cpu_seconds': cpu_seconds,
        'joint_states_per_tick': joint_states(run.folder) / len(run.records()),
        'is_realtime': 'control.realtime_priority' not in bridge_log(run.folder),
        'exit_code': code,
    }


def share_of(mask: Any, records: Any) -> float:
    return float(records['count'][mask].sum() / max(1, records['count'].sum()))


def causes(records: Any) -> dict[str, int]:
    codes, counts = np.unique(records['cause'], return_counts=True)
    return {CAUSE_CODES[code].value: int(n) for code, n in zip(codes, counts, strict=True)}


def bridge_log(folder: Path) -> str:
    return '\n'.join(path.read_text(errors='replace') for path in (folder / 'logs').iterdir()
                     if 'controller_bridge' in path.name)


def joint_states(folder: Path) -> int:
    """Return how many joint states the bag holds."""
    total = 0
    for path in folder.glob('bag*/metadata.yaml'):
        info = yaml.safe_load(path.read_text())['rosbag2_bagfile_information']
        total += sum(entry['message_count'] for entry in info['topics_with_message_count']
                     if entry['topic_metadata']['name'].endswith('joint_states'))
    return total


# ---- the SDK ---------------------------------------------------------------------------------


def sdk_call(calls: int) -> dict[str, Any]:
    """Return what one command of five frames costs: wall time and CPU of the calling thread."""
    server = subprocess.Popen([sys.executable, '-m', 'reflex_ros.sim.can_server', '--port', '0'],
                              stdout=subprocess.PIPE)
    assert server.stdout is not None
    port = json.loads(server.stdout.readline())['port']
    with tempfile.TemporaryDirectory() as folder:
        arm = PiperDriver(DriverConfig(
            transport='socketcand', port=port, lock_dir=Path(folder),
            feedback_timeout_ns=S), CLOCK)
        try:
            arm.connect()
            arm.check()
            arm.enable()
            pose, wall, cpu = arm.feedback().position, [], []
            arm.send(pose)
            for _ in range(calls):
                CLOCK.sleep_until(CLOCK.mono_ns() + 5 * MS)
                begin_ns, used_ns = CLOCK.mono_ns(), time.thread_time_ns()
                arm.send(pose)
                cpu.append((time.thread_time_ns() - used_ns) / MS)
                wall.append((CLOCK.mono_ns() - begin_ns) / MS)
        finally:
            arm.disconnect()
            server.kill()
            server.communicate()
    return {'frames': 4, 'wall_ms': tails(wall), 'cpu_ms': tails(cpu)}


def interpreter() -> dict[str, Any]:
    """Return what runs the nodes, and how fast it is here: CPU time of a plain loop.

    Two builds of one version differ by a third, and so do two hours of one virtual machine.
    """
    before_ns, total = cpu_ns(), 0
    for number in range(LOOP):
        total += number
    return {'version': platform.python_version(), 'compiler': platform.python_compiler(),
            'loop': LOOP, 'loop_ms': (cpu_ns() - before_ns) / MS}


def main(args: Sequence[str] | None = None) -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--ticks', type=int, default=10_000, help='of each cell')
    parser.add_argument('--rates', type=float, nargs='+', default=[50.0, 200.0])
    parser.add_argument('--loads', nargs='+', default=['idle', 'loaded'],
                        choices=('idle', 'loaded'))
    parser.add_argument('--cpu-seconds', type=float, default=60.0)
    parser.add_argument('--calls', type=int, default=2000, help='of the SDK')
    parser.add_argument('--out', type=Path, default=Path('results/tick'))
    parser.add_argument('--picture', type=Path, default=PICTURE)
    parser.add_argument('--draw', action='store_true', help='only draw the newest result')
    options = parser.parse_args(args)
    if options.draw:
        path = newest(options.out)
        if path is None:
            raise SystemExit(f'no result in {options.out}')
    else:
        path = measure(options)
    write_picture(json.loads(path.read_text(encoding='utf-8')), options.picture)
    print(path, options.picture)
    return 0


def measure(options: argparse.Namespace) -> Path:
    """Measure everything and return the result file."""
    revision = read_revision()
    sdk, cells = sdk_call(options.calls), []
    with tempfile.TemporaryDirectory() as folder:
        for rate_hz in options.rates:
            for name in options.loads:
                cells.append(lateness(
                    Path(folder) / f'{rate_hz:g}-{name}', rate_hz, is_loaded=name == 'loaded',
                    ticks=options.ticks, cpu_seconds=options.cpu_seconds))
                cells[-1]['python'] = interpreter()
                print(json.dumps(cells[-1]))
    config = {'ticks': options.ticks, 'policy': 'oracle', 'task': 'jump',
              'cpu_seconds': options.cpu_seconds, 'calls': options.calls}
    return write_result(options.out, 'tick', config=config, summary={'cells': cells, 'sdk': sdk},
                        unit='ms', n=options.ticks, tag='measured', revision=revision)


if __name__ == '__main__':
    raise SystemExit(main())
