"""Prompts are the texts that the families were trained on, to the letter."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.processing.prompt import pi05_prompt, pi_prompt, smolvla_prompt, state_bins

STEP = 1.0 / 128.0


@pytest.mark.parametrize('prompt', [pi_prompt, smolvla_prompt])
@pytest.mark.parametrize(('task', 'text'), [
    ('fold it', 'fold it\n'), ('fold it\n', 'fold it\n'), ('fold_it\n\n', 'fold_it\n\n'),
    (' a\nb', ' a\nb\n'), ('', '\n'),
])
def test_a_task_ends_in_a_newline_and_is_else_untouched(prompt, task, text):
    assert prompt(task) == text


@pytest.mark.parametrize(('value', 'at'), [
    (-1.5, -1), (-1.0, 0), (-1.0 + 0.99 * STEP, 0), (-1.0 + STEP, 1), (0.0, 128),
    (-1e-9, 127), (1.0 - STEP, 255), (1.0 - 1.01 * STEP, 254), (1.0, 255), (7.0, 255),
])
def test_bins_are_left_closed_and_not_clipped_below(value, at):
    assert state_bins([value]) == [at]


def test_edges_in_single_precision_fall_into_their_own_bin():
    edges = np.linspace(-1, 1, 257)[:-1].astype(np.float32)
    assert state_bins(edges) == list(range(256))


def test_the_state_stands_in_the_text():
    got = pi05_prompt(' pick_up\nthe block ', [0.0, -1.0, 2.0])
    assert got == 'Task: pick up the block, State: 128 0 255;\nAction: '


def test_the_padded_variant_has_the_width_of_the_network():
    got = pi05_prompt('go', [-1.0, 1.0], state_text='padded', pad_to=5)
    assert got == 'Task: go, State: 0 255 128 128 128;\nAction: '


def test_an_unknown_variant_is_named():
    with pytest.raises(ConfigError, match="got 'other', expected one of real, padded"):
        pi05_prompt('go', [0.0], state_text='other')
