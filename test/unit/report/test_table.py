from __future__ import annotations

import io
import re

import pytest

from reflex_ros.report.run_data import Run
from reflex_ros.report.summary import summarise_run
from reflex_ros.report.table import WIDTH, Style, format_table


@pytest.fixture(scope='module')
def summary(run):
    return summarise_run(run)


@pytest.mark.parametrize('blocks', [False, True])
def test_every_line_fits_a_terminal(summary, blocks):
    lines = format_table(summary, style=Style(blocks=blocks)).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert not [line for line in lines if line != line.rstrip()]


def test_large_figures_fit_as_well(summary):
    huge = {**summary, 'ticks': 10**7, 'verdicts': {'fresh': 10**7, 'held': 1},
            'causes': {'camera_frozen': 10**7}, 'policy': 'p' * 100,
            'stage_ms': {'transport_in' * 3: {'p50': 1e5, 'p95': 1e5, 'p99': 1e5, 'n': 10**6}}}
    assert max(map(len, format_table(huge, style=Style(blocks=True)).splitlines())) <= WIDTH


def test_the_figures_are_there(summary):
    text = format_table(summary, style=Style())
    assert 'sync, oracle, 25 steps a chunk, 200 ms delay, seed 7' in text
    assert re.search(rf'held +{summary["verdicts"]["held"]} +\d+\.\d %  #+', text)
    assert re.search(r'stalled chunks +100\.0 %  of chunk changes', text)
    assert re.search(r'sync_wait +\d+', text)
    assert re.search(r'denoise +15\.0 +15\.0 +15\.0', text)


def test_verdicts_and_causes_without_ticks_are_left_out(summary):
    text = format_table(summary, style=Style())
    assert 'node_dead' not in text
    assert 'stopped' not in text


def test_no_colour_leaves_through_a_pipe(summary):
    assert Style.of(io.StringIO()) == Style(color=False, blocks=False)
    assert '\x1b' not in format_table(summary)


class Terminal(io.StringIO):
    encoding = 'utf-8'

    def isatty(self):
        return True


def test_a_terminal_gets_colour_unless_it_asks_for_none(summary, monkeypatch):
    monkeypatch.delenv('NO_COLOR', raising=False)
    monkeypatch.setenv('TERM', 'xterm')
    assert '\x1b[32m' in format_table(summary, style=Style.of(Terminal()))
    monkeypatch.setenv('NO_COLOR', '')
    assert not Style.of(Terminal()).color


def test_colour_changes_no_letter(summary):
    plain = format_table(summary, style=Style(blocks=True))
    painted = format_table(summary, style=Style(color=True, blocks=True))
    assert re.sub(r'\x1b\[\d*m', '', painted) == plain


def test_one_stalled_tick_is_never_shown_as_none(summary):
    text = format_table({**summary, 'stall_ratio': 1e-5, 'stalled_chunks': 0.99999}, style=Style())
    assert re.search(r'stall ratio +< 0\.1 %', text)
    assert re.search(r'stalled chunks +> 99\.9 %', text)


def test_a_run_without_samples_says_so(run):
    text = format_table(summarise_run(Run(run.records[:0], run.period_ns)), style=Style())
    assert re.search(r'stall ratio +none', text)
    assert '0.0 s, 0 control ticks' in text
