from __future__ import annotations

from pathlib import Path

import pytest

from reflex_ros.analysis.budgets import FIGURES, Budget, judge, load_budgets
from reflex_ros.analysis.compare import Subject, compare, verdict
from reflex_ros.analysis.figures import MEANINGS, meaning
from reflex_ros.analysis.intervals import NOTHING, Estimate, exact
from reflex_ros.core.errors import ConfigError

ROOT = Path(__file__).parents[3]
MOVED = {'start_s': exact(0.4, 1)}
CALM = {**MOVED, 'stall_ratio': Estimate(0.01, 0.0, 0.03, 900), 'faults': exact(0, 900)}
POOR = {**MOVED, 'stall_ratio': Estimate(0.30, 0.20, 0.40, 900), 'faults': exact(2, 900)}
SHIPPED = [ROOT / 'config' / 'budgets.yaml', ROOT / 'config' / 'budgets_growth.yaml',
           *sorted((ROOT / 'test' / 'data' / 'replay').glob('budgets*.yaml'))]


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
    ('budgets: {denoise_p96_ms: 80}', 'Did you mean denoise_p95_ms'),
    ('budgets: {denois_p95_ms: 80}', 'Did you mean denoise_p95_ms'),
    ('budgets: {reaction_p95_s: 0.4}', 'Did you mean reaction_p95_ms'),
    ('budgets: {reaction_p95_ms: 400ms}', "got '400ms', expected a number"),
    ('budgets: {stall_ratio: 2}', 'can never fail: got 2, expected numbers below 1'),
    ('budgets: {stall_ratio: {max: 0.1, worse_by: 1.0}}', 'can never fail'),
    ('budgets: {seam_deg: 360}', 'can never fail'),
    ('budgets: {reaction_p95_ms: 1.0e+15}', 'can never fail'),
    ('budgets: {denoise_p95_ms: {worse_by: 60000}}', 'can never fail'),
    ('budgets: {gap_ticks: 99999999999}', 'can never fail'),
    ('budgets: {unexplained_ticks: 1.0e+8}', 'can never fail'),
    ('budgets: {start_s: 1000}', 'can never fail'),
    ('budgets: {seam_deg_s: 1000}', 'can never fail'),
    ('budgets: {stall_ratio: 0.02, stall_ratio: 0.9}', "key 'stall_ratio' twice"),
    ('budgets: {stall_ratio: {max: }}', 'expected a number'),
    ('budgets: {}', 'malformed'),
    ('stall_ratio: 1', 'malformed'),
    ('[', 'cannot be read'),
], ids=range(24))
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
    assert 'above the baseline' in judge(budget, POOR, CALM)[0].reason
    assert judge(budget, CALM, POOR)[0].is_met


def test_what_was_not_measured_meets_no_budget():
    for figures in (MOVED, {**MOVED, 'seam_deg': NOTHING}):
        assert 'not measured' in judge((Budget('seam_deg', 5),), figures)[0].reason


def test_growth_without_a_baseline_is_an_error_and_no_pass():
    with pytest.raises(ConfigError, match='stall_ratio cannot be judged: got worse_by and 1 run'):
        judge((Budget('stall_ratio', 0.5, 0.05),), POOR)


def test_growth_from_a_baseline_that_lacks_the_figure_is_not_met():
    judged = judge((Budget('stall_ratio', None, 0.05),), CALM, MOVED)
    assert 'the baseline has no samples' in judged[0].reason


@pytest.mark.parametrize('path', SHIPPED, ids=lambda path: path.stem)
def test_each_shipped_budget_can_fail_and_be_met(path):
    for budget in load_budgets(path):
        unit = meaning(budget.figure).unit
        top = 1.0 if unit == 'share' else 300.0 if unit == 'deg' else 1e6
        none, worst = (exact(value, 9) for value in (0.0, top))
        base = {**MOVED, budget.figure: none}
        assert judge((budget,), base, base)[0].is_met
        assert not judge((budget,), {**MOVED, budget.figure: worst}, base)[0].is_met, budget


@pytest.mark.parametrize('name', FIGURES)
def test_every_figure_may_stand_in_a_budget_that_can_fail(name):
    for budget in (Budget(name, 0.5), Budget(name, None, 0.5)):
        found = {**MOVED, name: exact(0.9, 9)}
        assert not judge((budget,), found, {**MOVED, name: exact(0.1, 9)})[0].is_met


@pytest.mark.parametrize('name', MEANINGS)
def test_the_documents_list_every_figure(name):
    assert f'`{name}`' in (ROOT / 'docs' / 'reports.md').read_text()


def test_a_run_that_never_tracked_meets_no_budget():
    still = {**CALM, 'start_s': NOTHING}
    judged = judge((Budget('faults', 9), Budget('stall_ratio', 0.9)), still)
    assert {j.reason for j in judged} == {'the arm never followed a plan'}


def test_a_run_that_never_tracked_can_fail():
    """The same figures meet the budgets once the arm has tracked."""
    assert all(j.is_met for j in judge((Budget('faults', 9), Budget('stall_ratio', 0.9)), CALM))


def test_figures_beyond_chance_are_named():
    rows = compare([Subject('a', CALM), Subject('b', POOR), Subject('c', CALM)])
    assert verdict(rows, 1) == 'worse: stall_ratio, faults'
    assert verdict(rows, 2) == 'no figure differs beyond chance'
    back = compare([Subject('b', POOR), Subject('a', CALM)])
    assert verdict(back, 1) == 'better: stall_ratio, faults'


def test_a_figure_that_one_run_lacks_is_unknown():
    rows = compare([Subject('a', CALM), Subject('b', {**MOVED, 'faults': exact(0, 1)})])
    changes = {row.figure: row.changes[0].verdict for row in rows}
    assert changes['stall_ratio'] == 'unknown'


def test_a_run_that_never_tracked_is_compared_with_nothing():
    rows = compare([Subject('a', CALM), Subject('b', {**CALM, 'start_s': NOTHING})])
    assert verdict(rows, 1) == 'not comparable: the arm of this run never followed a plan'
