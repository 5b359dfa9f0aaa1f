"""The file of the fault matrix and its table: what the arm did in each fault."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SCHEMA = 1
RESULT = Path('results') / 'faults' / 'matrix.json'
HEAD = ('fault', 'put in at', 'the arm', 'max rad/s', 'max rad/s²', 'moved, rad', 'cause', 'code',
        'ends')


@dataclass(frozen=True, slots=True)
class Row:
    """What the arm did, rounded for the page.

    Attributes:
        name, area, where: Of the case. behaviour: What came of it.
        max_velocity, max_acceleration: Of the commands from the fault on, rad/s and rad/s².
        moved: Largest joint motion between the fault and the first rest after it, rad; None if
            the arm did not rest or somebody else moved it.
        causes: Of the ticks from the fault on that executed no chunk.
        code: Fault code. ended: How it ended.
        problems: What was not as specified, () if all was.
    """

    name: str
    area: str
    where: str
    behaviour: str
    max_velocity: float
    max_acceleration: float
    moved: float | None
    causes: tuple[str, ...]
    code: str
    ended: str
    problems: tuple[str, ...] = ()


def write_matrix(rows: Sequence[Row], path: Path) -> None:
    """Write the rows; the same sources give the same file."""
    data = {'schema': SCHEMA, 'tag': 'simulated', 'rows': [asdict(row) for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')


def read_matrix(path: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a file."""
    rows: list[Mapping[str, Any]] = json.loads(path.read_text(encoding='utf-8'))['rows']
    return rows


def matrix_lines(root: Path) -> list[str]:
    """Return the table of a checkout with its source; () rows and a word if nothing was run."""
    if not (root / RESULT).is_file():
        return [f'*Not run: no `{RESULT.as_posix()}`.* Command: `make faults`.']
    rows = read_matrix(root / RESULT)
    areas = dict.fromkeys(row['area'] for row in rows)
    head = (f'{len(rows)} faults of {len(areas)} areas. Tag `simulated`. Source: '
            f'`{RESULT.as_posix()}`, written by `make faults`.')
    lines = [HEAD, ['---'] * len(HEAD), *map(_cells, rows)]
    return [head, '', *('| ' + ' | '.join(line) + ' |' for line in lines)]


def _cells(row: Mapping[str, Any]) -> list[str]:
    moved = '' if row['moved'] is None else f'{row["moved"]:.3f}'
    causes = ', '.join(f'`{cause}`' for cause in row['causes'])
    codes = ', '.join(f'`{code}`' for code in row['code'].split(', ') if code)
    return [row['name'], f'{row["area"]}: {row["where"]}', row['behaviour'],
            f'{row["max_velocity"]:.2f}', f'{row["max_acceleration"]:.1f}', moved, causes, codes,
            row['ended']]
