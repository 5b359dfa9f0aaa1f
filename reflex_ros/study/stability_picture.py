"""The stability bench as a picture: how far each variant drifts from float64, and what fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reflex_ros.study.bench_run import COLORS, INK, label, panels

Row = Mapping[str, Any]
SERIES = MappingProxyType({'bf16': 'orange', 'bf16_serial': 'red', 'fp32_norm_only': 'sky',
                           'ada': 'blue', 'float32': 'green'})  # fmt: skip
KINDS = MappingProxyType({'nan': 'NaN', 'inf': 'Inf', 'flushed': 'flushed to zero'})
SHARE = 0.7
"""Of the height of a regime, what its lines fill."""


def write_picture(result: Mapping[str, Any], path: Path) -> Path:
    """Draw a result with rows; return the file."""
    FigureCanvasAgg(draw(result)).print_png(str(path))
    return path


def draw(result: Mapping[str, Any]) -> Figure:
    """Return the figure: norms, then whole calls, each where it was run; it has no canvas yet."""
    norms, calls = result['summary']['norms'], result['summary']['calls']
    calls = [row for row in calls if row['is_operating']]
    figure, axes = panels(bool(norms) + bool(calls), width=10.0 if not (norms and calls) else 5.4,
                          height=6.4)  # fmt: skip
    if norms:
        _panel(axes[0], norm_groups(norms), scale=100)
        label(axes[0], title='Norms: drift of a row', y='regime',
              x='error against float64, % of the largest output of the row')  # fmt: skip
    if calls:
        _panel(axes[-1], call_groups(calls), scale=1000)
        label(axes[-1], title='Whole calls of tiny: drift of a chunk', y='regime',
              x='largest error of a revolute joint against float64, mrad')  # fmt: skip
    names = dict.fromkeys([*(r['variant'] for r in norms), *(r['precision'] for r in calls)])
    handles = [Line2D([], [], color=_color(name), marker='o', ms=4, label=name) for name in names]
    handles += [
        Line2D([], [], color=INK, marker='o', ms=4, label='mean, line to the largest'),
        Line2D([], [], color=INK, marker='X', ms=6, ls='', label='has failed rows or calls'),
    ]
    figure.legend(handles=handles, loc='upper center', ncols=len(handles), frameon=False,
                  fontsize=8)  # fmt: skip
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    return figure


Mark = tuple[str, float | None, float | None, bool]
"""Series, mean and largest drift, whether it fails."""


def norm_groups(norms: Sequence[Row]) -> dict[str, list[Mark]]:
    """Return the marks of each regime, and of the residual streams, below its name."""
    groups: dict[str, list[Mark]] = {}
    for regime in dict.fromkeys(row['regime'] for row in norms):
        own = [row for row in norms if row['regime'] == regime]
        failed = [row for row in own if row['first_failure_step'] is not None]
        name = regime + _first([row['first_failure_step'] for row in failed], 'step', failed)
        groups[name] = [(row['variant'], row['drift_mean'], row['drift_max'], row in failed)
                        for row in own]  # fmt: skip
        if any(row['accumulated_mean'] is not None for row in own):
            groups[f'{regime}, stream'] = [
                (row['variant'], row['accumulated_mean'], row['accumulated_max'], False)
                for row in own
            ]
    return groups


def call_groups(calls: Sequence[Row]) -> dict[str, list[Mark]]:
    """Return the marks of each regime below its name."""
    groups: dict[str, list[Mark]] = {}
    for regime in dict.fromkeys(row['regime'] for row in calls):
        own = [row for row in calls if row['regime'] == regime]
        failed = [row for row in own if row['first_failure_call'] is not None]
        name = regime + _first([row['first_failure_call'] for row in failed], 'call', failed)
        groups[name] = [(row['precision'], row['drift_mean_rad'], row['drift_max_rad'],
                         row in failed) for row in own]  # fmt: skip
    return groups


def _first(steps: Sequence[int], unit: str, failed: Sequence[Row]) -> str:
    """Return a second line of a name: where the first failures are, and of which kind."""
    if not steps:
        return ''
    kinds = ', '.join(words for kind, words in KINDS.items() if any(r.get(kind) for r in failed))
    last = f' to {max(steps)}' if max(steps) > min(steps) else ''
    return f'\nfirst {kinds}: {unit} {min(steps)}{last}'


def _panel(axis: Axes, groups: Mapping[str, Sequence[Mark]], *, scale: float) -> None:
    """Draw a line from mean to largest for each mark; what is 0 has no place on a log axis."""
    for at, marks in enumerate(groups.values()):
        if at % 2:
            axis.axhspan(at - 0.5, at + 0.5, color='#F4F4F4', lw=0, zorder=0)
        for place, (name, mean, largest, fails) in enumerate(marks):
            if not mean or not largest:
                continue
            height = at + SHARE * ((place + 0.5) / len(marks) - 0.5)
            axis.plot([scale * mean, scale * largest], [height] * 2, color=_color(name), lw=1.4)
            axis.plot(scale * mean, height, 'X' if fails else 'o', color=_color(name),
                      ms=6 if fails else 4)  # fmt: skip
    axis.set_xscale('log')
    axis.xaxis.set_major_formatter('{x:g}')
    axis.set_yticks(range(len(groups)), list(groups))
    axis.set_ylim(len(groups) - 0.5, -0.5)
    axis.grid(axis='x', color='#DDDDDD', lw=0.6)
    axis.set_axisbelow(True)


def _color(name: str) -> str:
    return COLORS[SERIES.get(name, 'grey')]
