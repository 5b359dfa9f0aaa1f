"""The tasks as benchmarks: the expert succeeds, an arm that rests does not, seeds repeat."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.sim.experts import make_chunk_expert, make_expert
from reflex_ros.sim.tasks import TASKS
from reflex_ros.study.benchmark import FOLLOWING, Benchmark, SimBenchmark, judge


def follow(benchmark: Benchmark, seed: int, *, replan: int = 5) -> Benchmark:
    """Run the chunk expert of a following task over one episode."""
    seen = benchmark.reset(seed)
    expert, rows = make_chunk_expert(benchmark.name), []
    while not benchmark.is_over:
        if len(rows) <= 50 - replan:
            rows = list(expert.chunk(seen['truth'], seen['state'], horizon=50))
        seen = benchmark.step(rows.pop(0))
    return benchmark


def rest(benchmark: Benchmark, seed: int) -> Benchmark:
    command = benchmark.reset(seed)['state']
    while not benchmark.is_over:
        benchmark.step(command)
    return benchmark


def test_the_expert_reaches_a_target():
    assert follow(SimBenchmark('reach'), 1).is_success


def test_the_expert_reaches_a_target_can_fail():
    assert not rest(SimBenchmark('reach'), 1).is_success


def test_the_expert_opens_the_drawer_and_a_resting_arm_does_not():
    benchmark = SimBenchmark('drawer', duration_s=4.0)
    seen, expert = benchmark.reset(0), make_expert('drawer')
    command = seen['state']
    assert not benchmark.is_success
    while not benchmark.is_over and not benchmark.is_success:
        command = expert.command(seen['truth'], command)
        seen = benchmark.step(command)
    assert benchmark.is_success
    assert not rest(SimBenchmark('drawer', duration_s=0.5), 0).is_success


def test_holding_still_succeeds_at_hold():
    assert rest(SimBenchmark('hold', duration_s=0.5), 0).is_success


def test_the_same_seed_gives_the_same_observations():
    benchmark = SimBenchmark('jump')
    first, second, other = (benchmark.reset(seed)['state'] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_a_step_lasts_one_control_period():
    benchmark = SimBenchmark('hold')
    state = benchmark.reset(0)['state']
    for _ in range(3):
        benchmark.step(state)
    assert benchmark.world.time_ns == 3 * benchmark.control_period_ns


@pytest.mark.parametrize('task', sorted(TASKS))
def test_every_task_has_a_rule_and_an_empty_episode_fails_it(task):
    assert not judge(task, []).is_success
    assert (task in FOLLOWING) == (judge(task, []).successes == ())
