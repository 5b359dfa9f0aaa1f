"""Runs side by side: which figures changed beyond what chance explains.

The first run is the baseline. Of every figure less is better.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reflex_ros.analysis.budgets import FIGURES
from reflex_ros.analysis.figures import START, Analysis, analyse
from reflex_ros.analysis.intervals import Estimate, difference
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.yaml_text import parse_json

WIDEN = 1.6
"""Factor on the intervals of differences: some twenty five figures are compared at once, and all
together are to err in one of twenty comparisons (3.1 instead of 1.96 standard errors)."""
KIND = 'reflex_ros.report'
SCHEMA = 2

BETTER, WORSE, SAME, UNKNOWN = 'better', 'worse', 'same', 'unknown'


@dataclass(frozen=True, slots=True)
class Subject:
    """One run of a comparison.

    Attributes:
        name: Where it came from. ``figures``: all of them.
        facts: Mode, policy and what else describes it. ``faults``: stalls by cause.
        notes: What is missing in it.
        never_tracked: Why the arm never followed a plan, '' if it did.
        left_out: Share of its ticks that is left out because they are damaged.
    """

    name: str
    figures: Mapping[str, Estimate]
    facts: Mapping[str, Any] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    never_tracked: str = ''
    left_out: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """How one figure of a run differs from the baseline's.

    Attributes:
        low, high: Interval of the difference. ``verdict``: better, worse, same or unknown.
    """

    low: float
    high: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of all runs; ``changes`` are those of the second run on."""

    figure: str
    found: tuple[Estimate, ...]
    changes: tuple[Change, ...]


def load_subject(path: Path | str) -> Subject:
    """Read a run folder, a bag, or the JSON file that ``reflex-ros report --json`` wrote.

    Raises:
        ConfigError, LayoutError: It is none of them.
    """
    path = Path(path)
    if path.suffix == '.json' and path.is_file():
        return _from_json(path)
    return subject_of(analyse(path), str(path))


def subject_of(analysis: Analysis, name: str) -> Subject:
    """Return what a comparison needs of an analysis."""
    settings = analysis.run.settings
    facts = {'mode': settings.get('chunk.mode'), 'policy': settings.get('policy.name'),
             'duration_s': round(analysis.run.duration_s, 3), 'ticks': analysis.summary.ticks}
    return Subject(name, analysis.figures, MappingProxyType(facts),
                   MappingProxyType(analysis.faults), analysis.notes, why_not(analysis),
                   analysis.run.left_out_share)


def why_not(analysis: Analysis) -> str:
    """Return the cause for which the arm never followed a plan, '' if it did."""
    stall = analysis.never_tracked
    return '' if stall is None else stall.cause.value


def _from_json(path: Path) -> Subject:
    try:
        document = parse_json(path.read_text(encoding='utf-8'))
        kind, schema = document['kind'], document['schema']
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'report {path} cannot be read: got {type(error).__name__}, expected the JSON of '
            'reflex-ros report --json. Write it again.'
        ) from error
    if kind != KIND or schema != SCHEMA:
        raise ConfigError(
            f'report {path} is of another version: got {kind!r} {schema!r}, expected {KIND!r} '
            f'{SCHEMA}. Write it again with this version.'
        )
    try:
        figures = {name: _estimate(name, entry) for name, entry in document['figures'].items()}
        faults = {str(k): _count(f'faults {k}', v) for k, v in document['faults'].items()}
        facts, notes = dict(document['facts']), tuple(map(str, document['notes']))
        never = str(document['never_tracked'])
        left_out = _number('left_out', document.get('left_out', 0.0))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f'report {path} is damaged: got {error!r}, expected the keys of reflex-ros report '
            '--json. Write it again.'
        ) from error
    _check_names(path, figures)
    return Subject(str(path), MappingProxyType(figures), MappingProxyType(facts),
                   MappingProxyType(faults), notes, never, left_out)


def _check_names(path: Path, figures: Mapping[str, Estimate]) -> None:
    strange = [name for name in figures if name not in FIGURES]
    if strange:
        near = difflib.get_close_matches(strange[0], FIGURES, n=1, cutoff=0.0)
        raise ConfigError(
            f'report {path} is damaged: got the figure {strange[0]!r:.80}, expected those of '
            f'reflex-ros report --json, e.g. {near[0]}. Write it again.'
        )


def _estimate(name: str, entry: Mapping[str, Any]) -> Estimate:
    def number(key: str, missing: float) -> float:
        return missing if entry[key] is None else _number(f'{key} of {name}', entry[key])

    low, high = number('low', -math.inf), number('high', math.inf)
    value, n = number('value', math.nan), _count(f'n of {name}', entry['n'])
    if value < low or value > high or low > high:
        raise ValueError(f'{name} {value} outside of its interval {low} to {high}')
    return Estimate(value, low, high, n)


def _number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f'{what} {value!r}')
    return float(value)


def _count(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f'{what} {value!r}')
    return value


def compare(subjects: Sequence[Subject]) -> tuple[Row, ...]:
    """Return one row for every figure that some run has, in the order of the first."""
    names = list(dict.fromkeys(name for s in subjects for name in s.figures))
    return tuple(_row(name, subjects) for name in names)


def _row(name: str, subjects: Sequence[Subject]) -> Row:
    missing = Estimate(math.nan, -math.inf, math.inf, 0)
    found = tuple(s.figures.get(name, missing) for s in subjects)
    return Row(name, found, tuple(_change(new, found[0]) for new in found[1:]))


def _change(new: Estimate, old: Estimate) -> Change:
    low, high = difference(new, old, widen=WIDEN)
    if low > 0:
        return Change(low, high, WORSE)
    if high < 0:
        return Change(low, high, BETTER)
    is_bounded = math.isfinite(low) and math.isfinite(high)
    is_same = new.is_measured and new.value == old.value
    return Change(low, high, SAME if is_bounded or is_same else UNKNOWN)


def verdict(rows: Sequence[Row], at: int) -> str:
    """Return in words how run ``at`` (1 = the second) stands against the baseline."""
    still = [name for name, run in (('the baseline', 0), ('this run', at))
             if not _has_moved(rows, run)]
    if still:
        return f'not comparable: the arm of {" and ".join(still)} never followed a plan'
    parts = []
    for kind in (WORSE, BETTER):
        names = [row.figure for row in rows if row.changes[at - 1].verdict == kind]
        if names:
            parts.append(f'{kind}: {", ".join(names)}')
    return '; '.join(parts) or 'no figure differs beyond chance'


def _has_moved(rows: Sequence[Row], at: int) -> bool:
    return all(row.found[at].is_measured for row in rows if row.figure == START)
