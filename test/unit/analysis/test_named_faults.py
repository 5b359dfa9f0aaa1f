"""An injected fault of each kind is named in the report of the bag, which bears no mark of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reflex_ros.core.types import Cause
from reflex_ros.study.bench_run import main_of
from reflex_ros.study.cause_scene import Scene
from reflex_ros.study.named_causes import BENCH, CASES, row_of, run_case

SHARES = (Path(__file__).parents[3],)
SEED = 4
BY_NAME = {case.name: case for case in CASES}
OTHER_WAYS = ('transport: blocks lost', 'encoder dead', 'arm silent')
"""Second ways to a cause."""
TOPICS = {'/control_tick', '/chunk_trace', '/stall_event', '/stage_status'}


def named(case, folder, seed=SEED):
    return run_case(case, seed, folder / case.name, shares=SHARES)


@pytest.mark.parametrize('case', [
    pytest.param(c, marks=[pytest.mark.soak] if c.name in OTHER_WAYS else [], id=c.name)
    for c in CASES])
def test_an_injected_fault_is_named_and_no_other(tmp_path, case):
    found = named(case, tmp_path)
    row = row_of(case, [found], first_seed=SEED)
    assert row['right'] == 1, row
    assert set(found.topics) <= TOPICS, 'the bag says what was done to it'


def test_an_injected_fault_is_named_can_fail(tmp_path):
    """A fault that is not what the case says is no right name, and none is none either."""
    wrong = replace(BY_NAME['camera late'], cause=Cause.TRANSPORT)
    assert row_of(wrong, [named(wrong, tmp_path)], first_seed=SEED)['right'] == 0
    idle = replace(BY_NAME['ring lost'], inject=lambda scene: None, name='nothing')
    row = row_of(idle, [named(idle, tmp_path)], first_seed=SEED)
    assert row['right'] == 0 and row['wrong'] == {str(SEED): []}


def test_a_closed_ring_is_seen_by_the_policy_alone():
    """Nobody tells: the encoder still says that all is well, the policy finds its ring gone."""
    scene = Scene(seed=SEED, duration_s=1.4, shares=SHARES)
    scene.at(1.0, lambda s: s.close_ring())
    scene.finish()
    after = [s for s in scene.statuses if s.stamp_ns > scene.run.log.ticks[0].stamp_ns + 10**9]
    assert {(s.node, s.ring_ok) for s in after} == {('vision_encoder', True), ('policy', False)}


def test_a_silent_node_is_known_by_its_silence_alone():
    scene = Scene(seed=SEED, duration_s=2.0, shares=SHARES)
    scene.at(1.0, lambda s: s.silence('policy'))
    ticks = scene.finish().run.log.ticks
    last = [s for s in scene.statuses if s.node == 'policy'][-1]
    assert last.stamp_ns <= ticks[0].stamp_ns + 10**9
    assert ticks[-1].cause is Cause.NODE_DEAD


@pytest.mark.soak
@pytest.mark.parametrize('case', CASES, ids=lambda case: case.name)
def test_twenty_of_twenty_runs_are_named(tmp_path, case):
    done = [named(case, tmp_path / str(seed), seed) for seed in range(20)]
    assert row_of(case, done, first_seed=0)['right'] == 20


def test_the_command_writes_a_row_for_each_fault(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr('reflex_ros.study.named_causes.CASES', CASES[:2])
    assert main_of(BENCH, ['--runs', '1', '--out', str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert '| camera late | `camera_late` | 1 of 1' in out
    assert len(list(tmp_path.glob('*.json'))) == len(list(tmp_path.glob('*.png'))) == 1
