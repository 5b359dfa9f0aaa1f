"""``picture.png``: one run at a glance, from camera to joints.

Colours are those of Okabe and Ito, which people with any colour vision tell apart.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, GridSpecFromSubplotSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.clock import S
from reflex_ros.core.files import write_file
from reflex_ros.core.types import Verdict
from reflex_ros.report.run_data import STRIP_FRAMES, Run, load_run
from reflex_ros.report.stalls import Stall, find_stalls, longest, spans
from reflex_ros.report.summary import summarise_run

COLORS = MappingProxyType({
    Verdict.FRESH: '#009E73', Verdict.LIMITED: '#56B4E9', Verdict.HELD: '#D55E00',
    Verdict.RAMPING: '#C9C9C9', Verdict.STOPPED: '#4D4D4D',
})
DRAW_ORDER = (
    Verdict.FRESH, Verdict.RAMPING, Verdict.STOPPED, Verdict.LIMITED, Verdict.HELD,
)
"""Rare and bad ones last, so that a narrow one is not covered."""
AXES = (('x', '#0072B2'), ('y', '#E69F00'), ('z', '#CC79A7'))
COMMAND, MEASURED = '#D55E00', '#0072B2'
INK, FAINT, GRID = '#222222', '#6B6B6B', '#E4E4E4'
LABELLED_STALLS = 5
FEW = 60
"""Spans or stalls that can be told apart; of more, none is marked on its own."""
MIN_WIDTH = 1 / 900
"""Least width of a span, as a share of the run, so that one tick in a long run is visible."""


def write_picture(folder: Path | str, run: Run | None = None, *,
                  path: Path | None = None) -> Path:
    """Draw a run folder; return the file, ``picture.png`` in the folder unless named.

    Args:
        folder: Run folder. ``run``: what is in it, None to read it. ``path``: the file.

    Raises:
        ConfigError: The folder has neither a ledger nor recorded ticks.
        LayoutError: They are of another version.
    """
    path = path or RunFolder(Path(folder)).picture
    canvas = FigureCanvasAgg(draw_run(run or load_run(folder)))
    write_file(path, canvas.print_png)
    return path


def draw_run(run: Run) -> Figure:
    """Return the figure of a run, 14 x 10 inches at 120 dots; it has no canvas yet."""
    figure = Figure(figsize=(14, 10), dpi=120, facecolor='white')
    heights = [1.55 if _frames_within(run) else 0.01, 0.42, 1.7 if run.truths else 0.01, 3.3]
    grid = figure.add_gridspec(
        4, 1, height_ratios=heights, left=0.052, right=0.985, top=0.915, bottom=0.055, hspace=0.32
    )
    _title(figure, run)
    span_s = (0.0, run.duration_s or 1.0)
    if _frames_within(run):
        _draw_frames(figure, grid[0], run)
    _draw_verdicts(figure.add_subplot(grid[1]), run, span_s)
    if run.truths:
        _draw_target(figure.add_subplot(grid[2]), run, span_s)
    _draw_joints(figure, grid[3], run, span_s)
    return figure


def _title(figure: Figure, run: Run) -> None:
    summary = summarise_run(run)
    delay = f', {summary["delay_ms"]:.0f} ms delay' if summary['delay_ms'] else ''
    steps = f', {summary["execute_steps"]} steps a chunk' if summary['execute_steps'] else ''
    name = f'{summary["mode"] or "run"}  ·  {summary["policy"] or "policy not recorded"}'
    figure.text(0.052, 0.962, name + steps + delay, size=17, weight='bold', color=INK)
    reaction = summary['reaction_ms']
    facts = [
        f'{summary["duration_s"]:.1f} s',
        f'{summary["ticks"]} ticks',
        f'stall ratio {_percent(summary["stall_ratio"])}',
        f'stalled chunks {_percent(summary["stalled_chunks"])}',
        f'uncovered {_percent(summary["uncovered_share"])}',
    ]
    if reaction['p50'] is not None:
        kind = reaction['kind'].replace('_', ' ')
        facts.append(f'{kind} {reaction["p50"]:.0f} ms (median of {reaction["n"]})')
    figure.text(0.052, 0.938, '     '.join(facts), size=10.5, color=FAINT)


def _percent(share: float | None) -> str:
    return 'none' if share is None else f'{100 * share:.1f} %'


def _draw_frames(figure: Figure, cell: Any, run: Run) -> None:
    frames = _frames_within(run)
    count = max(len(frames), 6)
    grid = GridSpecFromSubplotSpec(1, count, cell, wspace=0.06)
    origin_ns = int(run.records['stamp_ns'][0])
    for index, (stamp_ns, image) in enumerate(frames):
        axes = figure.add_subplot(grid[index])
        axes.imshow(image, interpolation='nearest')
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color(GRID)
        axes.set_title(f'{(stamp_ns - origin_ns) / S:.1f} s', size=9, color=FAINT, pad=3)


def _frames_within(run: Run) -> list[tuple[int, Any]]:
    """Return at most twelve frames from the time of the ledger."""
    if not len(run.records):
        return []
    start_ns = int(run.records['stamp_ns'][0])
    end_ns = start_ns + round(run.duration_s * S)
    frames = [frame for frame in run.frames if start_ns <= frame[0] <= end_ns]
    return frames[:: max(1, -(-len(frames) // STRIP_FRAMES))]


def _draw_verdicts(axes: Any, run: Run, span_s: Any) -> None:
    found = spans(run.records, run.period_ns)
    for verdict in DRAW_ORDER:
        bars = [(start, end - start) for v, start, end in found if v is verdict]
        # Widening many would show more of them than there was.
        least = MIN_WIDTH * (span_s[1] - span_s[0]) if len(bars) <= FEW else 0.0
        bars = [(start, max(length, least)) for start, length in bars]
        axes.broken_barh(bars, (0, 1), color=COLORS[verdict], linewidth=0)
    stalls = find_stalls(run.records, run.period_ns)
    for stall in stalls if len(stalls) <= FEW else ():
        axes.plot((stall.start_s + stall.end_s) / 2, 1.16, marker='v', color=COLORS[Verdict.HELD],
                  markersize=4, clip_on=False)
    _label_stalls(axes, stalls, span_s)
    axes.set(xlim=span_s, ylim=(0, 1), yticks=[])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=9, colors=FAINT)
    used = {verdict for verdict, _, _ in found}
    legend = [Patch(color=COLORS[v], label=v.value) for v in COLORS if v in used]
    if stalls:
        label = f'stall: in motion, no live chunk ({len(stalls)})'
        legend.append(Line2D([], [], marker='v', color=COLORS[Verdict.HELD], linestyle='',
                             markersize=5, label=label))
    axes.legend(handles=legend, loc='upper right', bbox_to_anchor=(1.0, -0.42), ncols=len(legend),
                frameon=False, fontsize=9, handlelength=1.2, borderaxespad=0, columnspacing=1.6)
    _name(axes, 'control ticks', pad=20 if stalls else 4)


def _label_stalls(axes: Any, stalls: list[Stall], span_s: Any) -> None:
    """Name the longest stalls, as far as their labels do not touch."""
    room = 0.11 * (span_s[1] - span_s[0])
    inner = (span_s[0] + room / 2, span_s[1] - room / 2)
    placed: list[float] = []
    for stall in longest(stalls, LABELLED_STALLS):
        middle = min(max((stall.start_s + stall.end_s) / 2, inner[0]), inner[1])
        if all(abs(middle - other) > room for other in placed):
            placed.append(middle)
            axes.text(middle, 1.32, f'{stall.end_s - stall.start_s:.2f} s {stall.cause}',
                      ha='center', va='bottom', size=8.5, color=COLORS[Verdict.HELD])


def _draw_target(axes: Any, run: Run, span_s: Any) -> None:
    origin_ns = int(run.records['stamp_ns'][0])
    times = np.array([(truth.stamp_ns - origin_ns) / S for truth in run.truths])
    tips = np.array([truth.tip_position for truth in run.truths]) * 100
    targets = np.array([truth.target_position for truth in run.truths]) * 100
    for index, (_, color) in enumerate(AXES):
        axes.plot(times, targets[:, index], color=color, linewidth=1.1, linestyle=(0, (3, 2)))
        axes.plot(times, tips[:, index], color=color, linewidth=1.8)
    for stall in find_stalls(run.records, run.period_ns):
        axes.axvspan(stall.start_s, stall.end_s, color=COLORS[Verdict.HELD], alpha=0.1,
                     linewidth=0)
    axes.margins(y=0.16)  # room for the names of the events
    for event in run.events:
        at = (event.stamp_ns - origin_ns) / S
        axes.axvline(at, color=FAINT, linewidth=0.9, linestyle=':')
        if span_s[0] <= at <= span_s[1] - 0.04 * (span_s[1] - span_s[0]):  # else it is cut off
            axes.text(at, 0.985, f' {event.name}', transform=axes.get_xaxis_transform(),
                      size=8.5, color=FAINT, ha='left', va='top')
    _style(axes, span_s)
    _name_lines(axes, tips[-1])
    axes.set_ylabel('cm', size=9, color=FAINT)
    axes.legend(
        handles=[Line2D([], [], color=INK, linewidth=1.1, linestyle=(0, (3, 2)), label='target'),
                 Line2D([], [], color=INK, linewidth=1.8, label='tool point')],
        loc='lower left', bbox_to_anchor=(0.16, 1.0), ncols=2, frameon=False, fontsize=9,
        borderaxespad=0.2,
    )
    _name(axes, 'target and tool point')


def _name_lines(axes: Any, ends: Any) -> None:
    """Name the lines at their right ends, apart enough to be read."""
    low, high = axes.get_ylim()
    lowest = low
    for index in np.argsort(ends):
        name, color = AXES[index]
        at = max(float(ends[index]), lowest)
        lowest = at + 0.09 * (high - low)
        axes.text(1.004, at, name, color=color, size=10, weight='bold', va='center',
                  transform=axes.get_yaxis_transform())


def _draw_joints(figure: Figure, cell: Any, run: Run, span_s: Any) -> None:
    names = run.joint_names
    rows = -(-(len(names) + 1) // 4)
    grid: GridSpec = GridSpecFromSubplotSpec(rows, 4, cell, wspace=0.17, hspace=0.42)
    times = _times(run)
    for index, name in enumerate(names):
        axes = figure.add_subplot(grid[index // 4, index % 4])
        scale = 1000.0 if name.endswith('gripper') else 1.0
        axes.plot(times, run.records['measured'][:, index] * scale, color=MEASURED, linewidth=2.4,
                  alpha=0.55, solid_capstyle='butt')
        axes.plot(times, run.records['command'][:, index] * scale, color=COMMAND, linewidth=1.0)
        _style(axes, span_s)
        _at_least(axes, 1.0 if scale > 1 else 0.02)
        _name(axes, f'{name} [{"mm" if scale > 1 else "rad"}]')
        axes.tick_params(labelbottom=index // 4 == rows - 1)
    axes = figure.add_subplot(grid[len(names) // 4, len(names) % 4])
    _draw_error(axes, run, times, span_s)


def _draw_error(axes: Any, run: Run, times: Any, span_s: Any) -> None:
    error = np.where(np.isfinite(run.records['tracking_error']), run.records['tracking_error'], 0)
    axes.fill_between(times, error, color=FAINT, alpha=0.35, linewidth=0)
    _style(axes, span_s)
    _at_least(axes, 0.02)
    axes.set_ylim(bottom=0)
    _name(axes, 'largest joint error [rad]')
    handles = [Line2D([], [], color=COMMAND, linewidth=1.0, label='command'),
               Line2D([], [], color=MEASURED, linewidth=2.4, alpha=0.55, label='measured')]
    axes.figure.legend(handles=handles, loc='lower right', bbox_to_anchor=(0.985, 0.004), ncols=2,
                       frameon=False, fontsize=9, borderaxespad=0)
    axes.figure.text(0.052, 0.012, 'time since the first control tick [s]', size=9, color=FAINT)


def _times(run: Run) -> Any:
    """Return the due instants in s since the first one."""
    due_ns = run.records['due_ns']
    return (due_ns - due_ns[0]) / S if len(due_ns) else np.zeros(0)


def _at_least(axes: Any, height: float) -> None:
    """Keep a joint at rest from looking as if it shook."""
    low, high = axes.get_ylim()
    if high - low < height:
        middle = (high + low) / 2
        axes.set_ylim(middle - height / 2, middle + height / 2)


def _style(axes: Any, span_s: Any) -> None:
    axes.set_xlim(span_s)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8.5, colors=FAINT)


def _name(axes: Any, text: str, *, pad: float = 4) -> None:
    axes.set_title(text, loc='left', size=10, color=INK, pad=pad)
