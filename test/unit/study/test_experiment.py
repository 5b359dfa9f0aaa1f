"""Grids of experiments: equal lines twice, nothing run twice, no clock in the lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.study.experiment import FewerFrames, run_experiment, run_job
from reflex_ros.study.experiment_file import load_experiment
from reflex_ros.study.experiment_lines import jobs_of, lines_of, read_lines, summarise_lines
from reflex_ros.study.experiment_table import table
from reflex_ros.study.results import Revision

ROOT = Path(__file__).parents[3]
SMALL = ROOT / 'config' / 'experiments' / 'small' / 'small.yaml'
SEEING = """
title: A policy with weights, as short as it goes
stage_times: STAGE_TIMES
seeds: {first: 5000, count: 1}
defaults: {task: jump, duration_s: 1.5, delay_ms: 60}
grid:
  - {label: '{policy}, {mode}', policy: tiny, mode: [async_naive, reflex]}
  - {label: '{policy}, {mode}', policy: oracle, mode: reflex}
"""
REVISION = Revision('0' * 40, False)


def run(folder, **changes):
    experiment = load_experiment(SMALL)
    return run_experiment(experiment, folder, revision=REVISION, workers=1, **changes)


def called(*command):
    """Run a command in the checkout as a user does; return what it said."""
    env = {name: value for name, value in os.environ.items() if not name.startswith('MAKE')}
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def make_small(folder, *variables):
    return called('make', 'experiments-small', f'VENV={sys.prefix}', f'SMALL={folder}',
                  *variables)


@pytest.fixture(scope='module')
def first(tmp_path_factory):
    """Return what ``make experiments-small`` leaves, from two processes."""
    folder = tmp_path_factory.mktemp('experiment')
    said = make_small(folder, 'EXPERIMENT_ARGS=--workers 2')
    assert all(cell.label in said for cell in load_experiment(SMALL).cells)
    return folder / 'small'


def same_bytes(first, second):
    return all((first / name).read_bytes() == (second / name).read_bytes()
               for name in ('results.jsonl', 'cells.json'))


def test_make_experiments_small_gives_the_same_bytes_as_one_process(first, tmp_path):
    run(tmp_path)
    assert same_bytes(first, tmp_path)


def test_make_experiments_small_runs_everything_anew(first, tmp_path):
    kept = tmp_path / 'small'
    kept.mkdir()
    lines = read_lines(first / 'results.jsonl')
    old = [{**line, 'error_mm': [77.7]} for line in lines]
    (kept / 'results.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in old))
    make_small(tmp_path)
    assert same_bytes(first, kept)


def test_a_policy_with_weights_gives_the_same_bytes_in_one_and_in_two_processes(tmp_path):
    file = tmp_path / 'seeing.yaml'
    file.write_text(SEEING.replace('STAGE_TIMES', str(SMALL.parents[1] / 'stage_times.json')))
    try:
        run_experiment(load_experiment(file), tmp_path / 'one', revision=REVISION, workers=1)
    except ConfigError as error:
        pytest.skip(f'no off-screen rendering here: {error}')
    called(f'{sys.prefix}/bin/reflex-ros', 'experiment', file, '--workers', '2',
           '--out', tmp_path / 'two')
    assert same_bytes(tmp_path / 'one', tmp_path / 'two' / 'seeing')
    assert len(read_lines(tmp_path / 'one' / 'results.jsonl')) == 3


def test_the_same_bytes_can_fail(first, tmp_path):
    job = jobs_of(load_experiment(SMALL))[-1]
    other = run_job(replace(job, seed=job.seed + 1))[0]
    assert run_job(job)[0]['error_mm'] != other['error_mm']
    for name in ('results.jsonl', 'cells.json'):
        (tmp_path / name).write_bytes((first / name).read_bytes())
    assert same_bytes(first, tmp_path)
    lines = [*read_lines(first / 'results.jsonl')[:-1], {**other, 'seed': job.seed}]
    (tmp_path / 'results.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    assert not same_bytes(first, tmp_path)


def test_every_due_tick_of_the_small_file_has_a_verdict(first):
    lines = read_lines(first / 'results.jsonl')
    assert len(lines) == 3 and all(line['complete'] for line in lines)


def test_the_modes_of_the_small_file_do_what_they_are(first):
    experiment = load_experiment(SMALL)
    found = [summarise_lines([line]) for line in lines_of(experiment, first)]
    sync, naive, reflex = found
    assert sync['stall_ratio'] > 0.1 and sync['uncovered_share'] in (None, 1.0)
    assert naive['stall_ratio'] == reflex['stall_ratio'] == 0.0


def test_no_clock_is_in_the_result_lines(first):
    names = {name for line in read_lines(first / 'results.jsonl') for name in line}
    assert not names & {'wall_s', 'cpu_s', 'sha', 'utc', 'dirty', 'cpu'}
    walls = read_lines(first / 'wall.jsonl')
    assert all({'wall_s', 'cpu_s', 'sha', 'cpu'} <= set(wall) for wall in walls)


def test_what_is_there_is_not_run_again_and_a_torn_line_is(first, tmp_path, monkeypatch):
    whole = (first / 'results.jsonl').read_text(encoding='utf-8')
    lines = whole.splitlines()
    (tmp_path / 'results.jsonl').write_text(f'{lines[0]}\n{lines[1]}\n{lines[2][:40]}')
    ran = []

    def once(job, *, is_traced):
        assert not is_traced  # an oracle
        ran.append(job.cell.label)
        return json.loads(lines[2]), {'cell': job.key, 'seed': job.seed, 'wall_s': 0, 'cpu_s': 0}

    monkeypatch.setattr('reflex_ros.study.experiment.run_job', once)
    run(tmp_path)
    assert len(ran) == 1 and ran[0].startswith('reflex')
    assert (tmp_path / 'results.jsonl').read_text(encoding='utf-8') == whole


def test_lines_of_a_changed_cell_stay_but_do_not_count(first, tmp_path):
    experiment = load_experiment(SMALL)
    other = {**read_lines(first / 'results.jsonl')[0], 'cell': 'ffffffffff'}
    whole = (first / 'results.jsonl').read_text(encoding='utf-8')
    (tmp_path / 'results.jsonl').write_text(json.dumps(other) + '\n' + whole)
    assert run(tmp_path) == lines_of(experiment, first)
    assert read_lines(tmp_path / 'results.jsonl')[-1] == other


def test_progress_counts_every_line_once(first, tmp_path):
    (tmp_path / 'results.jsonl').write_bytes((first / 'results.jsonl').read_bytes())
    seen = []
    run(tmp_path, tick=lambda done, total: seen.append((done, total)))
    assert seen == [(3, 3)]


def test_cut_short_every_cell_has_as_many_seeds():
    experiment = replace(load_experiment(SMALL), seeds=range(4))
    labels = [job.cell.label for job in jobs_of(experiment)]
    assert labels == [cell.label for cell in experiment.cells] * 4


# ---- figures -----------------------------------------------------------------------------------


def line(**changes):
    plain = {'success': [True, False], 'error_mm': [2.0, 4.0], 'reaction_ms': [100.0],
             'command_ms': 50.0, 'stalled_ticks': 1, 'motion_ticks': 10, 'stalled_changes': 1,
             'chunk_changes': 4, 'uncovered': 0.5, 'inferences': 3, 'seam_rad': 0.01,
             'max_age_s': 0.5}
    return {**plain, **changes}


def test_the_figures_of_a_cell_count_ticks_and_trials_over_its_lines():
    found = summarise_lines([line(), line(stalled_ticks=0, motion_ticks=30, uncovered=0.0,
                                          inferences=1, success=[True], stalled_changes=0)])
    assert found['success'][0] == pytest.approx(2 / 3) and found['trials'] == 3
    assert found['stall_ratio'] == pytest.approx(1 / 40)
    assert found['stalled_chunks'] == pytest.approx(1 / 8)
    assert found['uncovered_share'] == pytest.approx(1.5 / 4)


def test_a_cell_without_samples_has_no_figure():
    found = summarise_lines([line(success=[], error_mm=[], reaction_ms=[], command_ms=None,
                                  uncovered=None, seam_rad=None, chunk_changes=0)])
    assert found['success'] is found['reaction_ms'] is found['stalled_chunks'] is None
    assert found['uncovered_share'] is found['seam_mrad'] is found['error_mm'] is None


def test_a_cell_that_was_not_run_says_so():
    text = '\n'.join(table(load_experiment(SMALL), []))
    assert text.count('0 of 1') == 3 and 'not run' in text


def test_fewer_frames_leaves_the_newest():
    seen = []

    class Model:
        guided_rows = 7

        def infer(self, request, probe):
            seen.append(request)

    model = FewerFrames(Model(), 2)
    assert model.guided_rows == 7
    block = _block((1, 2, 3, 4))
    model.infer(_request(block), None)
    assert seen[0].block.window == (3, 4)


def _block(window):
    from reflex_ros.core.types import KvBlock

    names = KvBlock.__dataclass_fields__
    empty = dict.fromkeys(names)
    return KvBlock(**{**empty, 'window': window})


def _request(block):
    from reflex_ros.stages.models import InferRequest

    return InferRequest(block, 1, None)
