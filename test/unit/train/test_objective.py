"""The training forward pass equals the streaming one that it trains for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reflex_ros.infer.families.tiny_network import Context, TinyConfig, TinyNetwork
from reflex_ros.sim.instructions import every_wording, follow_wordings, hold_wordings
from reflex_ros.train import instructions, objective
from reflex_ros.train.objective import FlowBatch, Weights
from reflex_ros.train.recipes import RECIPES

DRAWS = 2


@pytest.fixture(name='network', params=[('main',), ('main', 'wrist')], ids=['one', 'two'])
def network_fixture(request):
    torch.manual_seed(0)
    network = TinyNetwork(TinyConfig(
        cameras=request.param, towers=len(request.param), image_size=16,
        vision_layers=1, layers=2, width=12, heads=4, kv_heads=2, head_dim=6,
        gate_hidden=8, horizon=6, rows_per_token=2, tau_dim=6,
    )).to(torch.float64)  # fmt: skip
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.3)
    return network.requires_grad_(False)


@pytest.fixture(name='batch')
def batch_fixture(network):
    g = torch.Generator().manual_seed(1)
    normal = {'generator': g, 'dtype': torch.float64}
    present = torch.tensor([[True] * 4, [False, True, False, True], [False] * 3 + [True]])
    return FlowBatch(
        ids=torch.randint(0, 60, (2, 8), generator=g),
        wording=torch.tensor([0, 1, 0]),
        tokens=torch.randn(3, 4, len(network.config.cameras), 12, **normal),
        present=present,
        ages=5 * torch.rand(3, 4, **normal),
        state=torch.randn(3, 7, **normal),
        actions=torch.randn(3, 6, 7, **normal),
    )


def streaming(network, batch, noisy, tau):
    """Compute every row of the batch alone, the way the policy does."""
    rows = []
    for row in range(len(noisy)):
        i = row // DRAWS
        pinned = network.encode_words(batch.ids[batch.wording[i]][None])
        seen = batch.present[i]
        frames = network.encode_tokens(batch.tokens[i][seen], pinned)
        context = Context(network, pinned[0], frames=frames, ages_steps=batch.ages[i][seen])
        gammas = network.gammas(tau[row : row + 1], batch.state[i : i + 1])
        rows.append(network.velocity(noisy[row : row + 1], gammas, context))
    return torch.cat(rows)


def test_the_batched_pass_equals_the_streaming_pass(network, batch):
    g = torch.Generator().manual_seed(2)
    noisy = torch.randn(3 * DRAWS, 6, 7, generator=g, dtype=torch.float64)
    tau = torch.rand(3 * DRAWS, generator=g, dtype=torch.float64)
    got = objective.predict(network, batch, noisy, tau)
    torch.testing.assert_close(got, streaming(network, batch, noisy, tau), rtol=0, atol=1e-12)


def test_a_missing_frame_has_no_influence(network, batch):
    noisy, tau = torch.ones(3, 6, 7).double(), torch.full((3,), 0.5).double()
    before = objective.predict(network, batch, noisy, tau)
    batch.tokens[~batch.present] += 100
    torch.testing.assert_close(objective.predict(network, batch, noisy, tau), before)


def test_a_present_frame_has_influence_so_the_check_can_fail(network, batch):
    noisy, tau = torch.ones(3, 6, 7).double(), torch.full((3,), 0.5).double()
    before = objective.predict(network, batch, noisy, tau)
    batch.tokens[batch.present] += 1
    assert (objective.predict(network, batch, noisy, tau) - before).abs().max() > 1e-3


def test_forty_percent_of_the_flow_times_are_early():
    tau = objective.draw_tau(20_000, torch.Generator().manual_seed(0))
    assert abs(float((tau > 0.9).float().mean()) - 0.46) < 0.01
    assert 0 < float(tau.min()) < float(tau.max()) <= 1


@pytest.mark.parametrize('recipe', list(RECIPES.values()), ids=list(RECIPES))
def test_every_wording_fits_the_pinned_block_and_has_no_unknown_word(recipe):
    tokenizer, sizes = recipe.tokenizer(), recipe.network
    assert tokenizer.get_vocab_size() <= sizes.vocabulary
    texts = (*follow_wordings(), *hold_wordings())
    for text in every_wording() if recipe.colours else texts:
        ids = tokenizer.encode(text).ids
        assert len(ids) == sizes.instruction_tokens
        assert tokenizer.token_to_id(instructions.UNKNOWN) not in ids


def test_case_and_an_unknown_word_do_not_break_an_instruction():
    tokenizer = instructions.build_tokenizer(8)
    assert tokenizer.encode('Hold STILL').ids == tokenizer.encode('hold still').ids
    unknown = tokenizer.token_to_id(instructions.UNKNOWN)
    assert tokenizer.encode('follow the zebra').ids[2] == unknown


def test_the_loss_is_zero_for_a_perfect_velocity(network, batch, monkeypatch):
    monkeypatch.setattr(
        objective, 'predict',
        lambda net, b, noisy, tau: (noisy - b.actions.repeat_interleave(DRAWS, 0))
        / tau[:, None, None],
    )
    loss = objective.flow_loss(
        network, batch, draws=DRAWS, generator=torch.Generator().manual_seed(0)
    )
    np.testing.assert_allclose(float(loss), 0.0, atol=1e-9)


def test_late_rows_and_the_gripper_count_as_they_are_told(network, batch, monkeypatch):
    """An error of 1 in one place adds its share of the whole weight."""
    def wrong(row, joint):
        def velocity(net, b, noisy, tau):
            right = (noisy - b.actions.repeat_interleave(DRAWS, 0)) / tau[:, None, None]
            right[:, row, joint] += 1.0
            return right
        return velocity

    def loss(row, joint):
        monkeypatch.setattr(objective, 'predict', wrong(row, joint))
        return float(objective.flow_loss(
            network, batch, draws=DRAWS, generator=torch.Generator().manual_seed(0),
            weights=Weights(gripper=0.5, late=0.25, early=2)))  # fmt: skip

    assert loss(0, 0) == pytest.approx(4 * loss(5, 0), rel=1e-5)
    assert loss(0, 6) == pytest.approx(0.5 * 6 * loss(0, 0), rel=1e-5)
