"""What was not run is computed from what is absent, and no part of the paper is left out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reflex_ros.study.experiment_lines import summarise_cells
from reflex_ros.study.results_page_missing import TITLE, missing

ROOT = Path(__file__).parents[3]
PARTS = (*(f'Table {n}' for n in (1, 2, 3, 4, 5, 7, 8, 9, 10)),
         *(f'Figure {n}' for n in (6, 7, 8, 9, 10, 11, 12)))
"""Every table and figure of the paper that we know of."""


def told(sections):
    """Return the sentences of the section as one text."""
    return ' '.join(sections[TITLE].split('\n### ')[0].split())


def absent_faults(text, stored, experiments):
    """Yield what the section says of episodes, policies and settings and the lines do not."""
    for name, one in experiments.items():
        planned = len(one.experiment.seeds) * len(one.experiment.cells)
        left = planned - sum(len(own) for own in stored.cells.get(name, {}).values())
        said = re.search(rf'\* {re.escape(one.experiment.title)}: (\d+) of (\d+) episodes', text)
        if (said is None) != (left == 0) or (said and said.groups() != (str(left), str(planned))):
            yield name
    run = [cell for name, one in experiments.items() for cell in one.experiment.cells
           if stored.lines(name, one.experiment.key(cell))]
    late = {cell.task for cell in run if cell.policy == 'tiny_multi' and cell.delay_ms}
    for task in ('reach', 'follow', 'jump', 'pick_place', 'drawer', 'recovery'):
        said = re.search(r'`tiny_multi` under delay: ([^.]*)\.', text)
        if (task in late) == bool(said and f'`{task}`' in said[1]):
            yield 'tiny_multi', task
    rtc = any('rtc' in (cell.parts or ()) for cell in run)
    if rtc == ('`rtc`' in text):
        yield 'rtc'


def test_the_section_says_what_lines_are_missing_and_nothing_else(sections, stored, experiments):
    assert list(absent_faults(told(sections), stored, experiments)) == []


@pytest.mark.parametrize(('old', 'new'), [
    (r'(`tiny_multi` under delay: )`\w+`, ', r'\1'),
    (r'$', ' * No cell that was run has as `parts`: `rtc`.'),
    (r'$', ' * Controllable delay: 3 of 300 episodes.')])
def test_a_wrong_sentence_can_fail(sections, stored, experiments, old, new):
    wrong = re.sub(old, new, told(sections), count=1)
    assert wrong != told(sections)
    assert list(absent_faults(wrong, stored, experiments))


def test_lines_that_are_taken_away_are_missed(experiments):
    found = list(experiments.values())
    whole = list(missing(found, ROOT))
    at = next(n for n, one in enumerate(found) if one.experiment.name == 'figure8')
    fewer = found[at].lines[:-2]
    found[at] = replace(found[at], lines=fewer, figures=summarise_cells(fewer))
    less = list(missing(found, ROOT))
    new, = set(less) - set(whole)
    assert new.startswith(f'{found[at].experiment.title}: 2 of 300 episodes.')


def test_nothing_at_all_is_told_of_bench_by_bench(tmp_path):
    text = ' '.join(missing([], tmp_path))
    for name in ('denoise_variants', 'stability', 'policy', 'memory', 'tiny', 'tiny_multi'):
        assert f'`results/{name}`' in text
    assert 'wall time' in text and 'No expert' in text and 'On a GPU' in text


def parts_left_out(page):
    return [part for part in PARTS if not re.search(rf'\b{part}\b', page)]


def test_every_table_and_figure_of_the_paper_is_on_the_page(page):
    assert parts_left_out(page) == []


def test_a_part_that_is_left_out_can_fail(page):
    assert parts_left_out(page.replace('Figure 12', 'the last one')) == ['Figure 12']
