"""Variants of a call: one thing differs, the actions do not, and a wrong variant is found out."""

from __future__ import annotations

import argparse
import json

import pytest
import torch

from reflex_ros.study import denoise_report
from reflex_ros.study.bench_subject import FAMILIES, random_subject
from reflex_ros.study.denoise_report import BENCH, EQUAL
from reflex_ros.study.denoise_variants import (
    FULL,
    OURS,
    RUNGS,
    applies,
    errors,
    ladder,
    loop_variants,
    measure_loop,
    naive_actions,
    parts_of,
    unpacked,
)
from reflex_ros.study.op_counts import count_ops

ONCE = {'rounds': 1, 'warmup': 0}


@pytest.fixture(scope='module')
def found():
    options = argparse.Namespace(families=['pi05'], size='tiny', rounds=1, warmup=0, calls=1,
                                 seed=1)
    ticks = []
    rows = BENCH.run(options, lambda: ticks.append(1))
    assert len(ticks) == BENCH.total(options)
    return rows


@pytest.mark.parametrize('family', FAMILIES)
def test_all_variants_of_the_loop_give_equal_actions(family):
    subject = random_subject(family, 'tiny', seed=1)
    variants = loop_variants(subject, 'float32')
    measure_loop(subject, variants, **ONCE)
    reference = variants[0].actions
    for variant in variants:
        assert errors(variant.actions, reference, subject.noise)['max'] <= EQUAL, variant.name


def test_equal_actions_can_fail():
    """The naive cache, and a layer with projections of another layer, are told apart."""
    subject = random_subject('pi05', 'tiny', seed=1)
    ours, other = loop_variants(subject, 'float32')[:2]
    unpacked(other.policy, ours.policy, '_mlp')
    first, second = other.policy.network.expert[:2]
    first._in = second._in
    measure_loop(subject, [ours, other], **ONCE)
    for actions in (other.actions, naive_actions(subject)):
        assert errors(actions, ours.actions, subject.noise)['max'] > 100 * EQUAL


def test_variants_compute_what_their_names_say():
    """Unpacked projections are more products of the same size; repeated heads more bytes."""
    subject = random_subject('pi05', 'tiny', seed=1)
    by_name = {v.name: v for v in loop_variants(subject, 'float32')}
    layers = len(by_name[OURS].policy.network.expert)

    def products(counts):
        return sum(n for kind, n in counts.operations.items() if kind in ('mm', 'addmm'))

    ours, qkv, glu, heads = (
        count_ops(lambda name=name: measure_loop(subject, [by_name[name]], **ONCE))
        for name in (OURS, *(f'without {n}' for n in ('packed QKV', 'packed GLU', 'folded heads')))
    )  # fmt: skip
    steps = 10
    assert products(qkv) == products(ours) + 2 * layers * steps
    assert products(glu) == products(ours) + layers * steps
    assert qkv.macs == glu.macs == ours.macs
    assert products(heads) == products(ours) and heads.new_bytes > ours.new_bytes


def test_the_ladder_adds_one_switch_at_a_time_and_ends_at_ours(found):
    names = [rung['variant'] for rung in found['subjects'][0]['ladder']]
    added = [words for name, words in RUNGS.items() if applies(name, 'pi05')]
    assert names == [FULL, *(f'+ {words}' for words in added), '+ bfloat16']
    assert len(added) == len(RUNGS) - 2
    reuses = [rung.policy.reuse for rung in ladder(random_subject('pi05', 'tiny', seed=1))]
    changed = [sum(getattr(a, name) != getattr(b, name) for name in RUNGS)
               for a, b in zip(reuses[:-1], reuses[1:], strict=True)]
    assert changed == [1] * (len(RUNGS) - 2) + [0]
    assert all(getattr(reuses[-1], name) for name in (*RUNGS, 'aligned')
               if name not in ('state_once', 'cross_kv'))


def test_parts_of_a_call_add_up():
    parts = parts_of({'vision a': 1_000_000, 'vision b': 2_000_000, 'prefix': 4_000_000,
                      'denoise': 8_000_000})
    assert parts == {'vision': 3, 'prefix': 4, 'stage': 0, 'denoise': 8, 'all': 15}


def test_errors_are_relative_to_the_velocity():
    reference = torch.zeros(1, 2, 2)
    gap = errors(reference + 0.5, reference, reference + 10)
    assert gap == {'mse': 0.25, 'max': 0.05}


def test_lines_and_picture(found):
    stored = json.loads(json.dumps(found))
    subject = stored['subjects'][0]
    assert subject['equal'] and subject['naive']['mse'] > 1e-6
    text = '\n'.join(BENCH.lines(stored))
    assert 'differ by rounding only' in text and '`naive` cache' in text
    subject['equal'] = False
    assert '**differ**' in '\n'.join(denoise_report.lines(stored))
    assert len(BENCH.draw(stored).axes) == 2
