"""The configuration is lenient to what is absent and strict to nonsense."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import read_pretrained_config

FAMILIES = ('pi0', 'pi05', 'smolvla')
KEPT = ('type', 'input_features', 'output_features')


def keep_only(content):
    return {name: content[name] for name in KEPT}


@pytest.mark.parametrize(('family', 'tokens', 'image', 'state_mode'), [
    ('pi0', 48, (224, 224), 'MEAN_STD'),
    ('pi05', 200, (224, 224), 'QUANTILES'),
    ('smolvla', 48, (512, 512), 'MEAN_STD'),
])
def test_absent_fields_have_the_defaults_of_the_family(copy, family, tokens, image, state_mode):
    folder = copy(family)
    folder.json('config.json', keep_only)
    config = read_pretrained_config(folder.path)
    assert (config.family, config.tokenizer_max_length, config.image_wh) == (family, tokens, image)
    assert config.norm_map['STATE'] == state_mode
    assert (config.chunk_size, config.n_action_steps, config.num_steps) == (50, 50, 10)
    assert (config.max_state_dim, config.max_action_dim, config.empty_cameras) == (32, 32, 0)
    assert (config.min_period, config.max_period, config.dtype) == (4e-3, 4.0, '')


@pytest.mark.parametrize('family', FAMILIES)
def test_fields_of_the_file_win_over_defaults(copy, family):
    folder = copy(family)
    steps = 'num_steps' if family == 'smolvla' else 'num_inference_steps'
    folder.json('config.json', lambda c: c.update({steps: 4, 'n_action_steps': 3}))
    config = read_pretrained_config(folder.path)
    assert (config.chunk_size, config.n_action_steps, config.num_steps) == (10, 3, 4)
    assert (config.state_dim, config.action_dim) == (7, 7)


def test_cameras_keep_the_order_of_the_file_and_lose_their_prefix(copy):
    folder = copy()
    camera = {'type': 'VISUAL', 'shape': [3, 8, 8]}
    folder.json('config.json', lambda c: c.update(input_features={
        'observation.images.wrist': camera,
        'observation.state': {'type': 'STATE', 'shape': [6]},
        'observation.images.base': camera,
        'observation.image': camera,
    }))
    config = read_pretrained_config(folder.path)
    assert config.cameras == ('wrist', 'base', 'image')
    assert config.camera_keys[0] == 'observation.images.wrist'
    assert config.state_dim == 6


def test_names_of_older_exporters_are_read(copy):
    folder = copy()
    folder.json('config.json', lambda c: keep_only(c) | {
        'num_steps': 7, 'resize_imgs_with_padding': [56, 56]
    })
    config = read_pretrained_config(folder.path)
    assert (config.num_steps, config.image_wh) == (7, (56, 56))
    assert 'padded centred' in config.notes[0]


def test_images_of_smolvla_may_stay_as_they_are(copy):
    folder = copy('smolvla')
    folder.json('config.json', lambda c: c.update(resize_imgs_with_padding=None))
    assert read_pretrained_config(folder.path).image_wh is None


@pytest.mark.parametrize('place', ['config', 'processor'])
def test_joint_names_come_from_the_configuration_or_the_processor(copy, place):
    folder, names = copy(), [f'j{i}' for i in range(7)]
    if place == 'config':
        folder.json('config.json', lambda c: c.update(action_feature_names=names))
    else:
        folder.json('policy_preprocessor.json', lambda c: c['steps'][5]['config'].update(
            action_names=names))
    assert read_pretrained_config(folder.path).joint_names == tuple(names)


@pytest.mark.parametrize('family', FAMILIES)
def test_rows_trained_as_committed_are_known_where_the_norms_can_take_them(copy, family):
    folder = copy(family)
    folder.json('config.json', lambda c: c.update(rtc_training_max_delay=4))
    if family == 'pi05':
        assert read_pretrained_config(folder.path).trained_delay == 4
        return
    with pytest.raises(ModelError, match='rtc_training_max_delay: got 4, expected 0'):
        read_pretrained_config(folder.path)


@pytest.mark.parametrize(('name', 'value', 'expected'), [
    ('use_peft', True, 'False'),
    ('use_visual_memory', True, 'False'),
    ('use_proprioceptive_memory', True, 'False'),
    ('attention_mode', 'self_attn', "'cross_attn'"),
    ('adapt_to_pi_aloha', True, 'False'),
    ('use_delta_joint_actions_aloha', True, 'False'),
    ('add_image_special_tokens', True, 'False'),
    ('n_obs_steps', 2, '1'),
])
@pytest.mark.parametrize('family', FAMILIES)
def test_what_is_not_supported_is_refused_by_name(copy, family, name, value, expected):
    folder = copy(family)
    folder.json('config.json', lambda c: c.update({name: value}))
    with pytest.raises(ModelError, match=f'{name}: got {value!r}, expected {expected}'):
        read_pretrained_config(folder.path)


@pytest.mark.parametrize(('name', 'value', 'expected'), [
    ('chunk_size', 0, 'at least 1'),
    ('chunk_size', '50', 'a whole number'),
    ('chunk_size', True, 'a whole number'),
    ('num_inference_steps', 0, 'at least 1'),
    ('tokenizer_max_length', -1, 'at least 1'),
    ('min_period', 0.0, 'a positive number'),
    ('max_period', float('nan'), 'a positive number'),
    ('use_relative_actions', 'yes', 'true or false'),
    ('dtype', 'float16', 'one of float32, bfloat16'),
    ('image_resolution', [224], 'two positive whole numbers'),
    ('image_resolution', [224, 0], 'two positive whole numbers'),
    ('relative_exclude_joints', 'gripper', 'a list of strings'),
    ('normalization_mapping', [], 'an object'),
    ('input_features', {'a': 3}, 'an object as a'),
    ('input_features', {'a': {'type': 'VISUAL', 'shape': []}}, 'a shape of positive'),
    ('n_action_steps', 11, 'at most chunk_size 10'),
    ('max_state_dim', 6, 'at most max_state_dim 6'),
    ('max_action_dim', 6, 'at most max_action_dim 6'),
    ('min_period', 5.0, 'at most max_period'),
    ('input_features', {}, 'at least one camera'),
    ('action_feature_names', ['a'], 'expected 7'),
    ('chunk_size', 10**9, 'chunk_size: got 1000000000, expected at most 4096'),
    ('num_inference_steps', 10**9, 'expected at most 1000'),
    ('prefix_length', 10**12, 'expected at most 65536'),
    ('tokenizer_max_length', 10**9, 'expected at most 65536'),
    ('num_vlm_layers', 10**9, 'expected at most 1000'),
    ('empty_cameras', 10**9, 'expected at most 1048576'),
])
def test_nonsense_is_refused_by_name(copy, name, value, expected):
    folder = copy()
    folder.json('config.json', lambda c: c.update({name: value}))
    with pytest.raises(ModelError, match=expected) as caught:
        read_pretrained_config(folder.path)
    assert 'got' in str(caught.value)


def test_an_unknown_mode_of_normalisation_is_named(copy):
    folder = copy()
    folder.json('config.json', lambda c: c['normalization_mapping'].update(STATE='ZSCORE'))
    with pytest.raises(ModelError, match=r'normalization_mapping\.STATE: got \'ZSCORE\''):
        read_pretrained_config(folder.path)


@pytest.mark.parametrize('kind', ['act', None])
def test_an_unknown_type_is_named(copy, kind):
    folder = copy()
    folder.json('config.json', lambda c: c.update(type=kind))
    with pytest.raises(ModelError, match=f'type: got {kind!r}, expected one of pi0, pi05'):
        read_pretrained_config(folder.path)


@pytest.mark.parametrize('name', [
    'pytorch_model.bin', 'deep/er/model.pt', 'a.pth', 'state.pkl', 'a.ckpt', 'A.PKL',
    'model.pth.tar', 'a.pkl.gz', 'x.joblib', 'x.dill',
])
def test_a_pickle_file_anywhere_is_refused_by_name(copy, name):
    folder = copy()
    (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
    (folder.path / name).write_bytes(b'')
    with pytest.raises(ModelError, match=f'file {name}: got a pickle file'):
        read_pretrained_config(folder.path)


OBJECTS = np.array([{}], dtype=object)


@pytest.mark.parametrize('name', ['a.npy', 'deep/a.NPY', 'a.npz', 'deep/a.NPZ'])
@pytest.mark.parametrize('values', [OBJECTS, np.zeros(2, [('a', 'f4'), ('b', 'O')])])
def test_an_array_file_with_objects_is_refused_as_a_pickle(copy, name, values):
    folder = copy()
    save_arrays(folder.path / name, np.zeros(3), values)
    with pytest.raises(ModelError, match=f'file {name}: got a pickle file'):
        read_pretrained_config(folder.path)


@pytest.mark.parametrize('name', ['a.npy', 'a.npz'])
@pytest.mark.parametrize('content', [
    b'', b'\x80\x04}.', b'PK\x03\x04', b'\x93NUMPY\x07\x00', b'\x93NUMPY\x01\x00\x04\x00((((',
])
def test_an_array_file_without_a_readable_header_is_refused(copy, name, content):
    folder = copy()
    (folder.path / name).write_bytes(content)
    with pytest.raises(ModelError, match=f'file {name}: got a pickle file'):
        read_pretrained_config(folder.path)


@pytest.mark.parametrize('name', ['a.npy', 'deep/a.npz'])
def test_plain_arrays_are_no_pickles_can_fail(copy, name):
    folder = copy()
    save_arrays(folder.path / name, np.array(['text']), np.zeros((200, 200), np.float32))
    (folder.path / 'folder.npy').mkdir()
    read_pretrained_config(folder.path)


def save_arrays(path, *arrays):
    """Write all arrays as .npz, or the last as .npy; the ending is kept as it is."""
    path.parent.mkdir(exist_ok=True)
    with path.open('wb') as file:
        if path.suffix.lower() == '.npz':
            np.savez_compressed(file, *arrays)
        else:
            np.save(file, arrays[-1])


@pytest.mark.parametrize('name', ['adapter_config.json', 'adapter_model.safetensors'])
def test_an_adapter_is_refused_by_name(copy, name):
    folder = copy()
    (folder.path / name).write_text('{}')
    with pytest.raises(ModelError, match=f'file {name}: got an adapter'):
        read_pretrained_config(folder.path)


@pytest.mark.parametrize(('text', 'got'), [
    ('{', 'Expecting'), ('[]', 'got list'), ('[' * 100_000, 'recursion'),
])
def test_a_damaged_file_is_named(copy, text, got):
    folder = copy()
    (folder.path / 'config.json').write_text(text)
    with pytest.raises(ModelError, match=rf'config\.json: .*{got}'):
        read_pretrained_config(folder.path)


def test_a_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(ModelError, match='nowhere: got no folder'):
        read_pretrained_config(tmp_path / 'nowhere')


def test_a_folder_without_configuration_is_named(tmp_path):
    with pytest.raises(ModelError, match=r'config\.json: got .*No such file'):
        read_pretrained_config(tmp_path)


@pytest.mark.parametrize(('saved', 'message'), [
    (['b', 'a', 'c', 'd', 'e', 'f', 'g'], 'action_feature_names 0: got a, expected b'),
    (['a', 'b'], 'action_feature_names 2: got c, expected no name'),
])
def test_names_of_two_minds_are_named(copy, saved, message):
    folder = copy()
    folder.json('config.json', lambda c: c.update(action_feature_names=list('abcdefg')))
    folder.json('policy_preprocessor.json', lambda c: c['steps'][5]['config'].update(
        action_names=saved))
    with pytest.raises(ModelError, match=message):
        read_pretrained_config(folder.path)
