"""What a policy sees, as one picture: images by slot, state, text by token, first chunk.

A ``sight`` is what ``study.inspect_sight.Sight`` describes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecFromSubplotSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.files import write_file
from reflex_ros.report.picture import COMMAND, FAINT, GRID, INK, MEASURED
from reflex_ros.report.views_text import CHAR_IN, LINE_IN, lay_out

DPI, WIDTH_IN, LEFT_IN, RIGHT_IN = 120, 14.0, 0.6, 0.2
RESERVE, BAND, TINTS, OUTLIER = '#E9A878', '#E3EFF6', ('#DCE6EE', '#FBEBCB'), '#B00020'
SIGMAS, SHOWN_SIGMAS = 5.0, 6.5
"""Beyond the first a state is marked; the second is where the axis ends."""
STATE_IN = (2.5, 2.7, 0.75)
"""Widths of the names, the bars and the figures of the state, inches; few images widen bars."""
ACROSS = 4
"""Joints of the chunk beside each other."""
WARNINGS, WARNING_CHARS = 4, 165
LEAST_SHARE = 0.05
"""Least height of a joint's curve, as a share of what is usual for it."""
LINES = 12
"""Most lines of a prompt that are drawn."""


def write_sight(path: Path, sight: Any) -> Path:
    """Draw what a policy sees; return the file.

    Args:
        path: PNG file. sight: What to draw; None = no observation was asked for.

    Raises:
        ConfigError: There is nothing to draw, or the file cannot be written.
    """
    if sight is None:
        raise ConfigError(
            f'picture cannot be drawn {path}: got no observation, expected one source. '
            'Give --input IN.npz, --bag RUN or --live.'
        )
    figure = draw_sight(sight)
    write_file(path, FigureCanvasAgg(figure).print_png)
    return path


def draw_sight(sight: Any) -> Figure:
    """Return the figure of a sight, 14 inches wide at 120 dots; it has no canvas yet."""
    width = int((WIDTH_IN - LEFT_IN - RIGHT_IN) / CHAR_IN)
    pieces = [p for p in lay_out(sight.tokens, width) if p.line < LINES]
    joints, rows = len(sight.state), math.ceil(len(sight.action_columns) / ACROSS)
    notes = min(len(sight.warnings), WARNINGS)
    heights = [
        max(3.0, 0.27 * joints + 0.35), LINE_IN * (1 + max((p.line for p in pieces), default=0)),
        1.5 * rows,
    ]  # fmt: skip
    top, gap, bottom = 1.12 + 0.19 * notes, 0.64, 0.62
    height = top + sum(heights) + 2 * gap + bottom
    figure = Figure(figsize=(WIDTH_IN, height), dpi=DPI, facecolor='white')
    grid = figure.add_gridspec(
        3, 1, height_ratios=heights, left=LEFT_IN / WIDTH_IN, right=1 - RIGHT_IN / WIDTH_IN,
        top=1 - top / height, bottom=bottom / height, hspace=gap / (sum(heights) / 3),
    )  # fmt: skip
    _title(figure, sight, height)
    names, bars, figures = STATE_IN
    free = WIDTH_IN - LEFT_IN - RIGHT_IN - sum(STATE_IN)
    images = min(free, min(len(sight.views), ACROSS) * heights[0])
    inner = GridSpecFromSubplotSpec(
        1, 4, grid[0], width_ratios=(images, names, bars + free - images, figures), wspace=0
    )
    _draw_views(figure, inner[0], sight, width_in=images)
    _draw_state(figure.add_subplot(inner[2]), sight)
    _draw_prompt(figure.add_subplot(grid[1]), sight, pieces)
    _draw_chunk(figure, grid[2], sight)
    return figure


