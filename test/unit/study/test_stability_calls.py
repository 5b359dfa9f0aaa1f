"""[ci] Whole denoise calls of ``tiny`` in bfloat16, and the bench that runs and keeps them."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch

import reflex_ros
from reflex_ros.infer.norm import rms_normalise, rms_normalise_narrow
from reflex_ros.study import stability_calls
from reflex_ros.study.stability import REGIMES as NORM_REGIMES
from reflex_ros.study.stability_batch import denoise_calls
from reflex_ros.study.stability_calls import (
    BEYOND,
    BLOCK,
    PRECISIONS,
    REGIMES,
    SWEEP,
    Bench,
    Scene,
    blocks,
    summarise_calls,
)

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(reflex_ros.__file__).parent / 'data' / 'tiny'
OPERATING = [name for name in REGIMES if name not in BEYOND]


@pytest.fixture(scope='module', name='bench')
def bench_fixture():
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    states = rng.uniform(-0.2, 0.2, (4, 7))
    return Bench(FOLDER, Scene(images, states))


@pytest.mark.parametrize('regime', OPERATING)
def test_no_operating_call_has_a_nan_or_inf_in_any_precision(bench, regime):
    rows = {row['precision']: row for row in bench.run_block(regime, 5, calls=4, every=2)}
    assert list(rows) == list(PRECISIONS)
    for row in rows.values():
        assert (row['calls'], row['nan'], row['inf'], row['drift_calls']) == (4, 0, 0, 2)
        assert row['batch_max'] < 1e-3
    assert rows['float32']['drift_max'] < 1e-4 < rows['ada']['drift_max'] < 0.5


def test_the_sweep_can_fail_and_names_the_exponent(bench):
    rows = bench.run_block('sweep', 65, calls=28)
    assert [row['precision'] for row in rows] == list(PRECISIONS)
    assert all(row['nan'] + row['inf'] > 0 for row in rows)
    for row in rows:
        first = row['first_failure_call']
        assert 120 <= row['first_failure_log2'] == first % SWEEP
        assert 65 * BLOCK <= first < 65 * BLOCK + 28


class Planted:
    """Returns what the float64 policy does, with an offset, and one spoiled chunk."""

    def __init__(self, exact, value, index):
        self.exact, self.value, self.index = exact, value, index

    def call(self, inputs):
        return self.exact.call(inputs) + 0.01

    def calls(self, inputs):
        chunks = self.exact.calls(inputs) + 0.01
        chunks[self.index, 2, 3] = self.value
        return chunks


@pytest.mark.parametrize(('value', 'kind'), [(np.nan, 'nan'), (-np.inf, 'inf')])
def test_the_detector_can_fail_at_the_right_call(bench, monkeypatch, value, kind):
    monkeypatch.setattr(bench, 'runners', {'planted': Planted(bench.exact, value, 3)})
    (row,) = bench.run_block('normal', 2, calls=5, every=1)
    assert (row[kind], row['nan'] + row['inf']) == (1, 1)
    assert row['first_failure_call'] == 2 * BLOCK + 3
    assert row['drift_calls'] == 4
    assert row['drift_max'] == pytest.approx(0.01)


def test_the_float32_policy_runs_in_every_fifth_block(bench):
    rows = [bench.run_block('normal', block, calls=1, every=1) for block in (4, 5)]
    assert [[row['precision'] for row in found] for found in rows] == [
        ['bf16', 'ada'], ['float32', 'bf16', 'ada']]


# ---- calls in a batch -----------------------------------------------------------------------

NEAR = MappingProxyType({torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2})
"""Rounding of each type after ten steps, rad; the chunks are of the order of one."""


def drawn(bench, regime, count=4):
    """Return calls far apart, so that no two have the same ages, images or noise."""
    return [REGIMES[regime](bench.operation, 1 + 977 * i) for i in range(count)]


def apart(first, second):
    return float(np.abs(first - second)[:, :6].max())


@pytest.mark.parametrize('regime', OPERATING)
def test_a_call_in_a_batch_is_the_call_alone(bench, regime):
    inputs = drawn(bench, regime)
    for runner in (*bench.runners.values(), bench.exact):
        together = runner.calls(inputs)
        alone = np.stack([runner.call(one) for one in inputs])
        for chunk, single in zip(together, alone, strict=True):
            assert apart(chunk, single) <= NEAR[runner.policy.dtype]


@pytest.mark.parametrize('field', ['ages', 'state', 'noise', 'frames'])
def test_equality_of_batch_and_single_can_fail(bench, field):
    """Any input that comes from a neighbour in the batch is seen, in the narrowest type too."""
    inputs = drawn(bench, 'normal')
    mixed = [dataclasses.replace(one, **{field: getattr(other, field)})
             for one, other in zip(inputs, [*inputs[1:], inputs[0]], strict=True)]
    for runner in (bench.runners['ada'], bench.exact):
        worst = max(map(apart, runner.calls(mixed), map(runner.call, inputs)))
        assert worst > NEAR[runner.policy.dtype]


def test_calls_are_split_into_batches_in_order(bench, monkeypatch):
    inputs = drawn(bench, 'normal', 5)
    whole = bench.exact.calls(inputs)
    monkeypatch.setattr(stability_calls, 'BATCH', 2)
    assert apart(bench.exact.calls(inputs), whole) <= NEAR[torch.float64]


@pytest.mark.parametrize('precision', list(PRECISIONS))
@pytest.mark.parametrize('spoiled', [0, 2])
def test_a_nan_is_found_in_its_own_call_and_nowhere_else(bench, precision, spoiled):
    inputs = drawn(bench, 'normal')
    clean = bench.runners[precision].calls(inputs)
    inputs[spoiled].noise[7, 2] = np.nan
    chunks = bench.runners[precision].calls(inputs)
    assert [i for i, chunk in enumerate(chunks) if np.isnan(chunk).any()] == [spoiled]
    others = [i for i in range(len(inputs)) if i != spoiled]
    assert apart(chunks[others], clean[others]) <= NEAR[PRECISIONS[precision][0]]


def test_a_kernel_that_spreads_a_nan_over_its_neighbours_spoils_no_count(bench, monkeypatch):
    def leaking(policy, pinned, calls):
        chunks = denoise_calls(policy, pinned, calls)
        if np.isnan(chunks).any():
            chunks[:] = np.nan
        return chunks

    monkeypatch.setattr(stability_calls, 'denoise_calls', leaking)
    inputs = drawn(bench, 'normal', 5)
    inputs[3].noise[0, 0] = np.nan
    chunks = bench.runners['ada'].calls(inputs)
    assert [i for i, chunk in enumerate(chunks) if np.isnan(chunk).any()] == [3]


def test_every_precision_is_what_its_name_says(bench):
    for name, (dtype, normalise) in PRECISIONS.items():
        network = bench.runners[name].policy.network
        assert network.norm.normalise is normalise
        assert network.expert[0].norm1.gate_in.weight.dtype == dtype
    assert PRECISIONS['ada'] == (torch.bfloat16, rms_normalise)
    assert PRECISIONS['bf16'] == (torch.bfloat16, rms_normalise_narrow)


def test_ages_grow_by_one_step_each_call_when_the_camera_stops(bench):
    first, later = (bench.operation.growing_ages(call) for call in (0, 25_000))
    assert first.frames == later.frames
    assert (later.ages - first.ages).tolist() == [25_000] * 4
    assert (np.diff(first.ages) < 0).all()


def test_normal_ages_are_those_of_frames_every_second_tick(bench):
    assert bench.operation.normal(101).ages.tolist() == [10, 8, 6, 4]
    assert bench.operation.normal(100).ages.tolist() == [9, 7, 5, 3]


def test_every_call_has_its_own_noise(bench):
    first, second = (bench.operation.normal(call).noise for call in (8, 9))
    assert not np.array_equal(first, second)


def test_every_operating_regime_has_all_calls_and_the_sweep_its_own_number():
    found = list(blocks(2500))
    sums = {name: sum(n for regime, _, n in found if regime == name) for name in REGIMES}
    assert sums == {**dict.fromkeys(OPERATING, 2500), 'sweep': 1024}
    assert sum(n for regime, _, n in blocks(100) if regime == 'sweep') == 100
    assert [regime for regime, block, _ in found if block == 2] == OPERATING


def test_a_summary_has_worst_and_mean_and_earliest():
    row = {'regime': 'normal', 'precision': 'ada', 'calls': 10, 'nan': 0, 'inf': 1,
           'first_failure_call': 7, 'first_failure_log2': None, 'drift_max': 0.2,
           'drift_sum': 0.3, 'drift_calls': 2, 'batch_max': 0.0}
    other = {**row, 'inf': 0, 'first_failure_call': None, 'drift_max': 0.1, 'drift_sum': 0.1,
             'batch_max': 1e-9}
    (found,) = summarise_calls([other, row])
    assert (found['calls'], found['inf'], found['first_failure_call']) == (20, 1, 7)
    assert found['batch_max_rad'] == 1e-9
    assert found['drift_max_rad'] == 0.2 and found['drift_mean_rad'] == pytest.approx(0.1)


# ---- the bench ---------------------------------------------------------------------------------


@pytest.fixture(name='main')
def main_fixture(tmp_path, capsys):
    """Run the bench on the same journal and return its result file."""
    path = ROOT / 'bench' / 'stability.py'
    spec = importlib.util.spec_from_file_location('bench_stability', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def call(*options):
        code = module.main(['--width', '32', '--lanes', '10', '--out', str(tmp_path / 'results'),
                            '--journal', str(tmp_path / 'journal.jsonl'), *options])
        assert code == 0
        return json.loads(Path(capsys.readouterr().out.strip()).read_text(encoding='utf-8'))

    call.module = module
    return call


def test_a_result_has_every_variant_in_every_regime_and_its_true_count(main):
    data = main('--applications', '100', '--calls', '0')
    assert (data['schema'], data['bench'], data['tag']) == (1, 'stability', 'measured')
    norms = data['summary']['norms']
    assert {row['regime'] for row in norms} == set(NORM_REGIMES)
    assert data['n'] == data['config']['applications_done'] == 100 * 4 * len(NORM_REGIMES)
    assert {'nan', 'inf', 'flushed', 'first_failure_step', 'drift_max', 'drift_mean'} <= set(
        norms[0])
    assert [row['variant'] for row in data['summary']['cost']] == list(
        dict.fromkeys(row['variant'] for row in norms))
    assert data['config']['calls_done'] == 0 and data['summary']['calls'] == []


def test_what_is_in_the_journal_is_not_run_again(main):
    options = ('--applications', '100', '--calls', '0')
    first = main(*options)
    assert main(*options, '--seconds', '0')['summary']['norms'] == first['summary']['norms']


def test_pieces_of_other_sources_are_not_used(main, monkeypatch):
    options = ('--applications', '100', '--calls', '0')
    main(*options)
    monkeypatch.setattr(main.module, 'sources_hash', lambda: 'other')
    assert main(*options, '--seconds', '0')['n'] == 0


def test_a_run_without_time_says_that_nothing_was_done(main):
    data = main('--applications', '100', '--calls', '100', '--seconds', '0')
    assert data['n'] == data['config']['calls_done'] == 0
    assert data['config']['calls'] == 100


def test_an_interrupted_run_keeps_what_is_finished(main, monkeypatch):
    run, names = main.module.stability.run_stream, iter(range(100))

    def interrupted(*args, **kwargs):
        if next(names) == 2:
            raise KeyboardInterrupt
        return run(*args, **kwargs)

    monkeypatch.setattr(main.module.stability, 'run_stream', interrupted)
    data = main('--applications', '100', '--calls', '0')
    assert data['n'] == 2 * 4 * 100
