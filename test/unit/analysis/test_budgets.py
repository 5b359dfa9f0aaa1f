from __future__ import annotations

from pathlib import Path

import pytest

from reflex_ros.analysis.budgets import Budget, judge, load_budgets
from reflex_ros.analysis.compare import Subject, compare, verdict
from reflex_ros.analysis.intervals import NOTHING, Estimate, exact
from reflex_ros.core.errors import ConfigError

ROOT = Path(__file__).parents[3]
CALM = {'stall_ratio': Estimate(0.01, 0.0, 0.03, 900), 'faults': exact(0, 900)}
POOR = {'stall_ratio': Estimate(0.30, 0.20, 0.40, 900), 'faults': exact(2, 900)}


def write(path, text):
    path.write_text(text)
    return path


def test_the_shipped_budgets_are_read():
    names = {budget.figure for budget in load_budgets(ROOT / 'config' / 'budgets.yaml')}
    assert {'stall_ratio', 'reaction_p95_ms', 'seam_deg'} <= names


def test_a_number_is_the_largest_value_and_a_mapping_may_say_more(tmp_path):
    path = write(tmp_path / 'b.yaml', 'budgets: {denoise_p95_ms: 80, faults: {worse_by: 0}}\n')
    assert load_budgets(path) == (Budget('denoise_p95_ms', 80), Budget('faults', None, 0))


@pytest.mark.parametrize(('text', 'match'), [
    ('budgets: {stal_ratio: 1}', 'Did you mean stall_ratio'),
    ('budgets: {stall_ratio: much}', "got 'much', expected a number"),
    ('budgets: {stall_ratio: -1}', 'expected a number >= 0'),
    ('budgets: {stall_ratio: .nan}', 'expected a number >= 0'),
    ('budgets: {stall_ratio: {maximum: 1}}', 'max or worse_by'),
    ('budgets: {stall_ratio: true}', 'expected a number'),
    ('budgets: {}', 'malformed'),
    ('stall_ratio: 1', 'malformed'),
    ('[', 'cannot be read'),
], ids=range(9))
def test_a_wrong_file_is_refused_by_name(tmp_path, text, match):
    with pytest.raises(ConfigError, match=match):
        load_budgets(write(tmp_path / 'b.yaml', text))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='cannot be read'):
        load_budgets(tmp_path / 'none.yaml')


def test_a_budget_is_met_or_not_by_its_value():
    budget = (Budget('stall_ratio', 0.02),)
    assert judge(budget, CALM)[0].is_met and judge(budget, CALM)[0].is_close
    assert judge(budget, POOR)[0].reason == '0.3 is above 0.02'


def test_growth_is_judged_against_the_baseline():
    budget = (Budget('stall_ratio', None, 0.05),)
    assert judge(budget, POOR)[0].is_met
    assert 'above the baseline' in judge(budget, POOR, CALM)[0].reason
    assert judge(budget, CALM, POOR)[0].is_met


def test_what_was_not_measured_meets_no_budget():
    for figures in ({}, {'seam_deg': NOTHING}):
        assert 'not measured' in judge((Budget('seam_deg', 5),), figures)[0].reason


def test_figures_beyond_chance_are_named():
    rows = compare([Subject('a', CALM), Subject('b', POOR), Subject('c', CALM)])
    assert verdict(rows, 1) == 'worse: stall_ratio, faults'
    assert verdict(rows, 2) == 'no figure differs beyond chance'
    back = compare([Subject('b', POOR), Subject('a', CALM)])
    assert verdict(back, 1) == 'better: stall_ratio, faults'


def test_a_figure_that_one_run_lacks_is_unknown():
    rows = compare([Subject('a', CALM), Subject('b', {'faults': exact(0, 1)})])
    assert rows[0].changes[0].verdict == 'unknown'
