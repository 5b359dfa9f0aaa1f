"""Layers of SmolVLA's expert go with layers of its language model, or are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.sizes import Sizes
from reflex_ros.infer.families.smolvla import check_pairs, check_projections
from reflex_ros.infer.weights import Weights

SIZES = Sizes(
    vlm_width=40, vlm_mlp=72, expert_width=28, expert_mlp=44, depth=6, expert_depth=6, heads=6,
    kv_heads=2, head_dim=8, vision_width=30, vision_mlp=44, vision_depth=1, vision_heads=5,
    patch=8, image=48, scale_factor=3, vocab=600,
)


def check(expert, every, width=28):
    """Check what the exporter would write: layers that are no n-th of the expert read keys."""
    sizes = replace(SIZES, expert_depth=expert, expert_width=width)
    kinds = [width if every > 0 and i % every == 0 else 16 for i in range(expert)]
    check_projections(Weights({
        f'layers.{i}.self_attn.k_proj.weight': torch.zeros(16, n) for i, n in enumerate(kinds)
    }), sizes, every)


@pytest.mark.parametrize(('expert', 'every'), [
    (6, 2), (6, 3), (6, 1), (6, 0), (6, -1), (2, 2), (3, 3), (3, 0), (2, 1), (1, 2),
])
def test_layers_that_the_exporter_can_run_are_paired(expert, every):
    check(expert, every)


@pytest.mark.parametrize(('expert', 'every'), [(3, 2), (2, 3), (3, 4)])
def test_a_cross_layer_in_the_place_of_a_self_layer_is_refused(expert, every):
    with pytest.raises(ModelError, match=f'of {expert} of the expert: got a key projection of 16'):
        check(expert, every)


def test_equal_widths_run_as_the_exporter_runs_them():
    check(3, 2, width=16)


def test_a_depth_that_is_no_multiple_is_refused():
    with pytest.raises(ModelError, match='got 4 of the expert, expected a divisor of 6'):
        check_pairs(replace(SIZES, expert_depth=4))
