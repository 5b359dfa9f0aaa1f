"""What an analysis adds to the table of a run: figures with intervals, stalls, losses."""

from __future__ import annotations

import sys
from textwrap import wrap

from reflex_ros.analysis.compare import why_not
from reflex_ros.analysis.figures import Analysis
from reflex_ros.report.summary import summarise_run
from reflex_ros.report.table import WIDTH, Style, format_table
from reflex_ros.report.words import lost_text, named_figures, outcome, sentence

MOST_STALLS = 8


def format_brief(analysis: Analysis, *, style: Style | None = None) -> str:
    """Return a report for the terminal, at most 80 columns wide."""
    style = style or Style.of(sys.stdout)
    table = format_table(summarise_run(analysis.run), style=style)
    return '\n\n'.join((table, format_findings(analysis, style=style)))


def format_findings(analysis: Analysis, *, style: Style | None = None) -> str:
    """Return figures, stalls and what is missing."""
    style = style or Style.of(sys.stdout)
    sections = (
        ('Figures, 95 % intervals in brackets', _figures(analysis)),
        (f'Faults: {outcome(why_not(analysis), analysis.faults)}', _stalls(analysis)),
        ('Missing', _missing(analysis)),
    )
    return '\n\n'.join('\n'.join((style.paint(title, 'bold'), *lines))
                       for title, lines in sections if lines or title.startswith('Faults'))


def _figures(analysis: Analysis) -> list[str]:
    lines = []
    for name, value, interval, n, _ in named_figures(analysis):
        ends = f'[{interval}]' if interval else ''
        lines.append(f'  {name:<30}{value:>12}  {ends:<20}{f"n={n}":>10}'.rstrip())
    return lines


def _stalls(analysis: Analysis) -> list[str]:
    by_length = sorted(analysis.stalls, key=lambda stall: -stall.duration_ms)
    lines = [line for stall in by_length[:MOST_STALLS] for line in _bullet(sentence(stall))]
    if len(by_length) > MOST_STALLS:
        lines += _bullet(f'{len(by_length) - MOST_STALLS} shorter ones are in the JSON.')
    return lines


def _missing(analysis: Analysis) -> list[str]:
    lost = [entry for entry in analysis.lost if entry.missing]
    topics = tuple(entry.topic for entry in lost)
    rest = [note for note in analysis.notes
            if not (note.endswith('messages are missing') and note.startswith(topics))]
    return [line for text in (*map(lost_text, lost), *rest) for line in _bullet(text)]


def _bullet(text: str) -> list[str]:
    lines = wrap(text, WIDTH - 4, break_on_hyphens=False)
    return [f'  - {lines[0]}', *(f'    {line}' for line in lines[1:])] if lines else []
