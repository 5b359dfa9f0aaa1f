"""The table of the shipped ``tiny`` policy: modes, state/row-0 pairs and controls over delays.

Run as ``python -m reflex_ros.study.tiny_table --out results/tiny``. Seeds from 5000 on were never
trained on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reflex_ros.study.grid import Cell, run_grid, summarise_cell
from reflex_ros.study.results import journal_of, read_revision, write_result

DELAYS_MS = (0, 60, 100, 200)
FIRST_SEED = 5000
KINDS = ('normal',)
"""The target never rests: a policy that is late is seen to be late."""
PAIRS = MappingProxyType({
    'measured_observation': {'chunk.state_source': 'measured', 'chunk.row0': 'observation'},
    'predicted_execution': {'chunk.state_source': 'predicted', 'chunk.row0': 'first_execution'},
    'measured_execution': {'chunk.state_source': 'measured', 'chunk.row0': 'first_execution'},
    'predicted_observation': {'chunk.state_source': 'predicted', 'chunk.row0': 'observation'},
})
"""State and instant of row 0; the first two belong together, the others are ablations."""


def cells(policy: str, *, duration_s: float, sync_steps: int = 10) -> list[Cell]:
    """Return the grid of a checkpoint folder."""
    def cell(name: str, mode: str, delay: float, **changes: Any) -> Cell:
        steps = sync_steps if mode == 'sync' else 5
        return Cell(f'{name}@{delay}', mode, steps, delay, policy=policy, duration_s=duration_s,
                    kinds=KINDS, **changes)

    def pair(name: str) -> list[Cell]:
        return [cell(f'reflex:{name}', 'reflex', delay, params=PAIRS[name])
                for delay in DELAYS_MS]

    preset, *others = PAIRS
    return [
        *pair(preset),
        *(cell('async_naive', 'async_naive', delay) for delay in DELAYS_MS),
        *(cell('sync', 'sync', delay) for delay in DELAYS_MS),
        cell('black', 'reflex', 0, edit='black'), cell('hold', 'reflex', 0, edit='hold'),
        *(one for name in others for one in pair(name)),
    ]


def main(args: Sequence[str] | None = None) -> int:
    """Run the grid and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--checkpoint', default='reflex_ros/data/tiny')
    parser.add_argument('--seeds', type=int, default=100)
    parser.add_argument('--duration', type=float, default=4.0, help='length of an episode, s')
    parser.add_argument('--workers', type=int, default=2)
    parser.add_argument('--out', type=Path, default=Path('results/tiny'))
    parser.add_argument('--journal', type=Path, help='default: one in runs for each commit')
    options = parser.parse_args(args)
    revision = read_revision()
    journal = options.journal or journal_of('tiny_table', revision)
    journal.parent.mkdir(parents=True, exist_ok=True)
    grid = cells(options.checkpoint, duration_s=options.duration)
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    rows = run_grid(grid, seeds, journal, workers=options.workers)
    summary = [summarise_cell(cell, rows) for cell in grid]
    config = {'kinds': list(KINDS), 'duration_s': options.duration, 'tolerance_m': 0.05,
              'first_seed': FIRST_SEED, 'seeds': options.seeds,
              'checkpoint': Path(options.checkpoint).name}
    path = write_result(options.out, 'tiny', config=config, summary=summary, unit='share',
                        n=options.seeds, revision=revision)
    print(path)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
