"""[ci] Which type each weight is kept in."""

from __future__ import annotations

import json

import pytest
import torch

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.plan import CastWeights, dtype_named, dtype_of


@pytest.mark.parametrize('name', ['pi0', 'pi05'])
def test_the_bfloat16_plan_is_the_reference_s_for_every_tensor(parity, name):
    listed = json.loads((parity(name).folder.parent / 'bf16_dtypes.json').read_text())
    assert len(listed) >= 90
    for stored, wanted in listed.items():
        if stored.endswith('paligemma.lm_head.weight'):
            continue  # tied: it is delivered as the table of words, which is in the list, too
        found = dtype_of(stored.removeprefix('model.'), torch.bfloat16)
        assert str(found) == f'torch.{wanted}', stored


def test_other_plans_have_one_type(parity):
    listed = json.loads((parity('pi0').folder.parent / 'bf16_dtypes.json').read_text())
    for dtype in (torch.float32, torch.float64):
        assert {dtype_of(stored.removeprefix('model.'), dtype) for stored in listed} == {dtype}


def test_a_weight_of_the_right_type_is_not_copied():
    tensors = {'action_in_proj.weight': torch.ones(2, 2)}
    cast = CastWeights(tensors, torch.bfloat16)
    assert cast['action_in_proj.weight'].data_ptr() == tensors['action_in_proj.weight'].data_ptr()
    assert list(cast) == list(tensors)
    assert len(cast) == 1
    assert 'another' not in cast


def test_an_unknown_type_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"got 'float16', expected one of float32, bfloat16"):
        dtype_named('float16')
