"""[ci] Every kind of reuse: the result is the same with and without it, and the work is less."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch

from reflex_ros.infer import decoder, flow
from reflex_ros.infer.reuse import Reuse, reference_reuse
from reflex_ros.infer.snapshot import Prefix
from reflex_ros.infer.tokens import Padding, padded_tokens

SWITCHES = tuple(field.name for field in dataclasses.fields(Reuse))
STEPS = 4


def chunk(case, reuse: Reuse, dtype=torch.float64):
    """Return the actions of all steps."""
    with torch.inference_mode():
        denoiser = case.denoiser(reuse, dtype)
        x = case.noise[None].to(dtype)
        for k in range(STEPS):
            x = x - denoiser.velocity(x, k) / STEPS
    return x[0]


@pytest.mark.parametrize('switch', SWITCHES)
@pytest.mark.parametrize(('dtype', 'bound'), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_on_equals_off(case, family, switch, dtype, bound):
    case = case(family, seed=11, num_steps=STEPS)
    on = chunk(case, Reuse(), dtype)
    other = not getattr(Reuse(), switch)
    off = chunk(case, dataclasses.replace(Reuse(), **{switch: other}), dtype)
    assert float((on - off).abs().max()) <= bound * max(1.0, float(off.abs().max()))
    everything = chunk(case, reference_reuse(), dtype)
    assert float((on - everything).abs().max()) <= bound * max(1.0, float(off.abs().max()))


@pytest.fixture
def work(monkeypatch):
    """Count what the layers do: name of the work → times."""
    counts: Counter[str] = Counter()

    def count(owner, name, label):
        original = getattr(owner, name)

        def counted(*args, **kwargs):
            counts[label(*args, **kwargs)] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count(decoder.Layer, 'attend', lambda layer, x, *_: f'queries {x.shape[1]}')
    count(decoder.Layer, 'cross', lambda *_: 'cross')
    count(decoder.Layer, 'feed', lambda layer, x: f'mlp {x.shape[1]}')
    count(flow, 'embed_tau', lambda *_, **__: 'time')
    count(torch, 'cat', lambda parts, dim=0: f'cat {parts[0].ndim}')
    return counts


def velocities(case, reuse: Reuse, work, steps: int = STEPS):
    """Count the work of some steps, without what is done before them."""
    with torch.inference_mode():
        denoiser = case.denoiser(reuse)
        before = Counter(work)
        for k in range(steps):
            denoiser.velocity(case.noise[None], k)
    return work - before


def test_pi0_runs_its_state_once(case, work):
    case = case('pi0', chunk=6, num_steps=STEPS)
    layers = case.sizes.expert_depth
    on = velocities(case, Reuse(), work)
    assert on['queries 6'] == STEPS * layers
    assert on['queries 7'] == 0
    off = velocities(case, Reuse(state_once=False), work)
    assert off['queries 7'] == STEPS * layers


def test_smolvla_runs_a_new_state_alone(case, work):
    case = case('smolvla', chunk=6, num_steps=STEPS)
    network = case.network(Reuse())
    with torch.inference_mode():
        prefix = case.prefix(network)
        kept = prefix.kv[:, :, :, : prefix.length].clone()
        work.clear()
        first = network.prepare(prefix, case.state(torch.float64), STEPS)
        assert work['queries 1'] == case.sizes.depth - 1, 'one token, and no query in the last'
        old = first.velocity(case.noise[None], 0)
        other = case.state(torch.float64) + 0.1
        new = network.prepare(prefix, other, STEPS).velocity(case.noise[None], 0)
    assert torch.equal(prefix.kv[:, :, :, : prefix.length], kept), 'images and language stay'
    assert not torch.equal(old, new)


def test_smolvla_projects_the_prefix_for_its_cross_layers_once(case, work):
    case = case('smolvla', num_steps=STEPS)
    assert velocities(case, Reuse(), work)['cross'] == 0
    assert velocities(case, Reuse(cross_kv=False), work)['cross'] == STEPS * 2


def test_the_flow_time_is_looked_up(case, family, work):
    case = case(family, num_steps=STEPS)
    with torch.inference_mode():
        case.denoiser(Reuse()).velocity(case.noise[None], 0)  # a table may be made here, once
    off = velocities(case, Reuse(time_table=False), work)
    assert off['time'] >= STEPS
    network = case.network(Reuse())
    with torch.inference_mode():
        denoiser = network.prepare(case.prefix(network), case.state(torch.float64), STEPS)
        denoiser.velocity(case.noise[None], 0)
        work.clear()
        for k in range(STEPS):
            denoiser.velocity(case.noise[None], k)
    assert work['time'] == 0


def test_the_last_layer_of_the_prefix_adds_keys_and_values_only(case, family, work):
    case = case(family, words=5, cameras=2)
    on, off = case.network(Reuse()), case.network(Reuse(last_layer_kv=False))
    with torch.inference_mode():
        length = case.prefix(on).length
        assert work[f'mlp {length}'] == case.sizes.depth - 1
        work.clear()
        case.prefix(off)
    assert work[f'mlp {length}'] == case.sizes.depth


def test_the_suffix_is_written_behind_the_prefix_and_nothing_is_joined(case, family):
    case = case(family)
    network = case.network(Reuse())
    with torch.inference_mode():
        prefix = case.prefix(network)
        denoiser = network.prepare(prefix, case.state(torch.float64), STEPS)
        end = prefix.length + network.state_rows
        last = prefix.kv[:, :, :, end:].clone()
        denoiser.velocity(case.noise[None], 0)
        written = (prefix.kv[:, :, :, end:] != last).flatten(1).any(1)
    # a cross layer of SmolVLA has no keys of its own
    crossing = case.family == 'smolvla'
    assert written.tolist() == [not (crossing and i % 2) for i in range(case.sizes.depth)]
    joined = case.network(Reuse(static_rows=False))
    with torch.inference_mode():
        prefix = case.prefix(joined)
        denoiser = joined.prepare(prefix, case.state(torch.float64), STEPS)
        before = prefix.kv.clone()
        denoiser.velocity(case.noise[None], 0)
    assert torch.equal(prefix.kv, before)


def test_pads_and_masked_cameras_are_inert(case, family):
    """The same tokens with pads and a masked camera: same keys where something counts."""
    case = case(family, cameras=2, words=5)
    network = case.network(Reuse())
    with torch.inference_mode():
        views = {str(i): network.embed_camera(p[None]) for i, p in enumerate(case.inputs.pixels)}
        padding = Padding(absent_cameras=1, words=9)
        tokens, valid = padded_tokens(network, views, [case.inputs.ids], padding=padding)
        rows = tokens.shape[1] + network.state_rows + case.config.chunk_size
        padded = network.encode(tokens, valid, network.new_cache(1, rows))
        compact = case.prefix(network)
        kept = padded.kv[:, :, :, : padded.length][:, :, :, valid[0]]
        state = case.state(torch.float64)
        found = [network.prepare(p, state, STEPS).velocity(case.noise[None], 1)
                 for p in (padded, compact)]
    assert tokens.shape[1] == compact.length + network.camera_tokens + 4
    assert torch.allclose(kept, compact.kv[:, :, :, : compact.length], rtol=0, atol=1e-12)
    assert torch.allclose(*found, rtol=0, atol=1e-12)


def test_inertness_can_fail(case, family):
    """A pad that counts moves the keys."""
    case = case(family, words=5)
    network = case.network(Reuse())
    with torch.inference_mode():
        views = {str(i): network.embed_camera(p[None]) for i, p in enumerate(case.inputs.pixels)}
        tokens, valid = padded_tokens(
            network, views, [case.inputs.ids], padding=Padding(absent_cameras=0, words=9))
        kv = network.new_cache(1, tokens.shape[1])
        right = network.encode(tokens, valid, kv).kv.clone()
        valid[0, -1] = True
        wrong = network.encode(tokens, valid, network.new_cache(1, tokens.shape[1])).kv
        shown = valid.clone()
        shown[0, -1] = False
    assert float((right - wrong)[1:, :, :, shown[0]].abs().max()) > 1e-3


def test_keys_of_the_prefix_do_not_depend_on_the_step(case, family):
    """What makes a cache exact: ten steps later the prefix holds the same bytes."""
    case = case(family, num_steps=10)
    network = case.network(Reuse())
    with torch.inference_mode():
        prefix = case.prefix(network)
        before = prefix.kv[:, :, :, : prefix.length].clone()
        denoiser = network.prepare(prefix, case.state(torch.float64), 10)
        for k in range(10):
            denoiser.velocity(case.noise[None], k)
        again = case.prefix(network).kv[:, :, :, : prefix.length]
    assert torch.equal(prefix.kv[:, :, :, : prefix.length], before)
    assert torch.equal(again, before)


def test_the_whole_prefix_runs_in_every_step_without_its_cache(parity, monkeypatch):
    from reflex_ros.infer.families.paligemma import PaliGemma

    calls = []
    original = PaliGemma.encode

    def encode(self, tokens, valid, kv, state=None) -> Prefix:
        calls.append(tokens.shape[1])
        return original(self, tokens, valid, kv, state)

    monkeypatch.setattr(PaliGemma, 'encode', encode)
    full = parity('pi0').predict('all_cameras', reuse=reference_reuse(prefix_kv=False))
    assert len(calls) == 11
    calls.clear()
    kept = parity('pi0').predict('all_cameras', reuse=reference_reuse())
    assert len(calls) == 1
    assert float((full.actions - kept.actions).abs().max()) < 1e-5
