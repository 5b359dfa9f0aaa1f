"""The plain functions compute what the networks compute, without waiting for a device."""

from __future__ import annotations

import pytest
import torch

from reflex_ros.infer.attention import Part, attend, merge, partial
from reflex_ros.infer.decoder import gelu_tanh
from reflex_ros.infer.norm import rms_normalise
from reflex_ros.infer.rope import frequencies, phases, rotate
from reflex_ros.kernels import plain

TOKENS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, ROWS = 5, 24, 6, 2, 16, 11


@pytest.fixture
def normal():
    generator = torch.Generator().manual_seed(3)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def index(number):
    return torch.tensor([number], dtype=torch.int32)


def test_the_norm_is_that_of_the_networks(normal):
    x, branch = normal(TOKENS, WIDTH), normal(TOKENS, WIDTH)
    gate, scale, shift = normal(3, 4, WIDTH)
    total, normed = plain.gate_norm(x, branch, gate, scale, shift, index(2), eps=1e-6)
    expected = x + branch * gate[2]
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(
        normed, rms_normalise(expected, 1e-6) * (1 + scale[2]) + shift[2])


def test_the_first_norm_leaves_the_residual_alone(normal):
    x, scale, shift = normal(TOKENS, WIDTH), normal(2, WIDTH), normal(2, WIDTH)
    total, normed = plain.gate_norm(x, None, None, scale, shift, index(1), eps=1e-6)
    assert total is x
    torch.testing.assert_close(normed, rms_normalise(x, 1e-6) * (1 + scale[1]) + shift[1])


@pytest.mark.parametrize(('name', 'activation'), [
    ('silu', torch.nn.functional.silu), ('gelu', gelu_tanh)])
def test_the_gated_activation_is_that_of_the_networks(normal, name, activation):
    packed = normal(TOKENS, 2 * WIDTH)
    gate, up = packed.chunk(2, -1)
    torch.testing.assert_close(plain.glu(packed, name), activation(gate) * up)


def test_split_and_rotation_are_those_of_the_networks(normal):
    packed = normal(TOKENS, (HEADS + 2 * KV_HEADS) * HEAD_DIM)
    cos, sin = phases(torch.arange(7, 7 + TOKENS), frequencies(HEAD_DIM, 1e4), dtype=torch.float64)
    key, value = normal(2, ROWS, KV_HEADS, HEAD_DIM)
    before = key.clone(), value.clone()
    query = plain.split_rotate(packed, cos, sin, key, value, index(4), heads=HEADS)
    heads = packed.view(TOKENS, -1, HEAD_DIM)
    turned = rotate(heads[:, : HEADS + KV_HEADS], cos[:, None], sin[:, None])
    torch.testing.assert_close(query, turned[:, :HEADS].transpose(0, 1))
    torch.testing.assert_close(key[4 : 4 + TOKENS], turned[:, HEADS:])
    torch.testing.assert_close(value[4 : 4 + TOKENS], heads[:, HEADS + KV_HEADS :])
    for new, old in zip((key, value), before, strict=True):
        assert torch.equal(new[:4], old[:4]) and torch.equal(new[4 + TOKENS :], old[4 + TOKENS :])


def parts(query, key, value, own_key, own_value, length):
    asked = query.transpose(0, 1)[None]
    return [Part(asked, key[None, :length], value[None, :length]),
            Part(asked, own_key[None], own_value[None])]


@pytest.mark.parametrize('length', [0, 1, 7, ROWS])
def test_attention_is_that_of_the_networks_in_both_forms(normal, length):
    query = normal(HEADS, TOKENS, HEAD_DIM)
    key, value = normal(2, ROWS, KV_HEADS, HEAD_DIM)
    own_key, own_value = normal(2, TOKENS, KV_HEADS, HEAD_DIM)
    key[length:], value[length:] = torch.nan, torch.nan
    got = plain.attend(query, key, value, index(length), own_key, own_value)
    split = parts(query, key, value, own_key, own_value, length)
    torch.testing.assert_close(got, attend(split)[0].flatten(1))
    torch.testing.assert_close(got, merge([partial(part) for part in split])[0].flatten(1))


def test_attention_can_fail(normal):
    query = normal(HEADS, TOKENS, HEAD_DIM)
    key, value = normal(2, ROWS, KV_HEADS, HEAD_DIM)
    got = plain.attend(query, key, value, index(7), key, value)
    split = parts(query, key, value, key, value, 6)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(got, attend(split)[0].flatten(1))


def test_nothing_depends_on_the_value_of_a_step_length_or_offset(normal):
    """Traced once, the functions follow other values: no read on the host, no other shape."""
    x, scale = normal(TOKENS, WIDTH), normal(4, WIDTH)
    query, key = normal(HEADS, TOKENS, HEAD_DIM), normal(ROWS, KV_HEADS, HEAD_DIM)

    def both(step, length):
        normed = plain.gate_norm(x, None, None, scale, scale, step, eps=1e-6)[1]
        return normed, plain.attend(query, key, key, length, key, key)

    traced = torch.jit.trace(both, (index(0), index(2)), check_trace=False)
    for got, want in zip(traced(index(3), index(9)), both(index(3), index(9)), strict=True):
        torch.testing.assert_close(got, want)
