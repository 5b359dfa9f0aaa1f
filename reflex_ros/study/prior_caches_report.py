"""Tables of a result of the prior caches, as Markdown lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reflex_ros.infer.cache import VL_CACHE, VLA_CACHE

Row = Mapping[str, Any]
UNITS = 'mrad', 1e3
"""Of the actions of ``tiny``; Pi0.5 has normalised ones."""


def vla_lines(result: Mapping[str, Any]) -> list[str]:
    """Return what reuse of static patches saves and costs, one table for each network."""
    lines: list[str] = []
    for subject in result['summary']['subjects']:
        lines += [_head(subject), '', *_vla_table(subject), '']
    return lines[:-1]


def vl_lines(result: Mapping[str, Any]) -> list[str]:
    """Return what a budget saves and costs, one table for each network."""
    lines: list[str] = []
    for subject in result['summary']['subjects']:
        lines += [_head(subject), '', *_vl_table(subject), '']
    return lines[:-1]


def _head(subject: Mapping[str, Any]) -> str:
    if subject['family'] == 'tiny':
        return (f'**`tiny`**, trained weights, {subject["layers"]} layers, a window of '
                f'{subject["window"]} frames; action errors in mrad of a revolute joint.')
    size = _rows(subject, 'noise')[0]
    return (f'**`{subject["family"]}`** of size `{subject["size"]}`, {subject["weights"]} weights '
            f'({subject["parameters"] / 1e6:.0f} M), {subject["layers"]} layers, '
            f'{subject["image_tokens"]} image and {subject["words"]} text tokens; action errors '
            f'normalised, the mean action being {size["action_size_mean"]:.2f}. Another draw of '
            f'the noise moves them by {size["action_error_mean"]:.2g} '
            f'({size["action_error_max"]:.2g}).')


def _vla_table(subject: Mapping[str, Any]) -> list[str]:
    rows = _rows(subject, VLA_CACHE)
    is_tiny = subject['family'] == 'tiny'
    table = [
        [f'`{row["scene"]}`', row['variant'], _percent(row['reuse_ratio']),
         f'{row["oldest_age"]:.0f}',
         _percent(row['key_error_mean'] / row['key_size_mean'], '.2g'),
         f'{row["key_error_max"]:.2g}', _actions(row, is_tiny),
         *([] if is_tiny else [f'{row["macs_ratio"]:.2f}']), _time(row['cpu_ratio']),
         *([] if is_tiny else [_time(row['call_cpu_ratio'])])]
        for row in rows
    ]  # fmt: skip
    title = ['scene', 'variant', 'reused', 'oldest, calls', 'key error, mean', 'largest',
             'action error, mean (largest)',
             *([] if is_tiny else ['prefix, multiply-accumulates']),
             'frame, CPU time' if is_tiny else 'prefix, CPU time',
             *([] if is_tiny else ['prefix and steps, CPU time'])]  # fmt: skip
    return _table(title, table)


def _vl_table(subject: Mapping[str, Any]) -> list[str]:
    rows, is_tiny = _rows(subject, VL_CACHE), subject['family'] == 'tiny'
    table = [
        [row['variant'], _percent(row['kept_ratio']), _bytes(row['kept_bytes']),
         *([] if is_tiny else [_traffic(row)]),
         f'{row["dropped_mass"]:.2f}', f'{row["mass_all_steps"]:.2f}',
         *([] if is_tiny else [_percent(row['share_of_bound'])]), _actions(row, is_tiny),
         f'{row["macs_ratio"]:.2f}', _time(row['cpu_ratio'])]
        for row in rows
    ]  # fmt: skip
    title = ['retention', 'rows kept', 'bytes',
             *([] if is_tiny else ['read per step, beside all']),
             'dropped weight, first step', 'all steps',
             *([] if is_tiny else ['largest error, of its bound']),
             'action error, mean (largest)', 'steps, multiply-accumulates',
             'steps, CPU time']  # fmt: skip
    return _table(title, table)


def _traffic(row: Row) -> str:
    """Return weights and kept rows beside weights and all rows."""
    all_bytes = row['expert_bytes'] + row['prefix_bytes']
    return f'{(row["expert_bytes"] + row["kept_bytes"]) / all_bytes:.2f}'


def _actions(row: Row, is_tiny: bool) -> str:
    factor = UNITS[1] if is_tiny else 1.0
    return f'{factor * row["action_error_mean"]:.2g} ({factor * row["action_error_max"]:.2g})'


def _bytes(count: float) -> str:
    return f'{count / 2**20:.2f} MiB' if count >= 2**19 else f'{count / 2**10:.1f} KiB'


def _time(ratio: Mapping[str, float]) -> str:
    return f'{ratio["p50"]:.2f}'


def _percent(share: float, form: str = '.0f') -> str:
    return f'{100 * share:{form}} %'


def _rows(subject: Mapping[str, Any], method: str) -> list[Row]:
    return [row for row in subject['rows'] if row['method'] == method]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ['---'] * len(head), *rows]
    return ['| ' + ' | '.join(line) + ' |' for line in lines]
