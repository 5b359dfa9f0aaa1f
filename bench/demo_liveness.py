"""Liveness of the real nodes in real time: runs the demonstration and keeps what it found.

Writes ``results/demo/<utc>-<sha7>.json``. Usage: ``python bench/demo_liveness.py --policy tiny``.
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
from reflex_ros.study.results import write_result

MAIN = 'import sys; from reflex_ros.cli.main import main; sys.exit(main())'


def run_once(runs: Path, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Run the demonstration once and return its summary and its audit."""
    command = [
        sys.executable, '-c', MAIN, 'demo', '--runs', str(runs), '--policy', options.policy,
        '--mode', options.mode, '--duration', str(options.duration), '--seed', str(seed),
        '--delay-ms', str(options.delay_ms),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f'demo ended with exit code {done.returncode}:\n{done.stdout[-2000:]}')
    folder = max(runs.iterdir(), key=lambda path: path.stat().st_mtime)
    summary = json.loads((folder / 'summary.json').read_text(encoding='utf-8'))
    summary.pop('machine', None)
    return {'seed': seed, 'audit': asdict(audit(folder)), 'summary': summary}


def main(args: Sequence[str] | None = None) -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--policy', default='tiny')
    parser.add_argument('--mode', default='reflex')
    parser.add_argument('--delay-ms', type=float, default=0.0)
    parser.add_argument('--duration', type=float, default=31.0, help='length of a run, s')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--out', type=Path, default=Path('results/demo'))
    options = parser.parse_args(args)
    with tempfile.TemporaryDirectory() as folder:
        found = [run_once(Path(folder), options, seed) for seed in tqdm(range(options.runs))]
    worst = min(run['audit']['live_share'] for run in found)
    summary = {
        'live_share_worst': worst,
        'live_share': [run['audit']['live_share'] for run in found],
        'stall_ratio': [run['summary']['stall_ratio'] for run in found],
        'ticks': [run['audit']['ticks'] for run in found],
        'runs': found,
    }
    config = {'policy': options.policy, 'mode': options.mode, 'delay_ms': options.delay_ms,
              'duration_s': options.duration}
    print(write_result(options.out, f'demo_{options.policy}', config=config, summary=summary,
                       unit='share of non-ramping ticks', n=options.runs, tag='measured'))
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
