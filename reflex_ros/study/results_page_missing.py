"""What was not run, computed from what is absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reflex_ros.study import expert_report, wall_report
from reflex_ros.study.experiment_file import CHOICES, PARTS
from reflex_ros.study.results import load_newest
from reflex_ros.study.results_page_found import COMMANDS, Found, load_bench, load_paper
from reflex_ros.study.results_page_render import Block, Heading, Table, Text
from reflex_ros.study.results_page_sources import of_left

TITLE = 'Not run'
GPU = (
    'On a GPU, nothing: the times of Table 1, Table 7, Table 8, Table 9 and Table 10, the memory '
    'of Table 8, fusion (Figure 11), scales (Figure 6) and efficiency (Figure 12). Command: '
    '`make gpu`.')
KINETIX = (
    'LIBERO, Kinetix and a real arm are not here, so the success of Table 3, Table 8 and '
    'Table 10, the trials of Table 2 and Figure 6, Figure 7 and Figure 12 are not run.')
UNUSED = (
    'No cell that was run has as {what}: {names}. `reflex-ros experiment` runs such cells from a '
    'file of yours.')


def section(found: Sequence[Found], root: Path) -> list[Block]:
    """Return everything that was not run, and the tables of the paper without one of ours."""
    sources = dict(lines_left(found))
    blocks: list[Block] = [Heading(2, TITLE), *(
        Text(f'* {one}', sources.get(one, ())) for one in missing(found, root))]
    has_gpu = load_bench(root, 'gpu') is not None
    for table in load_paper(root).get('unmeasured', ()):
        blocks += [Heading(3, str(table['title'])), unmeasured(table, has_gpu=has_gpu)]
    return blocks


def unmeasured(table: Mapping[str, Any], *, has_gpu: bool) -> Table:
    """Return a table of the paper with a column that says what one of ours would need."""
    head = [str(table['head'][0]), *(f'{name}, `paper`' for name in table['head'][1:]), 'ours']
    lacks = ', '.join(f'no {one}' for one in table['needs'] if one != 'GPU' or not has_gpu)
    return Table(head, [[*map(str, row), f'not measured: {lacks} here'] for row in table['rows']])


def missing(found: Sequence[Found], root: Path) -> Iterator[str]:
    """Yield a sentence for each thing that was not run."""
    yield from (text for text, _ in lines_left(found))
    if load_bench(root, 'gpu') is None:
        yield GPU
    yield from (f'No result in `results/{name}`. Command: `{command}`.'
                for name, command in COMMANDS.items()
                if name != 'gpu' and load_bench(root, name) is None)
    if load_newest(root / wall_report.FOLDER) is None:
        yield f'No cell in wall time. Command: `{wall_report.COMMAND}`.'
    if load_newest(root / expert_report.FOLDER) is None:
        yield f'No expert alone. Command: `{expert_report.COMMAND}`.'
    yield KINETIX
    late = multi_under_delay(found)
    if late:
        yield f'`tiny_multi` under delay: {", ".join(f"`{task}`" for task in late)}.'
    yield from unused(found)


def lines_left(found: Sequence[Found]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield a sentence for each experiment that lacks lines, and where its numbers come from."""
    for one in found:
        planned = len(one.experiment.seeds) * len(one.experiment.cells)
        if len(one.lines) < planned:
            yield (f'{one.experiment.title}: {planned - len(one.lines)} of {planned} episodes. '
                   f'Command: `{one.command}`.'), of_left(one.experiment.name)


def run_cells(found: Sequence[Found]) -> list[Any]:
    """Return every cell that has lines."""
    return [cell for one in found for cell in one.experiment.cells
            if one.experiment.key(cell) in one.figures]


def multi_under_delay(found: Sequence[Found]) -> list[str]:
    """Return the tasks in which ``tiny_multi`` met no delay."""
    met = {cell.task for cell in run_cells(found)
           if cell.policy == 'tiny_multi' and cell.delay_ms > 0}
    return [task for task in CHOICES['task'] if task not in met and task != 'hold']


def unused(found: Sequence[Found]) -> Iterator[str]:
    """Yield the settings that experiments offer and no stored line has."""
    cells = run_cells(found)
    used = {key: {getattr(cell, key) for cell in cells} for key in CHOICES}
    used['parts'] = {part for cell in cells for part in cell.parts or ()}
    for key, choices in {**CHOICES, 'parts': PARTS}.items():
        left = [f'`{one}`' for one in choices if one not in used[key]]
        if left:
            yield UNUSED.format(what=f'`{key}`', names=', '.join(left))
