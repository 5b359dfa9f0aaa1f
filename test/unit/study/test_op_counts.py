"""Operations and multiply-accumulates are counted rightly, and a difference shows."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reflex_ros.study.op_counts import count_ops, live_bytes, peak_bytes


def test_a_product_counts_its_multiply_accumulates():
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    counts = count_ops(lambda: a @ b)
    assert counts.macs == 3 * 5 * 7
    assert dict(counts.operations) == {'mm': 1}
    assert counts.new_bytes == 3 * 7 * 4


@pytest.mark.parametrize('guard', [torch.inference_mode, torch.no_grad])
def test_a_module_counts_as_what_it_is_made_of(guard):
    x = torch.ones(2, 3, 5)
    with guard():
        counts = count_ops(lambda: nn.Linear(5, 7, bias=False)(x))
    assert counts.macs == 2 * 3 * 5 * 7


def test_convolution_and_fused_attention_are_counted():
    image, weight = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 4, 4)
    with torch.inference_mode():
        assert count_ops(lambda: F.conv2d(image, weight, stride=4)).macs == 4 * 4 * 3 * 4 * 4
        q, k = torch.ones(1, 2, 6, 8), torch.ones(1, 2, 9, 8)
        assert count_ops(lambda: F.scaled_dot_product_attention(q, k, k)).macs == 2 * 6 * 9 * 16


def test_views_are_no_operations():
    x = torch.ones(4, 6)
    counts = count_ops(lambda: x.view(2, 12).t()[1:3])
    assert counts.total == 0 and counts.new_bytes == 0


def test_equal_counts_can_fail():
    one = count_ops(lambda: torch.ones(3, 5) @ torch.ones(5, 7))
    other = count_ops(lambda: torch.ones(3, 5) @ torch.ones(5, 8))
    assert one.operations == other.operations
    assert one.as_dict() != other.as_dict()


def test_live_bytes_counts_shared_memory_once():
    x = torch.zeros(10)
    assert live_bytes(x, [x[:5]], {'a': (torch.zeros(2),)}) == 48
    assert live_bytes(x, x.clone()) == 80


def test_peak_bytes_is_what_is_alive_at_once():
    def chain():
        x = torch.ones(1000)
        for _ in range(5):
            x = x + 1
        return x.view(10, 100)

    assert peak_bytes(chain) == 8000


def test_peak_bytes_can_fail():
    assert peak_bytes(lambda: [torch.ones(1000) for _ in range(5)]) == 20000
