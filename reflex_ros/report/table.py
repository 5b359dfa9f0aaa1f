"""A summary for the terminal: at most 80 columns, colour only where there is a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

WIDTH = 80
BAR = 34
_COLORS = MappingProxyType({
    'fresh': '32', 'limited': '36', 'held': '31', 'ramping': '2', 'stopped': '2', 'bold': '1',
})
_QUANTILES = ('p50', 'p95', 'p99')
_REACTION = MappingProxyType({
    'event_reaction': 'event to the first command that could know of it',
    'observation_to_command': 'newest frame to the first command from it',
})


@dataclass(frozen=True, slots=True)
class Style:
    """How the terminal is: whether it has colour, and block characters."""

    color: bool = False
    blocks: bool = False

    @classmethod
    def of(cls, stream: Any) -> Style:
        """Return what a stream can show."""
        is_terminal = bool(getattr(stream, 'isatty', lambda: False)())
        encoding = (getattr(stream, 'encoding', None) or '').lower()
        color = is_terminal and 'NO_COLOR' not in os.environ and os.environ.get('TERM') != 'dumb'
        return cls(color, 'utf' in encoding)

    def paint(self, text: str, name: str) -> str:
        """Return the text in the colour of a verdict, or in bold."""
        if not self.color or name not in _COLORS:
            return text
        return f'\x1b[{_COLORS[name]}m{text}\x1b[0m'

    def bar(self, share: float) -> str:
        """Return a bar; a share above zero is never invisible."""
        length = max(1, round(share * BAR)) if share > 0 else 0
        return ('█' if self.blocks else '#') * length


def format_table(summary: Mapping[str, Any], *, style: Style | None = None) -> str:
    """Return the figures of a run as lines of at most 80 columns.

    Args:
        summary: As ``report.summary.write_summary`` returns it.
        style: None for what standard output can show.
    """
    style = style or Style.of(sys.stdout)
    parts = (
        _heading(summary, style), _verdicts(summary, style), _causes(summary, style),
        _ratios(summary, style), _times(summary, style),
    )
    return '\n\n'.join('\n'.join(lines) for lines in parts if lines)


def _heading(summary: Mapping[str, Any], style: Style) -> list[str]:
    ticks, duration_s = summary['ticks'], summary['duration_s']
    rate = f' at {ticks / duration_s:.0f} Hz' if duration_s else ''
    facts = [
        summary['policy'],
        None if summary['execute_steps'] is None else f'{summary["execute_steps"]} steps a chunk',
        None if not summary['delay_ms'] else f'{summary["delay_ms"]:.0f} ms delay',
        None if summary['seed'] is None else f'seed {summary["seed"]}',
    ]
    title = ', '.join(str(fact) for fact in [summary['mode'] or 'run', *facts] if fact)
    return [
        style.paint(_fit(title), 'bold'),
        f'{duration_s:.1f} s, {ticks} control ticks{rate}',
    ]


def _verdicts(summary: Mapping[str, Any], style: Style) -> list[str]:
    ticks = summary['ticks']
    rows = [(name, n) for name, n in reversed(summary['verdicts'].items()) if n]
    return [style.paint('What each tick was', 'bold')] + [
        _count(name, n, ticks, style, color=name) for name, n in rows
    ]


def _causes(summary: Mapping[str, Any], style: Style) -> list[str]:
    rows = [(name, n) for name, n in summary['causes'].items() if n and name != 'none']
    if not rows:
        return []
    rows.sort(key=lambda row: -row[1])
    return [style.paint('Why a tick was not fresh (in words: docs/faults.md)', 'bold')] + [
        _count(name, n, summary['ticks'], style) for name, n in rows
    ]


def _ratios(summary: Mapping[str, Any], style: Style) -> list[str]:
    rows = (
        ('stall ratio', summary['stall_ratio'], 'of ticks in motion had no live chunk'),
        ('stalled chunks', summary['stalled_chunks'], 'of chunk changes had to be waited for'),
        ('uncovered share', summary['uncovered_share'], 'of inference time had no plan to run'),
    )
    lines = [style.paint('How live it was', 'bold')] + [
        f'  {name:<16}{_percent(share):>8}  {text}' for name, share, text in rows
    ]
    return lines if summary['stall_ratio'] is not None else [*lines, _never(summary)]


def _never(summary: Mapping[str, Any]) -> str:
    """Return that no tick was in motion, and the cause of most of them."""
    causes = {name: n for name, n in summary['causes'].items() if n and name != 'none'}
    why = f': {max(causes, key=lambda name: causes[name])}' if causes else ''
    return f'  The arm never followed a plan{why}.'


def _times(summary: Mapping[str, Any], style: Style) -> list[str]:
    kind = summary['reaction_ms']['kind']
    tables = [('reaction', summary['reaction_ms'])]
    if kind != 'observation_to_command':
        tables.append(('frame to command', summary['observation_to_command_ms']))
    tables += [(f'  {name}', table) for name, table in summary['stage_ms'].items()]
    head = f'{"Times in ms":<20}{"p50":>8}{"p95":>8}{"p99":>8}{"n":>8}'
    lines = [style.paint(head, 'bold')]
    lines += [_time_row(name, table) for name, table in tables]
    return [*lines, f'reaction: {_REACTION[kind]}']


def _time_row(name: str, table: Mapping[str, Any]) -> str:
    figures = ''.join(f'{_number(table[q]):>8}' for q in _QUANTILES)
    return f'  {name[:18]:<18}{figures}{table["n"]:>8}'


def _count(name: str, n: int, ticks: int, style: Style, *, color: str = '') -> str:
    share = n / ticks if ticks else 0.0
    bar = style.paint(style.bar(share), color)
    return f'  {name:<16}{n:>8}{_percent(share):>9}  {bar}'.rstrip()


def _percent(share: float | None) -> str:
    """Return a share; a small one is never shown as zero, nor a large one as all."""
    if share is None:
        return 'none'
    if 0 < share < 0.0005:
        return '< 0.1 %'
    if 0.9995 < share < 1:
        return '> 99.9 %'
    return f'{100 * share:.1f} %'


def _number(value: float | None) -> str:
    return '-' if value is None else f'{value:.1f}'


def _fit(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + '...'
