"""Cost and worth of the window: counts grow with it, errors are against the right chunks."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest

from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.study import window
from reflex_ros.study.random_tiny import random_tiny
from reflex_ros.study.window import BENCH, Scene, chunk_errors, costs

SMALL = TinyConfig(
    image_size=16, vision_layers=1, layers=2, width=12, heads=2, kv_heads=1, head_dim=6,
    gate_hidden=8, horizon=10, rows_per_token=5, instruction_tokens=4, vocabulary=11, tau_dim=6,
    window=3,
)  # fmt: skip


def scene_of(policy, frames=6, seed=0):
    random = np.random.default_rng(seed)
    side, horizon = policy.spec.image_hw[0], policy.spec.horizon
    return Scene(random.integers(0, 256, (frames, side, side, 3), np.uint8),
                 random.normal(0, 0.1, (frames, 7)), np.zeros((frames, horizon, 7)))


def test_a_chunk_costs_the_same_more_for_every_further_frame():
    rows = costs(SMALL, [1, 2, 3], rounds=1, warmup=0, seed=0)
    first, second, third = (row['multiply_accumulates'] for row in rows)
    assert third - second == second - first > 0
    assert len({row['operations'] for row in rows}) == 1


def test_errors_are_zero_for_the_whole_window_and_only_there():
    policy = random_tiny(SMALL)
    found = chunk_errors(policy, scene_of(policy), seed=0)
    assert list(found) == [1, 2, 3]
    assert found[3]['history'] == [0.0, 0.0]
    assert min(found[1]['history']) > 0


def test_zero_errors_can_fail():
    """A scene whose frames are all equal still differs by their ages; an expert by its rows."""
    policy = random_tiny(SMALL)
    scene = scene_of(policy)
    moved = Scene(scene.images, scene.states, scene.chunks + 1.0)
    before, after = (chunk_errors(policy, s, seed=0)[3] for s in (scene, moved))
    assert before['history'] == after['history']
    assert before['expert'] != after['expert']


def test_rows_lines_and_picture(monkeypatch):
    policy = random_tiny(SMALL)
    monkeypatch.setattr(window, 'make_scene', lambda **_: scene_of(policy))
    options = argparse.Namespace(windows=2, rounds=2, warmup=0, frames=6, seed=0, config=SMALL,
                                 policy=policy)
    ticks = []
    found = json.loads(json.dumps(BENCH.run(options, lambda: ticks.append(1))))
    assert len(ticks) == BENCH.total(options)
    assert found['errors'][0]['expert_rad']['n'] == 2
    text = '\n'.join(BENCH.lines(found))
    assert 'more multiply-accumulates per chunk' in text
    assert len(BENCH.draw(found).axes) == 3


def test_a_rendered_scene_has_what_the_expert_did():
    pytest.importorskip('mujoco')
    scene = window.make_scene(side=16, frames=3, horizon=5, seed=1)
    assert scene.images.shape == (3, 16, 16, 3) and scene.chunks.shape == (3, 5, 7)
    assert np.abs(scene.chunks[0, 0] - scene.states[0]).max() < 0.2
