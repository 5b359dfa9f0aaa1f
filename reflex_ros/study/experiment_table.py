"""The figures of an experiment as table rows, for the terminal, the page and its test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reflex_ros.study.experiment_file import Experiment
from reflex_ros.study.experiment_lines import summarise_cells

HEAD = ('cell', 'h', 'times', 'success, %', 'mean error, mm', 'median error, mm', 'reaction, ms',
        'stalled chunks, %', 'uncovered, %', 'stall ratio, %', 'seam, mrad', 'episodes', 'id')
NOT_RUN = 'not run'


def table(experiment: Experiment, lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of an experiment as Markdown lines."""
    return markdown(HEAD, rows(experiment, summarise_cells(lines)))


def rows(experiment: Experiment, figures: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return a row for each cell: its name and settings, its figures, its id."""
    return [[cell.label, str(cell.execute_steps), cell.times,
             *words(figures.get(experiment.key(cell)), planned=len(experiment.seeds)),
             f'`{experiment.key(cell)}`'] for cell in experiment.cells]


def words(found: Mapping[str, Any] | None, *, planned: int) -> list[str]:
    """Return the figures of one cell as they are shown, ``not run`` without any."""
    if found is None:
        return [NOT_RUN] * 8 + [f'0 of {planned}']
    return [
        interval(found['success'], 100), interval(found['mean_error_mm'], digits=1),
        interval(found['error_mm'], digits=1), interval(found['reaction_ms']),
        number(found['stalled_chunks'], 100), number(found['uncovered_share'], 100),
        number(found['stall_ratio'], 100), interval(found['seam_mrad'], digits=1),
        f'{found["episodes"]} of {planned}',
    ]


def interval(value: tuple[float, float, float] | None, scale: float = 1.0,
             digits: int = 0) -> str:
    """Return an estimate with its interval, ``none`` without one."""
    if value is None:
        return 'none'
    middle, low, high = (f'{scale * part:.{digits}f}' for part in value)
    return f'{middle} ({low} to {high})'


def number(value: float | None, scale: float = 1.0) -> str:
    """Return a number, ``none`` without one."""
    return 'none' if value is None else f'{scale * value:.0f}'


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    return ['| ' + ' | '.join(line) + ' |' for line in (head, ['---'] * len(head), *body)]
