"""Tables of a stability result, as Markdown lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def stability_lines(result: Mapping[str, Any]) -> list[str]:
    """Return failures, drift and cost of norms, then whole calls, each where it was run."""
    summary, config = result['summary'], result['config']
    lines: list[str] = []
    if summary['norms']:
        lines += [*failures(summary, config), '', *drifts(summary['norms'])]
    if summary['calls']:
        lines += ['', *whole_calls(summary['calls'], config.get('batch', 1))]
    return lines


def failures(summary: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return one row for each variant over all operating regimes."""
    norms, cost = summary['norms'], {row['variant']: row['us'] for row in summary['cost']}
    rows = []
    for variant in _names(norms, 'variant'):
        own = [row for row in norms if row['variant'] == variant and row['is_operating']]
        beyond = [row for row in norms if row['variant'] == variant and not row['is_operating']]
        flushed = [row for row in own if row['flushed']]
        where = ', '.join(f'`{row["regime"]}` from {row["first"]["flushed"]["input"]:.1e}'
                          for row in flushed)
        rows.append([
            f'`{variant}`', _count(sum(row['applications'] for row in own)),
            _count(sum(row['nan'] + row['inf'] for row in own)),
            _step(min((row['first_nan_or_inf_step'] for row in own
                       if row['first_nan_or_inf_step'] is not None), default=None)),
            f'{_count(sum(row["flushed"] for row in flushed))}: {where}' if flushed else '0',
            ', '.join(f'`{row["regime"]}` at step {_step(row["first_failure_step"])}'
                      for row in beyond),
            f'{cost[variant]["p50"]:.0f} us' if variant in cost else '',
        ])
    head = (f'Rows of {config["width"]} channels, {config["lanes"]} streams in step, eps '
            f'{config["eps"]:g}. A norm is one row; cost: CPU time of a block of 10 rows, p50, '
            'eager, variants in turns.')
    return [head, '', *_table(['variant', 'norms in operating regimes', 'NaN or Inf',
                               'first step with one', 'rows flushed to zero, largest input',
                               'with an Inf in the input, NaN', 'cost'], rows)]


def drifts(norms: Sequence[Row]) -> list[str]:
    """Return mean and largest drift by regime and variant."""
    variants = _names(norms, 'variant')
    rows = []
    for regime in _names([row for row in norms if row['is_operating']], 'regime'):
        own = {row['variant']: row for row in norms if row['regime'] == regime}
        rows.append([f'`{regime}`', *(_pair(own.get(v), 'drift') for v in variants)])
        if any(row['accumulated_mean'] is not None for row in own.values()):
            rows.append([f'`{regime}`, stream', *(_pair(own.get(v), 'accumulated')
                                                  for v in variants)])
    head = ('Drift from float64, mean (largest) over rows, % of the largest output of the row. '
            'Rows of *stream*: the residual stream at the end, against one that was float64 all '
            'along. A row that was flushed to zero counts as 100 %.')
    return [head, '', *_table(['regime', *(f'`{v}`' for v in variants)], rows)]


def whole_calls(calls: Sequence[Row], batch: int = 1) -> list[str]:
    """Return one row for each regime and precision.

    Args:
        calls: Merged rows. batch: Calls in one forward pass.
    """
    rows = [
        [f'`{row["regime"]}`', f'`{row["precision"]}`', _count(row['calls']),
         _count(row['nan'] + row['inf']), _step(row['first_failure_call']),
         'none' if row['drift_mean_rad'] is None or not row['is_operating'] else
         f'{1e3 * row["drift_mean_rad"]:.3g} ({1e3 * row["drift_max_rad"]:.3g})',
         _count(row['compared'])]
        for row in calls if row['is_operating']
    ]
    head = ('Whole denoise calls of `tiny`, ten steps each. Drift: largest error of a revolute '
            'joint in the chunk against the float64 policy, mean (largest) over the compared '
            'calls, mrad.')
    sweep = [f'`{row["precision"]}` from 2^{row["first_failure_log2"]}' if row['nan'] + row['inf']
             else f'`{row["precision"]}` never' for row in calls if not row['is_operating']]
    lines = _table(['regime', 'precision', 'calls', 'NaN or Inf', 'first at call', 'drift',
                    'compared'], rows)
    if batch > 1:
        apart = max(row['batch_max_rad'] for row in calls)
        lines += ['', f'Calls ran {batch} at a time; the first of each block ran alone too, at '
                  f'most {1e3 * apart:.2g} mrad from itself in the batch. A chunk that was not '
                  'finite was computed again alone.']
    if sweep:
        lines += ['', 'Beyond operation, keys, values and noise scaled by 2^0 to 2^127: a chunk '
                  f'has a NaN or an Inf in {", ".join(sweep)}.']
    return [head, '', *lines]


def _names(rows: Sequence[Row], key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in rows))


def _pair(row: Row | None, name: str) -> str:
    if row is None or row[f'{name}_mean'] is None:
        return ''
    return f'{100 * row[f"{name}_mean"]:.2f} ({100 * row[f"{name}_max"]:.2f})'


def _count(value: int) -> str:
    return f'{value:,}'.replace(',', ' ')


def _step(value: int | None) -> str:
    return 'never' if value is None else _count(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ['---'] * len(head), *rows]
    return ['| ' + ' | '.join(line) + ' |' for line in lines]
