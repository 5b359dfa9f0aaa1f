"""Processing is what the folder's files say, or is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reflex_ros.core.errors import ModelError

FAMILIES = ('pi0', 'pi05', 'smolvla')
STATE = np.array([[0.3, -0.2, 0.1, 0.5, -0.4, 0.2, 0.6]], np.float32)
NAMES = ['j1', 'j2', 'left_Gripper.pos', 'j4', 'j5', 'j6', 'gripper']


def refused(folder, pattern):
    with pytest.raises(ModelError, match=pattern) as caught:
        folder.processing()
    return str(caught.value)


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize(('mode', 'low', 'high'), [
    ('MIN_MAX', 'min', 'max'), ('QUANTILES', 'q01', 'q99'), ('QUANTILE10', 'q10', 'q90')
])
def test_the_mode_of_the_processor_is_used(copy, family, mode, low, high):
    folder = copy(family)
    folder.modes(mode)
    stats = {}
    folder.statistics(stats.update, sides=('pre',))
    processing = folder.processing()
    first, last = (stats[f'observation.state.{name}'].numpy() for name in (low, high))
    got = processing.normalised_state(STATE).numpy()
    np.testing.assert_allclose(got, 2 * (STATE - first) / (last - first) - 1, rtol=1e-5, atol=1e-6)
    chunk = np.zeros((1, 10, 32), np.float32)
    first, last = (stats[f'action.{name}'].numpy() for name in (low, high))
    got = processing.actions(chunk, STATE).numpy()[0, 0]
    np.testing.assert_allclose(got, (first + last) / 2, rtol=1e-5, atol=1e-6)
    if mode != ('QUANTILES' if family == 'pi05' else 'MEAN_STD'):
        assert f'STATE is normalised by {mode}' in processing.notes[0]


def test_identity_needs_no_statistics(copy):
    folder = copy()
    folder.modes('IDENTITY')
    folder.statistics(lambda t: [t.pop(name) for name in list(t) if name != 'action.max'])
    assert folder.processing().normalised_state(STATE).numpy().tolist() == STATE.tolist()


def test_a_kind_that_the_saved_table_lacks_is_left_as_it_is(copy):
    folder = copy()
    folder.step('pre', 'normalizer_processor', norm_map={'VISUAL': 'IDENTITY'})
    processing = folder.processing()
    assert processing.state_normaliser.mode == 'IDENTITY'
    assert 'config.json says MEAN_STD' in processing.notes[0]


def test_a_state_that_the_saved_step_skips_is_left_as_it_is(copy):
    folder = copy()
    folder.step('pre', 'normalizer_processor', normalize_observation_keys=[])
    assert folder.processing().state_normaliser.mode == 'IDENTITY'


@pytest.mark.parametrize(('side', 'step', 'feature'), [
    ('pre', 'normalizer_processor', 'observation.state'),
    ('post', 'unnormalizer_processor', 'action'),
])
def test_a_feature_that_the_saved_step_does_not_know_is_named(copy, side, step, feature):
    folder = copy()
    folder.step(side, step, features={'other': {'type': 'STATE', 'shape': [1]}})
    refused(folder, rf'{step}\.features: got no {feature}')


def test_eps_is_the_saved_one(copy):
    folder = copy()
    folder.step('pre', 'normalizer_processor', eps=0.5)
    assert folder.processing().state_normaliser.eps == 0.5
    folder.step('pre', 'normalizer_processor', eps=-1)
    refused(folder, 'eps: got -1')
    folder.step('pre', 'normalizer_processor', eps=None)
    assert folder.processing().state_normaliser.eps == 1e-8


def test_the_name_of_the_statistics_is_taken_from_the_processor(copy):
    folder = copy()
    old = next(folder.path.glob('policy_pre*.safetensors'))
    old.rename(folder.path / 'stats_of_an_older_index.safetensors')
    refused(folder, old.name)
    folder.json('policy_preprocessor.json', lambda c: c['steps'][6].update(
        state_file='stats_of_an_older_index.safetensors'))
    folder.processing()
    folder.json('policy_preprocessor.json', lambda c: c['steps'][6].update(state_file='../x'))
    refused(folder, "state_file: got '../x'")


def test_a_step_without_statistics_names_the_first(copy):
    folder = copy()
    folder.json('policy_preprocessor.json', lambda c: c['steps'][6].pop('state_file'))
    refused(folder, r'policy_preprocessor\.json observation\.state\.mean: got none')


def test_statistics_that_differ_before_and_after_are_named(copy):
    folder = copy()
    folder.statistics(lambda t: t['action.std'].mul_(2), sides=('post',))
    refused(folder, r'action\.std: got other values than policy_preprocessor')
    folder.statistics(lambda t: t.pop('action.std'), sides=('pre',))
    folder.processing()


def test_statistics_of_images_are_refused_and_their_lack_is_not(copy):
    folder = copy()
    folder.step('pre', 'normalizer_processor',
                norm_map={'VISUAL': 'MEAN_STD', 'STATE': 'MEAN_STD', 'ACTION': 'MEAN_STD'})
    folder.processing()
    key = 'observation.images.base_0_rgb.mean'
    folder.statistics(lambda t: t.update({key: torch.zeros(3, 1, 1)}), sides=('pre',))
    refused(folder, r'norm_map\.VISUAL: got MEAN_STD with statistics of .*base_0_rgb')


@pytest.mark.parametrize('side', ['pre', 'post'])
def test_an_unknown_step_is_named(copy, side):
    folder = copy()
    folder.json(f'policy_{side}processor.json',
                lambda c: c['steps'].append({'registry_name': 'my_filter', 'config': {}}))
    refused(folder, rf"policy_{side}processor\.json step 'my_filter': got an unknown step")


@pytest.mark.parametrize(('side', 'step'), [
    ('pre', 'normalizer_processor'), ('post', 'unnormalizer_processor'),
    ('pre', 'tokenizer_processor'),
])
def test_a_missing_step_is_named(copy, side, step):
    folder = copy()

    def edit(content):
        content['steps'] = [s for s in content['steps'] if s['registry_name'] != step]

    folder.json(f'policy_{side}processor.json', edit)
    refused(folder, f'step {step}: got')


def test_a_step_that_is_there_twice_is_named(copy):
    folder = copy()
    folder.json('policy_preprocessor.json', lambda c: c['steps'].append(c['steps'][6]))
    refused(folder, 'normalizer_processor: got it twice')


def test_the_state_text_belongs_to_pi05_and_after_the_normalisation(copy):
    text = 'pi05_prepare_state_tokenizer_processor_step'
    folder = copy('pi05')
    folder.json('policy_preprocessor.json', lambda c: c['steps'].insert(0, c['steps'].pop(4)))
    refused(folder, f'{text}: got it before')
    folder.json('policy_preprocessor.json', lambda c: c['steps'].pop(0))
    refused(folder, f'{text}: got none, expected one')
    other = copy('pi0')
    other.json('policy_preprocessor.json',
               lambda c: c['steps'].append({'registry_name': text, 'config': {}}))
    refused(other, f'{text}: got one, expected none')


def test_a_task_gets_its_newline_where_the_saved_step_is(copy):
    folder = copy()
    folder.json('policy_preprocessor.json', lambda c: c['steps'].pop(2))
    assert folder.processing().prompt('go', []) == 'go'


def test_the_length_of_prompts_is_that_of_the_saved_step(copy):
    folder = copy()
    folder.step('pre', 'tokenizer_processor', max_length=3)
    assert len(folder.processing().token_ids('pick up the red block', [])) == 3


def test_renamed_cameras_are_told(copy):
    folder = copy()
    folder.step('pre', 'rename_observations_processor', rename_map={
        'observation.images.top': 'observation.images.base_0_rgb', 'a': 'observation.state'})
    assert folder.processing().camera_renames == (('top', 'base_0_rgb'),)


def relative(folder, **step):
    folder.step('pre', 'relative_actions_processor', enabled=True, **step)
    folder.step('post', 'absolute_actions_processor', enabled=True)
    return folder


@pytest.mark.parametrize('family', ['pi0', 'pi05'])
def test_relative_actions_are_added_to_the_raw_state_but_for_the_excluded(copy, family):
    other = copy(family)
    absolute = other.processing()
    processing = relative(other, action_names=NAMES,
                          exclude_joints=['gripper']).processing()
    chunk = np.random.default_rng(0).normal(size=(1, 10, 32)).astype(np.float32)
    offset = np.where([name in ('left_Gripper.pos', 'gripper') for name in NAMES], 0.0, STATE)
    want = absolute.actions(chunk, STATE).numpy() + offset[:, None]
    got = processing.actions(chunk, STATE)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-6)
    back = processing.normalise_actions(got, STATE)
    np.testing.assert_allclose(back.numpy(), chunk[..., :7], atol=2e-5)


def test_relative_actions_without_names_exclude_nothing_and_say_so(copy):
    processing = relative(copy(), exclude_joints=['gripper']).processing()
    assert processing.relative == (True,) * 7
    assert 'no joint is left absolute' in processing.notes[0]


@pytest.mark.parametrize(('side', 'step'), [
    ('pre', 'relative_actions_processor'), ('post', 'absolute_actions_processor')
])
def test_relative_actions_on_one_side_only_are_refused(copy, side, step):
    folder = copy()
    folder.step(side, step, enabled=True)
    refused(folder, 'absolute_actions_processor.enabled: got (True|False), expected (True|False)')


def test_relative_actions_need_a_state_that_is_wide_enough(copy):
    folder = relative(copy())
    folder.json('config.json', lambda c: c['input_features']['observation.state'].update(
        shape=[6]))
    folder.statistics(lambda t: t.update({n: v[:6] for n, v in t.items() if 'state' in n}))
    refused(folder, 'got a state of 6 columns, expected at least the 7')


@pytest.fixture(name='older')
def older_fixture(copy):
    """Return a folder without processors, its statistics among the weights."""

    def older(
        family='pi0', inputs='normalize_inputs.buffer_', outputs='unnormalize_outputs.buffer_'
    ):
        folder = copy(family)
        stats = {}
        folder.statistics(stats.update, sides=('pre',))
        for file in folder.path.glob('policy_*'):
            file.unlink()
        kept = {f'{inputs}observation_state.{n}': stats[f'observation.state.{n}']
                for n in ('mean', 'std')}
        kept |= {f'{outputs}action.{n}': stats[f'action.{n}'] for n in ('mean', 'std')}
        folder.tensors('model.safetensors', lambda t: t.update(kept))
        return folder

    return older


@pytest.mark.parametrize(('inputs', 'outputs'), [
    ('normalize_inputs.buffer_', 'unnormalize_outputs.buffer_'),
    ('normalize_inputs.', 'unnormalize_outputs.'),
    ('normalize.', 'unnormalize.'), ('input_normalizer.', 'output_normalizer.'),
    ('normalize_inputs.buffer_', 'normalize_targets.buffer_'),
    ('model.normalize_inputs.buffer_', 'model.unnormalize_outputs.buffer_'),
])
@pytest.mark.parametrize('family', ['pi0', 'smolvla'])
def test_statistics_among_the_weights_equal_those_of_processors(
    parity, older, family, inputs, outputs
):
    processing = older(family, inputs, outputs).processing()
    data = np.load(parity / family / 'all_cameras.npz')
    got = processing.state(data['raw_state']).numpy()[:, :7]
    np.testing.assert_allclose(got, data['normalized_state'], atol=1e-6)
    got = processing.actions(data['actions'], data['raw_state']).numpy()
    np.testing.assert_allclose(got, data['actions_unnormalized'], atol=1e-6)
    assert 'of an older exporter' in processing.notes[0]


def test_statistics_that_were_never_set_are_named(older):
    folder = older()
    name = 'normalize_inputs.buffer_observation_state.mean'
    folder.tensors('model.safetensors', lambda t: t[name].fill_(float('inf')))
    text = refused(folder, r'observation\.state\.mean of column 0: got inf')
    assert 'model.safetensors' in text


def test_a_statistic_that_is_missing_among_the_weights_is_named(older):
    folder = older()
    folder.tensors('model.safetensors', lambda t: t.pop('unnormalize_outputs.buffer_action.std'))
    refused(folder, r'model\.safetensors action\.std: got none')


def test_buffers_that_disagree_are_named(older):
    folder = older()
    folder.tensors('model.safetensors', lambda t: t.update(
        {'normalize_targets.buffer_action.mean': torch.zeros(7)}))
    refused(folder, r'action\.mean: got other values')


def test_a_folder_without_any_statistics_is_named(older):
    folder = older()

    def edit(tensors):
        for name in [n for n in tensors if 'normalize' in n]:
            del tensors[name]

    folder.tensors('model.safetensors', edit)
    refused(folder, r'policy_preprocessor\.json: got no file')


def test_processors_win_over_buffers(copy):
    folder = copy()
    folder.tensors('model.safetensors', lambda t: t.update(
        {'normalize_inputs.buffer_observation_state.mean': torch.full((7,), float('inf'))}))
    folder.processing()


def test_relative_actions_of_an_older_folder_are_refused(older):
    folder = older()
    folder.json('config.json', lambda c: c.update(use_relative_actions=True))
    refused(folder, r'policy_preprocessor\.json: got no file, expected the processor of relative')


def test_a_tokenizer_in_the_folder_that_the_step_names_is_found(copy):
    folder = copy()
    (folder.path / 'tokenizer').rename(folder.path / 'words')
    refused(folder, 'got no tokenizer in')
    folder.step('pre', 'tokenizer_processor', tokenizer_name='words')
    assert folder.processing().tokenizer.file.parent.name == 'words'
    folder.step('pre', 'tokenizer_processor', tokenizer_name='some/registry-name')
    refused(folder, 'got no tokenizer in')


def test_names_of_actions_are_not_those_of_a_state_of_another_width(copy):
    folder = copy()
    folder.json('config.json', lambda c: c['input_features']['observation.state'].update(
        shape=[6]))
    folder.json('config.json', lambda c: c.update(action_feature_names=NAMES))
    folder.statistics(lambda t: t.update({n: v[:6] for n, v in t.items() if 'state' in n}))
    processing = folder.processing()
    assert processing.column(2) == 'column 2'
    assert processing.normalised_state(STATE[:, :6]).shape == (1, 6)


@pytest.mark.parametrize('content', ['x', -1, [None]])
@pytest.mark.parametrize('step', ['normalizer_processor', 'relative_actions_processor'])
def test_a_step_whose_configuration_is_no_object_is_named(copy, step, content):
    folder = copy()

    def edit(saved):
        for at in saved['steps']:
            if at['registry_name'] == step:
                at['config'] = content

    folder.json('policy_preprocessor.json', edit)
    refused(folder, r'policy_preprocessor\.json .*config: got .*, expected an object')
