"""Layers of SmolVLA's expert go with layers of its language model, or are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.sizes import Sizes
from reflex_ros.infer.families.smolvla import check_pairs

SIZES = Sizes(
    vlm_width=40, vlm_mlp=72, expert_width=28, expert_mlp=44, depth=6, expert_depth=6, heads=6,
    kv_heads=2, head_dim=8, vision_width=30, vision_mlp=44, vision_depth=1, vision_heads=5,
    patch=8, image=48, scale_factor=3, vocab=600,
)


@pytest.mark.parametrize(('expert', 'every'), [
    (6, 2), (6, 3), (6, 1), (6, 0), (6, -1), (2, 2), (3, 3), (3, 0), (2, 1), (1, 2),
])
def test_layers_that_the_exporter_can_run_are_paired(expert, every):
    check_pairs(replace(SIZES, expert_depth=expert), every)


@pytest.mark.parametrize(('expert', 'every'), [(3, 2), (2, 3), (3, 4)])
def test_a_cross_layer_in_the_place_of_a_self_layer_is_refused(expert, every):
    with pytest.raises(ModelError, match=f'self_attn_every_n_layers: got {every} with {expert}'):
        check_pairs(replace(SIZES, expert_depth=expert), every)


def test_equal_widths_run_as_the_exporter_runs_them():
    check_pairs(replace(SIZES, expert_depth=3, expert_width=16), 2)


def test_a_depth_that_is_no_multiple_is_refused():
    with pytest.raises(ModelError, match='got 4 of the expert, expected a divisor of 6'):
        check_pairs(replace(SIZES, expert_depth=4), 2)
