"""What the documents say of the scripted experts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reflex_ros.study.experiment_table import interval, markdown
from reflex_ros.study.results import load_newest
from reflex_ros.study.results_page_claims import ABSENT, FAILS, HOLDS, Claim
from reflex_ros.study.results_page_render import Block, Heading, Table, Text
from reflex_ros.study.results_page_sources import STUDY, of_file

FOLDER, COMMAND = 'results/experts', 'python bench/experts.py'
TITLE = 'The scripted experts'
ABOUT = (
    'The experts that stand for a policy above, alone: nothing is late, no node is between them '
    'and the arm, and they are told the true state. An episode succeeds if all of its stretches '
    'do; what they reach here is the most that a mode can leave of them.')
LEAST = 0.98
"""Share of the episodes in which an expert is to succeed."""
HEAD = ('task', 'success, %', 'episodes', 'stretches', 'error, mm', 'largest', 'duration, s',
        'longest')


def expert_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the rates as Markdown lines, for the terminal and a page between markers."""
    return [*markdown(HEAD, rows(result)), '', verdict(result)]


def rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each task."""
    return [[
        f'`{one["task"]}`',
        interval((one['success'], one['success_low'], one['success_high']), 100),
        f'{one["successes"]} of {one["episodes"]}',
        f'{one["stretches_followed"]} of {one["stretches"]}' if one['error_mm'] is not None
        else '', _number(one['error_mm']), _number(one['worst_mm']), _number(one['duration_s']),
        _number(one['longest_s']),
    ] for one in result['summary']]


def _number(value: float | None) -> str:
    return '' if value is None else f'{value:.1f}'


def verdict(result: Mapping[str, Any]) -> str:
    """Return how many experts succeed as often as they are to, and which do not."""
    tasks = result['summary']
    weak = [one for one in tasks if one['success'] < LEAST]
    text = (f'{len(tasks) - len(weak)} of {len(tasks)} experts succeed in at least '
            f'{100 * LEAST:.0f} % of their episodes')
    if weak:
        return f'{text}. **Not so**: ' + ', '.join(f'`{one["task"]}`' for one in weak) + '.'
    return (f'{text}; a target counts as followed within '
            f'{1e3 * result["config"]["tolerance_m"]:.0f} mm.')


def section(root: Path) -> list[Block]:
    """Return the section of the page of results; it says so where nothing was run."""
    blocks: list[Block] = [Heading(2, TITLE), Text(ABOUT)]
    found = load_newest(root / FOLDER)
    if found is None:
        return [*blocks, Text(f'Not run: no result file in `{FOLDER}`. Command: `{COMMAND}`.')]
    path, result = found
    file = f'{FOLDER}/{path.name}'
    within = of_file(file, 'config.tolerance_m * 1000') if 'within' in verdict(result) else ()
    return [*blocks, Table(HEAD, rows(result)),
            Text(verdict(result), (*of_file(file, 'experts', 'count summary.*'),
                                   f'{STUDY}/expert_report.py LEAST * 100', *within)),
            Text(source(path, result), of_file(
                file, 'count samples.*', 'min samples.*.seed', 'max samples.*.seed',
                'machine.cpu', 'machine.cores'))]


def source(path: Path, result: Mapping[str, Any]) -> str:
    """Return where the rows come from, on what and with which code."""
    machine, seeds = result['machine'], result['config']['seeds']
    dirty = ' with uncommitted changes' if result['dirty'] else ''
    return (f'Tag `simulated`. Source: `{FOLDER}/{path.name}`, {result["n"]} episodes, seeds '
            f'{seeds[0]} to {seeds[0] + seeds[1] - 1}, commit `{result["sha"][:7]}`{dirty}, '
            f'{machine["cpu"]}, {machine["cores"]} cores. Command: `{COMMAND}`.')


def claim(root: Path) -> Claim:
    """Return the row of the page's first tables."""
    text = f'Each scripted expert succeeds in at least {100 * LEAST:.0f} % of its episodes'
    found = load_newest(root / FOLDER)
    if found is None:
        return Claim(text, ABSENT, '', '', f'no file in `{FOLDER}`', 'the bench was not run',
                     f'`{COMMAND}`', TITLE)
    path, result = found
    tasks = result['summary']
    worst = min(tasks, key=lambda one: float(one['success']))
    least = interval((worst['success'], worst['success_low'], worst['success_high']), 100)
    is_met = worst['success'] >= LEAST
    return Claim(text, HOLDS if is_met else FAILS, '', 'simulated',
                 f'worst: {worst["task"]} {least} %, {len(tasks)} tasks with '
                 f'{worst["episodes"]} episodes',
                 '' if is_met else 'the script of that task fails',
                 f'[experts](../{FOLDER}/{path.name}), `{COMMAND}`', TITLE)
