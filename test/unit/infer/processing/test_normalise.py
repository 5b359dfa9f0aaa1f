"""Normalisation follows the table of modes, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.processing.normalise import NEEDS, Normaliser, make_normaliser

STATS = {
    'mean': [1.0, -2.0, 0.0], 'std': [0.5, 4.0, 0.0], 'min': [-1.0, -8.0, 3.0],
    'max': [3.0, 0.0, 3.0], 'q01': [-0.5, -7.0, 2.0], 'q99': [2.5, -1.0, 2.0],
    'q10': [0.0, -5.0, 1.0], 'q90': [2.0, -2.0, 1.0],
}  # fmt: skip
FILE = Path('folder/stats.safetensors')
X = [[2.0, 2.0, 3.0]]
ANSWERS = {
    'IDENTITY': [2.0, 2.0, 3.0],
    'MEAN_STD': [2.0, 1.0, 3.0 / 1e-8],
    'MIN_MAX': [0.5, 1.5, -1.0],
    'QUANTILES': [2 * 2.5 / 3 - 1, 2.0, 2e8 - 1],
    'QUANTILE10': [1.0, 11 / 3, 4e8 - 1],
}


def stats(**changes):
    values = STATS | changes
    return {f'action.{name}': torch.tensor(value) for name, value in values.items()}


def make(mode, names=(), **changes):
    return make_normaliser(mode, 'action', stats(**changes), dim=3, source=FILE, names=names)


@pytest.mark.parametrize('mode', NEEDS)
def test_values_are_those_of_the_table(mode):
    got = make(mode).normalise(torch.tensor(X))
    torch.testing.assert_close(got, torch.tensor([ANSWERS[mode]]), rtol=1e-6, atol=1e-6)
    assert got.dtype == torch.float32


@pytest.mark.parametrize('mode', NEEDS)
def test_restore_undoes_normalise(mode):
    x = torch.rand(4, 5, 3, generator=torch.Generator().manual_seed(3)) * 4 - 2
    normaliser = make(mode, std=[0.5, 4.0, 1.0], max=[3.0, 0.0, 5.0],
                      q99=[2.5, -1.0, 4.0], q90=[2.0, -2.0, 4.0])  # fmt: skip
    torch.testing.assert_close(normaliser.restore(normaliser.normalise(x)), x)


def test_mean_and_deviation_are_restored_without_eps():
    assert make('MEAN_STD').restore(torch.tensor(X))[0].tolist() == [2.0, 6.0, 0.0]


def test_a_feature_without_spread_is_restored_to_its_value():
    assert make('MIN_MAX').restore(torch.tensor(X))[0, 2] == 3.0


def test_nothing_is_clipped():
    assert float(make('QUANTILES').normalise(torch.full((1, 3), 100.0)).min()) > 10


@pytest.mark.parametrize('mode', [mode for mode in NEEDS if NEEDS[mode]])
def test_only_what_the_mode_needs_is_read(mode):
    given = {name: value for name, value in stats().items() if name[7:] in NEEDS[mode]}
    given |= {'action.count': torch.tensor([7]), 'action.q50': torch.tensor([float('nan')])}
    normaliser = make_normaliser(mode, 'action', given, dim=3, source=FILE)
    assert set(normaliser.stats) == set(NEEDS[mode])


@pytest.mark.parametrize('mode', [mode for mode in NEEDS if NEEDS[mode]])
def test_a_missing_statistic_is_named(mode):
    for name in NEEDS[mode]:
        given = {n: v for n, v in stats().items() if n != f'action.{name}'}
        with pytest.raises(ModelError, match=rf'action\.{name}: got none, expected 3 numbers for'):
            make_normaliser(mode, 'action', given, dim=3, source=FILE)


@pytest.mark.parametrize(('changes', 'message'), [
    ({'mean': [1.0, 2.0]}, r'action\.mean: got torch\.float32 of shape \[2\], expected \[3\]'),
    ({'mean': [1.0, float('inf'), 0.0]}, r'action\.mean of elbow: got inf, expected a finite'),
    ({'std': [1.0, 1.0, float('nan')]}, r'action\.std of column 2: got nan'),
    ({'std': [-1.0, 1.0, 1.0]}, r'action\.std of waist: got -1\.0, expected at least 0'),
    ({'mean': [1, 2, 3]}, r'action\.mean: got torch\.int64'),
])
def test_a_bad_statistic_is_named_with_its_joint(changes, message):
    with pytest.raises(ModelError, match=message) as caught:
        make('MEAN_STD', ('waist', 'elbow'), **changes)
    assert str(FILE) in str(caught.value)


def test_swapped_bounds_are_named():
    with pytest.raises(ModelError, match=r'action\.min of column 1: got 1\.0, expected at most'):
        make('MIN_MAX', min=[-1.0, 1.0, 3.0])


def test_statistics_of_another_rank_are_taken_by_their_number():
    given = {name: value[None] for name, value in stats().items()}
    normaliser = make_normaliser('MEAN_STD', 'action', given, dim=3, source=FILE)
    assert normaliser.stats['mean'].shape == (3,)


def test_usual_ranges_follow_the_mode():
    low, high = make('MEAN_STD').reach()
    assert (low[0], high[0]) == (-0.5, 2.5)
    low, high = make('QUANTILE10').reach()
    assert (low[1], high[1]) == (-5.0, -2.0)
    assert make('IDENTITY').reach() is None


def test_identity_knows_of_no_distance_but_of_what_is_no_number():
    z = Normaliser('IDENTITY', {}).sigmas(torch.tensor([[1e9, float('nan')]]))
    assert float(z[0, 0]) == 0.0 and bool(z[0, 1].isnan())
