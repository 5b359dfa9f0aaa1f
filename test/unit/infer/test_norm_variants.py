"""[ci] Norms in bfloat16: eq. (2) within rounding, statistics in float32, nothing else changed."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from reflex_ros.infer.norm import (
    VARIANTS,
    AdaRMSNorm,
    RMSNorm,
    rms_normalise,
    rms_normalise_narrow,
    rms_normalise_serial,
    set_statistics,
)

BF16 = torch.bfloat16
ROUNDING = 2.0**-8
"""Largest relative error of one rounding to bfloat16."""
EPS = 1e-6
MANTISSAS = 1 + torch.arange(128) / 128
"""Every bfloat16 from 1 to 2."""


def rows(seed=0, count=64, width=96):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator).to(BF16)


def ada(width=96, condition=5, seed=0, dtype=BF16):
    generator = torch.Generator().manual_seed(seed)
    norm = AdaRMSNorm(width, condition, 16, EPS)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.normal_(0, 0.2, generator=generator)
    return norm.requires_grad_(False).to(dtype)


def equation_2(x, gamma):
    wide = x.to(torch.float64)
    return wide / (wide.square().mean(-1, keepdim=True) + EPS).sqrt() * gamma.to(torch.float64)


@pytest.mark.parametrize(('name', 'roundings'), [
    ('fp32_norm_only', 1), ('ada', 2), ('bf16', 4),
])
def test_each_variant_equals_its_equation_within_rounding(name, roundings):
    x, gamma = rows(), (1 + rows(1, 1) / 4)
    variant = VARIANTS[name]
    exact = equation_2(x, gamma if variant.is_conditioned else torch.ones(96))
    error = (variant(x, gamma, EPS).to(torch.float64) - exact).abs() / exact.abs()
    assert float(error.max()) <= roundings * ROUNDING * 1.01


def test_a_wrong_equation_can_fail():
    x, gamma = rows(), (1 + rows(1, 1) / 4)
    exact = equation_2(x, torch.ones(96))
    error = (VARIANTS['ada'](x, gamma, EPS).to(torch.float64) - exact).abs() / exact.abs()
    assert float(error.max()) > 10 * ROUNDING


@pytest.mark.parametrize('name', VARIANTS)
def test_the_result_has_the_type_of_the_input(name):
    for dtype in (BF16, torch.float32, torch.float64):
        assert VARIANTS[name](rows().to(dtype), torch.ones(96), EPS).dtype == dtype


def half_empty(width):
    """Return rows of one value and zeros, one row for each bfloat16 from 1 to 2."""
    x = MANTISSAS[:, None].repeat(1, width).to(BF16)
    x[:, ::2] = 0
    return x


@pytest.mark.parametrize('width', [96, 1024, 2048])
def test_ada_has_statistics_in_float32_so_half_empty_rows_give_the_root_of_two(width):
    norm = AdaRMSNorm(width, 5, 16, 0.0).to(BF16)
    y = norm(half_empty(width), torch.ones(width))[:, 1::2]
    assert torch.equal(y, torch.full_like(y, 2**0.5))


def test_statistics_in_bfloat16_differ_by_half_a_percent_so_the_check_can_fail():
    y = rms_normalise_narrow(half_empty(1024), 0.0)[:, 1].double()
    error = (y / 2**0.5 - 1).abs()
    assert float(error.max()) > 0.005
    assert float((error > 0.001).double().mean()) > 0.1


def test_a_bfloat16_accumulator_stops_at_256_equal_squares():
    ones = torch.ones(1, 1024, dtype=BF16)
    assert float(rms_normalise_serial(ones, 0.0)[0, 0]) == 2.0
    assert float(rms_normalise_serial(ones[:, :256], 0.0)[0, 0]) == 1.0


def test_in_wide_types_all_ways_to_take_statistics_agree():
    x = rows().to(torch.float64)
    for normalise in (rms_normalise_narrow, rms_normalise_serial):
        torch.testing.assert_close(normalise(x, EPS), rms_normalise(x, EPS), rtol=1e-13, atol=0)


def test_the_gate_computes_in_bfloat16_and_the_statistics_do_not():
    norm, condition = ada(), torch.randn(1, 5, generator=torch.Generator().manual_seed(2))
    gamma = norm.gamma(condition.to(BF16))
    hidden = F.silu(F.linear(condition.to(BF16), norm.gate_in.weight, norm.gate_in.bias))
    assert gamma.dtype == BF16
    assert torch.equal(gamma, 1 + F.linear(hidden, norm.gate_out.weight, norm.gate_out.bias))
    assert torch.equal(norm(rows(), gamma), rms_normalise(rows(), EPS) * gamma)
    assert torch.equal(norm(rows(), gamma), VARIANTS['ada'](rows(), gamma, EPS))


def test_float32_is_computed_as_before():
    x, gamma = rows().float(), 1 + rows(1, 1).float() / 4
    expected = F.rms_norm(x, (96,), eps=EPS)
    assert torch.equal(ada(dtype=torch.float32)(x, gamma), expected * gamma)
    assert torch.equal(RMSNorm(96, EPS)(x), expected)


def test_set_statistics_reaches_every_norm_of_a_network():
    network = torch.nn.Sequential(RMSNorm(96, EPS), torch.nn.Sequential(ada()))
    set_statistics(network, rms_normalise_narrow)
    x = rows()
    assert torch.equal(network[1][0](x, torch.ones(96)), rms_normalise_narrow(x, EPS))
    assert not torch.equal(network[1][0](x, torch.ones(96)), rms_normalise(x, EPS))
    set_statistics(network, rms_normalise)
    assert torch.equal(network[1][0](x, torch.ones(96)), rms_normalise(x, EPS))


@pytest.mark.parametrize('name', VARIANTS)
@pytest.mark.parametrize(('value', 'is_flushed'), [(5e17, False), (2e19, True), (3e38, True)])
def test_a_square_beyond_float32_flushes_every_variant_to_zero(name, value, is_flushed):
    x = torch.full((1, 96), value, dtype=BF16)
    y = VARIANTS[name](x, torch.ones(96), EPS)
    assert bool((y == 0).all()) == is_flushed
    assert bool(torch.isfinite(y).all())


@pytest.mark.parametrize('name', VARIANTS)
def test_an_infinite_input_gives_nan_in_every_variant(name):
    x = rows()
    x[3, 5] = torch.inf
    y = VARIANTS[name](x, torch.ones(96), EPS)
    assert y.isnan().any(-1).nonzero().flatten().tolist() == [3]
