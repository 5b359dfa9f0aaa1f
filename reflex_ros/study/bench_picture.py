"""The policy bench as a picture: where the CPU time of a call goes, by variant.

Colours are those of Okabe and Ito, which people with any colour vision tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from reflex_ros.study.bench_policy import FULL, REFLEX

COLORS = MappingProxyType({'vision': '#56B4E9', 'prefix': '#E69F00', 'denoise': '#009E73'})
INK, FAINT = '#222222', '#6B6B6B'
BESIDE = 0.35
"""Opacity of work that another thread does before the call."""


def write_picture(found: Mapping[str, Any], path: Path) -> Path:
    """Draw the largest networks of a result's ``summary``; return the file."""
    FigureCanvasAgg(draw(found)).print_png(str(path))
    return path


def draw(found: Mapping[str, Any]) -> Figure:
    """Return the figure, one panel for each network; it has no canvas yet."""
    subjects = [s for s in found['subjects'] if s['size'] != 'tiny'] or found['subjects']
    figure = Figure(figsize=(10, 0.9 + 2.0 * len(subjects)), dpi=120, facecolor='white')
    axes = figure.subplots(len(subjects), 1, squeeze=False)[:, 0]
    for axis, subject in zip(axes, subjects, strict=True):
        _panel(axis, subject)
    axes[-1].set_xlabel('CPU time of one call with new images of all cameras, p50, s', color=INK)
    handles = [Patch(color=color, label=part) for part, color in COLORS.items()]
    handles.append(Patch(color=FAINT, alpha=BESIDE, label='done before the call, beside it'))
    figure.legend(handles=handles, loc='upper center', ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / figure.get_figheight()))
    return figure


def _panel(axis: Axes, subject: Mapping[str, Any]) -> None:
    cells: Sequence[Mapping[str, Any]] = subject['cells']
    totals = [_seconds(cell, 'all_new') for cell in cells if cell['variant'] != FULL]
    limit = 1.25 * max(totals, default=1.0)
    for at, cell in enumerate(cells):
        left, is_ours = 0.0, cell['variant'] == REFLEX
        for part, color in COLORS.items():
            width = _seconds(cell, part)
            opacity = BESIDE if is_ours and part != 'denoise' else 1.0
            axis.barh(at, width, left=left, color=color, alpha=opacity, height=0.72)
            left += width
        words = f'{left:.2f}' + (f', control path {_seconds(cell, "control"):.2f}' if is_ours
                                 else '')  # fmt: skip
        inside = left > 0.97 * limit
        axis.text(limit * 0.99 if inside else left + 0.008 * limit, at,
                  f'{words} →' if inside else words, va='center', color=INK, fontsize=8,
                  ha='right' if inside else 'left')  # fmt: skip
    axis.set_xlim(0, limit)
    axis.set_yticks(range(len(cells)), [f'{c["variant"]} {c["dtype"]}' for c in cells], fontsize=8)
    axis.invert_yaxis()
    axis.spines[['top', 'right']].set_visible(False)
    title = f'{subject["family"]}, {subject["parameters"] / 1e6:.0f} M weights'
    axis.set_title(title, loc='left', fontsize=10, color=INK)


def _seconds(cell: Mapping[str, Any], part: str) -> float:
    return cell['cpu'][part]['p50'] / 1e3
