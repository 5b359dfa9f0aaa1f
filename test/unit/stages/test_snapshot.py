"""Prefixes through a real ring: equal to one-shot inference, cameras encoded once, refusals."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.types import JOINT_NAMES, KvBlock, StateSource
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.one_shot import Observation, predict
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.models import InferRequest
from reflex_ros.stages.snapshot import array_of, snapshot_ring_layout, tensor_of

CLOCK = SystemClock()
FAMILIES = ('pi0', 'pi05', 'smolvla')
CAMERAS = ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb')
T0 = 1_700_000_000 * S
PERIOD = 40 * MS
STATE = np.array([0.1, 0.9, -1.1, 0.05, 0.4, -0.1, 0.03])
TEXT = 'fold the towel'


def probe():
    return ClockProbe(CLOCK)


def image(seed):
    return np.random.default_rng(seed).integers(0, 256, (48, 72, 3), np.uint8)


class Bench:
    """Encoder and policy of one process over a ring, without stages."""

    def __init__(self, params, text=TEXT):
        self.shared, self.params, self.warnings = Shared(), params, []
        self.parts = [make_encoder(params, CLOCK, namespace=f'/t{id(self)}', shared=self.shared)]
        self.encoder = self.parts[0].encoder
        self.parts.append(make_policy(params, CLOCK, namespace='/', shared=self.shared,
                                      warn=self.warnings.append))
        self.model = self.parts[1].model
        self.policy = self.parts[1].loaded.policy
        self.cameras = params['camera.names']
        self.encoder.instruction(text, 1, probe())
        self.number = 0

    def block(self, images, *, stamps=None, state=STATE):
        self.number += 1
        stamps = stamps or (T0 + self.number * PERIOD,) * len(self.cameras)
        block = KvBlock(self.number, stamps[0], 1, self.cameras, stamps)
        if self.encoder.state_joints:
            block = replace(block, state_source=StateSource.MEASURED, state_at_ns=stamps[0],
                            state=state, joint_names=JOINT_NAMES)
        return self.encoder.encode(block, images, probe())

    def images(self, seed=0):
        return {name: image(seed + i) for i, name in enumerate(self.cameras)}

    def infer(self, block, *, state=STATE, chunk_id=1):
        return self.model.infer(InferRequest(block, chunk_id, state, block.stamp_ns), probe())

    def one_shot(self, images, *, state=STATE, chunk_id=1, text=TEXT):
        """Return the same chunk without ring, blocks and stages."""
        config = self.policy.config
        views = {name: torch.from_numpy(value.transpose(2, 0, 1).copy())[None]
                 for name, value in images.items()}
        noise = chunk_noise(0, chunk_id, shape=(config.chunk_size, config.max_action_dim))
        observation = Observation(views, torch.tensor(state, dtype=torch.float32)[None], (text,))
        return predict(self.policy, observation, torch.from_numpy(noise)[None],
                       probe=probe()).physical[0].numpy()

    def close(self):
        for part in reversed(self.parts):
            part.close()


@pytest.fixture
def bench(family_checkpoint, family_params):
    made = []

    def make(family, *, folder=None, text=TEXT, **changes):
        folder = folder or family_checkpoint(family, action_std=0.1, name=f'checkpoint{len(made)}')
        made.append(Bench(family_params(family, folder, **changes), text))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize('family', FAMILIES)
def test_a_chunk_through_the_ring_equals_one_shot_inference(bench, family):
    b = bench(family)
    for seed in range(3):
        images = b.images(10 * seed)
        got = b.infer(b.block(images), chunk_id=seed)
        assert got.dtype == np.float64 and got.shape == (10, 7)
        np.testing.assert_allclose(got, b.one_shot(images, chunk_id=seed), rtol=0, atol=1e-5)


@pytest.mark.parametrize('family', FAMILIES)
def test_the_comparison_with_one_shot_inference_can_fail(bench, family):
    b = bench(family)
    images = b.images()
    got = b.infer(b.block(images))
    for other in (b.one_shot(b.images(50)), b.one_shot(images, chunk_id=2),
                  b.one_shot(images, state=STATE + 0.2), b.one_shot(images, text='stop')):
        assert np.abs(got - other).max() > 1e-5


@pytest.mark.parametrize('family', FAMILIES)
def test_bfloat16_travels_through_the_ring_as_bits(bench, family):
    b = bench(family, policy__dtype='bfloat16')
    images = b.images()
    np.testing.assert_allclose(b.infer(b.block(images)), b.one_shot(images), rtol=0, atol=1e-5)
    assert b.encoder._writer.layout.dtype == 'bfloat16'
    bits = torch.randn(3, 4).to(torch.bfloat16)
    assert array_of(bits).dtype == np.uint16 and torch.equal(tensor_of(array_of(bits)), bits)


@pytest.mark.parametrize('family', FAMILIES)
def test_full_recomputation_makes_the_same_chunk_and_runs_the_prefix_in_every_step(bench, family):
    b = bench(family, policy__cache='full')
    images, passes = b.images(), []
    encode = b.policy.network.encode
    b.policy.network.encode = lambda *args: passes.append(1) or encode(*args)
    block = b.block(images)
    assert not passes
    got = b.infer(block)
    assert len(passes) == 10
    del b.policy.network.encode
    np.testing.assert_allclose(got, b.one_shot(images), rtol=0, atol=1e-5)


@pytest.mark.parametrize('family', FAMILIES)
def test_the_naive_cache_makes_another_chunk_from_the_same_ring(bench, family):
    b = bench(family, policy__cache='naive')
    images = b.images()
    got, exact = b.infer(b.block(images)), b.one_shot(images)
    assert np.isfinite(got).all() and np.abs(got - exact).max() > 1e-4


@pytest.mark.parametrize('family', ['pi0', 'smolvla'])
def test_a_new_state_needs_no_new_prefix(bench, family):
    b = bench(family)
    images = b.images()
    block = b.block(images)
    for step in (0.0, 0.1, 0.3):
        np.testing.assert_allclose(b.infer(block, state=STATE + step),
                                   b.one_shot(images, state=STATE + step), rtol=0, atol=1e-5)


def test_only_cameras_with_new_frames_are_encoded(bench):
    b = bench('pi0')
    images, counts = b.images(), []
    stamps = [T0, T0, T0]
    for changed in ((), (0,), (0, 2), ()):
        for at in changed:
            stamps[at] += PERIOD
            images = {**images, CAMERAS[at]: image(100 + stamps[at] % 97)}
        block = b.block(images, stamps=tuple(stamps))
        counts.append(b.encoder.encoded_cameras)
    assert counts == [3, 4, 6, 6]
    np.testing.assert_allclose(b.infer(block), b.one_shot(images), rtol=0, atol=1e-5)


def test_an_equal_stamp_of_another_picture_is_encoded(bench):
    b = bench('pi0')
    b.block(b.images(), stamps=(T0,) * 3)
    images = b.images(30)
    block = b.block(images, stamps=(T0,) * 3)
    assert b.encoder.encoded_cameras == 6
    np.testing.assert_allclose(b.infer(block), b.one_shot(images), rtol=0, atol=1e-5)


@pytest.mark.parametrize('family', FAMILIES)
def test_a_masked_camera_is_left_out_as_in_one_shot_inference(bench, family):
    b = bench(family, camera__names=CAMERAS[:2], camera__masked=CAMERAS[2:])
    images = b.images()
    np.testing.assert_allclose(b.infer(b.block(images)), b.one_shot(images), rtol=0, atol=1e-5)
    assert b.encoder.encoded_cameras == 2


def test_the_text_of_pi05_follows_the_state_of_the_block(bench):
    b = bench('pi05')
    images = b.images()
    for step in (0.0, 0.2):
        got = b.infer(b.block(images, state=STATE + step), state=STATE + step)
        np.testing.assert_allclose(got, b.one_shot(images, state=STATE + step), rtol=0, atol=1e-5)
    assert b.encoder.encoded_cameras == 3 * 2  # new stamps, new frames
    stale = b.infer(b.block(images, state=STATE), state=STATE + 0.2)
    assert np.abs(stale - got).max() > 1e-6


@pytest.mark.parametrize('family', FAMILIES)
def test_the_words_are_looked_up_once_unless_the_state_is_among_them(bench, family):
    b = bench(family)
    assert b.encoder.state_joints == (JOINT_NAMES if family == 'pi05' else ())
    calls = []
    encode = b.policy.processing.tokenizer.encode
    object.__setattr__(b.policy.processing.tokenizer, 'encode',
                       lambda text: calls.append(text) or encode(text))
    for _ in range(3):
        b.block(b.images())
    assert len(calls) == (3 if family == 'pi05' else 0)


def test_an_image_that_nothing_resizes_is_refused_by_name(bench, family_checkpoint):
    folder = family_checkpoint('smolvla', change=lambda c: c.update(resize_imgs_with_padding=None))
    b = bench('smolvla', folder=folder)
    with pytest.raises(ConfigError, match=r'camera base_0_rgb .* got 72x48, expected 64x64'):
        b.block(b.images())
    b.block({name: np.zeros((64, 64, 3), np.uint8) for name in CAMERAS})


def test_an_instruction_that_is_too_long_is_refused_and_changes_nothing(bench):
    b = bench('pi0')
    with pytest.raises(ConfigError, match=r'expected at most 48 \(tokens\)'):
        b.encoder.instruction('word ' * 200, 2, probe())
    images = b.images()
    np.testing.assert_allclose(b.infer(b.block(images)), b.one_shot(images), rtol=0, atol=1e-5)


def test_an_overwritten_or_foreign_block_makes_no_chunk(bench):
    b = bench('pi0')
    old = b.block(b.images())
    for _ in range(3):
        b.block(b.images())
    assert b.infer(old) is None
    fresh = b.block(b.images())
    assert b.infer(replace(fresh, ring_id=fresh.ring_id + 1)) is None
    assert b.infer(replace(fresh, seq=fresh.seq + 1)) is None
    assert b.infer(replace(fresh, slot=60)) is None
    assert b.infer(fresh) is not None


def test_a_block_of_another_layout_is_refused(bench):
    b = bench('pi0')
    fresh = b.block(b.images())
    with pytest.raises(LayoutError, match='does not fit the ring'):
        b.infer(replace(fresh, layout_hash='0' * 64))
    for tokens in (0, 10_000):
        with pytest.raises(LayoutError, match=f'got {tokens} tokens'):
            b.infer(replace(fresh, valid_tokens=tokens))


def test_a_block_stays_usable_after_the_ring_has_gone_on(bench):
    b = bench('pi0')
    images = b.images()
    block = b.block(images)
    first = b.infer(block)
    for _ in range(4):
        b.block(b.images(70))
    assert np.array_equal(b.infer(block), first)


@pytest.mark.parametrize('changes', [
    {'policy__dtype': 'bfloat16'}, {'policy__state_text': 'padded'},
    {'policy__gripper_unit': 'mm'}, {'policy__cache': 'full'},
])
def test_sides_with_other_settings_refuse_each_other(family_checkpoint, family_params, changes):
    from reflex_ros.stages.snapshot_load import load_snapshot

    folder = family_checkpoint('pi05')
    mine = load_snapshot(family_params('pi05', folder))
    if 'policy__gripper_unit' in changes:  # no statistics fit both: the identity alone is judged
        other = replace(mine, binding=replace(mine.binding, scale=(1.0,) * 6 + (1000.0,)))
    else:
        other = load_snapshot(family_params('pi05', folder, **changes))
    caches = 'partitioned', changes.get('policy__cache', 'partitioned')
    layouts = [snapshot_ring_layout(one.policy, binding=one.binding, cache=cache)
               for one, cache in zip((mine, other), caches, strict=True)]
    with pytest.raises(LayoutError, match='model_id'):
        layouts[0].require(layouts[1])
    again = load_snapshot(family_params('pi05', folder))
    layouts[0].require(snapshot_ring_layout(again.policy, binding=again.binding))


def test_a_state_far_from_the_training_data_is_named_and_counted(bench):
    b = bench('pi0')
    block = b.block(b.images())
    b.infer(block)
    assert b.model.outliers == 0 and not b.warnings
    far = STATE.copy()
    far[3] = 3.0
    for _ in range(2):
        b.infer(block, state=far)
    assert b.model.outliers == 2 and 'count=2' in b.warnings[-1]


@pytest.mark.parametrize('family', FAMILIES)
def test_joints_are_bound_by_name(bench, family):
    order = [4, 0, 2, 1, 3, 5, 6]
    b = bench(family, policy__joint_names=tuple(JOINT_NAMES[at] for at in order))
    images = b.images()
    got = b.infer(b.block(images))
    assert b.model.joint_names == JOINT_NAMES
    np.testing.assert_allclose(got[:, order], b.one_shot(images, state=STATE[order]),
                               rtol=0, atol=1e-5)
    assert np.abs(got - b.one_shot(images)).max() > 1e-3


@pytest.mark.parametrize('family', FAMILIES)
def test_encoder_and_policy_of_one_process_share_the_weights(bench, family):
    b = bench(family)
    assert b.parts[0].loaded is b.parts[1].loaded
    assert b.encoder._policy is b.model._policy


def test_separate_processes_would_not_share_can_fail(bench):
    a, b = bench('pi0'), bench('pi0')
    assert a.parts[0].loaded is not b.parts[0].loaded


def _live_bytes():
    gc.collect()
    kinds = (t for t in gc.get_objects() if issubclass(type(t), torch.Tensor))
    return sum(t.element_size() * t.nelement() for t in kinds)


@pytest.mark.slow
@pytest.mark.parametrize('family', FAMILIES)
def test_memory_is_constant_over_a_thousand_calls(bench, family):
    b = bench(family, policy__num_denoise_steps=1)
    images = [b.images(seed) for seed in range(3)]

    def calls(count):
        for i in range(count):
            if i % 4 == 0:
                block = b.block(images[i % 3])
            b.infer(block, chunk_id=i)

    calls(20)
    before = _live_bytes()
    calls(1000)
    assert _live_bytes() == before


def test_the_count_of_memory_can_fail(bench):
    b = bench('pi0')
    before = _live_bytes()
    kept = b.policy.view(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    assert _live_bytes() == before + kept.element_size() * kept.nelement()


def test_the_newest_block_outlives_writes_that_never_end(bench):
    b = bench('pi0')
    block = b.block(b.images())
    for _ in range(5):
        b.encoder._writer.begin()
    assert b.infer(block) is not None


@pytest.mark.parametrize('family', FAMILIES)
def test_two_threads_may_share_the_weights(bench, family):
    """The encoder goes on while the policy denoises; each chunk is that of its own block."""
    b = bench(family)
    images = b.images()
    block = b.block(images)
    alone = [b.infer(block, chunk_id=i) for i in range(5)]
    is_over, blocks = threading.Event(), []

    def encode():
        while not is_over.is_set():
            blocks.append(b.block(b.images(len(blocks) % 7)))

    worker = threading.Thread(target=encode)
    worker.start()
    try:
        beside = [b.infer(block, chunk_id=i % 5) for i in range(30)]
    finally:
        is_over.set()
        worker.join()
    assert len(blocks) > 3
    assert all(np.array_equal(got, alone[i % 5]) for i, got in enumerate(beside))
    last = b.images((len(blocks) - 1) % 7)
    np.testing.assert_allclose(b.infer(blocks[-1]), b.one_shot(last), rtol=0, atol=1e-5)
