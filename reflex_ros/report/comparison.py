"""A comparison of runs as text, Markdown, JSON, and as a badge."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from reflex_ros.analysis.budgets import Judged
from reflex_ros.analysis.compare import BETTER, WORSE, Row, Subject, verdict
from reflex_ros.analysis.figures import meaning
from reflex_ros.analysis.intervals import Estimate
from reflex_ros.report.document import estimate_entry
from reflex_ros.report.words import figure, interval, outcome

SIGNS = ((BETTER, 'better'), (WORSE, 'WORSE'))
Verdicts = Sequence[tuple[str, Sequence[Judged]]]
"""(run, what it makes of its budgets)."""


def to_text(subjects: Sequence[Subject], rows: Sequence[Row], judged: Verdicts) -> str:
    """Return the comparison for a terminal."""
    names = [chr(ord('A') + i) if i < 26 else f'run{i}' for i in range(len(subjects))]
    lines = [f'{name}  {s.name}: {outcome(s.never_tracked, s.faults)}'
             for name, s in zip(names, subjects, strict=True)]
    lines += ['', f'{"figure":<31}' + ''.join(f'{name:<36}' for name in names).rstrip()]
    for row in rows:
        cells = [_cell(row, i) for i in range(len(subjects))]
        lines.append(f'{row.figure:<31}' + ''.join(f'{c:<36}' for c in cells).rstrip())
    for at in range(1, len(subjects)):
        lines += ['', f'{names[at]} against A: {verdict(rows, at)}']
    lines += _missing(subjects)
    return '\n'.join([*lines, *_budget_lines(judged)])


def to_markdown(subjects: Sequence[Subject], rows: Sequence[Row], judged: Verdicts) -> str:
    """Return the comparison for a pull request; figures without any sample are left out."""
    head = ['figure', *(f'{_escape(s.name)}' for s in subjects)]
    lines = [_row(head), _row(['---'] * len(head))]
    lines += [_row([f'`{row.figure}`', *(_escape(_cell(row, i)) for i in range(len(subjects)))])
              for row in rows if any(e.is_measured for e in row.found)]
    lines.append(_row(['faults', *(
        _escape(outcome(s.never_tracked, s.faults)) for s in subjects)]))
    for at in range(1, len(subjects)):
        lines += ['', f'**{_escape(subjects[at].name)}** against '
                      f'{_escape(subjects[0].name)}: {verdict(rows, at)}.']
    for name, results in judged:
        lines += ['', f'Budgets of {_escape(name)}:', '',
                  _row(['', 'budget', 'at most', 'found', '']), _row(['---'] * 5)]
        lines += [_row([_mark(j), f'`{j.budget.figure}`', _bound(j), _found(j.found, j),
                        _escape(j.reason or ('interval reaches over it' if j.is_close else ''))])
                  for j in results]
    return '\n'.join([*lines, *(f'\n{_escape(line)}' for line in _missing(subjects) if line)]) + (
        '\n')


def to_json(subjects: Sequence[Subject], rows: Sequence[Row], judged: Verdicts) -> str:
    """Return the comparison for machines."""
    document: dict[str, Any] = {
        'kind': 'reflex_ros.comparison', 'schema': 2,
        'runs': [{'name': s.name, 'facts': dict(s.facts), 'faults': dict(s.faults),
                  'notes': list(s.notes), 'never_tracked': s.never_tracked} for s in subjects],
        'figures': {row.figure: {
            'runs': [estimate_entry(e, meaning(row.figure).unit) for e in row.found],
            'changes': [{'low': _finite(c.low), 'high': _finite(c.high), 'verdict': c.verdict}
                        for c in row.changes],
        } for row in rows},
        'budgets': [{'run': name, 'figure': j.budget.figure, 'max': j.budget.at_most,
                     'worse_by': j.budget.worse_by, 'found': _finite(j.found.value),
                     'is_met': j.is_met, 'reason': j.reason}
                    for name, results in judged for j in results],
    }
    return json.dumps(document, indent=2, allow_nan=False) + '\n'


def to_badge(judged: Verdicts) -> str:
    """Return the budgets as an endpoint badge: schemaVersion, label, message, color."""
    results = [j for _, found in judged for j in found]
    broken = list(dict.fromkeys(j.budget.figure for j in results if not j.is_met))
    if not results:
        message, color = 'no budgets', 'lightgrey'
    elif broken:
        message, color = f'over: {", ".join(broken[:3])}{" ..." if len(broken) > 3 else ""}', 'red'
    else:
        is_close = any(j.is_close for j in results)
        message = f'{len(results)} budgets met'
        color = 'yellowgreen' if is_close else 'brightgreen'
    badge = {'schemaVersion': 1, 'label': 'liveness', 'message': message, 'color': color}
    return json.dumps(badge) + '\n'


def _cell(row: Row, at: int) -> str:
    unit, estimate = meaning(row.figure).unit, row.found[at]
    ends = interval(estimate, unit)
    text = figure(estimate, unit) + (f' [{ends}]' if ends else '')
    if at and (sign := dict(SIGNS).get(row.changes[at - 1].verdict)):
        text += f' {sign}'
    return text


def _budget_lines(judged: Verdicts) -> list[str]:
    lines: list[str] = []
    for name, results in judged:
        broken = [j for j in results if not j.is_met]
        lines += ['', f'Budgets of {name}: {len(results) - len(broken)} of {len(results)} met']
        lines += [f'  OVER {j.budget.figure}: {j.reason}' for j in broken]
        lines += [f'  near {j.budget.figure}: its interval reaches over {j.budget.at_most:.4g}'
                  for j in results if j.is_close]
    return lines


def _missing(subjects: Sequence[Subject]) -> list[str]:
    return [line for s in subjects if s.notes
            for line in ('', f'Missing in {s.name}: ' + '; '.join(s.notes))]


def _mark(judged: Judged) -> str:
    return 'met' if judged.is_met else '**OVER**'


def _bound(judged: Judged) -> str:
    budget = judged.budget
    parts = [f'{budget.at_most:.4g}' if budget.at_most is not None else '',
             f'+{budget.worse_by:.4g}' if budget.worse_by is not None else '']
    return ', '.join(part for part in parts if part)


def _found(estimate: Estimate, judged: Judged) -> str:
    return f'{estimate.value:.4g}' if judged.found.is_measured else 'none'


def _row(cells: Sequence[str]) -> str:
    return '| ' + ' | '.join(cells) + ' |'


def _escape(text: str) -> str:
    return text.replace('\\', '\\\\').replace('|', '\\|').replace('<', '&lt;').replace('\n', ' ')


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
