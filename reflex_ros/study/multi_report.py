"""The table of ``multi_table``: success of each task, as trained and otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

AS_TRAINED, WORDING, WORD, COLOUR, OTHERWISE = (
    'as trained', 'unseen wording', 'unknown word', 'unseen colour', 'told otherwise')
CONDITIONS = (AS_TRAINED, WORDING, WORD, COLOUR, OTHERWISE)


def multi_lines(result: Mapping[str, Any]) -> list[str]:
    """Return success in % with its 95 % interval and what it was judged on."""
    cells: Sequence[Mapping[str, Any]] = result['summary']
    config = result['config']
    by_task: dict[str, dict[str, Mapping[str, Any]]] = {}
    for cell in cells:
        by_task.setdefault(cell['task'], {})[cell['condition']] = cell
    head = (f'Success in % (95 % Wilson interval; of how many): episodes from seed '
            f'{config["first_seed"]} on, never trained on, without delay; a target counts as '
            f'followed within {1e3 * config["tolerance_m"]:.0f} mm and is judged stretch by '
            'stretch. *Told otherwise*: the drawer was asked for and opened.')
    table = [['task', *CONDITIONS, 'mean error, mm'],
             *([f'`{task}`', *(_share(own.get(name)) for name in CONDITIONS),
                _error(own.get(AS_TRAINED))] for task, own in by_task.items())]
    table.insert(1, ['---'] * len(table[0]))
    return [head, '', *('| ' + ' | '.join(row) + ' |' for row in table)]


def _share(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ''
    share, low, high = (100 * cell[name] for name in ('success', 'success_low', 'success_high'))
    return f'{share:.0f} ({low:.0f} to {high:.0f}; {cell["judged"]})'


def _error(cell: Mapping[str, Any] | None) -> str:
    error = None if cell is None else cell['mean_error_mm']
    return '' if error is None else f'{error:.0f}'
