from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.sim.instructions import every_wording, wordings
from reflex_ros.sim.looks import UNSEEN_BALLS, UNSEEN_CUBES, Look
from reflex_ros.study import multi_table, tiny_table
from reflex_ros.study.multi_table import AS_TRAINED, COLOUR, OTHERWISE, WORD, WORDING, trial
from reflex_ros.study.results import Revision, newest

SHIPPED = multi_table.Path(multi_table.__file__).parents[1] / 'data' / 'tiny'
RESULTS = multi_table.Path(__file__).parents[3] / 'results' / 'tiny_multi'


def test_every_task_is_run_as_trained_and_the_rest_under_each_further_condition():
    rows = multi_table.trials(3, 2)
    counts = {}
    for one in rows:
        counts[one.task, one.condition] = counts.get((one.task, one.condition), 0) + 1
    assert {counts[task, AS_TRAINED] for task in multi_table.TASKS} == {3}
    assert all(n == 2 for (_, condition), n in counts.items() if condition != AS_TRAINED)
    assert ('drawer', COLOUR) not in counts
    assert ('pick_place', OTHERWISE) in counts


@pytest.mark.parametrize('task', ['jump', 'pick_place', 'drawer'])
def test_unseen_wordings_are_no_training_instructions(task):
    intent = {'jump': 'follow', 'pick_place': 'place', 'drawer': 'open'}[task]
    told = {trial(task, WORDING, seed).instruction for seed in range(30)}
    assert len(told) > 1
    assert not told & set(wordings(intent, Look()))
    known = {word for text in every_wording() for word in text.split()}
    assert all(set(text.split()) <= known for text in told)
    unknown = {trial(task, WORD, seed).instruction for seed in range(30)}
    assert all(set(text.split()) - known for text in unknown)


def test_unseen_colours_are_shown_and_not_named():
    for seed in range(20):
        one = trial('pick_place', COLOUR, seed)
        assert one.look.cube in UNSEEN_CUBES
        assert one.look.ball in UNSEEN_BALLS
        assert one.look.cube not in one.instruction


def row(task, condition, success, errors=()):
    return {'task': task, 'condition': condition, 'success': success, 'error_m': list(errors)}


def test_the_summary_counts_each_judged_stretch_with_its_interval():
    rows = [row('jump', AS_TRAINED, [True, False], [0.01, 0.03]),
            row('jump', AS_TRAINED, [True, True], [0.02, 0.02]),
            row('drawer', AS_TRAINED, [False])]  # fmt: skip
    jump, drawer = multi_table.summarise(rows)
    assert (jump['judged'], jump['successes'], jump['episodes']) == (4, 3, 2)
    assert jump['success_low'] < 0.75 < jump['success_high']
    assert jump['mean_error_mm'] == pytest.approx(20.0)
    assert (drawer['success'], drawer['mean_error_mm']) == (0.0, None)


def test_episodes_of_the_journal_are_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(multi_table, 'ProcessPoolExecutor', Here)
    monkeypatch.setattr(multi_table, '_policy', lambda folder: None)
    ran = []

    def fake(policy, one):
        ran.append(one.seed)
        return {'task': one.task, 'condition': one.condition, 'seed': one.seed}

    monkeypatch.setattr(multi_table, 'run_trial', fake)
    wanted = [trial('reach', AS_TRAINED, seed) for seed in range(4)]
    journal = tmp_path / 'j.jsonl'
    journal.write_text(json.dumps(
        {'task': 'reach', 'condition': AS_TRAINED, 'seed': 1}) + '\n{"task": "re')
    rows = multi_table.run_all(SHIPPED, wanted, journal, workers=1)
    assert ran == [0, 2, 3]
    assert sorted(row['seed'] for row in rows) == [0, 1, 2, 3]
    assert len(multi_table.run_all(SHIPPED, wanted, journal, workers=1)) == 4
    assert ran == [0, 2, 3]


def journals(module, run, monkeypatch, *revisions):
    """Return the journals that a table goes on with at each revision."""
    def stop(*given, **_):
        raise SystemExit(str(given[2]))

    monkeypatch.setattr(module, run, stop)
    found = []
    for revision in revisions:
        monkeypatch.setattr(module, 'read_revision', lambda revision=revision: revision)
        with pytest.raises(SystemExit) as told:
            module.main([])
        found.append(str(told.value))
    return found


