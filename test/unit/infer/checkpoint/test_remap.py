"""Every key layout that was ever written has the same canonical names."""

from __future__ import annotations

import pytest

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.remap import LEGACY, TABLE, canonical_names

P = 'paligemma_with_expert.'
HEAD = f'{P}paligemma.lm_head.weight'


def one(name, family='pi0'):
    return list(canonical_names([name], family))


@pytest.mark.parametrize(('stored', 'canonical'), [
    ('model.action_in_proj.weight', 'action_in_proj.weight'),
    ('action_in_proj.weight', 'action_in_proj.weight'),
    (f'model.{P}paligemma.language_model.model.layers.0.mlp.up_proj.weight',
     f'{P}paligemma.model.language_model.layers.0.mlp.up_proj.weight'),
    (f'model.{P}paligemma.language_model.model.embed_tokens.weight', TABLE),
    (f'{P}paligemma.vision_tower.vision_model.post_layernorm.bias',
     f'{P}paligemma.model.vision_tower.vision_model.post_layernorm.bias'),
    (f'{P}paligemma.multi_modal_projector.linear.bias',
     f'{P}paligemma.model.multi_modal_projector.linear.bias'),
    (f'model.{P}gemma_expert.model.norm.weight', f'{P}gemma_expert.model.norm.weight'),
    ('time_mlp_in.weight', 'action_time_mlp_in.weight'),
    ('state_proj.bias', 'state_proj.bias'),
])
def test_any_layout_of_pi0_becomes_the_current_one(stored, canonical):
    assert canonical_names([stored], 'pi0') == {canonical: stored}


@pytest.mark.parametrize(('stored', 'canonical'), [
    ('model.action_time_mlp_out.bias', 'time_mlp_out.bias'),
    ('time_mlp_out.bias', 'time_mlp_out.bias'),
    (f'{P}gemma_expert.model.norm.dense.bias', f'{P}gemma_expert.model.norm.dense.bias'),
    (f'{P}paligemma.model.language_model.norm.weight',
     f'{P}paligemma.model.language_model.norm.weight'),
])
def test_any_layout_of_pi05_becomes_the_current_one(stored, canonical):
    assert canonical_names([stored], 'pi05') == {canonical: stored}


@pytest.mark.parametrize('stored', [
    'state_proj.weight', f'{P}gemma_expert.model.norm.weight',
    f'model.{P}gemma_expert.model.layers.3.input_layernorm.weight',
    f'{P}gemma_expert.model.layers.3.post_attention_layernorm.weight',
])  # fmt: skip
def test_what_a_modulated_expert_has_no_use_for_is_left_out(stored):
    assert one(stored, 'pi05') == []
    assert one(stored, 'pi0') == [stored.removeprefix('model.')]


@pytest.mark.parametrize(('stored', 'family'), [
    (f'model.{P}gemma_expert.lm_head.weight', 'pi0'),
    (f'model.{P}gemma_expert.model.embed_tokens.weight', 'pi05'),
    ('model.vlm_with_expert.vlm.lm_head.weight', 'smolvla'),
    (f'{P}paligemma.vision_tower.vision_model.embeddings.position_ids', 'pi0'),
    ('vlm_with_expert.vlm.model.text_model.layers.0.self_attn.rotary_emb.inv_freq', 'smolvla'),
    ('normalize_inputs.buffer_observation_state.mean', 'pi0'),
])
def test_unused_heads_constants_and_statistics_are_left_out(stored, family):
    assert one(stored, family) == []


@pytest.mark.parametrize('head', [
    HEAD, f'model.{HEAD}', f'model.{P}paligemma.language_model.lm_head.weight'
])
def test_a_table_stored_as_the_output_head_is_delivered_as_the_table(head):
    assert canonical_names([head], 'pi0') == {TABLE: head}


def test_a_table_that_is_stored_itself_wins_over_the_output_head():
    table = f'model.{TABLE}'
    assert canonical_names([HEAD, table], 'pi0') == {TABLE: table}
    assert canonical_names([table, HEAD], 'pi0') == {TABLE: table}


def test_two_tensors_of_the_same_name_are_refused():
    with pytest.raises(ModelError, match='state_proj.bias: got state_proj.bias and model.state'):
        canonical_names(['state_proj.bias', 'model.state_proj.bias'], 'pi0')


def test_an_unknown_name_stays_to_be_reported():
    assert one('model.lora_A.weight') == ['lora_A.weight']


@pytest.mark.parametrize('prefix', [
    'normalize_inputs.', 'normalize_targets.', 'unnormalize_outputs.', 'normalize.',
    'unnormalize.', 'input_normalizer.', 'output_normalizer.', 'model.normalize_inputs.',
])  # fmt: skip
@pytest.mark.parametrize('buffer', ['buffer_', ''])
def test_statistics_of_older_exporters_are_recognised(prefix, buffer):
    match = LEGACY.match(f'{prefix}{buffer}observation_state.mean')
    assert (match['feature'], match['stat']) == ('observation_state', 'mean')
