"""Stored lines of experiments, and the figures that they give by formulas of these tests alone."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from reflex_ros.core.stats import wilson

ROOT = Path(__file__).parents[3]
DRAWS = 400
NUMBER = re.compile(r'\d+(?:\.\d+)?(?:e[+-]\d+)?')
NAMES = re.compile(
    r'`[^`]*`|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)'
    r'|(?:Tables?|Figures?) \d+(?:(?:, \d+)* and \d+)?|eq\. \d|[Pp]i0(?:\.?5)?'
    r'|RTX \d+|b?float\d+|BF16|FP32|p50|p90|\d\d\d\d-\d\d-\d\d')
"""What has digits and is no figure: code, links, alternative texts, names, dates."""


def find_numbers(text):
    return NUMBER.findall(NAMES.sub(' ', text))


def find_places(text):
    """Return where the figures of a text stand."""
    return [found.span() for found in NUMBER.finditer(
        NAMES.sub(lambda name: ' ' * len(name[0]), text))]


def bootstrap(draw, count):
    """Return the 2.5 % and the 97.5 % quantile of ``draw`` over rows of drawn indices."""
    drawn = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    return np.quantile(draw(drawn), [0.025, 0.975])


def median_of(values):
    """Return the lower median and the ends of its interval, which draws single samples."""
    if not values:
        return None
    own = np.array(values)
    ends = bootstrap(lambda drawn: np.median(own[drawn], axis=1), len(own))
    return np.sort(own)[(len(own) - 1) // 2], *ends


def mean_of(groups):
    """Return the mean over all samples and the ends of its interval, which draws whole groups."""
    groups = [group for group in groups if group]
    if not groups:
        return None
    sums, counts = np.array([sum(group) for group in groups]), np.array(list(map(len, groups)))
    ends = bootstrap(lambda drawn: sums[drawn].sum(1) / counts[drawn].sum(1), len(groups))
    return sums.sum() / counts.sum(), *ends


def share_of(trials):
    """Return a share of success with its Wilson interval."""
    return (sum(trials) / len(trials), *wilson(sum(trials), len(trials))) if trials else None


def part_of(lines, part, whole):
    total = sum(line[whole] for line in lines)
    return (sum(line[part] for line in lines) / total,) if total else None


def estimates_of(lines):
    """Return every figure of a cell, with its interval where it has one; None without samples."""
    def flat(name):
        return [one for line in lines for one in line[name]]

    own = [{**line, 'part': line['uncovered'] * line['inferences']} for line in lines
           if line['uncovered'] is not None]
    return {
        'success': share_of(flat('success')),
        'mean_error_mm': mean_of([line['error_mm'] for line in lines]),
        'error_mm': median_of(flat('error_mm')), 'reaction_ms': median_of(flat('reaction_ms')),
        'stalled_chunks': part_of(lines, 'stalled_changes', 'chunk_changes'),
        'uncovered': part_of(own, 'part', 'inferences'),
        'stall_ratio': part_of(lines, 'stalled_ticks', 'motion_ticks'),
        'seam': median_of([1e3 * line['seam_rad'] for line in lines
                           if line['seam_rad'] is not None]),
    }


SCALES = MappingProxyType({'success': 100, 'stalled_chunks': 100, 'uncovered': 100,
                           'stall_ratio': 100})
DIGITS = MappingProxyType({'mean_error_mm': 1, 'error_mm': 1, 'seam': 1})


def shown(name, value):
    """Return a figure as the page has it."""
    if value is None:
        return 'none'
    middle, *ends = (f'{SCALES.get(name, 1) * one:.{DIGITS.get(name, 0)}f}' for one in value)
    return f'{middle} ({ends[0]} to {ends[1]})' if ends else middle


class Stored:
    """All stored lines by experiment and cell, with figures that are computed once."""

    def __init__(self):
        self.cells, self.walls, self._figures = {}, {}, {}
        for path in (ROOT / 'results' / 'experiments').glob('*/results.jsonl'):
            name = path.parent.name
            wall = path.with_name('wall.jsonl')
            self.walls[name] = [json.loads(line) for line in (
                wall.read_text().splitlines() if wall.is_file() else ())]
            for text in path.read_text().splitlines():
                line = json.loads(text)
                own = self.cells.setdefault(name, {}).setdefault(line['cell'], {})
                own[line['seed']] = line

    def lines(self, name, key):
        return list(self.cells.get(name, {}).get(key, {}).values())

    def figures(self, name, key):
        if (name, key) not in self._figures:
            self._figures[name, key] = estimates_of(self.lines(name, key))
        return self._figures[name, key]

    def shown(self, name, key):
        """Return the text of every figure of a cell, in the order of the columns."""
        return {name: shown(name, value) for name, value in self.figures(name, key).items()}


@cache
def everything():
    from reflex_ros.study.results_page_found import load

    return load(ROOT)


@pytest.fixture(scope='session')
def experiments():
    """Return every experiment with its stored lines, by name."""
    return {one.experiment.name: one for one in everything()}


@pytest.fixture(scope='session')
def stored():
    return Stored()


@pytest.fixture(scope='session')
def page():
    return (ROOT / 'docs' / 'results.md').read_text(encoding='utf-8')


@pytest.fixture(scope='session')
def sections(page):
    """Return the text below each heading of the second level, by its title."""
    parts = re.split(r'^## (.+)\n', page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope='session')
def numbers():
    """Return what finds the figures in a text, as they are written."""
    return find_numbers


@pytest.fixture(scope='session')
def places():
    """Return what finds where the figures of a text stand."""
    return find_places


@pytest.fixture(scope='session', name='median_of')
def _median_of():
    return median_of


@pytest.fixture(scope='session')
def newest_result():
    """Return what reads the newest result of a bench."""
    def read(name):
        return json.loads(max((ROOT / 'results' / name).glob('*.json')).read_text('utf-8'))

    return read
