"""What differs from the expected tensors is listed by name, with got and expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import read_pretrained_config
from reflex_ros.infer.checkpoint.expected import SHOWN, check_tensors, expected_tensors
from reflex_ros.infer.checkpoint.remap import canonical_names
from reflex_ros.infer.checkpoint.sizes import infer_sizes

EXPECTED = {f'layers.{i}.weight': (2, 3) for i in range(12)}
FOLDER = Path('checkpoints/mine')


def message(found):
    with pytest.raises(ModelError) as caught:
        check_tensors(FOLDER, found, EXPECTED)
    return str(caught.value)


@pytest.mark.parametrize('family', ['pi0', 'pi05', 'smolvla'])
def test_the_expected_tensors_are_those_of_the_parity_checkpoints(parity, family):
    folder = parity / family / 'checkpoint'
    config = read_pretrained_config(folder)
    with safe_open(folder / 'model.safetensors', 'pt') as file:
        names = canonical_names(file.keys(), family)
        found = {n: tuple(file.get_slice(at).get_shape()) for n, at in names.items()}
    sizes = infer_sizes(found, config, folder)
    assert expected_tensors(family, sizes, config) == found


@pytest.mark.parametrize(('every', 'own'), [(2, (0, 2)), (1, (0, 1, 2, 3)), (3, (0, 3)), (0, ())])
def test_cross_layers_project_the_keys_of_the_text_stack(copy, every, own):
    folder = copy('smolvla')
    config = read_pretrained_config(folder.path)
    with safe_open(folder.path / 'model.safetensors', 'pt') as file:
        names = canonical_names(file.keys(), 'smolvla')
        found = {n: tuple(file.get_slice(at).get_shape()) for n, at in names.items()}
    sizes = infer_sizes(found, config, folder.path)
    folder.json('config.json', lambda c: c.update(self_attn_every_n_layers=every))
    expected = expected_tensors('smolvla', sizes, read_pretrained_config(folder.path))
    for layer in range(4):
        name = f'vlm_with_expert.lm_expert.layers.{layer}.self_attn.k_proj.weight'
        assert expected[name] == ((32, 48) if layer in own else (32, 32))


def test_equal_tensors_pass():
    check_tensors(FOLDER, dict(EXPECTED), EXPECTED)


def test_all_three_kinds_are_listed_with_their_shapes():
    found = dict(EXPECTED) | {'lora': (4,), 'layers.3.weight': (3, 2)}
    del found['layers.5.weight']
    text = message(found)
    assert '1 missing, 1 extra and 1 mis-shaped' in text
    assert 'Missing: layers.5.weight [2, 3].' in text
    assert 'Extra: lora [4].' in text
    assert 'Mis-shaped: layers.3.weight: got [3, 2], expected [2, 3].' in text
    assert str(FOLDER) in text


def test_a_long_list_is_cut_and_counted():
    text = message({})
    assert text.count('layers.') == SHOWN
    assert f'and {len(EXPECTED) - SHOWN} more' in text
    assert '12 missing' in text
