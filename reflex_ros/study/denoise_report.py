"""The bench of variants: from options to figures, picture and lines."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from reflex_ros.core.stats import bootstrap_median, quantiles
from reflex_ros.study.bench_run import COLORS, Bench, Summary, Tick, label, number, panels, table
from reflex_ros.study.bench_subject import FAMILIES, SIZES, Subject, random_subject
from reflex_ros.study.denoise_variants import (
    OURS,
    PARTS,
    Variant,
    errors,
    ladder,
    loop_variants,
    measure_ladder,
    measure_loop,
    naive_actions,
)

DTYPES = ('float32', 'bfloat16')
EQUAL = 2e-5
"""Most that actions of variants in float32 may differ, as a share of ``max(1, |v|)``."""
FULL_ROUNDS = 3


def run(options: argparse.Namespace, tick: Tick) -> Summary:
    """Measure every family; return plain types."""
    return {'subjects': [one_family(random_subject(family, options.size, seed=options.seed),
                                    options, tick) for family in options.families]}


def one_family(subject: Subject, options: argparse.Namespace, tick: Tick) -> Summary:
    """Return loop and ladder of one network."""
    loops = []
    for dtype in DTYPES:
        variants = loop_variants(subject, dtype)
        measure_loop(subject, variants, rounds=options.rounds, warmup=options.warmup, tick=tick)
        loops += loop_rows(subject, variants, options.seed)
    rungs = list(ladder(subject))
    measure_ladder(subject, rungs, rounds=options.calls, warmup=1, tick=tick,
                   full_rounds=min(FULL_ROUNDS, options.calls))
    reference = rungs[0].actions
    steps = [{
        'variant': rung.name, 'dtype': rung.dtype, 'n': len(rung.times['all']),
        'ms': {part: quantiles(rung.times[part]) for part in (*PARTS, 'all')},
        **errors(rung.actions, reference, subject.noise),
    } for rung in rungs]
    return {
        'family': subject.family, 'size': subject.name, 'parameters': subject.parameters,
        'loop': loops, 'ladder': steps,
        'naive': errors(naive_actions(subject), reference, subject.noise),
        'equal': all(row['max'] <= EQUAL for row in (*loops, *steps)
                     if row['dtype'] == 'float32'),
    }


def loop_rows(subject: Subject, variants: Sequence[Variant], seed: int) -> list[Summary]:
    """Return one row for each variant: time, and its ratio to ours of the same round."""
    base = np.asarray(variants[0].times['denoise'])
    rows = []
    for variant in variants:
        times = np.asarray(variant.times['denoise'])
        low, high = bootstrap_median(times / base, seed)
        rows.append({
            'variant': variant.name, 'dtype': variant.dtype, 'n': len(times),
            'ms': quantiles(times), 'ratio': float(np.median(times / base)), 'low': low,
            'high': high, **errors(variant.actions, variants[0].actions, subject.noise),
        })
    return rows


def draw(found: Mapping[str, Any]) -> Figure:
    """Return one panel with the ladder and one with the loop for each family."""
    subjects = found['subjects']
    figure, axes = panels(2 * len(subjects), width=5.0, height=4.0)
    for at, subject in enumerate(subjects):
        _draw_ladder(axes[2 * at], subject)
        _draw_loop(axes[2 * at + 1], subject)
    axes[0].legend(frameon=False, fontsize=7)
    return figure


def _draw_ladder(axis: Any, subject: Mapping[str, Any]) -> None:
    rungs = subject['ladder']
    left = np.zeros(len(rungs))
    for part, color in zip(PARTS, ('sky', 'orange', 'grey', 'green'), strict=True):
        width = np.array([rung['ms'][part]['p50'] for rung in rungs])
        axis.barh(range(len(rungs)), width, left=left, color=COLORS[color], label=part)
        left += width
    limit = 1.3 * max(left[1:], default=1.0)
    axis.set_xlim(0, limit)
    if left[0] > limit:
        axis.text(limit, 0, f'{left[0]:.0f} →', ha='right', va='center', fontsize=7)
    axis.set_yticks(range(len(rungs)), [rung['variant'] for rung in rungs], fontsize=7)
    axis.invert_yaxis()
    label(axis, title=f'{subject["family"]}: a whole call', x='CPU time, p50, ms', y='')


def _draw_loop(axis: Any, subject: Mapping[str, Any]) -> None:
    for dtype, color, shift in (('float32', 'blue', -0.15), ('bfloat16', 'red', 0.15)):
        rows = [row for row in subject['loop'] if row['dtype'] == dtype]
        y = [_place(subject, row) + shift for row in rows]
        ratio = np.array([row['ratio'] for row in rows])
        spread = np.abs(np.array([[row['low'], row['high']] for row in rows]).T - ratio)
        axis.errorbar(ratio, y, xerr=spread, fmt='o', ms=4, color=COLORS[color], label=dtype)
    names = list(dict.fromkeys(row['variant'] for row in subject['loop']))
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.axvline(1.0, color=COLORS['grey'], lw=0.8)
    axis.invert_yaxis()
    axis.legend(frameon=False, fontsize=7)
    label(axis, title=f'{subject["family"]}: the denoise loop', x='CPU time ÷ ours', y='')


def _place(subject: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    return list(dict.fromkeys(r['variant'] for r in subject['loop'])).index(row['variant'])


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the ladder and the loop of each family, and the answer."""
    return [line for subject in found['subjects'] for line in _lines(subject)]


