"""Budgets in CI: a regression planted in the scheduler is found, and by its right name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reflex_ros.cli.main import main

ROOT = Path(__file__).parents[3]
BUDGETS = str(ROOT / 'config' / 'budgets.yaml')


def start_when_the_plan_is_over(scene):
    """Plant the classic mistake: ask for a chunk only when the last one has run out."""
    policy = scene.run.policy
    due_at = policy.due_at

    def late(now):
        due_ns, plan = due_at(now), policy._plan
        if due_ns is None or plan is None or not plan.active_chunk_id:
            return due_ns
        return max(due_ns, plan.plan_end_ns)

    policy.due_at = late


@pytest.fixture(scope='module')
def good(recorded_scene, tmp_path_factory):
    scene = recorded_scene(seed=5, duration_s=3.0).finish()
    return str(scene.write(tmp_path_factory.mktemp('good') / 'bag', images=False, is_brief=True))


@pytest.fixture(scope='module')
def regressed(recorded_scene, tmp_path_factory):
    scene = recorded_scene(seed=5, duration_s=3.0)
    start_when_the_plan_is_over(scene)
    folder = tmp_path_factory.mktemp('regressed') / 'bag'
    return str(scene.finish().write(folder, images=False, is_brief=True))


def only(path, text):
    path.write_text(text)
    return str(path)


def test_a_planted_regression_is_over_the_budget_by_name(good, regressed, tmp_path, capsys):
    badge = tmp_path / 'badge.json'
    code = main(['compare', good, regressed, '--budgets', BUDGETS, '--badge', str(badge)])
    out = capsys.readouterr().out
    assert code == 5
    assert 'OVER stall_ratio' in out
    assert 'uncovered_share' in out.split('worse: ')[1].splitlines()[0]
    written = json.loads(badge.read_text())
    assert written['schemaVersion'] == 1 and written['color'] == 'red'
    assert 'stall_ratio' in written['message']


def test_a_planted_regression_can_fail(good, tmp_path, capsys):
    """The same budgets, met by the scheduler as it is."""
    badge = tmp_path / 'badge.json'
    assert main(['compare', good, '--budgets', BUDGETS, '--badge', str(badge)]) == 0
    assert 'OVER' not in capsys.readouterr().out
    assert json.loads(badge.read_text())['message'].endswith('budgets met')


def test_equal_runs_differ_in_nothing(good, capsys):
    assert main(['compare', good, good]) == 0
    assert 'no figure differs beyond chance' in capsys.readouterr().out


def test_a_report_as_json_stands_for_its_bag(good, regressed, tmp_path, capsys):
    report = str(tmp_path / 'good.json')
    assert main(['report', good, '--json', report]) == 0
    capsys.readouterr()
    assert main(['compare', report, regressed, '--json']) == 0
    document = json.loads(capsys.readouterr().out)
    assert document['figures']['uncovered_share']['changes'][0]['verdict'] == 'worse'
    assert document['figures']['stall_ratio']['runs'][0]['value'] == 0.0


def test_markdown_is_a_table_with_the_budgets(good, regressed, capsys):
    code = main(['compare', good, regressed, '--markdown', '--budgets', BUDGETS])
    lines = capsys.readouterr().out.splitlines()
    assert code == 5
    assert lines[1] == '| --- | --- | --- |'
    tables = [line for line in lines if line.startswith('|')]
    assert all(line.endswith('|') for line in tables)
    assert any('**OVER**' in line and '`stall_ratio`' in line for line in lines)


@pytest.mark.parametrize(('text', 'match'), [
    ('{}', 'cannot be read'), ('[1]', 'cannot be read'), ('nothing', 'cannot be read'),
    ('{"kind": "reflex_ros.report", "schema": 1}', 'another version'),
    ('{"kind": "reflex_ros.report", "schema": 2, "figures": 3}', 'damaged'),
], ids=range(5))
def test_a_wrong_report_is_input(tmp_path, capsys, text, match):
    assert main(['compare', only(tmp_path / 'r.json', text)]) == 2
    assert match in capsys.readouterr().err


def test_wrong_budgets_are_input(good, tmp_path, capsys):
    budgets = only(tmp_path / 'b.yaml', 'budgets: {seem_deg: 3}\n')
    assert main(['compare', good, '--budgets', budgets]) == 2
    assert 'Did you mean seam_deg?' in capsys.readouterr().err


@pytest.mark.parametrize(('text', 'match'), [
    ('[' * 100_000, 'cannot be read'),
    ('{"kind": "reflex_ros.report", "schema": 2, "figures": {"x": {"value": 1, "low": 0, '
     '"high": 2, "n": 3}}, "faults": {}, "facts": {}, "notes": [], "never_tracked": ""}',
     "got the figure 'x'"),
], ids=['endless', 'unknown figure'])
@pytest.mark.parametrize('form', [(), ('--markdown',), ('--json',)])
def test_a_report_that_nobody_wrote_is_refused_in_a_line(tmp_path, capsys, text, match, form):
    path = tmp_path / 'report.json'
    path.write_text(text)
    assert main(['compare', str(path), *form]) == 2
    error = capsys.readouterr().err
    assert error.startswith('ConfigError: ') and match in error and error.count('\n') == 1


def report_of(good, path, change=lambda document: None):
    assert main(['report', good, '--json', str(path)]) == 0
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return str(path)


def in_figure(key, value):
    return lambda document: document['figures']['stall_ratio'].update({key: value})


@pytest.mark.parametrize(('change', 'match'), [
    (in_figure('value', float('nan')), 'value of stall_ratio nan'),
    (in_figure('value', True), 'value of stall_ratio True'),
    (in_figure('value', '0.1'), "value of stall_ratio '0.1'"),
    (in_figure('high', float('inf')), 'high of stall_ratio inf'),
    (in_figure('value', 2e9), 'stall_ratio 2000000000.0 outside of its interval'),
    (in_figure('n', -3), 'n of stall_ratio -3'),
    (in_figure('n', 2.5), 'n of stall_ratio 2.5'),
    (in_figure('n', True), 'n of stall_ratio True'),
    (lambda document: document['faults'].update(camera_late=-1), 'faults camera_late -1'),
    (lambda document: document.update(left_out='x'), "left_out 'x'"),
], ids=range(10))
def test_a_report_with_numbers_that_cannot_be_is_refused_by_name(
        good, tmp_path, capsys, change, match):
    report = report_of(good, tmp_path / 'r.json', change)
    capsys.readouterr()
    assert main(['compare', report, good]) == 2
    assert match in capsys.readouterr().err


def test_the_refusal_of_a_report_can_fail(good, regressed, tmp_path):
    for number, run in enumerate((good, regressed)):
        assert main(['compare', report_of(run, tmp_path / f'{number}.json'), good]) == 0


def test_a_badge_does_not_take_the_place_of_a_run(tmp_path, capsys):
    (tmp_path / 'run.json').write_text('{}')
    path = str(tmp_path / 'run.json')
    assert main(['compare', path, '--badge', path]) == 2
    assert 'got the name of a run' in capsys.readouterr().err
    assert (tmp_path / 'run.json').read_text() == '{}'
