"""[ci] The prior methods on ``tiny``: a whole frame is used again, a budget over a few frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from reflex_ros.infer.baselines.options import FrameOptions, VlOptions
from reflex_ros.infer.baselines.windowed import BudgetDenoiser, FrameCache
from reflex_ros.infer.families.tiny import TinyPolicy

TINY = Path(__file__).resolve().parents[4] / 'reflex_ros' / 'data' / 'tiny'
STEPS = 3
STATE = np.array([0, 1.2, -1.35, 0, 0.9, 0, 0.03])


@pytest.fixture(scope='module')
def policy():
    return TinyPolicy.load(TINY, dtype=torch.float64)


@pytest.fixture(scope='module')
def pinned(policy):
    return instruction(policy, policy.spec.instruction)


def instruction(policy, text):
    block = torch.zeros(policy.spec.pinned_shape, dtype=torch.float64)
    policy.encode_instruction(text, block)
    return block


def images(policy, seed=0, bright=0):
    rng = np.random.default_rng(seed)
    image = rng.integers(20, 200, (*policy.spec.image_hw, 3), dtype=np.uint8)
    image[:8, :8] = 255 - image[:8, :8] if bright else image[:8, :8]
    return dict.fromkeys(policy.spec.cameras, image)


def encode(policy, pinned, frame):
    block = torch.zeros(policy.spec.frame_shape, dtype=torch.float64)
    policy.encode_frame(frame, pinned, block)
    return block


def run(policy, pinned, frames, **options):
    """Return for each frame whether it was reused and how far its block is off."""
    cache, found = FrameCache(policy, FrameOptions(**options)), []
    for frame in frames:
        out = torch.zeros(policy.spec.frame_shape, dtype=torch.float64)
        is_reused = cache.encode_frame(frame, pinned, out)
        found.append((is_reused, float((out - encode(policy, pinned, frame)).abs().max())))
    return found


def test_an_identical_frame_is_used_again_and_exact(policy, pinned):
    assert run(policy, pinned, [images(policy)] * 3) == [(False, 0), (True, 0), (True, 0)]


def test_a_changed_frame_is_computed(policy, pinned):
    assert run(policy, pinned, [images(policy), images(policy, bright=1)])[1] == (False, 0)


def test_a_lax_share_takes_it_for_static_and_can_fail(policy, pinned):
    is_reused, error = run(policy, pinned, [images(policy), images(policy, bright=1)],
                           static_share=0.9)[1]
    assert is_reused and error > 1e-3


def test_no_block_gets_older_than_its_bound(policy, pinned):
    found = run(policy, pinned, [images(policy)] * 6, max_age=2)
    assert [is_reused for is_reused, _ in found] == [False, True, True, False, True, True]


def test_another_instruction_begins_anew(policy, pinned):
    cache, frame = FrameCache(policy, FrameOptions()), images(policy)
    out = torch.zeros(policy.spec.frame_shape, dtype=torch.float64)
    assert not cache.encode_frame(frame, pinned, out)
    assert not cache.encode_frame(frame, pinned + 0.1, out)
    assert torch.equal(out, encode(policy, pinned + 0.1, frame))


def velocities(policy, pinned, options=None):
    frames = [encode(policy, pinned, images(policy, seed)) for seed in range(3)]
    ages, noise = np.array([4.0, 2.0, 0.0]), torch.randn(
        1, *policy.spec.noise_shape, generator=torch.Generator().manual_seed(2)).double()
    if options is None:
        denoiser = policy.prepare(pinned, frames, ages, state=STATE, num_steps=STEPS)
    else:
        denoiser = BudgetDenoiser(policy, pinned, frames, ages, state=STATE, num_steps=STEPS,
                                  options=options)
    with torch.inference_mode():
        found = torch.stack([denoiser.velocity(noise + k, k) for k in range(STEPS)])
    return found, denoiser


def test_the_whole_budget_is_exact(policy, pinned):
    exact = velocities(policy, pinned)[0]
    found, denoiser = velocities(policy, pinned, VlOptions(retention=1.0))
    assert float((found - exact).abs().max()) <= 1e-12
    assert denoiser.context.report()['dropped_mass'] == 0


def test_a_small_budget_can_fail_that_from_the_second_step_on(policy, pinned):
    exact = velocities(policy, pinned)[0]
    found, denoiser = velocities(policy, pinned, VlOptions(retention=0.3, is_audited=True))
    error = (found - exact).abs().amax((1, 2, 3))
    assert error[0] <= 1e-12 and error[1:].min() > 1e-6
    report = denoiser.context.report()
    assert 0 < report['dropped_mass'] <= 1 and 0.2 < report['kept_ratio'] < 0.5
    assert report['kept_bytes'] < report['prefix_bytes']
