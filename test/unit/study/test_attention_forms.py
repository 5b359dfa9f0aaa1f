"""The forms of attention agree, are timed in turns, and the answer follows from the figures."""

from __future__ import annotations

import argparse
import copy

import pytest
import torch

from reflex_ros.infer.attention import merge
from reflex_ros.study import attention_forms
from reflex_ros.study.attention_forms import (
    BENCH,
    BUFFER,
    FORMS,
    MERGED,
    SUBJECTS,
    answer,
    largest_difference,
    measure,
)


@pytest.fixture(scope='module')
def found():
    names = ('tiny, 4 frames', 'smolvla, float32')
    options = argparse.Namespace(rounds=3, warmup=1, seed=0, subjects=names)
    return BENCH.run(options, lambda: None)


@pytest.mark.parametrize('name', SUBJECTS)
def test_all_forms_give_the_same_result(name):
    bound = 2e-2 if 'bfloat16' in name else 1e-5
    assert largest_difference(SUBJECTS[name].forms(1)) < bound


def test_the_same_result_can_fail():
    forms = SUBJECTS['tiny, 4 frames'].forms(1)
    forms[MERGED] = lambda: torch.zeros_like(forms[BUFFER]())
    assert largest_difference(forms) > 1e-2
    assert merge is attention_forms.merge


def test_every_form_runs_in_every_round_and_warm_up_is_not_counted():
    ticks, runs = iter(range(10**6)), dict.fromkeys(FORMS, 0)

    def work(form):
        def run():
            runs[form] += 1

        return run

    times = measure({form: work(form) for form in FORMS}, rounds=4, warmup=2, seed=0,
                    clock=lambda: next(ticks))
    assert runs == dict.fromkeys(FORMS, 6)
    assert {form: values.tolist() for form, values in times.items()} == dict.fromkeys(
        FORMS, [1.0] * 4)


def test_the_answer_follows_from_the_ratios(found):
    slower = copy.deepcopy(found)
    for one in slower['subjects'].values():
        for ratio in one['ratio'].values():
            ratio.update(median=2.0, low=1.5, high=2.5)
    assert answer(slower).startswith('One buffer is the cheapest form, or not told from it')
    slower['subjects']['tiny, 4 frames']['ratio'][MERGED].update(median=0.5, low=0.4, high=0.6)
    assert 'but for tiny, 4 frames' in answer(slower)


def test_result_picture_and_lines_are_whole(found):
    text = '\n'.join(BENCH.lines(found))
    assert all(name in text for name in found['subjects'])
    assert all(form in text for form in FORMS)
    assert BENCH.draw(found).axes
