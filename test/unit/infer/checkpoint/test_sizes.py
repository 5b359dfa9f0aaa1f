"""Sizes come from tensors; head counts are declared, known, or refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import read_pretrained_config
from reflex_ros.infer.checkpoint.expected import expected_tensors
from reflex_ros.infer.checkpoint.pretrained import open_pretrained
from reflex_ros.infer.checkpoint.sizes import Sizes, infer_sizes

FULL_PI = Sizes(
    vlm_width=2048, vlm_mlp=16384, expert_width=1024, expert_mlp=4096, depth=18, expert_depth=18,
    heads=8, kv_heads=1, head_dim=256, vision_width=1152, vision_mlp=4304, vision_depth=27,
    vision_heads=16, patch=14, image=224, scale_factor=1, vocab=257152,
)  # fmt: skip
FULL_SMOLVLA = Sizes(
    vlm_width=960, vlm_mlp=2560, expert_width=720, expert_mlp=2048, depth=16, expert_depth=16,
    heads=15, kv_heads=5, head_dim=64, vision_width=768, vision_mlp=3072, vision_depth=12,
    vision_heads=12, patch=16, image=512, scale_factor=4, vocab=49280,
)  # fmt: skip
OTHER = Sizes(
    vlm_width=48, vlm_mlp=80, expert_width=24, expert_mlp=40, depth=3, expert_depth=3, heads=6,
    kv_heads=3, head_dim=10, vision_width=20, vision_mlp=28, vision_depth=1, vision_heads=4,
    patch=8, image=32, scale_factor=2, vocab=300,
)  # fmt: skip


@pytest.fixture(name='bare')
def bare_fixture(copy):
    """Return (config, folder) of a folder without sizes, with the defaults of the family."""

    def bare(family, **fields):
        folder = copy(family)
        (folder.path / 'sizes.json').unlink()
        (folder.path / 'vlm' / 'config.json').unlink(missing_ok=True)
        image = {'image_resolution': [224, 224], 'resize_imgs_with_padding': [512, 512]}
        folder.json('config.json', lambda c: c.update({'num_vlm_layers': 16} | image | fields))
        return read_pretrained_config(folder.path), folder.path

    return bare


def declare(folder, sizes, family, **changes):
    keys = {'vlm_width': 'width', 'vlm_mlp': 'mlp'} if family == 'smolvla' else {}
    names = [n for n in Sizes.__slots__ if n not in ('expert_depth', 'expert_mlp', 'expert_width')]
    content = {keys.get(name, name): getattr(sizes, name) for name in names} | changes
    (folder / 'sizes.json').write_text(json.dumps(content))


@pytest.mark.parametrize(('family', 'sizes'), [
    ('pi0', FULL_PI), ('pi05', FULL_PI), ('smolvla', FULL_SMOLVLA)
])
def test_full_sizes_need_no_file(bare, family, sizes):
    config, folder = bare(family)
    shapes = expected_tensors(family, sizes, config)
    assert infer_sizes(shapes, config, folder) == sizes


@pytest.mark.parametrize('family', ['pi0', 'pi05', 'smolvla'])
def test_a_variant_name_changes_nothing(bare, family):
    config, folder = bare(family, paligemma_variant='gemma_7b', vlm_model_name='other')
    sizes = FULL_SMOLVLA if family == 'smolvla' else FULL_PI
    assert infer_sizes(expected_tensors(family, sizes, config), config, folder) == sizes


@pytest.mark.parametrize('family', ['pi0', 'pi05', 'smolvla'])
def test_other_sizes_are_read_with_the_head_counts_of_a_file(bare, family):
    image = {'image_resolution': [32, 32], 'resize_imgs_with_padding': [32, 32]}
    config, folder = bare(family, num_vlm_layers=3, self_attn_every_n_layers=3, **image)
    sizes = OTHER if family == 'smolvla' else replace(OTHER, scale_factor=1)
    heads = {n: getattr(sizes, n) for n in ('heads', 'kv_heads', 'head_dim', 'vision_heads')}
    (folder / 'sizes.json').write_text(json.dumps(heads))
    assert infer_sizes(expected_tensors(family, sizes, config), config, folder) == sizes
    declare(folder, sizes, family)
    assert infer_sizes(expected_tensors(family, sizes, config), config, folder) == sizes


def test_images_that_are_not_resized_have_the_size_of_the_position_table(bare):
    config, folder = bare('smolvla', resize_imgs_with_padding=None)
    shapes = expected_tensors('smolvla', FULL_SMOLVLA, config)
    assert infer_sizes(shapes, config, folder).image == 512


@pytest.mark.parametrize('missing', ['heads', 'kv_heads', 'head_dim', 'vision_heads'])
def test_a_head_count_that_is_not_known_is_refused_by_its_key(copy, missing):
    folder = copy()
    folder.json('sizes.json', lambda c: {k: v for k, v in c.items() if k != missing})
    config = read_pretrained_config(folder.path)
    sizes = Sizes(64, 128, 32, 64, 2, 2, 8, 1, 16, 32, 64, 2, 2, 14, 56, 1, 512)
    shapes = expected_tensors('pi0', sizes, config)
    with pytest.raises(ModelError, match=rf'sizes\.json {missing}: got no value'):
        infer_sizes(shapes, config, folder.path)


def test_vision_heads_are_72_wide_at_width_1152_only(bare):
    config, folder = bare('pi0')
    narrow = replace(FULL_PI, vision_width=1024, vision_heads=16)
    with pytest.raises(ModelError, match='vision_heads: got no value.*vision width 1024'):
        infer_sizes(expected_tensors('pi0', narrow, config), config, folder)


def test_smolvla_takes_head_counts_from_the_model_of_its_folder(copy):
    folder = copy('smolvla')
    config = read_pretrained_config(folder.path)
    (folder.path / 'sizes.json').unlink()
    sizes = Sizes(64, 128, 48, 256, 4, 4, 4, 2, 16, 48, 96, 2, 3, 16, 64, 2, 512)
    assert infer_sizes(expected_tensors('smolvla', sizes, config), config, folder.path) == sizes


@pytest.mark.parametrize(('key', 'value', 'expected'), [
    ('vlm_width', 65, '64'), ('vlm_mlp', 1, '128'), ('expert_width', 33, '32'),
    ('expert_mlp', 2, '64'), ('vision_width', 64, '32'), ('vision_mlp', 3, '64'),
    ('depth', 3, '2'), ('heads', 4, '128'), ('kv_heads', 2, '16'),
    ('vision_heads', 5, 'a divisor of 32'),
])  # fmt: skip
def test_a_declared_size_that_the_tensors_contradict_is_named(copy, key, value, expected):
    folder = copy()
    folder.json('sizes.json', lambda c: c.update({key: value}))
    config = read_pretrained_config(folder.path)
    sizes = Sizes(64, 128, 32, 64, 2, 2, 8, 1, 16, 32, 64, 2, 2, 14, 56, 1, 512)
    shapes = expected_tensors('pi0', sizes, config)
    with pytest.raises(ModelError, match=rf'sizes\.json {key}.*expected {expected} \(from'):
        infer_sizes(shapes, config, folder.path)


def test_an_image_size_of_two_minds_is_named(copy):
    folder = copy()
    folder.json('sizes.json', lambda c: c.update(image=70))
    config = read_pretrained_config(folder.path)
    sizes = Sizes(64, 128, 32, 64, 2, 2, 8, 1, 16, 32, 64, 2, 2, 14, 56, 1, 512)
    with pytest.raises(ModelError, match=r'image size: got 56 x 56, expected a square of 70'):
        infer_sizes(expected_tensors('pi0', sizes, config), config, folder.path)


@pytest.mark.parametrize('bad', [0, -1, 2.5, 'two', True])
def test_a_declared_size_that_is_no_size_is_named(copy, bad):
    folder = copy()
    folder.json('sizes.json', lambda c: c.update(heads=bad))
    config = read_pretrained_config(folder.path)
    with pytest.raises(ModelError, match=r'sizes\.json heads: got'):
        infer_sizes({}, config, folder.path)


def test_a_size_that_only_a_missing_tensor_has_names_that_tensor(bare):
    config, folder = bare('pi0')
    shapes = expected_tensors('pi0', FULL_PI, config)
    name = next(name for name in shapes if name.endswith('embed_tokens.weight'))
    del shapes[name]
    with pytest.raises(ModelError, match=rf'tensor {name}: got none'):
        infer_sizes(shapes, config, folder)


def test_one_wrong_tensor_does_not_change_a_size(bare):
    config, folder = bare('pi0')
    shapes = expected_tensors('pi0', FULL_PI, config)
    name = next(name for name in shapes if name.endswith('layers.0.self_attn.q_proj.weight'))
    shapes[name] = (7, 7)
    assert infer_sizes(shapes, config, folder) == FULL_PI


@pytest.mark.parametrize('stack', ['language_model', 'gemma_expert', 'vision_model'])
def test_a_stack_without_its_last_layer_is_still_expected_whole(bare, stack):
    config, folder = bare('pi0')
    shapes = expected_tensors('pi0', FULL_PI, config)
    last = {'language_model': 17, 'gemma_expert': 17, 'vision_model': 26}[stack]
    shapes = {n: s for n, s in shapes.items() if not (stack in n and f'.layers.{last}.' in n)}
    assert infer_sizes(shapes, config, folder) == FULL_PI


@pytest.mark.parametrize(('family', 'full'), [
    ('pi0', {'vision_width': 1152}), ('pi05', {'vlm_width': 2048}),
    ('pi05', {'vision_width': 768}), ('smolvla', {'vision_width': 768}),
    ('smolvla', {'vlm_width': 960}), ('smolvla', {'vision_width': 1152}),
])  # fmt: skip
def test_one_full_width_does_not_make_a_small_network_a_full_one(bare, family, full):
    """Layers are those of the tensors; vision heads of a known width need no file."""
    image = {'image_resolution': [32, 32], 'resize_imgs_with_padding': [32, 32]}
    config, folder = bare(family, num_vlm_layers=3, self_attn_every_n_layers=3, **image)
    heads = {1152: 16, 768: 12}.get(full.get('vision_width'), 4)
    small = replace(OTHER, vision_heads=heads, **full)
    sizes = small if family == 'smolvla' else replace(small, scale_factor=1)
    named = ('heads', 'kv_heads', 'head_dim', *(['vision_heads'] if heads == 4 else []))
    (folder / 'sizes.json').write_text(json.dumps({n: getattr(sizes, n) for n in named}))
    assert infer_sizes(expected_tensors(family, sizes, config), config, folder) == sizes


@pytest.mark.parametrize('family', ['pi0', 'pi05', 'smolvla'])
@pytest.mark.parametrize(('change', 'expected'), [
    ({'head_dim': 5}, 'head_dim: got 5, expected a multiple of 2'),
    ({'head_dim': 1}, 'head_dim: got 1, expected a multiple of 2'),
    ({'expert_width': 23}, 'expert_width: got 23, expected a multiple of 2'),
    ({'scale_factor': 3}, 'patches per side: got 4, expected a multiple of 3'),
    ({'scale_factor': 8}, 'patches per side: got 4, expected a multiple of 8'),
    ({'patch': 32}, 'patches per side: got 1, expected a multiple of 2'),
])
def test_a_size_that_cannot_be_cut_into_equal_parts_is_refused(bare, family, change, expected):
    image = {'image_resolution': [32, 32], 'resize_imgs_with_padding': [32, 32]}
    config, folder = bare(family, num_vlm_layers=3, self_attn_every_n_layers=3, **image)
    sizes = replace(OTHER, **change)
    if family != 'smolvla':
        sizes = replace(sizes, scale_factor=1)
        if 'patches' in expected:
            expected = None
    declare(folder, sizes, family)
    shapes = expected_tensors(family, sizes, config)
    if expected is None:
        assert infer_sizes(shapes, config, folder) == sizes
        return
    with pytest.raises(ModelError, match=expected):
        infer_sizes(shapes, config, folder)


def test_expert_layers_must_divide_the_layers_of_the_model(bare):
    config, folder = bare('smolvla', num_expert_layers=5)
    with pytest.raises(ModelError, match='num_expert_layers: got 5, expected a divisor of the'):
        infer_sizes(expected_tensors('smolvla', FULL_SMOLVLA, config), config, folder)


@pytest.mark.parametrize(('kept', 'declared', 'whole', 'depth'), [
    (16, None, None, 16), (3, None, None, 3), (0, None, None, 3), (16, 3, None, 3),
    (16, None, 3, 3), (3, None, 32, 3), (0, None, 3, 3),
])
def test_smolvla_keeps_some_of_the_layers_that_its_model_has(
    bare, kept, declared, whole, depth
):
    config, folder = bare('smolvla', num_vlm_layers=kept)
    sizes = replace(FULL_SMOLVLA, depth=3, expert_depth=3)
    shapes = expected_tensors('smolvla', sizes, config)
    if declared is not None:
        (folder / 'sizes.json').write_text(json.dumps({'depth': declared}))
    if whole is not None:
        model = {'text_config': {'num_hidden_layers': whole}}
        (folder / 'vlm' / 'config.json').write_text(json.dumps(model))
    assert infer_sizes(shapes, config, folder).depth == depth


def test_layers_that_a_file_declares_and_the_tensors_lack_are_named(bare):
    config, folder = bare('smolvla')
    shapes = expected_tensors('smolvla', replace(FULL_SMOLVLA, depth=15), config)
    (folder / 'sizes.json').write_text(json.dumps({'depth': 16}))
    with pytest.raises(ModelError, match=r'sizes\.json depth: got 16, expected 15'):
        infer_sizes(shapes, config, folder)


def test_layers_that_the_configuration_keeps_and_the_tensors_exceed_are_named(bare):
    config, folder = bare('smolvla', num_vlm_layers=2)
    shapes = expected_tensors('smolvla', replace(FULL_SMOLVLA, depth=4, expert_depth=4), config)
    (folder / 'sizes.json').write_text(json.dumps({'depth': 4}))
    with pytest.raises(ModelError, match=r'config\.json num_vlm_layers: got 2, expected 4'):
        infer_sizes(shapes, config, folder)


@pytest.mark.parametrize('key', ['vision_depth', 'depth'])
def test_a_number_of_layers_that_no_machine_holds_is_named(copy, key):
    folder = copy()
    folder.json('sizes.json', lambda c: c.update({key: 10**8}))
    with pytest.raises(ModelError, match=f'{key}: got 100000000, expected at most 1000'):
        open_pretrained(folder.path)
