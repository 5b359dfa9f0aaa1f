"""Processing gives the parity data, and warns of states far from the training data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reflex_ros.core.errors import ConfigError

FAMILIES = ('pi0', 'pi05', 'smolvla')
CASES = ('all_cameras', 'missing_camera')


@pytest.fixture(name='case')
def case_fixture(parity, copy):
    def case(family, name='all_cameras'):
        return copy(family).processing(), np.load(parity / family / f'{name}.npz')

    return case


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize('name', CASES)
def test_states_equal_the_parity_data(case, family, name):
    processing, data = case(family, name)
    got = processing.normalised_state(data['raw_state'])
    np.testing.assert_allclose(got.numpy(), data['normalized_state'], atol=1e-6)
    padded = processing.state(torch.from_numpy(data['raw_state']))
    assert padded.shape == (2, 32) and torch.equal(padded[:, :7], got)
    assert not padded[:, 7:].any()


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize('name', CASES)
def test_ids_equal_the_parity_data(case, family, name):
    processing, data = case(family, name)
    rows = processing.normalised_state(data['raw_state'])
    for at, task in enumerate(data['task']):
        want = data['tokens'][at][data['lang_masks'][at]].tolist()
        assert processing.token_ids(str(task), rows[at]) == want
        assert processing.token_ids(str(task), rows[at].numpy()) == want


@pytest.mark.parametrize('family', FAMILIES)
def test_images_equal_the_parity_data(case, family):
    processing, data = case(family)
    for at, camera in enumerate(processing.config.cameras):
        got = processing.image(torch.from_numpy(data[f'raw_u8/{camera}']))
        np.testing.assert_allclose(got.numpy(), data['images'][:, at], atol=1e-6)


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize('name', CASES)
def test_actions_equal_the_parity_data_and_go_back(case, family, name):
    processing, data = case(family, name)
    got = processing.actions(data['actions'], data['raw_state'])
    np.testing.assert_allclose(got.numpy(), data['actions_unnormalized'], atol=1e-6)
    back = processing.normalise_actions(got, data['raw_state'])
    np.testing.assert_allclose(back.numpy(), data['actions'][..., :7], atol=2e-6)


def test_the_state_of_pi05_is_text_and_of_the_others_is_not(copy):
    row = np.zeros(7)
    assert copy('pi0').processing().prompt('go', row) == 'go\n'
    assert copy('smolvla').processing().prompt('go', row) == 'go\n'
    folder = copy('pi05')
    assert folder.processing().prompt('go', row).count(' 128') == 7
    assert folder.processing(state_text='padded').prompt('go', row).count(' 128') == 32


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_a_state_that_is_not_finite_is_refused_by_joint(copy, value):
    folder = copy()
    names = [f'joint{i}' for i in range(7)]
    folder.json('config.json', lambda c: c.update(action_feature_names=names))
    state = np.zeros((1, 7))
    state[0, 3] = value
    with pytest.raises(ConfigError, match='state cannot be used joint3: got a value that is not '
                                          rf'finite \({value}\) in row 0, column 3, expected'):
        folder.processing().normalised_state(state)
    assert 'joint3' in folder.processing().outliers(state)[0]


@pytest.mark.parametrize('shape', [(7,), (1, 6), (1, 8), (1, 1, 7)])
def test_a_state_of_another_width_is_refused(copy, shape):
    with pytest.raises(ConfigError, match=r'got shape \[.*\], expected \[B, 7\]'):
        copy().processing().state(np.zeros(shape))


@pytest.fixture(name='far')
def far_fixture(copy):
    """Return a folder with mean 1 and deviation 0.1, and the names of its joints."""

    def far(family, *, keep_mean=True):
        folder = copy(family)
        names = [f'joint{i}' for i in range(7)]
        folder.json('config.json', lambda c: c.update(action_feature_names=names))
        values = {'mean': 1.0, 'std': 0.1, 'q01': 0.7674, 'q99': 1.2326}

        def edit(tensors):
            for name, value in values.items():
                tensors[f'observation.state.{name}'] = torch.full((7,), value)
            if not keep_mean:
                del tensors['observation.state.mean']

        folder.statistics(edit, sides=('pre',))
        return folder.processing()

    return far


@pytest.mark.parametrize(('family', 'keep_mean'), [('pi0', True), ('pi05', True),
                                                   ('pi05', False)])
@pytest.mark.parametrize(('value', 'warns'), [(1.49, False), (1.51, True), (0.51, False),
                                              (0.49, True)])
def test_a_joint_beyond_five_deviations_is_named_with_its_value(
    far, family, keep_mean, value, warns
):
    state = np.ones((2, 7))
    state[1, 2] = value
    found = far(family, keep_mean=keep_mean).outliers(state)
    assert len(found) == warns
    if warns:
        assert f'state joint2 is far from the training data: got {value}' in found[0]
        assert 'expected |z| <= 5' in found[0]
