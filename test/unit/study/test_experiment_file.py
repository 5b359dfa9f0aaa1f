"""Experiment files: the shipped ones load, wrong ones are refused by name, cells keep identity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reflex_ros.cli.main import main
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import CostModel
from reflex_ros.study.experiment_file import load_experiment
from reflex_ros.study.stage_times import read_profiles

FOLDER = Path(__file__).parents[3] / 'config' / 'experiments'
TIMES = FOLDER / 'stage_times.json'
SHIPPED = sorted(path for path in FOLDER.rglob('*.yaml') if path.name != 'paper.yaml')


def write(folder, grid, *, defaults='{}', head='title: a'):
    path = folder / 'one.yaml'
    text = f'{head}\nstage_times: {TIMES}\ndefaults: {defaults}\ngrid:\n  - {grid}\n'
    path.write_text(text, encoding='utf-8')
    return path


@pytest.mark.parametrize('path', SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_file_loads(path):
    experiment = load_experiment(path)
    assert experiment.cells and len(experiment.seeds) >= 1
    assert len({experiment.key(cell) for cell in experiment.cells}) == len(experiment.cells)


def test_lists_stand_for_every_combination(tmp_path):
    path = write(tmp_path, "{label: '{mode} {delay_ms} {parts}', mode: async_naive, "
                           'delay_ms: [0, 60], parts: [[], [index, blend]]}')
    cells = load_experiment(path).cells
    assert [cell.label for cell in cells] == [
        'async_naive 0 none', 'async_naive 0 index + blend', 'async_naive 60 none',
        'async_naive 60 index + blend']
    assert cells[-1].parameters() == {
        'chunk.entry': 'aligned', 'chunk.state_source': 'measured', 'chunk.stitch': 'blend',
        'chunk.request': 'continuous'}


@pytest.mark.parametrize(('grid', 'words'), [
    ('{mode: reflex, delay: 3}', ("'delay'", "Did you mean 'delay_ms'?", 'block 1 of grid')),
    ('{mode: reflux}', ("'reflux'", "Did you mean 'reflex'?", 'mode')),
    ('{task: jmup}', ("Did you mean 'jump'?",)),
    ('{times: pi05_standart}', ("Did you mean 'pi05_standard'?",)),
    ('{parts: [overlap, blent]}', ("Did you mean 'blend'?",)),
    ('{params: {chunk.blend: 0.1}}', ("Did you mean 'chunk.blend_s'?",)),
    ('{params: {chunk.blend_s: long}}', ('chunk.blend_s', "'long'")),
    ('{delay_ms: -1}', ('-1', '0 to 5000')),
    ('{delay_ms: []}', ('at least one value',)),
    ('{delay_ms: true}', ('True', 'int or float')),
    ('{execute_steps: 2.5}', ('2.5', 'int')),
    ('{label: same, delay_ms: [0, 1]}', ("'same'", 'one each')),
    ("{label: '{speed}'}", ("'{speed}'",)),
    ('{mode: sync, parts: [index]}', ('sync takes neither parts',)),
    ('{parts: [rtc, overlap]}', ('oracle has no flow',)),
    ('{parts: [index]}', ('async_naive without it',)),
    ('{window: 2}', ('oracle has no window',)),
    ('{chunk: 10, execute_steps: 11}', ('larger than the chunk',)),
    ('{policy: tiny, chunk: 60}', ('50 rows',)),
    ('{params: {camera.period_s: 0.02}}', (
        'block 1 of grid: params', "'camera.period_s'", 'does not take', 'Leave it out')),
    ('{params: {recorder.images: true}}', ("'recorder.images'", 'does not take')),
    ('{policy: tiny, params: {policy.seed: 3}}', (
        'block 1 of grid: params', "'policy.seed'", "the key 'seeds'")),
    ('{params: {chunk.mode: sync}}', ("'chunk.mode'", "the key 'mode'")),
    ('{params: {policy.cache: naive}}', ('policy.cache', 'oracle has no network')),
    ('{params: {policy.num_denoise_steps: 3}}', ('policy.num_denoise_steps', 'no network')),
    ('{policy: tiny, params: {policy.cache: fast}}', ("'fast'", 'partitioned')),
    ('{policy: tiny, params: {policy.cache: full, chunk.stitch: rtc}}', ('rtc cannot steer',)),
    ('{policy: tiny, parts: [rtc, overlap], params: {policy.cache: full}}', ('rtc cannot',)),
    ('{parts: [overlap], params: {chunk.stitch: blend}}', ('chunk.stitch', 'parts decides')),
    ('7', ('got 7', 'keys with values')),
])
def test_a_wrong_block_is_refused_and_what_is_meant_is_named(tmp_path, grid, words):
    with pytest.raises(ConfigError) as caught:
        load_experiment(write(tmp_path, grid))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(('head', 'word'), [
    ('tilte: a', "Did you mean 'title'?"),
    ('title: ', 'title'),
    ('title: a\nseeds: {count: 0}', 'count'),
    ('title: a\nseeds: {frist: 0}', "Did you mean 'first'?"),
    ('title: [', 'Correct the YAML'),
])
def test_a_wrong_head_is_refused(tmp_path, head, word):
    with pytest.raises(ConfigError, match=word.replace('?', r'\?')):
        load_experiment(write(tmp_path, '{mode: reflex}', head=head))


def test_a_right_file_can_fail_no_check(tmp_path):
    """The errors above come from what was planted: the same file without it loads."""
    assert len(load_experiment(write(tmp_path, '{mode: reflex}')).cells) == 1


def test_the_command_ends_with_2_and_names_the_file(tmp_path, capsys):
    assert main(['experiment', str(tmp_path / 'none.yaml')]) == 2
    assert 'none.yaml' in capsys.readouterr().err
    assert main(['experiment', str(write(tmp_path, '{mode: reflux}'))]) == 2
    assert "Did you mean 'reflex'?" in capsys.readouterr().err


def test_a_cell_is_what_it_does_and_no_label():
    experiment = load_experiment(FOLDER / 'jump100.yaml')
    cell = experiment.cells[0]
    assert experiment.key(cell) == experiment.key(replace(cell, label='other'))
    changes = {'seed of nothing': {'delay_ms': 101.0}, 'times': {'times': 'pi05_reflex'},
               'params': {'params': {'chunk.blend_s': 0.1}}}
    keys = {experiment.key(replace(cell, **change)) for change in changes.values()}
    assert len(keys | {experiment.key(cell)}) == 1 + len(changes)


# ---- stage times -------------------------------------------------------------------------------


def draws(profile, seed):
    costs = CostModel(profile.costs(), seed=seed)
    return [costs.draw('denoise') for _ in range(20)]


def test_stage_times_are_drawn_by_seed_from_the_samples():
    profile = read_profiles(TIMES)['tiny_reflex']
    assert draws(profile, 1) == draws(profile, 1)
    assert {round(ns / 1e6, 3) for ns in draws(profile, 1)} <= set(profile.stages_ms['denoise'])


def test_stage_times_can_fail():
    profile = read_profiles(TIMES)['tiny_reflex']
    assert draws(profile, 1) != draws(profile, 2)


@pytest.mark.parametrize('text', ['', '{}', '{"profiles": {"a": {"tag": "measured"}}}', (
    '{"profiles": {"a": {"tag": "guess", "source": "", "pipeline": "serial", '
    '"stages_ms": {"encode": [1], "denoise": [1]}}}}'), (
    '{"profiles": {"a": {"tag": "paper", "source": "", "pipeline": "serial", '
    '"stages_ms": {"encode": [], "denoise": [1]}}}}')])
def test_wrong_stage_times_are_refused(tmp_path, text):
    path = tmp_path / 'times.json'
    path.write_text(text, encoding='utf-8')
    with pytest.raises(ConfigError, match=r'times\.json'):
        read_profiles(path)
