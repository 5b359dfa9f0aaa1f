"""The loop on real threads without ROS: same stages, same ledger. Judges counts, no durations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.types import Fate, StateSource, Verdict
from reflex_ros.sim.experts import make_chunk_expert
from reflex_ros.sim.live import SharedWorld
from reflex_ros.sim.world import World
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.build import bridge_config, encoder_config, limits_from, policy_config
from reflex_ros.stages.inproc import InprocConfig, InprocRun
from reflex_ros.stages.oracle import OraclePolicy
from reflex_ros.study.episode import SIM_DRIVES, EpisodeSpec

pytestmark = pytest.mark.realtime


class BrokenPolicy(OraclePolicy):
    """Fails in its first inference."""

    def infer(self, request, probe):
        raise RuntimeError('broken')


def make_run(policy, duration_s: float = 2.0) -> InprocRun:
    params, clock = EpisodeSpec().parameters(), SystemClock()
    world = SharedWorld(World('jump', seed=1), clock.mono_ns())
    config = InprocConfig(
        replace(bridge_config(params, policy='oracle'), instruction='follow the target'),
        policy_config(params), duration_ns=round(duration_s * S),
    )
    return InprocRun(config, world=world, plant=world, limits=limits_from(params), clock=clock,
                     model=policy(make_chunk_expert))


def test_the_loop_runs_on_threads_and_every_due_tick_has_a_record():
    log = make_run(OraclePolicy).run()
    assert [t.index for t in log.ticks] == list(range(len(log.ticks)))
    assert {t.verdict for t in log.ticks} & {Verdict.FRESH, Verdict.LIMITED}
    ids = [t.chunk_id for t in log.traces]
    assert len(ids) == len(set(ids)) > 1
    assert {c.chunk_id for c in log.chunks} == set(ids)


def test_an_error_of_a_thread_ends_the_run_with_it():
    with pytest.raises(RuntimeError, match='broken'):
        make_run(BrokenPolicy).run()


def test_a_pretrained_policy_runs_on_threads_that_share_its_weights(
        family_checkpoint, family_params):
    home = World('hold', seed=1).joint_state()[0]
    folder = family_checkpoint('pi05', home=home, action_std=5e-5)
    params = {**family_params('pi05', folder, chunk__execute_steps=5, camera__max_age_s=1.0,
                              safety__max_observation_age_s=2.0), **SIM_DRIVES}
    clock, shared = SystemClock(), Shared()
    encoder = make_encoder(params, clock, namespace='/inproc', shared=shared)
    policy = make_policy(params, clock, namespace='/inproc', shared=shared)
    assert policy.loaded is encoder.loaded
    world = SharedWorld(World('hold', seed=1), clock.mono_ns())
    config = InprocConfig(
        replace(bridge_config(params, policy='pi05'), instruction='hold still'),
        policy_config(params, most_steps=policy.most_steps), cameras=params['camera.names'],
        encoder=encoder_config(params), camera_period_ns=100 * MS, duration_ns=3 * S)
    random = np.random.default_rng(0)
    run = InprocRun(
        config, world=world, plant=world, limits=limits_from(params), clock=clock,
        model=policy.model, encoder=encoder.encoder,
        render=lambda *_: random.integers(0, 256, (48, 72, 3), np.uint8))
    try:
        log = run.run()
    finally:
        policy.close()
        encoder.close()
    assert len([t for t in log.traces if t.fate is Fate.EXECUTED]) > 2
    assert {b.state_source for b in log.blocks} & {StateSource.PREDICTED}
    commands = np.array([t.command for t in log.ticks if t.is_sent])
    assert np.abs(commands - home).max() < 0.02
