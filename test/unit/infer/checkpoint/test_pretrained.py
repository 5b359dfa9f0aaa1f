"""A checkpoint opens completely, or an error names what is wrong with it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from reflex_ros.core.errors import ConfigError, ModelError
from reflex_ros.infer.checkpoint import manifest
from reflex_ros.infer.checkpoint.pretrained import open_pretrained
from reflex_ros.infer.checkpoint.remap import TABLE
from reflex_ros.infer.processing.robot import JOINTS, RobotMap

FAMILIES = ('pi0', 'pi05', 'smolvla')
WEIGHTS = 'model.safetensors'
Q = 'model.paligemma_with_expert.paligemma.model.language_model.layers.1.self_attn.q_proj.weight'
SMOL_Q = 'model.vlm_with_expert.vlm.model.text_model.layers.1.self_attn.q_proj.weight'


def query_of(family):
    return SMOL_Q if family == 'smolvla' else Q


def canonical(name):
    return name.removeprefix('model.')


def refused(folder, pattern, **options):
    with pytest.raises(ModelError, match=pattern) as caught:
        open_pretrained(folder.path, **options)
    return str(caught.value)


def same_weights(one, other):
    assert set(one.weights) == set(other.weights)
    return all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)


@pytest.mark.parametrize('family', FAMILIES)
def test_a_complete_folder_opens(parity, family):
    opened = open_pretrained(parity / family / 'checkpoint')
    assert (opened.family, opened.config.family, opened.notes) == (family, family, ())
    assert len(opened.config.cameras) == 3
    stored = load_file(parity / family / 'checkpoint' / WEIGHTS)
    for name, value in opened.weights.items():
        assert torch.equal(value, stored[f'model.{name}'])


@pytest.mark.parametrize('family', FAMILIES)
def test_every_file_that_matters_is_hashed_and_nothing_else(copy, family):
    folder = copy(family)
    before = open_pretrained(folder.path)
    (folder.path / 'README.md').write_text('extra')
    (folder.path / 'meta.json').write_text('{}')
    assert open_pretrained(folder.path).model_id == before.model_id
    names = {'config.json', WEIGHTS, 'sizes.json', 'tokenizer/tokenizer.json'}
    assert names < set(before.hashes)
    assert sum('processor' in name for name in before.hashes) == 4
    for name in before.hashes:
        content = (folder.path / name).read_bytes()
        assert before.hashes[name] == manifest.hash_file(folder.path / name)
        if name.endswith('.json'):
            (folder.path / name).write_bytes(content + b'\n')
            assert open_pretrained(folder.path).model_id != before.model_id, name
            (folder.path / name).write_bytes(content)


@pytest.mark.parametrize('family', FAMILIES)
def test_a_renamed_tensor_is_missing_and_extra(copy, family):
    folder, name = copy(family), query_of(family)
    folder.tensors(lambda t: t.update({f'{name}s': t.pop(name)}))
    text = refused(folder, '1 missing, 1 extra and 0 mis-shaped')
    assert f'Missing: {canonical(name)} [' in text
    assert f'Extra: {canonical(name)}s [' in text


@pytest.mark.parametrize('family', FAMILIES)
def test_every_single_tensor_is_needed(parity, copy, family):
    folder = copy(family)
    stored = load_file(folder.path / WEIGHTS)
    needed = set(open_pretrained(parity / family / 'checkpoint').weights) - {TABLE}
    for name in sorted(needed)[::7]:
        folder.tensors(lambda t, name=name: {k: v for k, v in stored.items() if name not in k})
        refused(folder, rf'Missing: {re.escape(name)} \[')


@pytest.mark.parametrize('family', FAMILIES)
def test_a_wrong_shape_is_named_with_both_shapes(copy, family):
    folder, name = copy(family), query_of(family)
    folder.tensors(lambda t: t.update({name: t[name][:-1]}))
    text = refused(folder, '0 missing, 0 extra and 1 mis-shaped')
    rows, columns = load_file(folder.path / WEIGHTS)[name].shape
    assert f'{canonical(name)}: got [{rows}, {columns}], expected [{rows + 1}, {columns}]' in text


def test_a_table_with_too_few_rows_is_named(copy):
    folder = copy()
    folder.tensors(lambda t: t.update({f'model.{TABLE}': t[f'model.{TABLE}'][:500]}))
    refused(folder, rf'{re.escape(TABLE)}: got \[500, 64\], expected \[512, 64\]')


@pytest.mark.parametrize('bad', [float('nan'), float('inf')])
@pytest.mark.parametrize('family', FAMILIES)
def test_one_number_that_is_not_finite_is_named(copy, family, bad):
    folder, name = copy(family), query_of(family)
    folder.tensors(lambda t: t[name][3].__setitem__(5, bad))
    refused(folder, rf'tensor {re.escape(canonical(name))}: got 1 of \d+ values')


def test_weights_that_are_not_used_are_not_read(copy):
    folder = copy()
    name = 'model.paligemma_with_expert.gemma_expert.lm_head.weight'
    folder.tensors(lambda t: t[name].fill_(float('nan')))
    assert canonical(name) not in open_pretrained(folder.path).weights


def test_a_tensor_of_whole_numbers_is_named(copy):
    folder = copy()
    folder.tensors(lambda t: t.update({Q: t[Q].to(torch.int32)}))
    refused(folder, rf'tensor {re.escape(Q)}: got type I32')


@pytest.mark.parametrize('length', [0, 7, 1000, 500_000, -1])
@pytest.mark.parametrize('file', ['weights', 'statistics'])
def test_a_truncated_file_is_named(copy, file, length):
    folder = copy()
    path = folder.path / WEIGHTS
    if file == 'statistics':
        path = next(folder.path.glob('policy_pre*.safetensors'))
    path.write_bytes(path.read_bytes()[:length])
    if file == 'statistics' and length == 500_000:
        open_pretrained(folder.path)
    else:
        refused(folder, re.escape(path.name))


@pytest.mark.parametrize('name', [
    WEIGHTS, 'policy_preprocessor.json', 'policy_postprocessor.json', 'tokenizer/tokenizer.json',
])  # fmt: skip
def test_a_missing_file_is_named(copy, name):
    folder = copy()
    (folder.path / name).unlink()
    refused(folder, re.escape(name))


@pytest.mark.parametrize(('family', 'side', 'name'), [
    ('pi0', 'pre', 'observation.state.mean'), ('pi0', 'post', 'action.std'),
    ('pi05', 'pre', 'observation.state.q01'), ('pi05', 'post', 'action.q99'),
    ('smolvla', 'pre', 'observation.state.std'), ('smolvla', 'post', 'action.mean'),
])  # fmt: skip
def test_one_missing_statistic_is_named(copy, family, side, name):
    folder = copy(family)
    folder.statistics(side, lambda t: {k: v for k, v in t.items() if k != name})
    text = refused(folder, rf'{side}processor.*{name}: got none')
    assert 'expected 7 numbers' in text


@pytest.mark.parametrize('bias', ['lora_A', 'lora_B'])
def test_tensors_of_an_adapter_are_named(copy, bias):
    folder = copy()
    folder.tensors(lambda t: t.update({f'base_model.x.{bias}.weight': torch.zeros(2, 2)}))
    refused(folder, rf'Extra: base_model\.x\.{bias}\.weight \[2, 2\]')


def test_memory_layers_are_named(copy):
    folder = copy('pi05')
    folder.tensors(lambda t: t.update({'model.proprio_history_proj.bias': torch.zeros(64)}))
    refused(folder, r'Extra: proprio_history_proj\.bias \[64\]')


def without_prefix(tensors):
    return {canonical(name): value for name, value in tensors.items()}


def head_only(tensors):
    return {name: value for name, value in tensors.items() if 'embed_tokens' not in name}


def transformers_4_51(tensors):
    pairs = (('paligemma.model.language_model.', 'paligemma.language_model.model.'),
             ('paligemma.lm_head', 'paligemma.language_model.lm_head'),
             ('paligemma.model.vision_tower.', 'paligemma.vision_tower.'),
             ('paligemma.model.multi_modal_projector.', 'paligemma.multi_modal_projector.'))
    renamed = {}
    for name, value in tensors.items():
        for new, old in pairs:
            name = name.replace(new, old)
        renamed[name] = value
    return renamed


def other_family_times(tensors):
    is_pi05 = 'model.time_mlp_in.weight' in tensors
    old, new = ('time_mlp_', 'action_time_mlp_') if is_pi05 else ('action_time_mlp_', 'time_mlp_')
    return {name.replace(f'.{old}', f'.{new}'): value for name, value in tensors.items()}


def strays(tensors):
    at = 'model.paligemma_with_expert.gemma_expert.model.norm.weight'
    more = {'model.state_proj.bias': torch.ones(32), at: torch.ones(32)}
    return tensors | (more if 'model.time_mlp_in.weight' in tensors else {})


@pytest.mark.parametrize('family', ['pi0', 'pi05'])
@pytest.mark.parametrize('layouts', [
    (without_prefix,), (head_only,), (transformers_4_51,), (other_family_times,), (strays,),
    (head_only, transformers_4_51, without_prefix),
], ids=lambda layouts: '+'.join(layout.__name__ for layout in layouts))  # fmt: skip
def test_every_key_layout_gives_the_same_weights(parity, copy, family, layouts):
    folder = copy(family)
    # The parity file stores a table and a head of different numbers; an exporter ties them.
    head = 'model.paligemma_with_expert.paligemma.lm_head.weight'
    folder.tensors(lambda t: t.update({head: t[f'model.{TABLE}']}))
    for layout in layouts:
        folder.tensors(layout)
    assert same_weights(open_pretrained(folder.path),
                        open_pretrained(parity / family / 'checkpoint'))


def test_a_tied_table_that_is_missing_altogether_is_named(copy):
    folder = copy()
    folder.tensors(head_only)
    folder.tensors(lambda t: {k: v for k, v in t.items() if 'paligemma.lm_head' not in k})
    refused(folder, rf'Missing: {re.escape(TABLE)} \[512, 64\]')


def test_shards_give_the_same_weights(parity, copy):
    folder = copy()
    tensors = load_file(folder.path / WEIGHTS)
    homes = {name: f'model-0000{1 + i % 2}-of-00002.safetensors' for i, name in enumerate(tensors)}
    for shard in set(homes.values()):
        save_file({n: v for n, v in tensors.items() if homes[n] == shard}, folder.path / shard)
    (folder.path / WEIGHTS).unlink()
    index = folder.path / f'{WEIGHTS}.index.json'
    index.write_text(json.dumps({'weight_map': homes}))
    opened = open_pretrained(folder.path)
    assert same_weights(opened, open_pretrained(parity / 'pi0' / 'checkpoint'))
    assert {index.name, *homes.values()} < set(opened.hashes)
    first = 'model-00001-of-00002.safetensors'
    index.write_text(json.dumps({'weight_map': homes | {'more': first}}))
    refused(folder, 'tensor more: got none')
    index.write_text(json.dumps({'weight_map': homes | {'more': '../model.safetensors'}}))
    refused(folder, 'a file outside the folder')
    (folder.path / 'model-00002-of-00002.safetensors').unlink()
    index.write_text(json.dumps({'weight_map': homes}))
    refused(folder, 'model-00002-of-00002')


def test_weights_are_mapped_from_the_file_and_not_copied(copy):
    folder = copy()
    opened = open_pretrained(folder.path)
    maps = Path('/proc/self/maps')
    if not maps.is_file():
        pytest.skip('needs /proc')
    spans = [line.split()[0].split('-') for line in maps.read_text().splitlines()
             if line.endswith(str(folder.path / WEIGHTS))]
    spans = [(int(low, 16), int(high, 16)) for low, high in spans]
    for name, value in opened.weights.items():
        assert any(low <= value.data_ptr() < high for low, high in spans), name


def test_weights_keep_their_stored_type(copy):
    folder = copy()
    folder.tensors(lambda t: t.update({Q: t[Q].to(torch.bfloat16)}))
    assert open_pretrained(folder.path).weights[canonical(Q)].dtype == torch.bfloat16


@pytest.mark.parametrize('target', [WEIGHTS, 'tokenizer/tokenizer_config.json', 'README.md'])
def test_a_change_behind_the_back_of_the_manifest_is_named(copy, target):
    folder = copy()
    (folder.path / 'README.md').write_text('mine')
    manifest.write_manifest(folder.path)
    open_pretrained(folder.path)
    if target == WEIGHTS:
        folder.tensors(lambda t: t[Q].mul_(2))
    else:
        (folder.path / target).write_text('{}')
    refused(folder, rf'{re.escape(target)}: got sha256 \w+, expected \w+ \(manifest\.json\)')


def test_a_file_that_the_manifest_lacks_or_has_alone_is_named(copy):
    folder = copy()
    manifest.write_manifest(folder.path)
    folder.json('manifest.json', lambda c: c['sha256'].pop('sizes.json') and None)
    refused(folder, r'sizes\.json: got sha256 \w+, expected no such file')
    folder.json('manifest.json', lambda c: c['sha256'].update({'gone': 'a'}))
    refused(folder, r'gone: got sha256 no file|sizes\.json')
    (folder.path / 'manifest.json').write_text('{"files": 3}')
    refused(folder, r'manifest\.json: got no sha256')


@pytest.mark.parametrize(('family', 'other'), [('pi0', 'smolvla'), ('smolvla', 'pi05')])
def test_the_tokenizer_of_another_family_is_refused(parity, copy, family, other):
    folder = copy(family)
    shutil.copytree(parity / other / 'checkpoint' / 'tokenizer', folder.path / 'tokenizer',
                    dirs_exist_ok=True)
    refused(folder, r'tokenizer\.json: got texts that .*<bos>')


@pytest.mark.parametrize('family', FAMILIES)
def test_a_configuration_of_another_family_is_refused(copy, family):
    folder = copy(family)
    other = FAMILIES[(FAMILIES.index(family) + 1) % 3]
    folder.json('config.json', lambda c: c.update(type=other))
    refused(folder, 'missing|incomplete|expected')


def test_nothing_is_loaded_over_a_network(parity, monkeypatch):
    import socket

    def refuse(*_args, **_kwargs):
        raise AssertionError('a socket was opened')

    monkeypatch.setattr(socket, 'socket', refuse)
    monkeypatch.setattr(socket, 'create_connection', refuse)
    for family in FAMILIES:
        open_pretrained(parity / family / 'checkpoint')


ROBOT = RobotMap(joint_unit='rad', gripper_unit='m',
                 joint_names=JOINTS)


def piper_statistics(tensors):
    """Statistics of a PiPer in radians and metres."""
    for feature in ('observation.state', 'action'):
        tensors[f'{feature}.mean'] = torch.tensor([0.0, 1.5, -1.5, 0.0, 0.0, 0.0, 0.035])
        tensors[f'{feature}.std'] = torch.tensor([0.4] * 6 + [0.01])


@pytest.fixture(name='piper')
def piper_fixture(copy):
    folder = copy()
    folder.statistics('pre', piper_statistics)
    folder.statistics('post', piper_statistics)
    return folder


def test_a_robot_is_bound_on_opening(piper):
    binding = open_pretrained(piper.path, robot=ROBOT).binding
    assert binding.from_arm(range(7)).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert open_pretrained(piper.path).binding is None


def test_columns_in_another_order_are_bound_by_name_and_noted(piper):
    names = ['gripper.pos', *(f'joint_{i}.pos' for i in range(1, 7))]
    piper.json('config.json', lambda c: c.update(action_feature_names=names))
    turned = RobotMap(joint_unit='rad', gripper_unit='m')
    for side in ('pre', 'post'):
        piper.statistics(side, lambda t: {k: v.roll(1) for k, v in t.items()})
    opened = open_pretrained(piper.path, robot=turned)
    assert opened.binding.from_arm(range(7)).tolist() == [6, 0, 1, 2, 3, 4, 5]
    assert 'gripper.pos to gripper' in opened.notes[0]


def test_permuted_joints_are_named(piper):
    names = [f'joint{i}' for i in (2, 1, 3, 4, 5, 6)] + ['gripper']
    piper.json('config.json', lambda c: c.update(action_feature_names=names))
    with pytest.raises(ConfigError, match='column 0: got joint1, expected joint2'):
        open_pretrained(piper.path, robot=ROBOT)


def test_degrees_for_radians_are_named(piper):
    def degrees(tensors):
        for name in ('observation.state.mean', 'observation.state.std'):
            tensors[name][:6] *= 57.3

    piper.statistics('pre', degrees)
    text = refused(piper, r'state joint2: got a usual range of 17\.19 to 154\.7', robot=ROBOT)
    assert 'it looks like deg' in text


def test_an_unknown_state_text_is_named(parity):
    with pytest.raises(ConfigError, match="got 'both', expected one of real, padded"):
        open_pretrained(parity / 'pi05' / 'checkpoint', state_text='both')
