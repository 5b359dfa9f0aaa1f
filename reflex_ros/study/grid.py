"""Grids of episodes: cells times seeds, on all cores, resumable, with intervals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from reflex_ros.core.stats import quantiles, wilson
from reflex_ros.study.episode import EpisodeSpec, run_episode
from reflex_ros.study.episode_params import check_taken

if TYPE_CHECKING:
    from reflex_ros.core.param_table import Value

EDITS = ('none', 'black', 'hold')


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a grid.

    Attributes:
        name: Unique name. ``mode``, ``execute_steps``, ``delay_ms``: see ``EpisodeSpec``.
        policy: ``oracle`` or the folder of a checkpoint.
        edit: ``none``; ``black``: every image is black; ``hold``: the arm holds still.
        tolerance_m: Distance that counts as followed.
        params: Further parameters by name.
    """

    name: str
    mode: str
    execute_steps: int
    delay_ms: float
    policy: str = 'oracle'
    edit: str = 'none'
    tolerance_m: float = 0.05
    task: str = 'jump'
    kinds: tuple[str, ...] = ()
    duration_s: float = 8.0
    params: Mapping[str, Value] = field(default_factory=dict)

    def spec(self, seed: int) -> EpisodeSpec:
        """Return the episode of one seed."""
        params = dict(self.params)
        check_taken(params, f'cell {self.name}')
        if self.edit == 'hold':
            params['run.autostart'] = False
        return EpisodeSpec(
            policy='oracle' if self.policy == 'oracle' else 'tiny', mode=self.mode,
            execute_steps=self.execute_steps, delay_ms=self.delay_ms, seed=seed,
            task=self.task, kinds=self.kinds, duration_s=self.duration_s,
            tolerance_m=self.tolerance_m, params=params,
        )


def run_cell(cell: Cell, seed: int) -> dict[str, Any]:
    """Run one episode of a cell and return its row, in JSON types."""
    spec = cell.spec(seed)
    if cell.policy == 'oracle':
        episode = run_episode(spec)
    else:
        from reflex_ros.study.policies import network_options, tiny_parts

        edit = np.zeros_like if cell.edit == 'black' else None
        with tiny_parts(Path(cell.policy), seed=seed, is_compiled=True,
                        **network_options(cell.params)) as (model, encoder):
            episode = run_episode(spec, model=model, encoder=encoder, edit_image=edit)
    summary = episode.summary
    return {
        'cell': cell.name, 'seed': seed,
        'success': [bool(s.success) for s in episode.segments],
        'error_m': [s.mean_error_m for s in episode.segments],
        'stall_ratio': summary.stall_ratio, 'stalled_chunks': summary.stalled_chunks,
        'uncovered_share': summary.uncovered_share,
        'reaction_ms': summary.reaction_ms['p50'],
        'seam_rad': float(np.mean([t.seam_position for t in episode.log.traces] or [np.nan])),
        'fallbacks': episode.fallbacks,
    }


def run_grid(cells: Sequence[Cell], seeds: Iterable[int], journal: Path, *,
             workers: int = 2) -> list[dict[str, Any]]:
    """Run every cell with every seed and return the rows; finished ones are not run again.

    Args:
        cells: The grid.
        seeds: Seeds.
        journal: JSON lines of finished rows; appended to.
        workers: Processes.
    """
    rows = _finished(journal)
    done = {(row['cell'], row['seed']) for row in rows}
    left = [(c, s) for c in cells for s in seeds if (c.name, s) not in done]
    with (
        journal.open('a', encoding='utf-8') as file,
        ProcessPoolExecutor(workers) as pool,
        tqdm(total=len(left), unit='episode') as bar,
    ):
        for row in pool.map(_run_pair, left, chunksize=4):
            file.write(json.dumps(row) + '\n')
            file.flush()
            rows.append(row)
            bar.update()
    return rows


def _run_pair(pair: tuple[Cell, int]) -> dict[str, Any]:
    return run_cell(*pair)


def _finished(journal: Path) -> list[dict[str, Any]]:
    if not journal.exists():
        return []
    lines = journal.read_text(encoding='utf-8').splitlines()
    return [json.loads(line) for line in lines if line.endswith('}')]


def summarise_cell(cell: Cell, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a cell's figures: success with its 95 % Wilson interval, error, stalls, reaction."""
    own = [row for row in rows if row['cell'] == cell.name]
    success = [s for row in own for s in row['success']]
    errors = [e for row in own for e in row['error_m']]
    low, high = wilson(sum(success), len(success))
    return {
        'cell': cell.name, 'mode': cell.mode, 'execute_steps': cell.execute_steps,
        'delay_ms': cell.delay_ms, 'edit': cell.edit, 'params': dict(cell.params),
        'episodes': len(own), 'segments': len(success), 'successes': int(sum(success)),
        'success': sum(success) / len(success) if success else None,
        'success_low': low, 'success_high': high,
        'mean_error_mm': 1e3 * float(np.mean(errors)) if errors else None,
        'stall_ratio': _mean(own, 'stall_ratio'), 'stalled_chunks': _mean(own, 'stalled_chunks'),
        'uncovered_share': _mean(own, 'uncovered_share'),
        'reaction_ms': quantiles(_numbers(own, 'reaction_ms')),
        'seam_mrad': 1e3 * _mean(own, 'seam_rad'), 'fallbacks': sum(r['fallbacks'] for r in own),
    }


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    values = _numbers(rows, key)
    return float(np.mean(values)) if values else float('nan')


def _numbers(rows: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return the values that are there: an arm that holds still never reacts."""
    return [row[key] for row in rows if row[key] is not None and not np.isnan(row[key])]
