from __future__ import annotations

import torch

from reflex_ros.infer.norm import AdaRMSNorm, RMSNorm, rms_normalise


def test_the_result_has_unit_root_mean_square():
    x = 50 * torch.randn(4, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        rms_normalise(x, 0.0).square().mean(-1), torch.ones(4, dtype=torch.float64)
    )


def test_half_precision_statistics_are_taken_in_float32():
    x = torch.full((64,), 300.0, dtype=torch.float16)
    assert bool(torch.isfinite(rms_normalise(x, 1e-6)).all())
    assert rms_normalise(x, 1e-6).dtype == torch.float16


def test_statistics_in_float16_would_overflow_so_the_check_can_fail():
    assert bool(torch.full((64,), 300.0, dtype=torch.float16).square().isinf().any())


def test_float64_is_not_rounded_to_float32():
    x = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)
    assert float(rms_normalise(x, 0.0)[1] - rms_normalise(x, 0.0)[0]) > 0


def test_a_plain_norm_is_centred_at_weight_zero():
    norm = RMSNorm(8, 0.0)
    x = torch.randn(8, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(norm(x), rms_normalise(x, 0.0))


def test_gamma_is_one_plus_the_mlp_of_the_condition():
    torch.manual_seed(3)
    norm = AdaRMSNorm(8, 5, 16, 1e-6)
    condition = torch.randn(5)
    assert torch.equal(norm.gamma(condition), torch.ones(8))
    torch.nn.init.normal_(norm.gate_out.weight)
    inner = norm.gate_in(condition)
    expected = 1 + norm.gate_out(inner * torch.sigmoid(inner))
    torch.testing.assert_close(norm.gamma(condition), expected)
