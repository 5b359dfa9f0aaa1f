from __future__ import annotations

import pytest
import torch

from reflex_ros.infer.attention import Part, attend, empty_partial, merge, partial


def plain_attention(query, key, value):
    """One softmax per head, written from the formula."""
    groups = query.shape[2] // key.shape[2]
    key, value = (x.repeat_interleave(groups, 2).transpose(1, 2) for x in (key, value))
    scores = query.transpose(1, 2) @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return (torch.softmax(scores, -1) @ value).transpose(1, 2)


def random_parts(seed, sizes, *, dtype=torch.float64, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    query = scale * torch.randn(2, 5, 6, 4, generator=g, dtype=torch.float64)
    return [
        Part(query.to(dtype), *(torch.randn(2, n, 3, 4, generator=g, dtype=torch.float64).to(dtype)
                                for _ in range(2)))
        for n in sizes
    ]  # fmt: skip


def joined(parts):
    keys = torch.cat([p.key for p in parts], 1)
    return plain_attention(parts[0].query, keys, torch.cat([p.value for p in parts], 1))


@pytest.mark.parametrize('sizes', [(1,), (3, 2), (8, 1, 1, 1, 10)])
def test_side_by_side_softmax_equals_attention_over_joined_keys(sizes):
    parts = random_parts(1, sizes)
    torch.testing.assert_close(attend(parts), joined(parts), rtol=0, atol=1e-14)


@pytest.mark.parametrize('sizes', [(1,), (3, 2), (8, 1, 1, 1, 10)])
def test_merged_partials_equal_attention_over_joined_keys(sizes):
    parts = random_parts(2, sizes)
    torch.testing.assert_close(
        merge([partial(p) for p in parts]), joined(parts), rtol=0, atol=1e-14
    )


def test_merging_does_not_depend_on_the_order():
    partials = [partial(p) for p in random_parts(3, (4, 2, 7))]
    torch.testing.assert_close(merge(partials[::-1]), merge(partials), rtol=0, atol=1e-14)


def test_merging_survives_logits_that_would_overflow():
    parts = random_parts(4, (4, 3), scale=1e4)
    merged = merge([partial(p) for p in parts])
    torch.testing.assert_close(merged, joined(parts), rtol=0, atol=1e-12)


def test_an_empty_partition_changes_nothing():
    parts = random_parts(5, (4, 3))
    partials = [partial(p) for p in parts]
    torch.testing.assert_close(merge([empty_partial(parts[0]), *partials]), merge(partials))


def test_a_row_that_no_partition_covers_becomes_zero():
    part = random_parts(6, (0,))[0]
    assert bool((merge([partial(part)]) == 0).all())


def test_merging_can_fail_when_the_peaks_are_ignored():
    partials = [partial(p) for p in random_parts(7, (4, 3))]
    wrong = sum(p.output for p in partials) / sum(p.total for p in partials)
    assert (wrong.transpose(1, 2) - merge(partials)).abs().max() > 1e-3


def test_half_precision_logits_are_accumulated_in_float32():
    part = random_parts(8, (6,), dtype=torch.bfloat16)[0]
    assert partial(part).peak.dtype == partial(part).output.dtype == torch.float32