@pytest.mark.parametrize(('module', 'run'), [(tiny_table, 'run_grid'), (multi_table, 'run_all')])
def test_a_table_does_not_go_on_with_rows_of_another_commit(tmp_path, monkeypatch, module, run):
    monkeypatch.chdir(tmp_path)
    one = Revision('a' * 40, is_dirty=False)
    first, again, changed, other = journals(
        module, run, monkeypatch, one, one, Revision('a' * 40, is_dirty=True),
        Revision('b' * 40, is_dirty=False))
    assert first == again and len({first, changed, other}) == 3
    assert 'aaaaaaa' in first and not (tmp_path / first).exists()


def test_what_else_the_journal_has_is_not_of_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(multi_table, 'ProcessPoolExecutor', Here)
    wanted = [trial('reach', AS_TRAINED, seed) for seed in (2, 0)]
    journal = tmp_path / 'j.jsonl'
    journal.write_text(''.join(json.dumps(
        {'task': task, 'condition': AS_TRAINED, 'seed': seed}) + '\n'
        for task in ('reach', 'follow') for seed in range(4)))
    rows = multi_table.run_all(SHIPPED, wanted, journal, workers=1)
    assert [(row['task'], row['seed']) for row in rows] == [('reach', 2), ('reach', 0)]


# ---- the stored table --------------------------------------------------------------------------


@pytest.fixture(scope='module')
def stored():
    return json.loads(newest(RESULTS).read_text(encoding='utf-8'))


def follows(result):
    """Return whether the figures of a result are those of its episodes, each of them once."""
    config, rows = result['config'], result['samples']
    wanted = multi_table.trials(config['episodes'], config['further'])
    return ([(one.task, one.condition, one.seed, one.instruction) for one in wanted]
            == [(row['task'], row['condition'], row['seed'], row['instruction']) for row in rows]
            and multi_table.summarise(rows) == result['summary'] and result['n'] == len(rows))


def test_the_stored_table_has_every_episode_that_it_comes_from(stored):
    assert follows(stored) and stored['n'] > 400


@pytest.mark.parametrize('change', [
    lambda result: result['samples'].pop(), lambda result: result.update(samples=[]),
    lambda result: result['samples'][3].update(success=[False]),
    lambda result: result['samples'][0].update(seed=4999),
    lambda result: result['summary'][0].update(successes=41)])
def test_a_table_without_its_episodes_can_fail(stored, change):
    planted = copy.deepcopy(stored)
    change(planted)
    assert not follows(planted)


def test_a_stored_episode_is_found_again(stored):
    row = min((row for row in stored['samples'] if row['task'] == 'drawer'),
              key=lambda row: row['seconds'])
    try:
        policy = TinyPolicy.load(SHIPPED.parent / 'tiny_multi')
        again = multi_table.run_trial(policy, trial(row['task'], row['condition'], row['seed']))
    except ConfigError as error:
        pytest.skip(f'no off-screen rendering here: {error}')
    assert json.loads(json.dumps(again)) == row


class Here:
    """Runs at once what would go to other processes."""

    def __init__(self, workers):
        self.map = map

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None


def test_an_episode_is_judged_by_the_rule_of_its_task(monkeypatch):
    """A policy that does not move neither opens the drawer nor loses what is judged."""
    policy = TinyPolicy.load(SHIPPED)
    home = {}

    def hold(pinned, frames, ages, *, state, noise):
        return np.tile(home.setdefault('state', state.copy()), (50, 1))

    monkeypatch.setattr(policy, 'denoise', hold)
    make = multi_table.SimBenchmark
    monkeypatch.setattr(multi_table, 'SimBenchmark',
                        lambda task, **options: make(task, duration_s=0.4, **options))
    try:
        found = multi_table.run_trial(policy, trial('drawer', AS_TRAINED, 5000))
    except ConfigError as error:
        pytest.skip(f'no off-screen rendering here: {error}')
    assert found['success'] == [False]
    assert found['seconds'] == pytest.approx(0.4)
