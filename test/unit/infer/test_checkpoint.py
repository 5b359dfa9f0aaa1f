"""A checkpoint is loaded completely or not at all."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint import manifest
from reflex_ros.infer.families.tiny import TinyPolicy

WEIGHTS = 'model.safetensors'
POST = 'policy_postprocessor_step_0_unnormalizer_processor.safetensors'


@pytest.fixture(name='folder')
def folder_fixture(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / 'copy')


def change(file, edit):
    """Edit the tensors of a file and record the new hashes, as a careless exporter would."""
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file)
    manifest.write_manifest(file.parent)


def test_a_complete_folder_loads(folder):
    assert TinyPolicy.load(folder).spec.family == 'tiny'


def test_a_missing_tensor_is_named(folder):
    change(folder / WEIGHTS, lambda t: t.pop('expert.1.mlp.up.weight'))
    with pytest.raises(ModelError, match=r'tensor expert\.1\.mlp\.up\.weight: got none'):
        TinyPolicy.load(folder)


def test_an_unknown_tensor_is_named(folder):
    change(folder / WEIGHTS, lambda t: t.update(age=torch.zeros(4)))
    with pytest.raises(ModelError, match='tensor age: got 1 unknown'):
        TinyPolicy.load(folder)


def test_a_wrong_shape_is_named_with_both_shapes(folder):
    change(folder / WEIGHTS, lambda t: t.update(place=torch.zeros(2, 3)))
    with pytest.raises(ModelError, match=r'tensor place: got shape \[2, 3\], expected \[3, 12\]'):
        TinyPolicy.load(folder)


@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_named(folder, bad):
    change(folder / WEIGHTS, lambda t: t['norm.gate_in.bias'].__setitem__(0, bad))
    with pytest.raises(ModelError, match=r'norm\.gate_in\.bias: got 1 of 8 values'):
        TinyPolicy.load(folder)


def test_a_flipped_bit_is_found_by_its_hash(folder):
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (folder / WEIGHTS).write_bytes(data)
    with pytest.raises(ModelError, match=r'is damaged .*model\.safetensors: got sha256'):
        TinyPolicy.load(folder)


@pytest.mark.parametrize('name', [
    'config.json', WEIGHTS, 'tokenizer/tokenizer.json', 'policy_preprocessor.json', POST,
    manifest.MANIFEST,
])  # fmt: skip
@pytest.mark.parametrize('is_recorded', [False, True])
def test_a_missing_file_is_named(folder, name, is_recorded):
    (folder / name).unlink()
    if is_recorded and name != manifest.MANIFEST:
        manifest.write_manifest(folder)
    with pytest.raises(ModelError, match=name.split('/')[-1].replace('.', r'\.')):
        TinyPolicy.load(folder)


def test_an_added_file_is_refused(folder):
    (folder / 'extra.bin').write_bytes(b'x')
    with pytest.raises(ModelError, match=r'extra\.bin'):
        TinyPolicy.load(folder)


def test_a_missing_statistic_is_named(folder):
    change(folder / POST, lambda t: t.pop('action.std'))
    with pytest.raises(ModelError, match=r'tensor action\.std: got none'):
        TinyPolicy.load(folder)


def test_a_spread_of_zero_is_refused(folder):
    for file in folder.glob('policy_*.safetensors'):
        change(file, lambda t: t['observation.state.std'].zero_())
    with pytest.raises(ModelError, match=r'observation\.state\.std: got a minimum of 0'):
        TinyPolicy.load(folder)


def test_two_processors_that_disagree_are_refused(folder):
    change(folder / POST, lambda t: t['action.mean'].add_(1))
    with pytest.raises(ModelError, match='statistics disagree'):
        TinyPolicy.load(folder)


def test_another_family_is_refused(folder):
    config = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(json.dumps({**config, 'type': 'pi0'}))
    with pytest.raises(ModelError, match="got 'pi0', expected 'tiny'"):
        TinyPolicy.load(folder)


def test_a_state_file_outside_the_folder_is_refused(folder):
    file = folder / 'policy_postprocessor.json'
    file.write_text(file.read_text().replace('"policy_post', '"../policy_post'))
    manifest.write_manifest(folder)
    with pytest.raises(ModelError, match='expected one file name'):
        TinyPolicy.load(folder)


def test_equal_folders_have_equal_ids_and_other_weights_another(folder, tiny_folder):
    assert TinyPolicy.load(folder).spec.model_id == TinyPolicy.load(tiny_folder).spec.model_id
    change(folder / WEIGHTS, lambda t: t['place'].add_(1))
    assert TinyPolicy.load(folder).spec.model_id != TinyPolicy.load(tiny_folder).spec.model_id
