"""The figure that the README shows of the policy bench."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import pytest

from reflex_ros.study.bench_policy import REFERENCE, REFLEX, Cell
from reflex_ros.study.bench_targets import MIN_CALLS, judge

ROOT = Path(__file__).parents[3]
PARTS = ('vision', 'prefix', 'denoise', 'control', 'one_new', 'all_new')


@pytest.fixture(scope='module')
def generator():
    spec = importlib.util.spec_from_file_location('make_docs', ROOT / 'docs' / 'make_docs.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(ours):
    """Return a result with one network whose control path takes ``ours`` of 100 ms."""
    times = {(REFERENCE, 'float32'): 100.0, (REFLEX, 'float32'): ours, (REFLEX, 'bfloat16'): ours}
    cells = [Cell(variant, dtype, None, {'cpu': {part: [time] * MIN_CALLS for part in PARTS}})
             for (variant, dtype), time in times.items()]
    judged = judge('pi0', 'mid', cells, has_bfloat16=False)
    subject = {
        'family': 'pi0', 'size': 'mid', 'parameters': 79.7e6, 'cameras': 3, 'num_steps': 10,
        'chunk': 50, 'prefix_tokens': {REFERENCE: 816, REFLEX: 788},
        'difference': {'float32': 3e-7}, 'targets': [dataclasses.asdict(one) for one in judged],
        'cells': [{'variant': cell.variant, 'dtype': cell.dtype,
                   'cpu': {part: {'p50': cell.calls['cpu'][part][0]} for part in PARTS}}
                  for cell in cells],
    }  # fmt: skip
    config = {'threads': 1, 'calls': 30, 'full_calls': 3, 'weights': 'random'}
    return {'config': config, 'summary': {'subjects': [subject, {**subject, 'size': 'tiny'}]}}


def test_the_figure_has_times_ratios_and_differences(generator):
    text = '\n'.join(generator.policy_bench(result(20.0)))
    assert '| pi0, 80 M weights, prefix of 816 / 788 tokens | `reflex`, float32 | 20 |' in text
    assert text.count('| `reference`, float32 |') == 1, 'tiny is left to the result file'
    assert '| control path, float32 | 0.200 (0.200 to 0.200), at most 0.25: pass |' in text
    assert 'control path, bfloat16 | not applicable: the CPU multiplies no bfloat16' in text
    assert '| 3.0e-07 |' in text


def test_a_missed_target_can_fail_in_the_figure(generator):
    text = '\n'.join(generator.policy_bench(result(26.0)))
    assert 'at most 0.25: fail' in text
