"""Networks of the bench: the sizes they are said to have, and the same for the same seed."""

from __future__ import annotations

import pytest
import torch

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.checkpoint.expected import expected_tensors
from reflex_ros.study.bench_subject import FAMILIES, SIZES, random_config, random_subject


@pytest.mark.parametrize('family', FAMILIES)
def test_mid_has_about_80_million_weights(family):
    sizes = SIZES['mid'][family]
    shapes = expected_tensors(family, sizes, random_config(family, sizes.image)).values()
    assert 75e6 < sum(torch.Size(shape).numel() for shape in shapes) < 90e6


@pytest.mark.parametrize('family', FAMILIES)
def test_a_seed_says_everything(family):
    first, again, other = (random_subject(family, 'tiny', seed=seed) for seed in (3, 3, 4))
    for name, tensor in first.pretrained.weights.items():
        assert torch.equal(tensor, again.pretrained.weights[name]), name
        assert not torch.equal(tensor, other.pretrained.weights[name]), name
    assert first.ids == again.ids != other.ids
    assert torch.equal(first.noise, again.noise)


@pytest.mark.parametrize('family', FAMILIES)
def test_a_subject_holds_exactly_the_tensors_of_its_family(family):
    pretrained = random_subject(family, 'tiny', seed=0).pretrained
    wanted = expected_tensors(family, pretrained.sizes, pretrained.config)
    assert {n: tuple(t.shape) for n, t in pretrained.weights.items()} == wanted


def test_an_unknown_size_is_refused():
    with pytest.raises(ConfigError, match=r"'huge'.*expected one of"):
        random_subject('pi0', 'huge', seed=0)