def _lines(subject: Mapping[str, Any]) -> list[str]:
    rungs, loop = subject['ladder'], subject['loop']
    whole = [[rung['variant'], *(number(rung['ms'][part]['p50']) for part in (*PARTS, 'all')),
              number(rung['ms']['all']['p99']), str(rung['n']), f'{rung["max"]:.1e}',
              f'{rung["mse"]:.1e}'] for rung in rungs]
    whole.append(['`naive` cache, for comparison', '', '', '', '', '', '', '',
                  f'{subject["naive"]["max"]:.1e}', f'{subject["naive"]["mse"]:.1e}'])
    names = list(dict.fromkeys(row['variant'] for row in loop))
    by_key = {(row['variant'], row['dtype']): row for row in loop}
    parts = [[name, *(_ratio(by_key.get((name, dtype))) for dtype in DTYPES)] for name in names]
    total = rungs[0]['ms']['all']['p50'] / rungs[-1]['ms']['all']['p50']
    same = 'differ by rounding only' if subject['equal'] else '**differ**'
    slow = [row['variant'].removeprefix('without ') for row in loop
            if row['low'] > 1.02 and row['variant'].startswith('without') and
            row['dtype'] == 'float32']
    return [
        f'**{subject["family"]}**, {subject["parameters"] / 1e6:.1f} M random weights '
        f'(size {subject["size"]}), CPU time, ms, p50:', '',
        *table(['whole call', *PARTS, 'all', 'all, p99', 'n', 'largest difference', 'MSE'], whole),
        '', f'Float32 actions {same}; a call costs {number(total)} times less than full '
        'recomputation at the end of the ladder.', '',
        *table(['denoise loop', *(f'{dtype}: p50, ms (÷ {OURS}, 95 % interval)'
                                  for dtype in DTYPES)], parts), '',
        'Taken away from the loop in float32, these cost time for certain (more than 2 %): '
        + (', '.join(slow) or 'none') + '.', '',
    ]


def _ratio(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ''
    return (f'{number(row["ms"]["p50"])} ({row["ratio"]:.2f}, {row["low"]:.2f} to '
            f'{row["high"]:.2f})')


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('--families', nargs='+', default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument('--size', default='mid', choices=list(SIZES))
    parser.add_argument('--rounds', type=int, default=30, help='samples of each loop')
    parser.add_argument('--calls', type=int, default=10,
                        help=f'samples of each whole call; full recomputation {FULL_ROUNDS}')
    parser.add_argument('--warmup', type=int, default=3, help='rounds of the loop before')


BENCH = Bench(
    name='denoise_variants', unit='ms',
    question='What does each part of the denoise loop, and each kind of reuse, bring?',
    arguments=arguments, run=run, draw=draw, lines=lines,
    total=lambda o: len(o.families) * (2 * (o.rounds + o.warmup) + o.calls + 1),
    samples=lambda o: (o.rounds, o.warmup),
)
