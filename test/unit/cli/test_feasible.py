"""[ci] The planner on the command line."""

from __future__ import annotations

from reflex_ros.cli.main import main


def test_it_prints_the_region_and_marks_the_delay_asked_for(capsys):
    assert main(['feasible', '--latency-ms', '100', '--chunk', '15', '50', '--stitch', 'rtc']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 'H = 15' in lines[1]
    assert 'H = 50' in lines[1]
    (marked,) = [line for line in lines if 'yours' in line]
    assert marked.split()[:4] == ['100', '5', 'to', '10']


def test_an_infeasible_choice_ends_with_two_and_says_what_would_do(capsys):
    code = main(['feasible', '--latency-ms', '100', '--chunk', '15', '--stitch', 'rtc',
                 '--execute-steps', '12'])
    assert code == 2
    assert 'expected 5 to 10' in capsys.readouterr().err
    assert main(['feasible', '--latency-ms', '100', '--chunk', '15', '--execute-steps', '10']) == 0


def test_the_measured_state_uses_up_rows_before_the_first_command(capsys):
    options = ['feasible', '--latency-ms', '100', '--chunk', '12', '--execute-steps', '6']
    assert main(options) == 0
    assert main([*options, '--state', 'measured']) == 2
    assert 'runs out' in capsys.readouterr().err
