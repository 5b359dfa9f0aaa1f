"""The loop on real threads without ROS: same stages, same ledger. Judges counts, no durations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.types import Verdict
from reflex_ros.sim.experts import make_chunk_expert
from reflex_ros.sim.live import SharedWorld
from reflex_ros.sim.world import World
from reflex_ros.stages.build import bridge_config, limits_from, policy_config
from reflex_ros.stages.inproc import InprocConfig, InprocRun
from reflex_ros.stages.oracle import OraclePolicy
from reflex_ros.study.episode import EpisodeSpec

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
