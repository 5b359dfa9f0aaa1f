"""Liveness of the real nodes in real time: runs the demonstration and keeps what it found.

Writes ``results/demo/<utc>-<sha7>.json``. Usage: ``python bench/demo_liveness.py reflex:tiny``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from reflex_ros.report.audit import audit
from reflex_ros.study.results import read_revision, write_result

MAIN = 'import sys; from reflex_ros.cli.main import main; sys.exit(main())'


def run_once(runs: Path, cell: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Run the demonstration once and return its summary with its audit."""
    mode, policy = cell.split(':')
    command = [
        sys.executable, '-c', MAIN, 'demo', '--runs', str(runs), '--policy', policy,
        '--mode', mode, '--duration', str(options.duration), '--seed', str(seed),
        '--delay-ms', str(options.delay_ms),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f'demo ended with exit code {done.returncode}:\n{done.stdout[-2000:]}')
    folder = max(runs.iterdir(), key=lambda path: path.stat().st_mtime)
    summary: dict[str, Any] = json.loads((folder / 'summary.json').read_text(encoding='utf-8'))
    summary.pop('machine', None)
    return {**summary, 'audit': asdict(audit(folder))}


def main(args: Sequence[str] | None = None) -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('cells', nargs='*', metavar='MODE:POLICY',
                        default=['reflex:tiny', 'async_naive:tiny', 'sync:tiny', 'reflex:oracle'])
    parser.add_argument('--delay-ms', type=float, default=0.0)
    parser.add_argument('--duration', type=float, default=31.0, help='length of a run, s')
    parser.add_argument('--seeds', type=int, default=1, help='runs of each cell')
    parser.add_argument('--out', type=Path, default=Path('results/demo'))
    options = parser.parse_args(args)
    revision = read_revision()
    pairs = [(cell, seed) for cell in options.cells for seed in range(options.seeds)]
    with tempfile.TemporaryDirectory() as folder:
        found = [run_once(Path(folder), cell, options, seed) for cell, seed in tqdm(pairs)]
    config = {'delay_ms': options.delay_ms, 'duration_s': options.duration,
              'seeds': options.seeds}
    print(write_result(options.out, 'demo', config=config, summary=found,
                       unit='share of control ticks', n=len(found), tag='measured',
                       revision=revision))
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
