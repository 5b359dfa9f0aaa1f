"""The bench of the prior caches as a picture: what each variant saves, and what it is off by.

Colours are those of Okabe and Ito, which people with any colour vision tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reflex_ros.infer.cache import VL_CACHE, VLA_CACHE

COLORS = ('#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9')
MARKS = ('o', 's', '^', 'D', 'v')
INK, FAINT = '#222222', '#9A9A9A'
Row = Mapping[str, Any]


def write_picture(found: Mapping[str, Any], path: Path) -> Path:
    """Draw the ``summary`` of a result; return the file."""
    FigureCanvasAgg(draw(found)).print_png(str(path))
    return path


def draw(found: Mapping[str, Any]) -> Figure:
    """Return the figure: one row of panels for each network; it has no canvas yet."""
    subjects = found['subjects']
    figure = Figure(figsize=(10, 3.4 * len(subjects)), dpi=110, facecolor='white')
    axes = figure.subplots(len(subjects), 2, squeeze=False)
    for pair, subject in zip(axes, subjects, strict=True):
        rows, name = subject['rows'], f'{subject["family"]}, {subject["weights"]} weights'
        unit = 'rad' if subject['family'] == 'tiny' else 'normalised'
        _vla(pair[0], [row for row in rows if row['method'] == VLA_CACHE])
        _vl(pair[1], [row for row in rows if row['method'] == VL_CACHE])
        for axis, method in zip(pair, (VLA_CACHE, VL_CACHE), strict=True):
            axis.set_title(f'{method}: {name}', loc='left', fontsize=10, color=INK)
            axis.set_ylabel(f'mean action error, {unit}', color=INK)
            axis.spines[['top', 'right']].set_visible(False)
            axis.axvline(1, color=FAINT, linewidth=0.8, linestyle=':')
    figure.tight_layout()
    return figure


def _vla(axis: Axes, rows: Sequence[Row]) -> None:
    """Draw error against CPU time: colour is the variant, mark the scene."""
    variants, scenes = (list(dict.fromkeys(row[key] for row in rows))
                        for key in ('variant', 'scene'))  # fmt: skip
    for row in rows:
        axis.plot(row['cpu_ratio']['p50'], row['action_error_mean'], linestyle='', markersize=6,
                  color=COLORS[variants.index(row['variant'])],
                  marker=MARKS[scenes.index(row['scene'])])  # fmt: skip
    for at, name in enumerate(variants):
        axis.plot([], [], 'o', color=COLORS[at], label=name)
    for at, name in enumerate(scenes):
        axis.plot([], [], MARKS[at], color=FAINT, label=name)
    axis.set_xlabel('CPU time of the prefix ÷ exact', color=INK)
    axis.legend(fontsize=7, frameon=False, ncols=2)


def _vl(axis: Axes, rows: Sequence[Row]) -> None:
    """Draw error against the bytes that are kept, and the CPU time of the steps beside them."""
    kept = [row['kept_bytes'] / row['prefix_bytes'] for row in rows]
    axis.plot(kept, [row['action_error_mean'] for row in rows], 'o-', color=COLORS[0],
              label='mean action error')  # fmt: skip
    axis.set_xlabel('bytes of the kept rows ÷ whole prefix', color=INK)
    beside = axis.twinx()
    beside.plot(kept, [row['cpu_ratio']['p50'] for row in rows], 's--', color=COLORS[1],
                label='CPU time of the steps ÷ exact')  # fmt: skip
    beside.set_ylim(0, 1.5)
    beside.spines['top'].set_visible(False)
    axis.plot([], [], 's--', color=COLORS[1], label='CPU time of the steps ÷ exact (right)')
    axis.legend(fontsize=7, frameon=False, loc='center right')
