"""The file of the fault matrix and its table: what the arm did in each fault."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reflex_ros.study.results import Revision

SCHEMA = 1
RESULT = Path('results') / 'faults' / 'matrix.json'
SOCKET = Path('results') / 'faults' / 'socket.json'
KILLS = Path('results') / 'faults' / 'kills.json'
KILLED = ('simulator', 'controller_bridge', 'vision_encoder', 'policy', 'recorder')
"""Processes that are killed, the slowest first."""
KILL_HEAD = ('process', 'kills', 'ticks accounted for', 'gap records', 'frames judged',
             'max rad/s', 'moved, rad', 'of it braking', 'held ticks by cause', 'recovered',
             'started again', 'problems', 'min')
HEAD = ('fault', 'put in at', 'at rad/s', 'the arm', 'max rad/s', 'max rad/s²', 'moved, rad',
        'cause', 'code', 'ends', 'socket: max rad/s', 'max rad/s²', 'moved, rad', 'cause, code')


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
        speed: Of the commands when the fault came, rad/s.
        spread_ms: In real time: spread of the lateness of commands as they were read, ms.
        read_late_ms: In real time: how late the simulator's thread, which reads, ran at worst.
        sent_ms: In real time: how long after it was due a tick on time had ended, at worst.
        woke_ms: In real time: how late at worst another thread of the loop went on after a sleep.
        tick_ms: In real time: how late a tick that no fault made late began at worst, ms.
        runs: In real time: how often it ran, until the machine was on time.
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
    speed: float = 0.0
    spread_ms: float | None = None
    read_late_ms: float | None = None
    sent_ms: float | None = None
    woke_ms: float | None = None
    tick_ms: float | None = None
    runs: int = 1


def write_matrix(rows: Sequence[Row], path: Path) -> None:
    """Write the rows; the same sources give the same file."""
    data = {'schema': SCHEMA, 'tag': 'simulated', 'rows': [asdict(row) for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')


def write_socket(rows: Sequence[Row], path: Path, *, revision: Revision,
                 machine: Mapping[str, object], wall_s: float, jobs: int) -> None:
    """Write the rows of real time with the machine and the revision that they came from."""
    data = {
        'schema': SCHEMA, 'bench': 'faults', 'tag': 'simulated',
        'utc': datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%SZ'), 'sha': revision.sha,
        'dirty': revision.is_dirty, 'machine': machine,
        'config': {'side_by_side': jobs}, 'wall_s': round(wall_s, 1),
        'spread_ms_max': max((row.spread_ms or 0.0 for row in rows), default=0.0),
        'read_late_ms_max': max((row.read_late_ms or 0.0 for row in rows), default=0.0),
        'void_runs': sum(row.runs - 1 for row in rows), 'rows': [asdict(row) for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')


def write_kills(found: Sequence[Mapping[str, Any]], path: Path, *, kills: int,
                revision: Revision, machine: Mapping[str, object], wall_s: float,
                jobs: int) -> None:
    """Write what came of so many kills of each process, beside the runs of other numbers.

    Processes that were not killed this time keep their rows, if those are of as many kills.
    """
    runs = json.loads(path.read_text(encoding='utf-8'))['runs'] if path.is_file() else {}
    now = {'utc': datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%SZ'), 'sha': revision.sha,
           'dirty': revision.is_dirty}
    rows = {row['victim']: row for row in runs.get(str(kills), {}).get('rows', ())}
    rows |= {row['victim']: {**row, **now} for row in found}
    runs[str(kills)] = {
        'machine': machine, 'config': {'side_by_side': jobs}, 'wall_s': round(wall_s, 1),
        'rows': list(rows.values())}
    data = {'schema': SCHEMA, 'bench': 'kills', 'tag': 'simulated', 'runs': runs}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')


def kill_lines(root: Path) -> list[str]:
    """Return the table of the run with most kills, or a word if there was none."""
    if not (root / KILLS).is_file():
        return [f'*Not run: no `{KILLS.as_posix()}`.* Command: `make soak`.']
    runs = json.loads((root / KILLS).read_text(encoding='utf-8'))['runs']
    most = max(runs, key=int)
    run, machine = runs[most], runs[most]['machine']
    side = run['config']['side_by_side']
    commits = ', '.join(dict.fromkeys(f'`{row["sha"][:7]}`' for row in run['rows']))
    head = (f'{most} kills of each process, {side} stages side by side on {machine["cpu"]}, '
            f'{machine["cores"]} cores. Tag `simulated`. Source: `{KILLS.as_posix()}`, commit '
            f'{commits}.')
    missing = [name for name in KILLED if name not in {row['victim'] for row in run['rows']}]
    head += f' Not run: {_words(missing)}.' if missing else ''
    lines = [KILL_HEAD, ['---'] * len(KILL_HEAD), *map(_kill_cells, run['rows'])]
    return [head, '', *('| ' + ' | '.join(line) + ' |' for line in lines)]


def _kill_cells(row: Mapping[str, Any]) -> list[str]:
    causes = ', '.join(f'`{name}` {number}' for name, number in row.get('causes', {}).items())
    return [row['victim'], str(row['kills']), str(row.get('ticks', '')), str(row.get('gaps', '')),
            str(row.get('frames', '')), f'{row.get("max_velocity", 0.0):.2f}',
            f'{row.get("moved", 0.0):.3f}', f'{row.get("braked", 0.0):.3f}', causes,
            str(len(row.get('recoveries', ()))), str(row.get('again', 0)),
            str(len(row['problems'])), f'{row.get("seconds", 0.0) / 60:.0f}']


def read_matrix(path: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a file, none if it was not written yet."""
    if not path.is_file():
        return []
    rows: list[Mapping[str, Any]] = json.loads(path.read_text(encoding='utf-8'))['rows']
    return rows


