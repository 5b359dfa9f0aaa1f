"""Stored lines: each was made by a known commit, and the code of today makes it again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reflex_ros.core.machine import describe_machine
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


SLIDING = (('table2', 6), ('table2', 17))
SEEING = (('table2_multi', 0), ('figure10', 3), ('figure10', 4), ('stitchers', 1),
          ('figure8_multi', 0), ('table4', 2))
"""Lines in which something slides, or a network runs, by their place in the file."""
NEAR = 5e-3
"""How far apart the real numbers of two processors may be where a network runs, relative."""


def text_of(name, at):
    """Return a stored line as it stands in its file."""
    if not (STORED / name / 'results.jsonl').is_file():
        pytest.skip('not run yet')
    return (STORED / name / 'results.jsonl').read_text(encoding='utf-8').splitlines()[at]


def made_again(name, at):
    """Return a stored line as text, what the code of today makes of it, and on the same CPU."""
    text = text_of(name, at)
    line, job = stored_job(name, at)
    made = {(one['cell'], one['seed']): one for one in read_lines(STORED / name / 'wall.jsonl')}
    cpu = made[line['cell'], line['seed']]['cpu']
    return text, json.dumps(run_job(job)[0]), cpu == describe_machine()['cpu']


def is_near(made, stored):
    """Return whether lines are equal but for the last digits of real numbers."""
    if isinstance(stored, dict | list):
        pairs = (((made[key], stored[key]) for key in stored) if isinstance(stored, dict)
                 else zip(made, stored, strict=False))
        return len(made) == len(stored) and all(is_near(*pair) for pair in pairs)
    if isinstance(stored, float):
        return made == pytest.approx(stored, rel=NEAR)
    return made == stored


def agrees(made, stored, *, is_same_cpu):
    """Return whether lines are the same byte for byte, on another processor as near as can be."""
    return made == stored if is_same_cpu else is_near(json.loads(made), json.loads(stored))


@pytest.mark.parametrize(('name', 'at'), SLIDING)
def test_the_code_of_today_makes_a_line_that_slides_byte_for_byte(name, at):
    stored, made, _ = made_again(name, at)
    assert made == stored


@pytest.mark.parametrize(('name', 'at'), SEEING)
def test_the_code_of_today_makes_a_line_of_a_network(name, at):
    stored, made, is_same_cpu = made_again(name, at)
    assert agrees(made, stored, is_same_cpu=is_same_cpu)


@pytest.mark.parametrize(('name', 'at'), [*SLIDING, *SEEING])
@pytest.mark.parametrize('is_same_cpu', [True, False])
@pytest.mark.parametrize('key', ['success', 'inferences', 'motion_ticks', 'seam_rad', 'complete'])
def test_a_changed_line_that_slides_or_sees_can_fail(name, at, is_same_cpu, key):
    stored = text_of(name, at)
    line = json.loads(stored)
    changed = {'success': [not one for one in line['success']], 'complete': False}
    wrong = json.dumps({**line, key: changed[key] if key in changed else 1.01 * line[key]})
    assert agrees(stored, stored, is_same_cpu=is_same_cpu)
    assert not agrees(wrong, stored, is_same_cpu=is_same_cpu)


def never_made_again(folders):
    return set(folders) - {*FOLLOWING, *(name for name, _ in (*SLIDING, *SEEING))}


def test_some_line_of_every_experiment_is_made_again():
    assert never_made_again(path.name for path in STORED.iterdir()) == set()


def test_an_experiment_of_which_no_line_is_made_again_can_fail():
    assert never_made_again(['table2', 'other']) == {'other'}


def test_the_last_digit_of_a_line_on_the_same_processor_can_fail():
    stored = text_of('figure10', 3)
    other = stored.replace('15.741672', '15.741655')
    assert other != stored and agrees(other, stored, is_same_cpu=False)
    assert not agrees(other, stored, is_same_cpu=True)
