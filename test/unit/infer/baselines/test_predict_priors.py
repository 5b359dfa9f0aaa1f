"""[ci] ``reflex-ros predict --cache``: rows of a file are one call after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reflex_ros.cli.main import main

PARITY = Path(__file__).resolve().parents[3] / 'data' / 'parity'
REUSE = ('--cache-set', 'layers=1', '--cache-set', 'ratio=1', '--cache-set', 'task_patches=0',
         '--cache-set', 'static_patches=256')  # fmt: skip


@pytest.fixture
def run(tmp_path, capsys):
    def call(*options, family='pi05', change=0, compact=True):
        data = np.load(PARITY / family / 'all_cameras.npz')
        arrays = {n: np.repeat(data[n][:1], 2, 0) for n in data.files
                  if n.startswith('raw_u8/') or n in ('raw_state', 'task', 'noise')}
        for name in arrays:
            if change and name.startswith('raw_u8/'):
                arrays[name][1, :, :20, :30] //= 2
                arrays[name][1, :, :20, :10] = change
        np.savez(tmp_path / 'in.npz', **arrays)
        target = tmp_path / 'out.npz'
        code = main(['predict', str(PARITY / family / 'checkpoint'), '--input',
                     str(tmp_path / 'in.npz'), '--output', str(target), *options,
                     *(('--layout', 'compact') if compact else ())])
        return code, capsys.readouterr().err, dict(np.load(target)) if code == 0 else None

    return call


def apart(a, b, name='actions') -> list[float]:
    return np.abs(a[name] - b[name]).reshape(2, -1).max(1).tolist()


@pytest.mark.parametrize('family', ['pi0', 'pi05'])
def test_the_same_observation_twice_is_exact(run, family):
    exact = run(family=family)[2]
    _, error, found = run('--cache', 'vla_cache', *REUSE, family=family)
    assert error == '' and max(apart(exact, found)) < 1e-5
    assert found['cache/reuse_ratio'].tolist() == [0, 0.5]
    assert found['cache/oldest_age'].tolist() == [0, 1]


def test_a_changed_image_can_fail_that_in_the_second_row_only(run):
    exact = run(change=255)[2]
    found = run('--cache', 'vla_cache', *REUSE, change=255)[2]
    first, second = apart(exact, found)
    assert first < 1e-5 and second > 1e-4
    assert 0 < found['cache/reuse_ratio'][1] < 0.5


@pytest.mark.parametrize(('retention', 'is_exact'), [('1', True), ('0.1', False)])
def test_a_budget_of_everything_is_exact_and_a_small_one_is_not(run, retention, is_exact):
    exact = run()[2]
    found = run('--cache', 'vl_cache', '--cache-set', f'retention={retention}')[2]
    error = max(apart(exact, found))
    assert error == 0 if is_exact else error > 1e-4
    assert (found['cache/dropped_mass'].max() == 0) == is_exact


@pytest.mark.parametrize(('options', 'named'), [
    (('--cache', 'vla_cache'), 'layers'),
    (('--cache', 'vl_cache', '--cache-set', 'budget=1'), 'budget'),
    (('--cache', 'vl_cache', '--cache-set', 'retention=7'), 'retention'),
    (('--cache', 'vl_cache', '--cache-set', 'retention'), 'NAME=VALUE'),
    (('--cache-set', 'retention=1'), 'partitioned, which has none'),
])  # fmt: skip
def test_wrong_parameters_are_one_line(run, options, named):
    code, error, _ = run(*options)
    assert code == 2 and named in error and error.count('\n') == 1


def test_other_families_and_padding_are_refused(run):
    code, error, _ = run('--cache', 'vl_cache', family='smolvla')
    assert code == 2 and 'smolvla' in error
    code, error, _ = run('--cache', 'vl_cache', compact=False)
    assert code == 2 and '--layout compact' in error
