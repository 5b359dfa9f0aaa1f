"""The traced passes compute what the untraced ones do, bit for bit."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import reflex_ros
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.families.tiny_graph import DenoiseGraph, prepare
from reflex_ros.infer.flow import integrate

FOLDER = Path(reflex_ros.__file__).parent / 'data' / 'tiny'


@pytest.fixture(scope='module')
def traced():
    policy = TinyPolicy.load(FOLDER)
    policy.trace_encoder()
    policy.trace_denoiser()
    return policy


@pytest.fixture(scope='module')
def plain():
    return TinyPolicy.load(FOLDER)


def scene(policy, frames, seed):
    rng = np.random.default_rng(seed)
    pinned = np.zeros(policy.spec.pinned_shape, np.float32)
    policy.encode_instruction(policy.spec.instruction, pinned)
    blocks = [rng.standard_normal(policy.spec.frame_shape).astype(np.float32)
              for _ in range(frames)]
    ages = list(rng.uniform(-1, 20, frames))
    given = {'state': rng.normal(0, 0.5, 7),
             'noise': rng.standard_normal(policy.spec.noise_shape).astype(np.float32)}
    return (pinned, blocks, ages), given


@pytest.mark.parametrize('frames', [1, 2, 3, 4])
def test_a_traced_call_equals_an_untraced_one(traced, plain, frames):
    for seed in range(3):
        places, given = scene(plain, frames, seed)
        np.testing.assert_array_equal(traced.denoise(*places, **given),
                                      plain.denoise(*places, **given))


def test_equality_can_fail_with_other_weights(traced):
    other = TinyPolicy.load(FOLDER)
    other.network.expert[0].mlp.up.weight.mul_(1.001)
    places, given = scene(other, 4, 0)
    assert not np.array_equal(traced.denoise(*places, **given), other.denoise(*places, **given))


def test_a_traced_frame_equals_an_untraced_one(traced, plain):
    rng = np.random.default_rng(0)
    (pinned, _, _), _ = scene(plain, 1, 0)
    for _ in range(4):
        images = {name: rng.integers(0, 256, (*plain.spec.image_hw, 3), dtype=np.uint8)
                  for name in plain.spec.cameras}
        got, wanted = (np.zeros(plain.spec.frame_shape, np.float32) for _ in range(2))
        traced.encode_frame(images, pinned, got)
        plain.encode_frame(images, pinned, wanted)
        np.testing.assert_array_equal(got, wanted)
        assert wanted.any()


def test_calls_with_other_steps_or_guidance_run_untraced(traced, plain):
    places, given = scene(plain, 4, 5)
    np.testing.assert_array_equal(traced.denoise(*places, **given, num_steps=3),
                                  plain.denoise(*places, **given, num_steps=3))
    rows = np.tile(given['state'], (5, 1))
    guides = [policy.guidance(rows, given['state'], frozen=2, soft_end=5)
              for policy in (traced, plain)]
    got, wanted = (policy.denoise(*places, **given, guidance=guide)
                   for policy, guide in zip((traced, plain), guides, strict=True))
    np.testing.assert_array_equal(got, wanted)
    assert not np.array_equal(got, plain.denoise(*places, **given))


def test_a_graph_knows_its_steps_and_takes_what_prepare_takes(plain):
    graph = DenoiseGraph(plain.network, 2)
    (pinned, blocks, ages), given = scene(plain, 3, 8)
    call = plain._call(pinned, blocks, ages, given['state'])
    noise = torch.from_numpy(given['noise'])[None]
    with torch.inference_mode():
        wanted = integrate(prepare(plain.network, call, 2).velocity, noise, 2)
        assert torch.equal(graph(noise, call), wanted)
    assert graph.num_steps == 2


def test_weights_go_with_their_policy():
    policy = TinyPolicy.load(FOLDER)
    policy.trace_encoder()
    policy.trace_denoiser()
    weight = weakref.ref(policy.network.expert[0].mlp.up.weight)
    assert weight() is not None
    del policy
    gc.collect()
    assert weight() is None


def test_a_traced_call_leaves_its_inputs_alone(traced):
    places, given = scene(traced, 4, 6)
    before = [block.copy() for block in places[1]], places[0].copy(), given['noise'].copy()
    traced.denoise(*places, **given)
    np.testing.assert_array_equal(np.stack(before[0]), np.stack(places[1]))
    np.testing.assert_array_equal(before[1], places[0])
    np.testing.assert_array_equal(before[2], given['noise'])


def test_operations_of_a_graph_are_called_from_python_once(traced, plain, monkeypatch):
    """One call into torch per graph, hundreds without."""
    calls = {'traced': 0, 'plain': 0}
    places, given = scene(plain, 4, 7)
    for name, policy in (('traced', traced), ('plain', plain)):
        right = torch.nn.functional.linear

        def linear(*args, name=name, right=right):
            calls[name] += 1
            return right(*args)

        monkeypatch.setattr(torch.nn.functional, 'linear', linear)
        policy.denoise(*places, **given)
        monkeypatch.undo()
    assert calls['traced'] == 0
    assert calls['plain'] > 100


def test_a_graph_takes_a_double_precision_network():
    policy = TinyPolicy.load(FOLDER, dtype=torch.float64)
    places, given = scene(policy, 2, 1)
    wanted = policy.denoise(*places, **given)
    policy.trace_denoiser()
    np.testing.assert_array_equal(policy.denoise(*places, **given), wanted)
