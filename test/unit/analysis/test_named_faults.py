"""An injected fault of each kind is named in the report of the bag, which bears no mark of it."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from reflex_ros.analysis.figures import analyse
from reflex_ros.core.clock import MS
from reflex_ros.core.types import Cause

SEEDS = range(20)
LENGTH_S = 2.8


def camera_late(scene, slow_step):
    scene.run._camera = lambda: None


def camera_frozen(scene, slow_step):
    still = np.zeros((12, 16, 3), np.uint8)
    scene.picture = lambda camera: still


def encode_late(scene, slow_step):
    slow_step(scene.run.encoder, 1500 * MS)


def denoise_late(scene, slow_step):
    slow_step(scene.run.policy, 1500 * MS)


def transport(scene, slow_step):
    """Chunks leave the policy and never arrive."""
    scene.run.bridge.offer = lambda chunk, now: ()


def blocks_lost(scene, slow_step):
    """Blocks leave the encoder and never arrive."""
    scene.run.policy.on_block = lambda block, now: None


def policy_dead(scene, slow_step):
    scene.run.policy_worker.is_dead = True


def encoder_dead(scene, slow_step):
    scene.run.encoder_worker.is_dead = True


def chunk_rejected(scene, slow_step):
    offer = scene.run.bridge.offer

    def spoil(chunk, now):
        positions = chunk.positions.copy()
        positions[3, 2] = np.nan
        return offer(replace(chunk, positions=positions), now)

    scene.run.bridge.offer = spoil


def ring_lost(scene, slow_step):
    """The encoder has no ring any more: no blocks, and it says so."""
    scene.run.encoder.ring_ok = False
    scene.run.encoder_worker._due = lambda: None


def arm_fault(scene, slow_step):
    scene.run.arm.inject_faults(('driver_error',))


def arm_silent(scene, slow_step):
    scene.run.arm.silence(True)


INJECTED = MappingProxyType({
    camera_late: Cause.CAMERA_LATE, camera_frozen: Cause.CAMERA_FROZEN,
    encode_late: Cause.ENCODE_LATE, denoise_late: Cause.DENOISE_LATE,
    transport: Cause.TRANSPORT, blocks_lost: Cause.TRANSPORT, policy_dead: Cause.NODE_DEAD,
    encoder_dead: Cause.NODE_DEAD, chunk_rejected: Cause.CHUNK_REJECTED,
    ring_lost: Cause.RING_LOST, arm_fault: Cause.ARM_FAULT, arm_silent: Cause.ARM_FAULT,
})


def named(recorded_scene, slow_step, folder, inject, seed):
    """Return the faults that the report of a run's bag names, by cause."""
    scene = recorded_scene(seed=seed, duration_s=LENGTH_S)
    if inject is not None:
        scene.at(1.0 + float(scene.rng.uniform(0.0, 0.2)), lambda s: inject(s, slow_step))
    bag = scene.finish().write(folder / f'{seed}', images=False, is_brief=True)
    return analyse(bag).faults


OTHER_WAYS = (blocks_lost, encoder_dead, arm_silent)
"""Second ways to a cause."""


@pytest.mark.parametrize('inject', [
    pytest.param(f, marks=[pytest.mark.soak] if f in OTHER_WAYS else [], id=f.__name__)
    for f in INJECTED])
def test_an_injected_fault_is_named_and_no_other(recorded_scene, slow_step, tmp_path, inject):
    assert list(named(recorded_scene, slow_step, tmp_path, inject, 4)) == [INJECTED[inject].value]


def test_an_injected_fault_is_named_can_fail(recorded_scene, slow_step, tmp_path):
    """Without a fault none is named: the names come from the run, not from the check."""
    assert not named(recorded_scene, slow_step, tmp_path, None, 4)


@pytest.mark.soak
@pytest.mark.parametrize('inject', [None, *INJECTED],
                         ids=lambda f: f.__name__ if f else 'no_fault')
def test_twenty_of_twenty_runs_are_named(recorded_scene, slow_step, tmp_path, inject):
    want = [] if inject is None else [INJECTED[inject].value]
    found = {seed: list(named(recorded_scene, slow_step, tmp_path, inject, seed))
             for seed in SEEDS}
    assert {seed: causes for seed, causes in found.items() if causes != want} == {}