def _title(figure: Figure, sight: Any, height: float) -> None:
    x = LEFT_IN / WIDTH_IN
    figure.text(x, 1 - 0.42 / height, f'{sight.policy}  ·  what the model sees', size=17,
                weight='bold', color=INK)  # fmt: skip
    seen = sum(view.pixels is not None for view in sight.views)
    facts = [sight.origin, f'{seen} of {len(sight.views)} images', f'{len(sight.tokens)} tokens',
             f'chunk of {len(sight.chunk)} rows, {sight.executed} to be executed',
             'nothing was commanded']  # fmt: skip
    figure.text(x, 1 - 0.66 / height, '     '.join(facts), size=10.5, color=FAINT)
    hidden = len(sight.warnings) - WARNINGS
    for at, text in enumerate(sight.warnings[:WARNINGS]):
        more = f'  (and {hidden} more)' if hidden > 0 and at == WARNINGS - 1 else ''
        text = text if len(text) <= WARNING_CHARS else f'{text[: WARNING_CHARS - 3]}...'
        figure.text(x, 1 - (0.9 + 0.19 * at) / height, f'!  {text}{more}', size=9.5, color=OUTLIER)


def _draw_views(figure: Figure, cell: Any, sight: Any, *, width_in: float) -> None:
    rows, across = math.ceil(len(sight.views) / ACROSS), min(len(sight.views), ACROSS)
    grid = GridSpecFromSubplotSpec(rows, across, cell, wspace=0.05, hspace=0.3)
    titles = [f'slot {slot}  {view.name}' for slot, view in enumerate(sight.views)]
    room = width_in / across / CHAR_IN
    size_pt = min(10.0, 10 * room / max(map(len, titles)))
    for slot, view in enumerate(sight.views):
        axes = figure.add_subplot(grid[slot // ACROSS, slot % ACROSS])
        axes.set_anchor('NW')
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(GRID)
        if view.pixels is None:
            axes.add_patch(Rectangle((0, 0), 1, 1, facecolor='#F1F1F1', edgecolor='#D0D0D0',
                                     hatch='///', transform=axes.transAxes))  # fmt: skip
            axes.text(0.5, 0.5, 'absent\nmasked: no token sees it', ha='center', va='center',
                      size=9.5, color=INK, transform=axes.transAxes,
                      bbox={'facecolor': 'white', 'edgecolor': 'none'})  # fmt: skip
            axes.set_box_aspect(1)
            size = 'no image'
        else:
            axes.imshow(np.clip(view.pixels, 0, 1), interpolation='nearest')
            height, width = view.pixels.shape[:2]
            size = f'{view.source_wh[0]} x {view.source_wh[1]} seen as {width} x {height}'
        axes.set_title(titles[slot], loc='left', size=size_pt, color=INK, pad=4)
        axes.set_xlabel(size, size=8.5, color=FAINT, loc='left', labelpad=3)


def _draw_state(axes: Any, sight: Any) -> None:
    outliers = set(sight.outliers)
    for at, z in enumerate(sight.sigmas):
        is_far = at in outliers
        # a number that is none is drawn at the end as well
        end = SHOWN_SIGMAS if math.isnan(z) else float(np.clip(z, -SHOWN_SIGMAS, SHOWN_SIGMAS))
        color = OUTLIER if is_far else MEASURED
        axes.plot((0, end), (at, at), color=color, linewidth=2.2, solid_capstyle='butt')
        axes.plot(end, at, marker='o', color=color, markersize=5, clip_on=False)
        axes.text(SHOWN_SIGMAS + 0.35, at, f'{z:+.2f}{"  !" if is_far else ""}', va='center',
                  size=9, color=color, weight='bold' if is_far else 'normal')  # fmt: skip
    for side in (-1, 1):
        axes.axvspan(side * SIGMAS, side * SHOWN_SIGMAS, color='#F9E3E3', linewidth=0, zorder=0)
    axes.axvline(0, color=FAINT, linewidth=0.8)
    axes.set(xlim=(-SHOWN_SIGMAS, SHOWN_SIGMAS), ylim=(len(sight.sigmas) - 0.4, -0.6),
             yticks=range(len(sight.sigmas)))  # fmt: skip
    pairs = zip(sight.state_columns, sight.state, strict=True)
    axes.set_yticklabels([f'{c.name}  {value:+.3f} {c.unit}'.rstrip() for c, value in pairs])
    axes.spines[:].set_visible(False)
    axes.grid(axis='x', color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=9, colors=INK)
    axes.tick_params(axis='x', labelsize=8.5, labelcolor=FAINT)
    axes.set_xlabel('standard deviations from the mean of the training data', size=8.5,
                    color=FAINT)  # fmt: skip
    axes.set_title('state', loc='left', size=10, color=INK, pad=4)


def _draw_prompt(axes: Any, sight: Any, pieces: Any) -> None:
    lines = 1 + max((p.line for p in pieces), default=0)
    width = (WIDTH_IN - LEFT_IN - RIGHT_IN) / CHAR_IN
    axes.set(xlim=(0, width), ylim=(lines, 0), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    for piece in pieces:
        axes.add_patch(Rectangle((piece.start, piece.line + 0.08), len(piece.text), 0.84,
                                 color=TINTS[piece.token % 2], linewidth=0))  # fmt: skip
        axes.text(piece.start, piece.line + 0.5, piece.text, family='monospace', size=10,
                  va='center_baseline', ha='left', color=INK, parse_math=False)  # fmt: skip
    cut = f', {sight.excess} cut off' if sight.excess else ''
    drawn = 1 + max((p.token for p in pieces), default=-1)
    cut += f', the first {drawn} shown' if drawn < len(sight.tokens) else ''
    axes.set_title(f'text, one tint per token ({len(sight.tokens)} tokens{cut}; ↵ is a line '
                   'break)', loc='left', size=10, color=INK, pad=4)  # fmt: skip


def _draw_chunk(figure: Figure, cell: Any, sight: Any) -> None:
    columns = sight.action_columns
    rows = math.ceil(len(columns) / ACROSS)
    grid = GridSpecFromSubplotSpec(rows, ACROSS, cell, wspace=0.2, hspace=0.5)
    steps = np.arange(len(sight.chunk))
    done = min(sight.executed, len(steps))
    has_state = len(sight.state) == len(columns)
    for at, column in enumerate(columns):
        axes = figure.add_subplot(grid[at // ACROSS, at % ACROSS])
        values = sight.chunk[:, at]
        axes.plot(steps[done - 1 :], values[done - 1 :], color=RESERVE, linewidth=1.4)
        axes.plot(steps[:done], values[:done], color=COMMAND, linewidth=2.0)
        if has_state:
            axes.plot(0, sight.state[at], marker='o', color=MEASURED, markersize=5.5,
                      clip_on=False, zorder=5)  # fmt: skip
        limits = _limits(axes, [c.usual for c in (column, *sight.state_columns[at : at + 1])])
        if column.usual is not None:
            axes.axhspan(*column.usual, color=BAND, linewidth=0, zorder=0)
        axes.set(ylim=limits, xlim=(-0.02 * len(steps), len(steps) - 1 or 1))
        axes.grid(color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=8.5, colors=FAINT)
        unit = f' [{column.unit}]' if column.unit else ' [unit unknown]'
        axes.set_title(column.name + unit, loc='left', size=10, color=INK, pad=4)
    _legend(figure, sight)


def _legend(figure: Figure, sight: Any) -> None:
    period = sight.step_period_s
    time = f'{1000 * period:g} ms each' if period else 'the checkpoint does not store their period'
    height = figure.get_figheight()
    figure.text(LEFT_IN / WIDTH_IN, 0.2 / height, f'first chunk over its rows ({time})', size=9,
                color=FAINT)  # fmt: skip
    handles = [Line2D([], [], color=COMMAND, linewidth=2, label='to be executed'),
               Line2D([], [], color=RESERVE, linewidth=1.4, label='reserve'),
               Line2D([], [], color=MEASURED, marker='o', linestyle='', label='state now'),
               Patch(color=BAND, label='usual in training')]  # fmt: skip
    if sight.executed >= len(sight.chunk):
        handles.pop(1)
    figure.legend(handles=handles, loc='lower right', ncols=len(handles), frameon=False,
                  fontsize=9, bbox_to_anchor=(1 - RIGHT_IN / WIDTH_IN, 0.08 / height),
                  borderaxespad=0)  # fmt: skip


def _limits(axes: Any, usual: Any) -> tuple[float, float]:
    """Return the range of a joint's data, not so narrow that a still joint seems to shake."""
    low, high = axes.get_ylim()
    least = max([LEAST_SHARE * (most - fewest) for fewest, most in filter(None, usual)] + [1e-6])
    middle, half = (low + high) / 2, max(high - low, least) / 2
    return middle - half, middle + half
