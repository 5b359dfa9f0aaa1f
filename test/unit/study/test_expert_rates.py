"""The scripted experts succeed in 98 of 100 episodes of each task, and the stored rates are so."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from reflex_ros.study import expert_rates, expert_report
from reflex_ros.study.expert_rates import TASKS, run_all, run_one, summarise
from reflex_ros.study.results import load_newest
from reflex_ros.study.results_page_render import to_markdown

ROOT = Path(__file__).parents[3]
RERUN = 57
"""A seed that is run again for each task, beside seed 0."""


@pytest.fixture(scope='module')
def stored():
    return load_newest(ROOT / expert_report.FOLDER)[1]


def faults(result):
    """Return what a result file lacks of 100 seeds, 98 % and a known origin, by task."""
    found = [] if not result['dirty'] and result['machine']['cpu'] else ['origin']
    for task in TASKS:
        own = {row['seed']: row for row in result['samples'] if row['task'] == task}
        if set(own) != set(range(100)):
            found.append(f'{task}: seeds')
        if sum(all(row['stretches']) and bool(row['stretches']) for row in own.values()) < 98:
            found.append(f'{task}: success')
    if result['n'] != len(result['samples']) or result['summary'] != summarise(result['samples']):
        found.append('summary')
    return found


def test_every_expert_succeeds_in_98_of_100_stored_episodes(stored):
    assert faults(stored) == []


@pytest.mark.parametrize(('change', 'says'), [
    (lambda result: result['samples'].pop(5), 'reach: seeds'),
    (lambda result: [row['stretches'].append(False) for row in result['samples'][200:203]],
     'jump: success'),
    (lambda result: result['samples'][-1].update(stretches=[]), 'summary'),
    (lambda result: result.update(dirty=True), 'origin'),
])
def test_a_stored_rate_can_fail(stored, change, says):
    planted = copy.deepcopy(stored)
    change(planted)
    assert says in faults(planted)


def test_the_bench_finds_what_is_stored(stored, tmp_path, capsys):
    assert expert_rates.main(['--seeds', '1', '--workers', '1', '--out', str(tmp_path)]) == 0
    result = json.loads(next(tmp_path.iterdir()).read_text(encoding='utf-8'))
    again = [*result['samples'], *run_all([(task, RERUN) for task in TASKS], workers=1)]
    assert again == [row for seed in (0, RERUN) for row in stored['samples']
                     if row['seed'] == seed]
    assert '6 of 6 experts' in capsys.readouterr().out


@pytest.mark.parametrize('task', ['reach', 'drawer'])
def test_what_is_stored_can_fail(stored, task):
    rested = run_one(task, 0, act=lambda truth, command: command)
    assert not rested['success'] and rested not in stored['samples']


@pytest.mark.soak
def test_every_stored_episode_is_found_again(stored):
    jobs = [(row['task'], row['seed']) for row in stored['samples']]
    assert run_all(jobs) == stored['samples']


def test_the_page_says_which_expert_is_weak(tmp_path, stored):
    assert 'Not run' in to_markdown(expert_report.section(tmp_path))
    assert expert_report.claim(tmp_path).verdict == 'not measured'
    folder = tmp_path / expert_report.FOLDER
    folder.mkdir(parents=True)
    weak = copy.deepcopy(stored)
    weak['summary'][3].update(success=0.97, success_low=0.91, success_high=0.99, successes=97)
    (folder / 'a.json').write_text(json.dumps(weak))
    text = to_markdown(expert_report.section(tmp_path))
    assert '5 of 6 experts' in text and '**Not so**: `pick_place`' in text
    assert '| `pick_place` | 97 (91 to 99) | 97 of 100 |' in text
    assert expert_report.claim(tmp_path).verdict == 'does not hold'
    assert expert_report.claim(ROOT).verdict == 'holds'
