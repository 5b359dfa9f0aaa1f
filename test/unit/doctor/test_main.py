"""The command: options, exit codes, files, Ctrl-C."""

from __future__ import annotations

import json

import pytest

from reflex_ros.cli.main import main
from reflex_ros.core.errors import ConfigError
from reflex_ros.doctor import main as doctor
from reflex_ros.doctor.registry import CHECKS, GROUPS
from reflex_ros.doctor.visit import choose


@pytest.fixture
def run(machine, monkeypatch):
    """Return ``run(*arguments, machine=name, **probes) -> exit code`` on a recorded machine."""
    def make(*arguments, name='robot_x86', **replaced):
        context = machine(name, **replaced)
        monkeypatch.setattr(doctor, 'Host', lambda: context.host)
        monkeypatch.setattr(doctor, 'this_machine', lambda: context.probes)
        return main(['doctor', *map(str, arguments)])

    return make


def test_a_healthy_robot_ends_with_0(run, capsys):
    assert run() == 0
    out = capsys.readouterr().out
    assert 'OK    can-bitrate' in out and out.splitlines()[-1].endswith(' 0 FAIL, 4 SKIP')


def test_a_failure_ends_with_1_and_tells_the_remedy(run, capsys):
    assert run(name='wrong_bitrate') == 1
    out = capsys.readouterr().out
    assert 'FAIL  can-bitrate     can0: 500000 bit/s, the arm has 1000000\n      -> sudo ip' in out


def test_warnings_alone_end_with_0(run, capsys):
    assert run('--only', 'can', name='jetson') == 0
    assert '2 WARN' in capsys.readouterr().out


@pytest.mark.parametrize('arguments', [
    ['--only', 'nothing'], ['--skip', 'nothing'], ['--only', 'can', '--skip', 'can'],
    ['--arm', 'can0@host'], ['--arm', 'a b'], ['--seconds', '0'], ['--seconds', 'x'],
    ['--json', '/nowhere/x.json'], ['--params-file', '/nowhere.yaml'], ['-p', 'arm.colour:=red'],
    ['-p', 'arm.channel'], ['--colour'],
])
def test_wrong_use_ends_with_2_before_anything_is_measured(run, tools, arguments, capsys):
    try:
        code = run(*arguments, arm=tools.refuse, lateness=tools.refuse, checkpoint=tools.refuse)
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert capsys.readouterr().out == ''


def test_an_unknown_check_names_the_nearest(run, capsys):
    assert run('--only', 'can-bitrat') == 2
    assert 'e.g. can-bitrate' in capsys.readouterr().err


def test_json_to_a_file_beside_the_lines(run, tmp_path, capsys):
    path = tmp_path / 'doctor.json'
    assert run('--json', path, name='no_can') == 1
    found = json.loads(path.read_text())
    assert found['exit_code'] == 1 and path.read_text().endswith('}\n')
    assert 'FAIL  can-interface' in capsys.readouterr().out


def test_json_to_standard_output_and_nothing_else_on_it(run, capsys):
    assert run('--json', '-') == 0
    assert json.loads(capsys.readouterr().out)['exit_code'] == 0


def test_the_list_names_every_check(run, capsys):
    assert run('--list') == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        check.name for check in CHECKS]


def test_ctrl_c_ends_with_130_and_keeps_the_lines_that_are_there(run, tmp_path, capsys):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    path = tmp_path / 'doctor.json'
    assert run('--json', path, lateness=interrupt) == 130
    shown = capsys.readouterr()
    assert 'OK    can-bitrate' in shown.out and 'interrupted' in shown.err
    assert not path.exists()


def test_the_parameters_of_a_file_choose_bus_cameras_and_checkpoint(run, tmp_path, tools):
    file = tmp_path / 'mine.yaml'
    file.write_text(
        '/**:\n  ros__parameters:\n    arm: {channel: can7}\n'
        '    camera: {names: [front, wrist], topics: [a/image, b/image], masked: [wrist],\n'
        '             period_s: 0.1}\n')
    seen = {}

    def watch(topics, seconds, namespace):
        seen['topics'] = topics, seconds, namespace
        return {topic: tools.camera(topic, period_ns=100_000_000) for topic in topics}

    def checkpoint(choices):
        seen['folder'] = choices.checkpoint
        return {'family': 'pi0', 'folder': 'x', 'files': 1, 'model_id': 'a', 'manifest': True}

    run('--params-file', file, '--only', 'camera-rate', 'checkpoint', '--seconds', '2',
        '--namespace', 'left', '--checkpoint', tmp_path, cameras=watch, checkpoint=checkpoint)
    assert seen == {'topics': (('a/image',), 2.0, 'left'), 'folder': tmp_path}


def test_cameras_and_arms_of_the_command_line_win(run, tools, healthy_arm):
    heard, seen = [], []

    def listen(config, seconds, asks):
        heard.append((config.bus_name, config.transport, asks))
        return healthy_arm

    def watch(topics, seconds, namespace):
        seen.append(topics)
        return {topic: tools.camera(topic) for topic in topics}

    code = run('--arm', 'can1', '--arm', 'can0@127.0.0.1:29536', '--cameras', 'x', 'y/compressed',
               '--only', 'arm-feedback', 'camera-rate', '--listen-only', arm=listen, cameras=watch)
    assert code == 0
    assert heard == [('can1', 'socketcan', False),
                     ('can0@127.0.0.1:29536', 'socketcand', False)]
    assert seen == [('x', 'y/compressed')]


def test_several_arms_of_one_bridge_are_all_looked_at(run, healthy_arm, capsys):
    code = run('-p', 'arm.several:=[left=can0, right=can1]', '--only', 'can-interface',
               'arm-limits')
    out = capsys.readouterr().out
    assert code == 1 and 'FAIL  can-interface   can1: no such interface' in out
    assert 'OK    arm-limits      left_joint1:' in out and 'right_gripper:' in out


def test_checks_and_groups_are_chosen_in_their_order():
    assert [c.name for c in choose(['gpu', 'can'], ['can-errors'])] == [
        'can-interface', 'can-bitrate', 'can-state', 'can-restart', 'can-queue', 'gpu']
    assert choose() == CHECKS and choose(GROUPS) == CHECKS
    with pytest.raises(ConfigError, match='no check is left'):
        choose([], GROUPS)
