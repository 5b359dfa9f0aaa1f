"""Pi0, Pi0.5 and SmolVLA close the loop on the virtual clock, with weights that stand still."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.probe import constant_costs
from reflex_ros.core.types import Fate, StateSource, Verdict
from reflex_ros.sim.world import World
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.build import bridge_config, encoder_config, limits_from, policy_config
from reflex_ros.stages.virtual import VirtualConfig, VirtualRun
from reflex_ros.study.episode import SIM_DRIVES

FAMILIES = ('pi0', 'pi05', 'smolvla')
COSTS = constant_costs(vision=10.0, prefix=15.0, publish=0.1, instruction=1.0, stage_copy=0.1,
                       denoise=30.0, decode=0.1)


@contextmanager
def virtual_run(params, *, duration_s=3.0, seed=0):
    """Return a run of real encoder, ring and policy whose pictures are noise."""
    clock, shared = SystemClock(), Shared()
    encoder = make_encoder(params, clock, namespace=f'/loop{seed}', shared=shared)
    policy = make_policy(params, clock, namespace='/', shared=shared)
    config = VirtualConfig(
        bridge=replace(bridge_config(params, policy=params['policy.name']),
                       instruction='hold still'),
        policy=policy_config(params, most_steps=policy.most_steps),
        cameras=params['camera.names'], encoder=encoder_config(params), costs=COSTS, seed=seed,
        duration_ns=round(duration_s * S),
    )
    random = np.random.default_rng(seed)
    try:
        yield VirtualRun(
            config, world=World('hold', seed=seed), limits=limits_from(params),
            model=policy.model, encoder=encoder.encoder,
            render=lambda _: random.integers(0, 256, (48, 72, 3), np.uint8),
        )
    finally:
        policy.close()
        encoder.close()


@pytest.fixture
def closed_loop(family_checkpoint, family_params):
    def run(family, **changes):
        home = World('hold', seed=0).joint_state()[0]
        folder = family_checkpoint(family, home=home, action_std=5e-5)
        params = {**family_params(family, folder, chunk__execute_steps=5, **changes), **SIM_DRIVES}
        with virtual_run(params) as made:
            return made, made.run()

    return run


def judged(log):
    """Return the verdicts from the first tick in motion to the request to stop."""
    moving = [t for t in log.ticks if t.in_motion]
    return Counter(t.verdict for t in moving)


@pytest.mark.parametrize('family', FAMILIES)
def test_every_family_closes_the_loop_and_is_fresh_mostly(closed_loop, family):
    run, log = closed_loop(family)
    executed = [t for t in log.traces if t.fate is Fate.EXECUTED]
    assert len(log.blocks) > 50 and len(executed) > 10
    verdicts = judged(log)
    assert verdicts[Verdict.FRESH] > 0.9 * verdicts.total() > 80, verdicts
    home = World('hold', seed=0).joint_state()[0]
    assert np.abs(np.array([t.command for t in log.ticks if t.is_sent]) - home).max() < 0.02
    assert {c.state_source for c in log.chunks[3:]} == {StateSource.PREDICTED}
    assert run.policy.fallbacks + run.encoder.fallbacks <= 5


@pytest.mark.parametrize('family', FAMILIES)
def test_freshness_can_fail(closed_loop, family):
    """An inference that takes longer than the chunk covers leaves ticks that nothing covers."""
    _, log = closed_loop(family, delay__injected_s=0.6,
                         safety__max_observation_age_s=0.7)
    verdicts = judged(log)
    assert verdicts[Verdict.FRESH] < 0.9 * max(1, verdicts.total()), verdicts


def test_the_state_of_pi05_is_predicted_for_the_first_command_and_copied_to_the_chunk(closed_loop):
    _, log = closed_loop('pi05')
    blocks = {b.number: b for b in log.blocks}
    late = log.chunks[5:]
    for chunk in late:
        block = blocks[chunk.block_number]
        assert block.state_source is StateSource.PREDICTED
        assert chunk.state_at_ns == chunk.step0_at_ns == block.state_at_ns
        assert np.array_equal(chunk.predicted_state, block.state)
    ahead = [blocks[c.block_number].state_at_ns - c.observation_stamp_ns for c in late]
    assert min(ahead) > 20 * MS and max(ahead) < 300 * MS


@pytest.mark.parametrize('family', ['pi0', 'smolvla'])
def test_no_other_family_has_a_state_in_its_blocks(closed_loop, family):
    _, log = closed_loop(family)
    assert {b.state_source for b in log.blocks} == {StateSource.NONE}
    assert all(b.state is None for b in log.blocks)


@pytest.mark.parametrize('mode', ['sync', 'async_naive'])
def test_other_modes_start_pi05_from_the_measured_state(closed_loop, mode):
    _, log = closed_loop('pi05', chunk__mode=mode)
    assert len([t for t in log.traces if t.fate is Fate.EXECUTED]) > 5
    for block in log.blocks:
        assert (block.state_source, block.state_at_ns) == (StateSource.MEASURED, block.stamp_ns)
    assert {c.state_source for c in log.chunks} == {StateSource.MEASURED}
    assert all(c.step0_at_ns == c.observation_stamp_ns for c in log.chunks)


@pytest.mark.parametrize('period_s', [0.02, 0.1])
def test_sync_executes_as_many_rows_as_asked_for_whatever_their_period(closed_loop, period_s):
    _, log = closed_loop('pi0', chunk__mode='sync', policy__step_period_s=period_s)
    ticks = [t.ticks for t in log.traces if t.fate is Fate.EXECUTED][1:-1]
    assert ticks and {round(count * 0.02 / period_s) for count in ticks} == {5}, ticks


def test_the_same_seed_gives_the_same_run(closed_loop, tmp_path):
    first, second = (closed_loop('smolvla')[1] for _ in range(2))
    assert all(np.array_equal(a.command, b.command)
               for a, b in zip(first.ticks, second.ticks, strict=True))
