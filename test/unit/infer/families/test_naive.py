"""[ci] The naive cache: what it keeps, that it is wrong, and that no other cache is like it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from reflex_ros.cli.main import main
from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.cache import JoinedCache, NaiveCache, StaticCache
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.reuse import Reuse

STEPS = 4
TINY = Path(__file__).resolve().parents[4] / 'reflex_ros' / 'data' / 'tiny'


def rows(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    key, value = torch.randn(2, 1, 3, 2, 4, generator=generator)
    return key, value


def test_it_keeps_what_a_layer_was_given_first():
    cache = NaiveCache(torch.randn(2, 2, 1, 9, 2, 4))
    first = [part.clone() for part in cache.append(0, 5, *rows(0))]
    again = cache.append(0, 5, *rows(1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = cache.append(1, 5, *rows(1))
    assert torch.equal(other[0][:, 5:], rows(1)[0]), 'each layer has its own first time'


@pytest.mark.parametrize('kind', [StaticCache, JoinedCache])
def test_the_other_caches_can_fail_that(kind):
    cache = kind(torch.randn(2, 2, 1, 9, 2, 4))
    first = cache.append(0, 5, *rows(0))[0].clone()
    assert not torch.equal(first, cache.append(0, 5, *rows(1))[0])


def velocities(case, cache: str, reuse: Reuse = Reuse()):  # noqa: B008
    network = case.network(reuse)
    with torch.inference_mode():
        denoiser = network.prepare(
            case.prefix(network), case.state(torch.float64), STEPS, cache=cache)
        return [denoiser.velocity(case.noise[None] + k, k) for k in range(STEPS)]


@pytest.mark.parametrize('reuse', [Reuse(), Reuse(state_once=False, static_rows=False)])
def test_the_first_step_is_right_and_the_later_ones_are_not(case, family, reuse):
    case = case(family, num_steps=STEPS)
    exact, naive = velocities(case, 'partitioned', reuse), velocities(case, 'naive', reuse)
    assert torch.allclose(exact[0], naive[0], atol=1e-12)
    assert all(float((a - b).abs().max()) > 1e-4
               for a, b in zip(exact[1:], naive[1:], strict=True))


def tiny_velocities(policy: TinyPolicy, cache: str) -> np.ndarray:
    rng, spec = np.random.default_rng(0), policy.spec
    pinned, frame = np.zeros(spec.pinned_shape, np.float32), np.zeros(spec.frame_shape, np.float32)
    policy.encode_instruction(spec.instruction, pinned)
    image = rng.integers(0, 256, (*spec.image_hw, 3), dtype=np.uint8)
    policy.encode_frame({spec.cameras[0]: image}, pinned, frame)
    state = np.array([0, 1.2, -1.35, 0, 0.9, 0, 0.03])
    denoiser = policy.prepare(pinned, [frame], [0.0], state=state, num_steps=STEPS, cache=cache)
    noise = torch.from_numpy(rng.standard_normal((1, *spec.noise_shape), np.float32))
    with torch.inference_mode():
        return torch.stack([denoiser.velocity(noise + k, k) for k in range(STEPS)]).numpy()


def test_tiny_has_it_too():
    policy = TinyPolicy.load(TINY)
    exact, naive = tiny_velocities(policy, 'partitioned'), tiny_velocities(policy, 'naive')
    assert np.array_equal(exact[0], naive[0])
    assert np.abs(exact[1:] - naive[1:]).max() > 1e-3


def test_predict_offers_it(tmp_path):
    folder = Path(__file__).resolve().parents[3] / 'data' / 'parity' / 'pi0'
    written = {}
    for cache in ('partitioned', 'naive'):
        target = tmp_path / f'{cache}.npz'
        assert main(['predict', str(folder / 'checkpoint'), '--input',
                     str(folder / 'all_cameras.npz'), '--output', str(target),
                     '--cache', cache]) == 0
        written[cache] = dict(np.load(target))['v_t']
    error = np.abs(written['partitioned'] - written['naive']).max((1, 2, 3))
    assert error[0] == 0 and error[1:].min() > 1e-2


def test_an_unknown_cache_is_refused(case, family):
    with pytest.raises(ConfigError, match="'clever'"):
        velocities(case(family), 'clever')
    with pytest.raises(ConfigError, match="'clever'"):
        tiny_velocities(TinyPolicy.load(TINY), 'clever')
