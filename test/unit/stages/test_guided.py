"""[ci] Guided chunks of every policy: committed rows repeat the plan, in the arm's own units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.types import JOINT_NAMES, KvBlock, StateSource
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.guide import Guide
from reflex_ros.stages.models import InferRequest

TINY = Path(__file__).resolve().parents[3] / 'reflex_ros' / 'data' / 'tiny'
T0 = 1_700_000_000 * S
STATE = np.array([0.1, 0.9, -1.1, 0.05, 0.4, -0.1, 0.03])


def guide_for(free: np.ndarray, *, frozen: int, soft_end: int, known: int) -> Guide:
    """Return a plan that lies beside a free chunk: 20 mrad, and 2 mm at the gripper."""
    offset = np.array([0.02] * 6 + [0.002])
    return Guide(free[:known] + offset, frozen, soft_end)


@pytest.fixture
def chunks(family_checkpoint, family_params):
    """Return free and guided chunks of a family through its ring."""
    parts = []

    def make(family: str, **config):
        folder = family_checkpoint(family, action_std=0.1, name=f'c{len(parts)}',
                                   change=lambda c: c.update(config))
        params, shared = family_params(family, folder), Shared()
        encoder = make_encoder(params, SystemClock(), namespace=f'/g{id(params)}', shared=shared)
        parts.append(encoder)
        policy = make_policy(params, SystemClock(), namespace='/', shared=shared)
        parts.append(policy)
        probe = ClockProbe(SystemClock())
        encoder.encoder.instruction('fold the towel', 1, probe)
        names = params['camera.names']
        block = KvBlock(1, T0, 1, names, (T0,) * len(names), state_source=StateSource.MEASURED,
                        state_at_ns=T0, state=STATE, joint_names=JOINT_NAMES)
        images = {n: np.random.default_rng(i).integers(0, 256, (48, 72, 3), np.uint8)
                  for i, n in enumerate(names)}
        block = encoder.encoder.encode(block, images, probe)
        return lambda guide=None: policy.model.infer(
            InferRequest(block, 1, STATE, T0, guide), ClockProbe(SystemClock()))

    yield make
    for part in reversed(parts):
        part.close()


@pytest.mark.parametrize('family', ['pi0', 'pi05', 'smolvla'])
def test_committed_rows_repeat_the_plan_and_free_rows_may_differ(chunks, family):
    infer = chunks(family)
    free = infer()
    guide = guide_for(free, frozen=4, soft_end=6, known=10)
    guided = infer(guide)
    before = np.abs(free - guide.rows)[:4].max(0)
    after = np.abs(guided - guide.rows)[:4].max(0)
    assert np.all(after < 0.35 * before), (after, before)
    assert np.abs(guided[6:] - free[6:]).max() < np.abs(guided[:4] - free[:4]).max()


def test_repetition_can_fail(chunks):
    """Without weight on the committed rows the chunk stays where it was."""
    infer = chunks('pi0')
    free = infer()
    guided = infer(guide_for(free, frozen=0, soft_end=0, known=10))
    np.testing.assert_allclose(guided, free, rtol=0, atol=1e-7)


def test_a_checkpoint_trained_for_it_takes_committed_rows_as_they_are(chunks):
    infer = chunks('pi05', rtc_training_max_delay=6)
    guide = guide_for(infer(), frozen=4, soft_end=6, known=10)
    np.testing.assert_allclose(infer(guide)[:4], guide.rows[:4], rtol=0, atol=1e-5)
    longer = guide_for(infer(), frozen=7, soft_end=9, known=10)
    assert np.abs(infer(longer)[:7] - longer.rows[:7]).max() > 1e-5, 'steered, not committed'


@pytest.mark.parametrize('family', ['pi0', 'pi05', 'smolvla'])
def test_a_plan_that_ends_early_is_held_and_never_becomes_zero(chunks, family):
    infer = chunks(family)
    free = infer()
    short = guide_for(free, frozen=4, soft_end=6, known=2)
    held = Guide(np.concatenate([short.rows, short.rows[-1:].repeat(8, 0)]), 4, 6)
    np.testing.assert_array_equal(infer(short), infer(held))


def test_tiny_repeats_committed_rows_in_absolute_positions():
    policy = TinyPolicy.load(TINY)
    spec = policy.spec
    pinned, frame = np.zeros(spec.pinned_shape, np.float32), np.zeros(spec.frame_shape, np.float32)
    policy.encode_instruction(spec.instruction, pinned)
    images = {n: np.full((*spec.image_hw, 3), 90, np.uint8) for n in spec.cameras}
    policy.encode_frame(images, pinned, frame)
    noise = chunk_noise(0, 1, shape=spec.noise_shape)
    state = np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.03])
    free = policy.denoise(pinned, [frame], [0.0], state=state, noise=noise)
    plan = free[:6] + np.array([0.02] * 6 + [0.002])
    guidance = policy.guidance(plan, state, frozen=4, soft_end=6)
    guided = policy.denoise(pinned, [frame], [0.0], state=state, noise=noise, guidance=guidance)
    assert np.abs(guided - plan[:1])[0, :6].max() < 0.01
    assert np.abs(guided[:4] - plan[:4])[:, :6].max() < 0.35 * 0.02
    with pytest.raises(ConfigError, match='without rows'):
        policy.guidance(plan[:0], state, frozen=0, soft_end=1)
