"""One HTML page of a run: everything inside, nothing loaded, readable without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from reflex_ros.analysis.compare import why_not
from reflex_ros.analysis.figures import MEANINGS, Analysis
from reflex_ros.analysis.stalls import Chain, Stall
from reflex_ros.report.document import document
from reflex_ros.report.page_frames import Shot, shots_of
from reflex_ros.report.series import series
from reflex_ros.report.words import (
    duration,
    figure,
    interval,
    lost_text,
    named_figures,
    outcome,
    sentence,
)

CARDS = (
    'stall_ratio', 'stalled_chunks', 'uncovered_share', 'reaction_p50_ms', 'reaction_p95_ms',
    'staleness_p95_ms', 'seam_deg', 'tracking_error_deg',
)
MOST_STALLS = 60
"""Stalls shown, the longest; all of them are counted and in the JSON."""


def page(analysis: Analysis) -> str:
    """Return the page of a run."""
    facts = document(analysis)
    shots = shots_of(analysis)
    folder = files('reflex_ros') / 'data' / 'report'
    template = Template((folder / 'page.html').read_text(encoding='utf-8'))
    return template.substitute(
        title=escape(_title(facts)),
        facts=_facts(analysis, facts),
        css=(folder / 'page.css').read_text(encoding='utf-8'),
        notes=_notes(analysis),
        cards=''.join(_card(analysis, name) for name in CARDS),
        stall_count=len(analysis.stalls),
        stalls=_stalls(analysis, shots),
        tables=_tables(analysis, facts),
        data=_script_safe(json.dumps(series(analysis), separators=(',', ':'), allow_nan=False)),
        report=_script_safe(json.dumps(facts, separators=(',', ':'), allow_nan=False)),
        js=(folder / 'page.js').read_text(encoding='utf-8'),
    )


def _script_safe(text: str) -> str:
    """Return JSON that cannot end the element it stands in."""
    return text.replace('<', '\\u003c').replace('\u2028', '\\u2028').replace('\u2029', '\\u2029')


def _title(facts: dict) -> str:
    about = facts['facts']
    parts = [about['mode'] or 'run', about['policy']]
    if about['delay_ms']:
        parts.append(f'{about["delay_ms"]:.0f} ms delay')
    return ', '.join(str(part) for part in parts if part)


def _facts(analysis: Analysis, facts: dict) -> str:
    about = facts['facts']
    rate = 1e3 / about['period_ms'] if about['period_ms'] else 0
    parts = [
        facts['source'], f'{about["duration_s"]:.1f} s',
        f'{facts["ticks"]} control ticks at {rate:.0f} Hz, from the {about["ticks_from"]}',
        f'{about["execute_steps"]} steps a chunk' if about['execute_steps'] else '',
        outcome(why_not(analysis), analysis.faults),
    ]
    return ' · '.join(escape(part) for part in parts if part)


def _notes(analysis: Analysis) -> str:
    return _never(analysis) + _missing(analysis)


def _never(analysis: Analysis) -> str:
    """Return what happened instead where the arm never followed a plan."""
    stall = analysis.never_tracked
    if stall is None:
        return ''
    return (f'<section id="never" class="warn"><h2>The arm never followed a plan</h2>'
            f'<p>{escape(sentence(stall))}</p></section>')


def _missing(analysis: Analysis) -> str:
    if not analysis.notes:
        return ''
    items = ''.join(f'<li>{escape(note)}</li>' for note in analysis.notes)
    return (f'<section id="missing" class="warn"><h2>Missing from this recording</h2>'
            f'<ul>{items}</ul></section>')


def _card(analysis: Analysis, name: str) -> str:
    estimate, what = analysis.figures[name], MEANINGS[name]
    ends = interval(estimate, what.unit)
    small = (f'95 %: {ends}' if ends else 'no interval') + f', n\xa0=\xa0{estimate.n}'
    return (f'<div class="card" data-figure="{name}"><b>{escape(figure(estimate, what.unit))}</b>'
            f'<span>{escape(what.text)}</span><small>{escape(small)}</small></div>')


# ---- stalls ------------------------------------------------------------------------------------


def _stalls(analysis: Analysis, shots: dict[int, list[Shot]]) -> str:
    if not analysis.stalls:
        return '<p>None: a live chunk covered every tick in motion.</p>'
    longest = sorted(analysis.stalls, key=lambda s: -s.duration_ms)[:MOST_STALLS]
    shown = sorted(longest, key=lambda s: s.number)
    rest = len(analysis.stalls) - len(shown)
    more = f'<p>{rest} shorter ones are not shown.</p>' if rest else ''
    return ''.join(_stall(s, shots.get(s.number, [])) for s in shown) + more


def _stall(stall: Stall, shots: Sequence[Shot]) -> str:
    chains = ''.join(_chain(stall, chain) for chain in stall.chains)
    strip = ''.join(
        f'<figure><img src="{shot.uri}" width="{shot.width}" height="{shot.height}" '
        f'alt="{escape(shot.camera)}"><figcaption>{escape(shot.camera)} '
        f'{shot.after_ms:+.0f} ms</figcaption></figure>' for shot in shots)
    return (
        f'<article class="stall" id="stall-{stall.number}" data-cause="{stall.cause.value}">'
        f'<h3><button type="button" class="go" data-from="{stall.start_s:.4f}" '
        f'data-to="{stall.start_s + stall.duration_ms / 1e3:.4f}">{stall.number}</button> '
        f'{stall.cause.value} <small>{stall.kind}, {duration(stall.duration_ms)}, '
        f'{stall.ticks} ticks</small></h3>'
        f'<p>{escape(sentence(stall))}</p>{chains}'
        + (f'<div class="strip">{strip}</div>' if strip else '') + '</article>')


def _chain(stall: Stall, chain: Chain) -> str:
    low = min(0.0, *(step.start_ms for step in chain.steps))
    high = max(stall.duration_ms, *(step.end_ms for step in chain.steps))
    scale = 100 / (high - low or 1)

    def bar(kind: str, name: str, start: float, end: float) -> str:
        return (f'<div class="step {kind}"><span>{escape(name)}</span><div class="lane">'
                f'<i style="left:{(start - low) * scale:.2f}%;'
                f'width:{max(0.4, (end - start) * scale):.2f}%"></i></div>'
                f'<em>{duration(end - start)}</em></div>')

    rows = [bar('gap', stall.kind, 0.0, stall.duration_ms)]
    rows += [bar('wait' if s.name == 'wait' else 'work', s.name, s.start_ms, s.end_ms)
             for s in chain.steps]
    frame_ms = chain.steps[0].start_ms
    when = 'before' if frame_ms < 0 else 'after the start of'
    return (f'<div class="chain"><div class="cap">chunk {chain.chunk_id}, {chain.fate}: from its '
            f'frame {duration(abs(frame_ms))} {when} the {stall.kind}</div>{"".join(rows)}</div>')


# ---- tables ------------------------------------------------------------------------------------


def _tables(analysis: Analysis, facts: dict) -> str:
    parts = [
        _table('Figures', 'figures', ('figure', 'value', '95 % interval', 'n', 'meaning'),
               named_figures(analysis)),
        _table('Verdicts', 'verdicts', ('verdict', 'ticks', 'share'),
               _counts(facts['verdicts'], facts['ticks'])),
        _table('Causes', 'causes', ('cause', 'ticks', 'share'),
               _counts(facts['causes'], facts['ticks'])),
        _table('Chunks', 'fates', ('fate', 'chunks', 'share'),
               _counts(facts['fates'], sum(facts['fates'].values()))),
        _table('Cameras', 'cameras',
               ('camera', 'frames', 'period', 'missing', 'longest pause', 'seen by'),
               [(c.name, c.frames, f'{c.period_ms:.1f} ms', max(c.missing, 0) if c.missing >= 0
                 else 'unknown', duration(c.longest_ms), c.seen_by) for c in analysis.cameras]),
        _table('Messages', 'messages', ('topic', 'publisher', 'read', 'missing', 'numbers'),
               [(e.topic, e.publisher, e.messages, e.missing,
                 lost_text(e).rsplit('numbers ', 1)[1] if e.missing else '')
                for e in analysis.lost]),
    ]
    return ''.join(parts)


def _counts(counts: dict[str, int], whole: int) -> list[tuple[str, int, str]]:
    return [(name, n, f'{100 * n / whole:.2f} %') for name, n in counts.items() if n and whole]


def _table(title: str, name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    body = ''.join('<tr>' + ''.join(f'<td>{escape(str(c))}</td>' for c in row) + '</tr>'
                   for row in rows)
    if not body:
        return ''
    cells = ''.join(f'<th>{escape(h)}</th>' for h in head)
    return (f'<section><h2>{title}</h2><div class="wide"><table id="table-{name}"><thead><tr>'
            f'{cells}</tr></thead><tbody>{body}</tbody></table></div></section>')