def matrix_lines(root: Path) -> list[str]:
    """Return the table of a checkout with its sources; only a word if nothing was run."""
    rows = read_matrix(root / RESULT)
    if not rows:
        return [f'*Not run: no `{RESULT.as_posix()}`.* Command: `make faults`.']
    live = {row['name']: row for row in read_matrix(root / SOCKET)}
    areas = dict.fromkeys(row['area'] for row in rows)
    head = (f'{len(rows)} faults of {len(areas)} areas. Tag `simulated`. Source: '
            f'`{RESULT.as_posix()}`, written by `make faults`.')
    table = [HEAD, ['---'] * len(HEAD), *(_cells(row, live.get(row['name'])) for row in rows)]
    return [head, _socket_words(root, live), '',
            *('| ' + ' | '.join(line) + ' |' for line in table)]


def _socket_words(root: Path, live: Mapping[str, Mapping[str, Any]]) -> str:
    if not live:
        return f'In real time: not run, no `{SOCKET.as_posix()}`.'
    data = json.loads((root / SOCKET).read_text(encoding='utf-8'))
    machine = data['machine']
    areas = {row['area'] for row in live.values()}
    return (f'In real time: {len(live)} of them, of {len(areas)} areas, '
            f'{data["config"]["side_by_side"]} side by side in {data["wall_s"] / 60:.0f} min on '
            f'{machine["cpu"]}, {machine["cores"]} cores. Source: `{SOCKET.as_posix()}`, commit '
            f'`{data["sha"][:7]}`. Commands arrived within {data["spread_ms_max"]:.1f} ms of a '
            f'period, their reader was at most {data["read_late_ms_max"]:.1f} ms late; '
            f'{data["void_runs"]} runs were void because the machine was late, and ran again.')


def _cells(row: Mapping[str, Any], live: Mapping[str, Any] | None) -> list[str]:
    speed = f'{row["speed"]:.2f}' if row['speed'] else 'rests'
    return [row['name'], f'{row["area"]}: {row["where"]}', speed, row['behaviour'],
            *_motion(row), _words(row['causes']), _words(filter(None, row['code'].split(', '))),
            row['ended'], *([''] * 4 if live is None else _live(live))]


def _live(row: Mapping[str, Any]) -> list[str]:
    found = [*row['causes'], *filter(None, row['code'].split(', '))]
    return [*_motion(row), _words(found)]


def _motion(row: Mapping[str, Any]) -> list[str]:
    moved = '' if row['moved'] is None else f'{row["moved"]:.3f}'
    return [f'{row["max_velocity"]:.2f}', f'{row["max_acceleration"]:.1f}', moved]


def _words(names: Iterable[str]) -> str:
    return ', '.join(f'`{name}`' for name in names)
