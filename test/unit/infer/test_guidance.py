"""[ci] Guided inpainting: weights, gain, and that a new chunk continues the old one."""

from __future__ import annotations

import math

import pytest
import torch

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import flow
from reflex_ros.infer.guidance import SCHEDULES, Guidance, gain, hold_last, row_weights, steer

STEPS = 10


def test_weights_are_one_then_fall_then_zero():
    weights = row_weights(3, 8, 12)
    assert weights[:3].tolist() == [1, 1, 1]
    assert weights[8:].tolist() == [0] * 4
    falling = weights[2:9]
    assert bool((falling[1:] < falling[:-1]).all())


def test_the_exponential_weights_are_those_of_the_definition():
    c = (8 - 4) / (8 - 3 + 1)
    assert float(row_weights(3, 8, 12)[4]) == pytest.approx(c * math.expm1(c) / math.expm1(1))
    assert float(row_weights(3, 8, 12, schedule='linear')[4]) == pytest.approx(c)
    assert row_weights(3, 8, 12, schedule='zeros').tolist() == [1] * 3 + [0] * 9
    assert row_weights(3, 8, 12, schedule='ones').tolist() == [1] * 8 + [0] * 4


@pytest.mark.parametrize('schedule', SCHEDULES)
@pytest.mark.parametrize(('frozen', 'end', 'rows'), [(0, 0, 5), (5, 5, 5), (0, 5, 5), (2, 2, 4)])
def test_edges_stay_in_range(schedule, frozen, end, rows):
    weights = row_weights(frozen, end, rows, schedule=schedule)
    assert weights.shape == (rows,)
    assert bool(((weights >= 0) & (weights <= 1)).all())
    assert int((weights == 1).sum()) >= frozen


@pytest.mark.parametrize(('frozen', 'end', 'rows'), [(-1, 2, 4), (3, 2, 4), (2, 5, 4)])
def test_rows_that_do_not_fit_are_refused(frozen, end, rows):
    with pytest.raises(ConfigError, match=f'got {frozen} frozen rows'):
        row_weights(frozen, end, rows)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ConfigError, match="got schedule 'cubic'"):
        row_weights(1, 2, 4, schedule='cubic')


def test_the_gain_is_that_of_the_definition_and_bounded_at_both_ends():
    assert [round(gain(t, 99.0), 2) for t in (0.8, 0.6, 0.4, 0.2)] == [4.25, 2.17, 2.17, 4.25]
    assert round(gain(0.9, 99.0), 2) == 9.11
    assert gain(1.0, 10.0) == gain(0.0, 10.0) == 10.0
    assert gain(0.999, 10.0) == 10.0


def field(x: torch.Tensor, tau: float) -> torch.Tensor:
    """Velocity of a flow whose data is a smooth function of the row."""
    wanted = torch.linspace(0, 1, x.shape[1], dtype=x.dtype)[:, None].expand_as(x[0])
    return (x - wanted) / max(tau, 1e-9)


def chunk(guidance: Guidance | None, seed: int = 0) -> torch.Tensor:
    noise = torch.randn(1, 12, 3, generator=torch.Generator().manual_seed(seed),
                        dtype=torch.float64)

    def velocity(x, k):
        tau = flow.taus(STEPS)[k]
        v = field(x, tau)
        return v if guidance is None else steer(v, x, tau, guidance)

    return flow.integrate(velocity, noise, STEPS)[0]


def test_frozen_rows_repeat_the_old_chunk_and_free_rows_do_not_move():
    old = torch.full((12, 3), 0.4, dtype=torch.float64)
    weights = row_weights(4, 8, 12)
    guided, free = chunk(Guidance(old, weights, STEPS)), chunk(None)
    assert float((guided[:4] - old[:4]).abs().max()) < 0.05
    assert float((free[:4] - old[:4]).abs().max()) > 0.3, 'it was not there by itself'
    assert torch.equal(guided[8:], free[8:])
    between = (guided[4:8] - old[4:8]).abs().amax(1)
    assert bool((between[1:] > between[:-1]).all()), 'the hold fades'


def test_repetition_can_fail():
    """With its sign turned round the correction leads away."""
    old = torch.full((12, 3), 0.4, dtype=torch.float64)
    guidance = Guidance(old, -row_weights(4, 8, 12), STEPS)
    assert float((chunk(guidance)[:4] - old[:4]).abs().max()) > 0.3


def test_a_bound_equal_to_the_steps_lands_on_the_target_at_once():
    old = torch.rand(12, 3, dtype=torch.float64)
    x = torch.randn(1, 12, 3, dtype=torch.float64)
    v = field(x, 1.0)
    guided = steer(v, x, 1.0, Guidance(old, torch.ones(12, dtype=torch.float64), STEPS))
    stepped = x - guided / STEPS
    expected = x - v / STEPS + (old - (x - v))
    assert torch.allclose(stepped, expected)


def test_missing_rows_repeat_the_last_one_and_are_never_zero():
    rows = torch.tensor([[1.0], [2.0]])
    assert hold_last(rows, 4).flatten().tolist() == [1, 2, 2, 2]
    assert hold_last(rows, 1).flatten().tolist() == [1]
    with pytest.raises(ConfigError, match='without rows'):
        hold_last(rows[:0], 3)
