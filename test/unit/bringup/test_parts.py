"""What of the suite runs on which of two machines."""

from __future__ import annotations

import pytest

from reflex_ros.bringup import robot
from reflex_ros.bringup.graph import ALL, INFERENCE, PARTS, ROBOT, suite
from reflex_ros.bringup.session import Result
from reflex_ros.bringup.settings import config_file
from reflex_ros.bringup.status_line import Progress
from reflex_ros.cli.main import main


@pytest.mark.parametrize('simulated', [False, True])
@pytest.mark.parametrize('one_process', [False, True])
def test_both_parts_together_are_the_whole_and_share_nothing(simulated, one_process):
    whole, robot, inference = (
        suite(simulated=simulated, one_process=one_process, part=part)
        for part in (ALL, ROBOT, INFERENCE))
    assert not set(robot.configure_order) & set(inference.configure_order)
    assert {*robot.processes, *inference.processes} == {*whole.processes}


def test_the_arm_and_the_bag_stay_on_the_robot():
    assert suite(simulated=False, part=ROBOT).configure_order == ('controller_bridge', 'recorder')
    assert suite(simulated=False, part=INFERENCE).configure_order == ('vision_encoder', 'policy')


@pytest.mark.parametrize('part', PARTS)
def test_only_the_machine_without_the_bridge_is_far_from_the_arm(part):
    assert suite(simulated=False, part=part).is_far_from_the_arm is (part == INFERENCE)


@pytest.mark.parametrize('part', PARTS)
def test_the_command_runs_its_part_and_reports_where_the_bridge_was(
        part, tmp_path, monkeypatch, capsys):
    ran, reported = [], []
    monkeypatch.setattr(
        robot, 'run_session', lambda run, until: ran.append(run) or Result(0, Progress()))
    monkeypatch.setattr(robot.ending, 'report', reported.append)
    assert main(['up', '--params-file', str(config_file('robots/piper.yaml')), '--part', part,
                 '--runs', str(tmp_path)]) == 0
    run, = ran
    assert run.graph == suite(simulated=False, part=part)
    assert bool(reported) is (part != INFERENCE)
    assert ('arm resume' in capsys.readouterr().out) is (part != INFERENCE)
    assert run.parameters['policy'], 'either machine knows all parameters'


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(['up', '--params-file', 'x.yaml', '--part', 'gpu'])
    assert ended.value.code == 2
    assert 'inference' in capsys.readouterr().err
