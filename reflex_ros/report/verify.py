"""A boundary certificate to read: lines for a terminal, and a page that needs nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from html import escape
from textwrap import wrap
from typing import Any

from reflex_ros.report.table import WIDTH, Style

Report = Mapping[str, Any]
Rows = list[list[str]]
LABEL = 30
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.5em 0 1.5em}
td,th{padding:.15em .8em;border-bottom:1px solid #e4e4e4;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.yes{color:#00684d}.no{color:#a33c00}h2{font-size:1.1em;margin-top:2em}
.scroll{overflow-x:auto}code{font-size:.92em}
"""


def format_certificate(report: Report, *, style: Style | None = None) -> str:
    """Return a certificate as sections of lines, about 80 columns wide.

    Args:
        report: Of ``study.verify``.
        style: None for what standard output can show.
    """
    style = style or Style.of(sys.stdout)
    parts = []
    for title, rows, notes in sections(report):
        lines = [style.paint(title, 'bold'), *aligned(rows)]
        for note in notes:
            first, *rest = wrap(note, WIDTH - 4, break_on_hyphens=False)
            lines += [f'  - {first}', *(f'    {line}' for line in rest)]
        parts.append('\n'.join(lines))
    return '\n\n'.join(parts)


def page(report: Report) -> str:
    """Return a certificate as one self-contained HTML page, with a table for every probe."""
    title = f'Boundary certificate: {report["family"]} {report["model_id"][:12]}'
    body = [f'<h1>{escape(title)}</h1>']
    for name, rows, notes in sections(report):
        body.append(f'<h2>{escape(name)}</h2>')
        body.append(_table(rows))
        body += [f'<p>{escape(note)}</p>' for note in notes]
    body.append('<h2>What moved, layer by layer</h2>'
                '<p>Largest absolute change of keys / values; 0 means equal bits.</p>')
    for name, probe in report['probes'].items():
        body.append(f'<h3>{escape(name)}: {escape(probe["changed"])}</h3>')
        for kind in ('camera_tokens', 'kv', 'cross_kv'):
            if probe[kind]:
                body.append(f'<p><code>{kind}</code></p>' + _table(_layers(probe[kind])))
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
            f'</title><style>{STYLE}</style></head>\n<body>\n' + '\n'.join(body)
            + '\n</body></html>\n')


def sections(report: Report) -> Iterable[tuple[str, Rows, list[str]]]:
    """Yield title, rows and remarks of each part; the first row is a head."""
    yield _identity(report)
    yield _reuse(report)
    yield ('What moved: largest change of keys and values', _moved(report['probes']),
           ['made-up observation, the same for every run; 0 means equal bits'])  # fmt: skip
    if 'options' not in report:
        return
    yield _caches(report)
    yield _options(report)
    yield _response(report)
    if report['left_out']:
        yield 'Left out', [], list(report['left_out'])


def _identity(report: Report) -> tuple[str, Rows, list[str]]:
    refusals = list(report['refusals'])
    verdict = 'REFUSED' if refusals else 'may be streamed as below'
    rows = [
        ['checkpoint', f'{report["family"]}, layout {report["layout"]}'],
        ['model_id', report['model_id']],
        ['computed in', f'{report["dtype"]}, {report["num_steps"]} denoise steps'],
        ['observations', f'{report["observations"]["count"]}'],
        ['verdict', verdict],
        ['certificate', report['certificate_hash']],
    ]
    origin = f'observations: {report["observations"]["origin"]}'
    return 'Boundary certificate', [['', ''], *rows], [*refusals, origin, *report['notes']]


def _reuse(report: Report) -> tuple[str, Rows, list[str]]:
    rows = [['reuse', 'exact', 'moved', '']]
    rows += [
        [entry['name'], 'yes' if entry['is_exact'] else 'NO', number(entry['largest']),
         entry['meaning']]
        for entry in report['reuse']
    ]  # fmt: skip
    absent = report['not_there']
    return ('What may be reused, from what moved', rows,
            [f'no part of this model: {", ".join(absent)}'] if absent else [])  # fmt: skip


def _moved(probes: Mapping[str, Any]) -> Rows:
    """Return one row for each changed input and group: first layer, worst of the others."""
    rows = [['changed', 'group', 'layer 0', 'later layers']]
    for name, probe in probes.items():
        for group, found in probe['kv'].items():
            pairs = [worst(pair) for pair in zip(found['k'], found['v'], strict=True)]
            rows.append([name, group, number(pairs[0]), number(worst(pairs[1:]))])
    return rows


