"""[ci] VLA-Cache's choice of rows, on numbers that one can check by hand."""

from __future__ import annotations

import pytest
import torch

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.baselines.choice import (
    candidates,
    dropped_rows,
    layer_ratios,
    patch_cosines,
    scaled,
)
from reflex_ros.infer.baselines.options import FrameOptions, VlaOptions, VlOptions, read_options

NEW = torch.zeros(4, dtype=torch.long)


def test_a_patch_is_compared_with_itself_and_no_other():
    image = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0))
    other = image.clone()
    other[:, :4, 4:] = image[:, :4, 4:].flip(1)
    cosines = patch_cosines(other, image, 4)
    assert cosines[[0, 2, 3]].tolist() == [1, 1, 1] and cosines[1] < 0.99


def test_brightness_is_not_seen_and_black_is_like_black_only():
    image = torch.rand(3, 4, 4)
    assert patch_cosines(image * 0.5, image, 4) == pytest.approx(1.0)
    black = torch.zeros(3, 4, 4)
    assert patch_cosines(black, black, 4) == 1 and patch_cosines(black, image, 4) == 0


def chosen(cosines, scores=None, ages=NEW, **options):
    options = {'static_patches': 256, 'task_patches': 64, **options}
    return candidates([torch.tensor(cosines)], scores, ages, VlaOptions(**options)).tolist()


def test_the_most_static_come_first_or_the_first_of_the_image():
    cosines = [0.997, 0.9, 1.0, 0.998]
    assert chosen(cosines) == [2, 3, 0]
    assert chosen(cosines, order='index') == [0, 2, 3]


def test_only_so_many_count_as_static():
    assert chosen([0.997, 1.0, 0.999, 0.998], static_patches=128) == [1, 2]
    assert scaled(150, 256) == 150 and scaled(150, 16) == 9


def test_patches_of_the_task_and_old_rows_are_left_out():
    still = [1.0, 1.0, 1.0, 1.0]
    assert chosen(still, torch.tensor([0.1, 0.9, 0.2, 0.3])) == [0, 2, 3]
    assert chosen(still, ages=torch.tensor([0, 7, 8, 9])) == [0, 1]


def test_narrow_attention_is_reused_more_and_jumps_up_are_damped():
    assert layer_ratios([3.0, 1.0, 2.0], 1.0) == [0.0, 1.0, 0.5]
    assert layer_ratios([3.0, 1.0, 2.0], 0.55) == pytest.approx([0.0, 0.55, 0.5])
    assert layer_ratios([2.0, 2.0], 0.55) == [0.0, 0.0]


def test_the_reused_set_only_grows():
    rows = torch.tensor([5, 3, 8, 1])
    found = dropped_rows(rows, [0.0, 0.5, 0.25, 1.0], (1, 2, 3, 9), 4)
    assert [(at, gone.tolist()) for at, gone in found] == [
        (1, [5, 3]), (2, [5, 3]), (3, [5, 3, 8, 1])]


@pytest.mark.parametrize(('kind', 'name', 'word'), [
    (VlaOptions, 'static_cosine', '1.5'), (VlaOptions, 'order', 'newest'),
    (VlaOptions, 'score', 'nobody'), (VlaOptions, 'max_age', '0'), (VlaOptions, 'ratio', '2'),
    (VlaOptions, 'static_patches', '300'), (VlaOptions, 'task_patches', '-1'),
    (VlaOptions, 'layers', '4,2'), (VlaOptions, 'layers', 'all'), (VlaOptions, 'damping', 'nan'),
    (VlaOptions, 'score_layer', '-1'), (VlOptions, 'retention', '0'),
    (VlOptions, 'threshold', '2'), (VlOptions, 'floor', '0'), (VlOptions, 'protect', 'x'),
    (VlOptions, 'is_audited', 'maybe'), (FrameOptions, 'static_share', '1.1'),
])  # fmt: skip
def test_a_wrong_parameter_is_refused_by_name(kind, name, word):
    with pytest.raises(ConfigError, match=name):
        read_options(kind, {name: word})


def test_an_unknown_parameter_is_refused_and_the_nearest_named():
    with pytest.raises(ConfigError, match='retentoin.*Did you mean retention'):
        read_options(VlOptions, {'retentoin': '0.1'})


def test_words_become_values():
    found = read_options(VlaOptions, {'layers': '1,2', 'ratio': 'none', 'score_layer': '3'})
    assert (found.layers, found.ratio, found.score_layer) == ((1, 2), None, 3)
    assert read_options(VlOptions, {'is_audited': 'true'}).is_audited
