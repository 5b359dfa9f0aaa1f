from __future__ import annotations

import torch

from reflex_ros.infer import rope

RATES = rope.frequencies(8, 100.0)


def logit(query_at, key_at, *, dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    query, key = (torch.randn(8, generator=g, dtype=torch.float64).to(dtype) for _ in range(2))
    turn = [rope.phases(torch.tensor(p, dtype=torch.float64), RATES, dtype=dtype)
            for p in (query_at, key_at)]  # fmt: skip
    return float(rope.rotate(query, *turn[0]) @ rope.rotate(key, *turn[1]))


def test_rates_fall_from_one_towards_the_base():
    torch.testing.assert_close(RATES, 100.0 ** -torch.tensor([0, 0.25, 0.5, 0.75]).double())


def test_a_logit_depends_on_the_distance_only():
    assert abs(logit(7.5, 3.0) - logit(104.5, 100.0)) < 1e-12


def test_moving_the_query_forward_equals_moving_the_key_back():
    assert abs(logit(5.0 + 2.5, 3.0) - logit(5.0, 3.0 - 2.5)) < 1e-13


def test_float32_logits_do_not_drift_with_the_position():
    near, far = (logit(base + 5.0, base, dtype=torch.float32) for base in (0.0, 1e7))
    assert abs(near - far) < 1e-5


def test_a_rotation_keeps_the_length():
    x = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    phases = rope.phases(torch.tensor([0.0, 1.5, 40.0]), RATES, dtype=torch.float64)
    torch.testing.assert_close(rope.rotate(x, *phases).norm(dim=-1), x.norm(dim=-1))
