"""Stored lines: each was made by a known commit, and the code of today makes it again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reflex_ros.study.experiment import run_job
from reflex_ros.study.experiment_file import load_experiment
from reflex_ros.study.experiment_lines import jobs_of, read_lines

ROOT = Path(__file__).parents[3]
STORED = ROOT / 'results' / 'experiments'
FOLLOWING = ('jump100', 'table1', 'table9', 'figure8', 'figure9')
"""Experiments with episodes of half a second of processor time; what slides and falls is left
out, since the last digit of another processor may let it fall otherwise."""


def origin_faults(lines, walls):
    """Return what is not known of the origin of stored lines."""
    made = {(wall['cell'], wall['seed']): wall for wall in walls}
    found = [] if len(made) == len(walls) else ['twice']
    for line in lines:
        wall = made.get((line['cell'], line['seed']))
        if wall is None or not wall['cpu'] or not re.fullmatch('[0-9a-f]{40}', wall['sha']):
            found.append('unknown')
        elif wall['dirty']:
            found.append('uncommitted')
    return found


def lines_and_walls(folder):
    return read_lines(folder / 'results.jsonl'), read_lines(folder / 'wall.jsonl')


@pytest.mark.parametrize('folder', sorted(path.name for path in STORED.iterdir()))
def test_every_stored_line_was_made_by_a_commit(folder):
    lines, walls = lines_and_walls(STORED / folder)
    assert lines and origin_faults(lines, walls) == []


@pytest.mark.parametrize(('change', 'says'), [
    ({'dirty': True}, 'uncommitted'), ({'sha': '0' * 7}, 'unknown'), ({'seed': 10**6}, 'unknown'),
    ({'cpu': ''}, 'unknown')])
def test_a_line_of_unknown_origin_can_fail(change, says):
    lines, walls = lines_and_walls(STORED / 'jump100')
    assert origin_faults(lines, [{**walls[0], **change}, *walls[1:]]) == [says]
    assert origin_faults(lines, [*walls, walls[0]]) == ['twice']


def found_again(line, job):
    """Return whether the code of today makes a stored line."""
    return json.loads(json.dumps(run_job(job)[0])) == line


def stored_job(name, at):
    experiment = load_experiment(ROOT / 'config' / 'experiments' / f'{name}.yaml')
    line = read_lines(STORED / name / 'results.jsonl')[at]
    job = next(job for job in jobs_of(experiment)
               if (job.key, job.seed) == (line['cell'], line['seed']))
    return line, job


@pytest.mark.parametrize('name', FOLLOWING)
def test_the_code_of_today_makes_a_stored_line(name):
    assert found_again(*stored_job(name, FOLLOWING.index(name) + 90))


def test_a_stored_line_can_fail():
    line, job = stored_job('jump100', 0)
    assert not found_again({**line, 'motion_ticks': line['motion_ticks'] + 1}, job)
