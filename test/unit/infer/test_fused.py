"""[ci] Kernels in the expert: the pass of ``decoder.run``, with fewer and larger steps."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from reflex_ros.core.clock import ManualClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import fused
from reflex_ros.infer.compute import Compute
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.graph import Graphs, ReplayRecorder
from reflex_ros.infer.graph_loop import GraphedDenoiser, graph_room
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.snapshot import Prefix, denoise
from reflex_ros.kernels import plain
from reflex_ros.study.bench_subject import FAMILIES, random_subject

STEPS, LENGTH = 2, 37
BOUND = {'float32': 2e-5, 'bfloat16': 6e-2}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def policy_of(family, dtype, kernels):
    subject = random_subject(family, 'tiny', seed=3)
    return SnapshotPolicy(subject.pretrained, dtype=dtype, compute=Compute(kernels=kernels))


def staged(policy):
    """Return a staging copy with ``LENGTH`` rows of prefix, state and noise."""
    made = torch.Generator().manual_seed(5)
    network, config = policy.network, policy.config
    with torch.inference_mode():
        kv = network.new_cache(1, 60 + graph_room(network.state_rows, config.chunk_size))
        drawn = torch.randn(kv[:, :, :, :LENGTH].shape, generator=made)
        kv[:, :, :, :LENGTH] = drawn.to(kv.dtype)
    state = torch.rand(1, config.max_state_dim, generator=made) - 0.5
    shape = (1, config.chunk_size, config.max_action_dim)
    return kv, state, torch.from_numpy(chunk_noise(3, 0, shape=shape))


@torch.inference_mode()
def actions(policy):
    kv, state, noise = staged(policy)
    denoiser = policy.prepare(Prefix(kv, LENGTH), state, STEPS)
    return denoise(denoiser, noise, STEPS)


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize('dtype', BOUND)
def test_the_kernels_compute_what_single_operations_do(family, dtype):
    got, wanted = (actions(policy_of(family, dtype, kernels)) for kernels in ('plain', 'none'))
    torch.testing.assert_close(got, wanted, rtol=0, atol=BOUND[dtype])


def test_equality_can_fail_where_the_gate_is_forgotten(monkeypatch):
    right = plain.gate_norm

    def forgetful(x, branch, gate, *rest, eps):
        return right(x, branch, None if gate is None else torch.ones_like(gate), *rest, eps=eps)

    monkeypatch.setattr(plain, 'gate_norm', forgetful)
    got, wanted = (actions(policy_of('pi05', 'float32', k)) for k in ('plain', 'none'))
    assert float((got - wanted).abs().max()) > 1e-2


@pytest.mark.parametrize('family', FAMILIES)
def test_the_expert_runs_by_them_in_every_step(family, monkeypatch):
    calls = []
    monkeypatch.setattr(plain, 'glu', lambda *a, run=plain.glu: calls.append(1) or run(*a))
    policy = policy_of(family, 'float32', 'plain')
    actions(policy)
    assert len(calls) == STEPS * policy.network.sizes.expert_depth


def test_what_they_do_not_fit_runs_as_before():
    policy = policy_of('pi05', 'float32', 'plain')
    kv, state, noise = staged(policy)
    with torch.inference_mode():
        denoiser = policy.prepare(Prefix(kv, LENGTH), state, STEPS)
    assert fused.fits(policy.network.expert, noise, denoiser._how, ())
    watched = dataclasses.replace(denoiser._how, watch=lambda *_: None)
    assert not fused.fits(policy.network.expert, noise, watched, ())
    assert not fused.fits(policy.network.expert, noise.expand(2, -1, -1), denoiser._how, ())


@pytest.mark.parametrize('family', FAMILIES)
def test_a_recorded_loop_runs_by_them(family):
    policy = policy_of(family, 'float32', 'plain')
    kv, state, noise = staged(policy)
    graphs = Graphs(ReplayRecorder(), clock=ManualClock())
    recorded = GraphedDenoiser(policy, kv, num_steps=STEPS, graphs=graphs)
    got = recorded(LENGTH, state, noise).clone()
    torch.testing.assert_close(got, actions(policy_of(family, 'float32', 'none')),
                               rtol=0, atol=2e-5)
    assert torch.equal(got, recorded(LENGTH, state, noise))
    assert graphs.counts.replayed == 2


def test_kernels_that_cannot_run_here_are_refused():
    if torch.cuda.is_available() or os.environ.get('TRITON_INTERPRET'):
        pytest.skip('Triton runs here')
    with pytest.raises(ConfigError, match='kernels triton on cpu'):
        policy_of('pi05', 'float32', 'triton')


@pytest.mark.soak
@pytest.mark.skipif(importlib.util.find_spec('triton') is None, reason='no triton here')
def test_the_triton_kernels_fit_the_expert_in_the_interpreter():
    """Two layers and one step, the real kernels; a process of its own, for triton's switch."""
    code = """
from dataclasses import replace
import torch
from reflex_ros.infer.compute import Compute
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.snapshot import Prefix
from reflex_ros.study.bench_subject import random_subject
made = random_subject("pi05", "tiny", seed=3)
small = replace(made.pretrained, config=replace(made.pretrained.config, chunk_size=4))
out = []
with torch.inference_mode():
    for kernels in ("triton", "none"):
        policy = SnapshotPolicy(small, compute=Compute(kernels=kernels))
        kv = torch.rand(2, 2, 1, 60, 1, 16, generator=torch.Generator().manual_seed(1))
        denoiser = policy.prepare(Prefix(kv, 37), made.state, 1)
        out.append(denoiser.velocity(made.noise[:, :4], 0))
print(float((out[0] - out[1]).abs().max()))
"""
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                          timeout=100, check=True, env={**os.environ, 'TRITON_INTERPRET': '1'})
    assert float(done.stdout.split()[-1]) < 2e-5
