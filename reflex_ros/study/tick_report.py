"""The tick bench as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

PICTURE = Path('docs/images/tick-bench.png')
QUANTILES = MappingProxyType({'p50': 0.5, 'p99': 0.99, 'p99_9': 0.999})
COLORS = MappingProxyType({'idle': '#009E73', 'loaded': '#D55E00'})
CPU_LIMIT = 0.25
"""Largest share of a core that the bridge may use at 50 Hz."""
CURVE = 200


def tails(samples: Any) -> dict[str, Any]:
    """Return p50, p99, p99.9, the maximum and the count, and points of the tail to draw.

    A quantile is the smallest sample that so many samples do not exceed.
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    if not len(ordered):
        return {**dict.fromkeys(QUANTILES, np.nan), 'max': np.nan, 'n': 0, 'curve': []}
    found = {name: _at(ordered, q) for name, q in QUANTILES.items()}
    shares = 1.0 - np.geomspace(1.0, 1.0 / len(ordered), CURVE)
    curve = [[float(1.0 - q), _at(ordered, q)] for q in shares]
    return {**found, 'max': float(ordered[-1]), 'n': len(ordered), 'curve': curve}


def _at(ordered: Any, q: float) -> float:
    return float(ordered[max(0, int(np.ceil(q * len(ordered) - 1e-9)) - 1)])


def tick_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the lateness of every cell, the cost of an SDK call and of the bridge."""
    summary = result['summary']
    rows = [[f'{cell["rate_hz"]:g} Hz, {_load(cell)}', *_tail(cell['late_ms']),
             f'{100 * cell["late_share"]:.2f} %', str(cell['late_ms']['n']),
             f'{100 * cell["bridge_cpu_share"]:.0f} %',
             'FIFO' if cell['is_realtime'] else 'normal']
            for cell in summary['cells']]
    head = ['lateness, ms', 'p50', 'p99', 'p99.9', 'max', 'not sent: late', 'ticks',
            'CPU of the bridge, of a core', 'scheduling']
    sdk = summary['sdk']
    calls = [[words, *_tail(sdk[name]), '', str(sdk[name]['n']), '', ''] for name, words in (
        ('wall_ms', 'SDK call, 4 frames, wall'), ('cpu_ms', 'SDK call, CPU of its thread'))]
    return [*_table(head, [*rows, *calls]), '', _verdict(summary['cells']), '',
            '![Share of ticks that are later than a time](images/tick-bench.png)']


def _load(cell: Mapping[str, Any]) -> str:
    return 'idle' if cell['load'] == 'idle' else f'{cell["programs"]} busy programs'


def _tail(found: Mapping[str, Any]) -> list[str]:
    return [f'{found[name]:.2f}' for name in (*QUANTILES, 'max')]


def _verdict(cells: Sequence[Mapping[str, Any]]) -> str:
    own = [cell for cell in cells if cell['rate_hz'] == 50.0 and cell['load'] == 'idle']
    if not own:
        return 'The bridge at 50 Hz on an idle machine was not measured.'
    share, per_tick = own[0]['bridge_cpu_share'], own[0]['joint_states_per_tick']
    judged = 'pass' if share <= CPU_LIMIT else 'fail'
    return (f'The bridge at 50 Hz, idle, uses {100 * share:.1f} % of a core over '
            f'{own[0]["cpu_seconds"]:g} s with {per_tick:.2f} `joint_states` per tick; at most '
            f'{100 * CPU_LIMIT:.0f} %: {judged}.' + _interpreter(own[0].get('python')))


def _interpreter(python: Mapping[str, Any] | None) -> str:
    if python is None:
        return ''
    return (f' Python {python["version"]} ({python["compiler"].strip()}); a plain loop of '
            f'{python["loop"]} additions took it {python["loop_ms"]:.0f} ms of CPU time then.')


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ['| ' + ' | '.join(line) + ' |' for line in (head, ['---'] * len(head), *rows)]


def write_picture(result: Mapping[str, Any], path: Path) -> Path:
    """Draw the tails of a result; return the file."""
    FigureCanvasAgg(draw(result)).print_png(str(path))
    return path


def draw(result: Mapping[str, Any]) -> Figure:
    """Return the share of ticks that are later than a time, a panel for each rate."""
    cells = result['summary']['cells']
    rates = sorted({cell['rate_hz'] for cell in cells})
    figure = Figure(figsize=(10, 4), dpi=120, facecolor='white')
    panels = figure.subplots(1, len(rates), squeeze=False, sharey=True)[0]
    for axis, rate_hz in zip(panels, rates, strict=True):
        for cell in (one for one in cells if one['rate_hz'] == rate_hz):
            share, late = np.array(cell['late_ms']['curve']).T
            axis.plot(np.maximum(late, 1e-3), share, color=COLORS[cell['load']], linewidth=1.6,
                      label=_load(cell))
        axis.axvline(500.0 / rate_hz, color='#6B6B6B', linestyle='--', linewidth=1.0,
                     label='half a period: held')
        axis.set(title=f'{rate_hz:g} Hz', xscale='log', yscale='log', xlabel='lateness, ms')
        axis.grid(visible=True, which='major', alpha=0.3)
        axis.legend(loc='lower left', fontsize=8)
    panels[0].set_ylabel('share of ticks that are later')
    figure.tight_layout()
    return figure
