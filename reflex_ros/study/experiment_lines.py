"""Stored lines of experiments, and the figures of a cell; needs no simulator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reflex_ros.core.stats import bootstrap_mean, bootstrap_median, wilson
from reflex_ros.study.experiment_file import Cell, Experiment
from reflex_ros.study.stage_times import Profile

Line = dict[str, Any]
RESULTS, WALL, CELLS = 'results.jsonl', 'wall.jsonl', 'cells.json'
RESAMPLES = 400


@dataclass(frozen=True, slots=True)
class Job:
    """One line to make: the key and the settings of a cell, its stage times and a seed."""

    key: str
    cell: Cell
    profile: Profile
    seed: int


def jobs_of(experiment: Experiment) -> list[Job]:
    """Return every line of an experiment, seed by seed, so that what is cut short is balanced."""
    keyed = [(experiment.key(cell), cell) for cell in experiment.cells]
    return [Job(key, cell, experiment.profiles[cell.times], seed)
            for seed in experiment.seeds for key, cell in dict(keyed).items()]


def read_lines(path: Path) -> list[Line]:
    """Return the whole lines of a file, [] without one; a torn last line is left out."""
    if not path.is_file():
        return []
    text = path.read_text(encoding='utf-8')
    return [json.loads(line) for line in text[:text.rfind('\n') + 1].splitlines()]


def lines_of(experiment: Experiment, folder: Path) -> list[Line]:
    """Return the stored lines of an experiment in the order of its grid."""
    found = {(line['cell'], line['seed']): line for line in read_lines(folder / RESULTS)}
    keys = [(job.key, job.seed) for job in jobs_of(experiment)]
    return [found[key] for key in keys if key in found]


# ---- one cell in figures ---------------------------------------------------------------------


def summarise_cells(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the figures of each cell that has lines, by its key."""
    by_cell: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        by_cell.setdefault(line['cell'], []).append(line)
    return {key: summarise_lines(own) for key, own in by_cell.items()}


def summarise_lines(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of a cell's lines with 95 % intervals; none without samples."""
    success = [one for line in lines for one in line['success']]
    errors = [one for line in lines for one in line['error_mm']]
    reactions = [one for line in lines for one in line['reaction_ms']]
    commands = [line['command_ms'] for line in lines if line['command_ms'] is not None]
    return {
        'episodes': len(lines), 'trials': len(success), 'successes': sum(success),
        'success': _share(sum(success), len(success)),
        'mean_error_mm': _mean([line['error_mm'] for line in lines]),
        'error_mm': _median(errors), 'reaction_ms': _median(reactions),
        'reactions': len(reactions), 'command_ms': _median(commands),
        'stall_ratio': _total(lines, 'stalled_ticks', 'motion_ticks'),
        'stalled_chunks': _total(lines, 'stalled_changes', 'chunk_changes'),
        'uncovered_share': _weighted(lines),
        'seam_mrad': _median([1e3 * line['seam_rad'] for line in lines
                              if line['seam_rad'] is not None]),
        'max_age_s': max((line['max_age_s'] for line in lines), default=None),
    }


def _share(part: int, whole: int) -> tuple[float, float, float] | None:
    return (part / whole, *wilson(part, whole)) if whole else None


def _median(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the median (of an even number the lower one) and its bootstrap interval."""
    if not values:
        return None
    ordered = sorted(values)
    low, high = bootstrap_median(values, 0, resamples=RESAMPLES)
    return ordered[(len(ordered) - 1) // 2], low, high


def _mean(groups: Sequence[Sequence[float]]) -> tuple[float, float, float] | None:
    """Return the mean of all samples and its bootstrap interval, which draws whole groups."""
    values = [one for group in groups for one in group]
    if not values:
        return None
    return sum(values) / len(values), *bootstrap_mean(groups, 0, resamples=RESAMPLES)


def _total(lines: Sequence[Mapping[str, Any]], part: str, whole: str) -> float | None:
    count = sum(line[whole] for line in lines)
    return sum(line[part] for line in lines) / count if count else None


def _weighted(lines: Sequence[Mapping[str, Any]]) -> float | None:
    own = [line for line in lines if line['uncovered'] is not None]
    count = sum(line['inferences'] for line in own)
    return sum(line['uncovered'] * line['inferences'] for line in own) / count if count else None
