"""Plots of the results page as SVG text: points with 95 % intervals; equal data, equal bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType

Estimate = tuple[float, float, float]
COLORS = MappingProxyType({
    'sync': '#E69F00', 'async_naive': '#0072B2', 'reflex': '#009E73',
    'concatenated': '#E69F00', 'allocated once': '#009E73',
})
INK, GRID, PAPER = '#222222', '#DDDDDD', '#FFFFFF'
NAME_PX, PANEL_PX, GAP_PX, ROW_PX, TOP_PX = 300, 250, 40, 22, 34
LETTER_PX = 7
"""More than a letter of a name takes on average."""


@dataclass(frozen=True, slots=True)
class Point:
    """One row: name, mode for the colour, and an estimate for each panel (None: nothing)."""

    name: str
    mode: str
    values: tuple[Estimate | None, ...]


def dots(title: str, panels: Sequence[str], points: Sequence[Point]) -> str:
    """Return a row for each point and a panel for each figure.

    Args:
        title: For readers who do not see the picture.
        panels: Name of each figure with its unit.
        points: Rows, top first.
    """
    height = TOP_PX + ROW_PX * len(points) + 24
    names_px = max([NAME_PX, *(20 + LETTER_PX * len(point.name) for point in points)])
    width = names_px + (PANEL_PX + GAP_PX) * len(panels)
    parts = [_text(names_px - 10, _row_y(i), point.name, anchor='end')
             for i, point in enumerate(points)]
    for number, name in enumerate(panels):
        values = [(point.mode, point.values[number] or _absent(point)) for point in points]
        parts += _panel(names_px + number * (PANEL_PX + GAP_PX), name, values, height)
    return _svg(title, width, height, parts)


def _absent(point: Point) -> str:
    """Return what stands where a figure is missing: its cell has none, or was not run."""
    return 'none' if any(value is not None for value in point.values) else 'not run'


def _panel(left: int, name: str, values: Sequence[tuple[str, Estimate | str]],
           height: int) -> list[str]:
    top = nice_top([value[2] for _, value in values if not isinstance(value, str)])
    parts = [_text(left, 14, name, weight='bold')]
    for i in range(5):
        x = left + PANEL_PX * i / 4
        parts.append(f'<path d="M{x:.1f} {TOP_PX - 8}V{height - 22}" stroke="{GRID}"/>')
        parts.append(_text(x, height - 12, f'{top * i / 4:g}', anchor='middle'))
    for i, (mode, value) in enumerate(values):
        if isinstance(value, str):
            parts.append(_text(left + 4, _row_y(i), value, fill='#777777'))
            continue
        middle, low, high = (left + PANEL_PX * min(part / top, 1.0) for part in value)
        color, y = COLORS.get(mode, INK), _row_y(i)
        parts.append(f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="{color}" stroke-width="3"/>')
        parts.append(f'<circle cx="{middle:.1f}" cy="{y}" r="5" fill="{color}"/>')
    return parts


def lines(title: str, y_name: str, x_name: str,
          series: Mapping[str, Sequence[tuple[float, Estimate]]]) -> str:
    """Return one line for each series over x, with its intervals.

    Args:
        title: For readers who do not see the picture.
        y_name, x_name: With units.
        series: By mode, rising in x.
    """
    left, top_px, width, height = 60, 34, 480, 240
    most_x = max((x for line in series.values() for x, _ in line), default=1.0) or 1.0
    most_y = nice_top([value[2] for line in series.values() for _, value in line])

    def place(x: float, y: float) -> tuple[float, float]:
        return left + width * x / most_x, top_px + height * (1 - min(y / most_y, 1.0))

    parts = [_text(left, 14, y_name, weight='bold'),
             _text(left + width, top_px + height + 34, x_name, anchor='end')]
    for i in range(5):
        y = place(0, most_y * i / 4)[1]
        parts.append(f'<path d="M{left} {y:.1f}H{left + width}" stroke="{GRID}"/>')
        parts.append(_text(left - 8, y, f'{most_y * i / 4:g}', anchor='end'))
    parts += [_text(place(x, 0)[0], top_px + height + 16, f'{x:g}', anchor='middle')
              for x in sorted({x for line in series.values() for x, _ in line})]
    for number, (name, line) in enumerate(series.items()):
        parts += _line(name, number, line, place, left + width + 14)
    return _svg(title, left + width + 180, top_px + height + 50, parts)


def _line(name: str, number: int, line: Sequence[tuple[float, Estimate]], place: object,
          legend_px: float) -> list[str]:
    assert callable(place)
    color = COLORS.get(name, INK)
    way = ' '.join('{:.1f},{:.1f}'.format(*place(x, value[0])) for x, value in line)
    parts = [f'<polyline points="{way}" fill="none" stroke="{color}" stroke-width="2"/>',
             _text(legend_px, 44 + 20 * number, name, fill=color, weight='bold')]
    for x, (middle, low, high) in line:
        at, y = place(x, middle)
        parts.append(f'<path d="M{at:.1f} {place(x, low)[1]:.1f}V{place(x, high)[1]:.1f}" '
                     f'stroke="{color}" stroke-width="2"/>')
        parts.append(f'<circle cx="{at:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>')
    return parts


def nice_top(values: Sequence[float]) -> float:
    """Return a round number that no value exceeds."""
    most = max([*values, 1e-9])
    scale = 1.0
    while scale * 10 <= most:
        scale *= 10
    while scale > most:
        scale /= 10
    return next(step * scale for step in (1, 2, 4, 5, 8, 10) if step * scale >= most)


def _row_y(i: int) -> int:
    return TOP_PX + ROW_PX * i + ROW_PX // 2


def _text(x: float, y: float, text: str, *, anchor: str = 'start', fill: str = INK,
          weight: str = 'normal') -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" '
            f'font-weight="{weight}" dominant-baseline="middle">{escape(text)}</text>')


def _svg(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    body = '\n'.join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12" '
            f'role="img">\n<title>{escape(title)}</title>\n'
            f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}\n</svg>\n')
