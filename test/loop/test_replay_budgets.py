"""The run of ``test/data/replay``, replayed on the virtual clock and judged by budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip('torch', reason='tiny needs torch')

from reflex_ros.bringup.replay import replay
from reflex_ros.bringup.replay_input import ReplaySpec
from reflex_ros.cli.main import main
from reflex_ros.core.errors import EXIT_BUDGET
from reflex_ros.stages.replay_inject import parse_injections

RUN = Path(__file__).parents[1] / 'data' / 'replay'
BUDGETS = RUN / 'budgets.yaml'
MIB = 2**20
LEAST_SPEED = 1.5
"""Times real time on a busy machine; the command prints what it really was."""


@pytest.fixture(scope='module')
def replayed(tmp_path_factory):
    output = tmp_path_factory.mktemp('replay') / 'out'
    return replay(ReplaySpec(RUN, output)), output


def judge(output):
    return main(['compare', str(RUN), str(output), '--budgets', str(BUDGETS)])


def test_the_recording_is_small():
    assert sum(path.stat().st_size for path in RUN.rglob('*') if path.is_file()) <= 5 * MIB


def test_the_replay_keeps_to_its_budgets(replayed, capsys):
    assert judge(replayed[1]) == 0, capsys.readouterr().out


def test_a_slow_policy_breaks_the_budgets_by_name(tmp_path, capsys):
    slow = ReplaySpec(RUN, tmp_path / 'slow', overrides={'policy.name': 'oracle'},
                      injections=parse_injections(['denoise=400ms']))
    replay(slow)
    assert judge(tmp_path / 'slow') == EXIT_BUDGET
    said = capsys.readouterr().out
    assert 'OVER stall_ratio' in said and 'OVER gap_ticks' not in said


def test_the_replay_has_the_recorded_latency(replayed):
    done, _ = replayed
    for figure in ('p50', 'p95'):
        assert done.replayed.latency_ms[figure] == pytest.approx(
            done.recorded.latency_ms[figure], rel=0.1)
    command = done.replayed.summary.observation_to_command['p50']
    assert abs(command - done.recorded.summary.observation_to_command['p50']) < 20.0


def test_a_second_replay_with_weights_has_the_same_content(replayed, tmp_path):
    second = replay(ReplaySpec(RUN, tmp_path / 'again'))
    assert second.content == replayed[0].content
    best = max(done.duration_s / done.cpu_s for done in (second, replayed[0]))
    assert best > LEAST_SPEED
