"""The kernels equal the plain functions: interpreted here, on the device where there is a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

from reflex_ros.core.errors import ConfigError
from reflex_ros.kernels import check, plain
from reflex_ros.kernels.choice import Kernels, choose

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec('triton') is None, reason='triton is not installed: make setup')
NAMES = ('gate_norm', 'glu', 'split_rotate', 'attend')


def run_check(*arguments, **environment):
    """Return the outcomes of the program; whether kernels are interpreted is fixed at import."""
    answer = subprocess.run(
        [sys.executable, '-m', 'reflex_ros.kernels.check', '--json', *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert answer.returncode in (0, 1) and answer.stdout, answer.stderr
    return answer.returncode, [json.loads(line) for line in answer.stdout.splitlines()]


def judge(code, outcomes):
    wrong = [one for one in outcomes if not one['error'] <= one['bound']]
    assert code == 0 and not wrong, wrong
    assert {(one['kernel'], one['dtype']) for one in outcomes} == {
        (name, dtype) for name in NAMES for dtype in ('float32', 'bfloat16')}


@needs_triton
@pytest.mark.timeout(600)
def test_the_interpreted_kernels_equal_the_plain_functions():
    judge(*run_check(TRITON_INTERPRET='1'))


@pytest.mark.gpu
@needs_triton
@pytest.mark.parametrize('size', [(), ('--full',)])
def test_the_compiled_kernels_equal_the_plain_functions(size):
    judge(*run_check(*size))


def unshifted(x, branch, gate, scale, shift, step, *, eps):
    return plain.gate_norm(x, branch, gate, scale, 0 * shift, step, eps=eps)


def last_step(x, branch, gate, scale, shift, step, *, eps):
    return plain.gate_norm(x, branch, gate, scale, shift, 0 * step + 1, eps=eps)


def other_gate(packed, activation):
    return plain.glu(packed, 'gelu' if activation == 'silu' else 'silu')


def one_row_later(packed, cos, sin, key, value, at, *, heads):
    return plain.split_rotate(packed, cos, sin, key, value, at + 1, heads=heads)


def turned_back(packed, cos, sin, key, value, at, *, heads):
    return plain.split_rotate(packed, cos, -sin, key, value, at, heads=heads)


def one_key_less(query, key, value, length, own_key, own_value, *, splits):
    return plain.attend(query, key, value, length, own_key[:-1], own_value[:-1])


def past_the_length(query, key, value, length, own_key, own_value, *, splits):
    return plain.attend(query, key, value, length + 1, own_key, own_value)


@pytest.mark.parametrize('planted', [
    unshifted, last_step, other_gate, one_row_later, turned_back, one_key_less, past_the_length])
def test_the_check_can_fail(planted):
    right = choose('plain', 'cpu')
    name = {'unshifted': 'gate_norm', 'last_step': 'gate_norm', 'other_gate': 'glu',
            'one_row_later': 'split_rotate', 'turned_back': 'split_rotate'}.get(
                planted.__name__, 'attend')
    fields = {one: getattr(right, one) for one in NAMES} | {name: planted}
    outcomes = list(check.check(Kernels('planted', **fields), 'cpu', check.Sizes()))
    for dtype in ('float32', 'bfloat16'):
        wrong = {one.kernel for one in outcomes if one.dtype == dtype and not one.is_right}
        assert wrong == {name}


def test_the_plain_functions_in_bfloat16_are_within_the_bounds_of_float32():
    outcomes = list(check.check(choose('plain', 'cpu'), 'cpu', check.Sizes()))
    assert len(outcomes) > 20 and all(one.is_right for one in outcomes)


# ---- the switch --------------------------------------------------------------------------------


def test_plain_is_chosen_where_the_kernels_cannot_run(monkeypatch):
    assert choose('plain', 'cuda').kind == choose('auto', 'cpu').kind == 'plain'
    assert choose('plain', 'cpu').attend is plain.attend
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    assert choose('auto', 'cuda').kind == 'plain'


@needs_triton
def test_kernels_are_chosen_on_a_gpu():
    chosen = choose('auto', 'cuda')
    assert chosen.kind == 'triton' and chosen.attend is not plain.attend


def test_kernels_that_were_asked_for_and_cannot_run_are_an_error(monkeypatch):
    with pytest.raises(ConfigError, match="'fast'"):
        choose('fast', 'cpu')
    if importlib.util.find_spec('triton'):
        with pytest.raises(ConfigError, match='no GPU'):
            choose('triton', 'cpu')
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(ConfigError, match='no triton'):
        choose('triton', 'cuda')


@needs_triton
def test_inputs_that_a_kernel_would_read_wrongly_are_refused():
    from reflex_ros.kernels import launch

    with pytest.raises(ConfigError, match='packed'):
        launch.glu(torch.zeros(4, 8).t(), 'silu')
    with pytest.raises(ConfigError, match='got 24'):
        launch.require_power(24)