def _caches(report: Report) -> tuple[str, Rows, list[str]]:
    rows = [['velocities of all denoise steps', 'max error', 'relative']]
    for name in ('partitioned_vs_full', 'naive_vs_full'):
        error = report[name]
        rows.append([name, number(error['max_abs_error']), number(error['max_relative_error'])])
    oracle = report['oracle']
    if oracle['compared']:
        rows.append(['partitioned vs float64 oracle', number(oracle['max_abs_error']),
                     number(oracle['max_relative_error'])])  # fmt: skip
        return 'Caches', rows, []
    return 'Caches', rows, [f'not compared with the float64 oracle: {oracle["why"]}']


def _options(report: Report) -> tuple[str, Rows, list[str]]:
    kinds = [kind for kind in ('joint_deg', 'gripper_mm', 'tip_mm', 'checkpoint_units')
             if any(kind in option['error'] for option in report['options'])]  # fmt: skip
    rows = [['approximation', *(f'{kind} p50 / max' for kind in kinds), 'n']]
    for option in report['options']:
        found = [option['error'].get(kind) for kind in kinds]
        rows.append([
            option['name'],
            *('-' if e is None else f'{number(e["p50"])} / {number(e["max"])}' for e in found),
            str(option['count']),
        ])  # fmt: skip
    meanings = {option['name'].split()[0]: option['meaning'] for option in report['options']}
    return ('What approximations cost, over all rows of the chunk', rows,
            [f'{name}: {meaning}' for name, meaning in meanings.items()])  # fmt: skip


def _response(report: Report) -> tuple[str, Rows, list[str]]:
    found = report['state_response']
    rows = [['state column', 'network', 'own joint']]
    rows += [
        [name, number(entry['network']), number(entry.get('same_joint'))]
        for name, entry in found['by_column'].items()
    ]
    return 'd(action) / d(state)', rows, [
        f'the state enters {found["enters"]}',
        'network: change of any normalised action per normalised change; 0 everywhere means that '
        'the policy ignores its state. own joint: the largest change of its actions per change '
        'of the joint, in one unit; about 1 where actions are relative to the state.',
    ]


def _layers(table: Mapping[str, Any]) -> Rows:
    depth = max(len(found['k']) for found in table.values())
    rows = [['group', *(f'layer {at}' for at in range(depth))]]
    for group, found in table.items():
        pairs = zip(found['k'], found['v'], strict=True)
        rows.append([group, *(f'{number(k)} / {number(v)}' for k, v in pairs)])
    return rows


def _table(rows: Rows) -> str:
    if not rows:
        return ''
    head, *body = rows
    lines = ['<tr>' + ''.join(f'<th>{escape(cell)}</th>' for cell in head) + '</tr>']
    for row in body:
        cells = ''.join(f'<td{_class(cell)}>{escape(cell)}</td>' for cell in row)
        lines.append(f'<tr>{cells}</tr>')
    return '<div class="scroll"><table>' + '\n'.join(lines) + '</table></div>'


def _class(cell: str) -> str:
    if cell in ('yes', 'NO', 'REFUSED'):
        return ' class="yes"' if cell == 'yes' else ' class="no"'
    return ' class="n"' if cell[:1].isdigit() and len(cell) < LABEL else ''


def aligned(rows: Rows) -> list[str]:
    """Return rows as lines; columns stand below each other, the last one is wrapped."""
    if not rows:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        left = '  ' + '  '.join(cells) + '  '
        room = max(24, WIDTH - len(left))
        first, *rest = wrap(row[-1], room) or ['']
        lines += [(left + first).rstrip(), *(' ' * len(left) + line for line in rest)]
    return [line for line in lines if line]


def worst(values: Iterable[float | None]) -> float | None:
    """Return the largest value; None where one is not a number, 0 of none."""
    found = list(values)
    if any(value is None or value != value for value in found):
        return None
    return max(found, default=0.0)


def number(value: float | None) -> str:
    """Return a figure in three digits; what is not a number says that rows changed."""
    if value is None or value != value:
        return 'other length'
    return '0' if value == 0 else f'{value:.3g}'
