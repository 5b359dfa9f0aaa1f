from __future__ import annotations

import json

import pytest

from reflex_ros.bringup.supervise import Phase, describe_exit
from reflex_ros.core.clock import S
from reflex_ros.core.params import defaults

NODES = ('simulator', 'controller_bridge', 'vision_encoder', 'policy', 'recorder')


def test_bring_up_configures_in_order_and_activates_the_recorder_first_the_bridge_last(
    make_bench,
):
    bench = make_bench(one_process=False)
    bench.supervisor.start()
    bench.supervisor.step()
    assert [child.spec.executable for child in bench.launcher.started] == list(NODES)
    assert bench.lifecycle.asked == [f'configure {node}' for node in NODES] + [
        'activate recorder', 'activate simulator', 'activate vision_encoder', 'activate policy',
        'activate controller_bridge',
    ]
    assert bench.supervisor.phase is Phase.RUNNING
    assert bench.supervisor.active_ns == bench.clock.mono_ns()


def test_nothing_is_activated_before_everything_is_configured(make_bench):
    bench = make_bench()
    bench.lifecycle.silent.add('policy')
    bench.supervisor.start()
    bench.run(30.0)
    assert bench.supervisor.phase is Phase.STARTING
    assert bench.supervisor.waiting_for == 'configure policy'
    assert not [asked for asked in bench.lifecycle.asked if asked.startswith('activate')]


@pytest.mark.parametrize(('one_process', 'name', 'nodes'), [
    (True, 'inference', ['vision_encoder', 'policy']),
    (False, 'vision_encoder', ['vision_encoder']),
    (False, 'policy', ['policy']),
    (False, 'recorder', ['recorder']),
])
def test_a_lost_stage_is_restarted_configured_and_activated_while_the_rest_goes_on(
    make_bench, one_process, name, nodes
):
    bench = make_bench(one_process=one_process).up()
    others = set(bench.living()) - {name}
    bench.kill(name)
    bench.run(0.9)
    assert set(bench.living()) == others
    bench.run(0.2)
    assert set(bench.living()) == others | {name}
    assert bench.lifecycle.asked == (
        [f'configure {node}' for node in nodes] + [f'activate {node}' for node in nodes])
    assert bench.supervisor.phase is Phase.RUNNING
    assert bench.supervisor.restarts == 1


def test_restarts_wait_one_two_four_seconds_and_the_fourth_death_is_final(make_bench):
    bench = make_bench(one_process=False).up()
    for wait_s in (1.0, 2.0, 4.0):
        bench.kill('policy')
        before = len(bench.launcher.started)
        bench.run(wait_s - 0.06)
        assert len(bench.launcher.started) == before
        bench.run(0.1)
        assert len(bench.launcher.started) == before + 1
    bench.kill('policy')
    bench.run(1.0)
    assert bench.supervisor.phase is Phase.STOPPED
    assert bench.supervisor.exit_code == 4


def test_a_death_in_the_middle_of_a_restart_counts_as_another(make_bench):
    bench = make_bench(one_process=False).up()
    bench.lifecycle.silent.add('policy')
    bench.kill('policy')
    bench.run(1.1)
    bench.kill('policy')
    assert bench.supervisor.restarts == 2
    bench.lifecycle.silent.clear()
    bench.run(2.1)
    assert bench.lifecycle.asked[-1] == 'activate policy'


def test_loss_of_the_bridge_stops_everything_with_three(make_bench):
    bench = make_bench().up()
    bench.kill('controller_bridge', code=0)
    bench.run(1.0)
    assert bench.supervisor.phase is Phase.STOPPED
    assert bench.supervisor.exit_code == 3
    assert not bench.living()


def test_loss_of_the_simulator_leaves_the_bridge_a_second_to_record_it(make_bench):
    bench = make_bench().up()
    bench.kill('simulator')
    bench.run(0.9)
    assert 'controller_bridge' in bench.living()
    bench.run(1.0)
    assert bench.supervisor.phase is Phase.STOPPED
    assert bench.supervisor.exit_code == 3


def test_a_stage_that_dies_in_that_second_is_not_restarted(make_bench):
    bench = make_bench(one_process=False).up()
    bench.kill('policy')
    bench.run(0.5)
    bench.kill('simulator')
    bench.run(3.0)
    assert len(bench.launcher.started) == len(NODES)
    assert bench.supervisor.exit_code == 3


@pytest.mark.parametrize(('name', 'code', 'expected'), [
    ('controller_bridge', 2, 2), ('controller_bridge', 3, 3), ('controller_bridge', -11, 3),
    ('inference', 2, 2), ('inference', 1, 4), ('recorder', -9, 4), ('simulator', 1, 3),
])
def test_a_death_while_starting_stops_everything_with_the_code_of_the_node_or_its_role(
    make_bench, name, code, expected
):
    bench = make_bench()
    bench.lifecycle.silent.update(NODES)
    bench.supervisor.start()
    bench.kill(name, code)
    bench.run(1.0)
    assert bench.supervisor.phase is Phase.STOPPED
    assert bench.supervisor.exit_code == expected
    assert any('last words' in line for line in bench.lines)


def test_a_restarted_node_that_refuses_its_input_is_not_tried_again(make_bench):
    bench = make_bench().up()
    bench.kill('recorder', code=2)
    bench.run(1.0)
    assert bench.supervisor.exit_code == 2


@pytest.mark.parametrize(('node', 'expected'), [('controller_bridge', 3), ('policy', 4)])
def test_a_node_that_refuses_and_stays_is_ended_after_three_seconds(make_bench, node, expected):
    bench = make_bench()
    bench.lifecycle.refusing.add(node)
    bench.supervisor.start()
    bench.run(2.5)
    assert bench.supervisor.phase is Phase.STARTING
    bench.run(2.0)
    assert bench.supervisor.phase is Phase.STOPPED
    assert bench.supervisor.exit_code == expected


def test_stop_asks_the_bridge_first_and_the_simulator_last(make_bench):
    bench = make_bench(one_process=False).up()
    bench.supervisor.request_stop('test')
    order = []
    while bench.supervisor.phase is not Phase.STOPPED:
        order.append([c.spec.executable for c in bench.launcher.started if c.asked])
        bench.run(0.02)
    events = [json.loads(line) for line in bench.path.read_text().splitlines()]
    asked = [event['node'] for event in events if event['event'] == 'terminate']
    assert asked == ['controller_bridge', 'vision_encoder', 'policy', 'recorder', 'simulator']
    assert order[0] == ['controller_bridge']
    assert bench.supervisor.exit_code == 0


def test_a_stubborn_process_is_killed_after_five_seconds_and_said_so(make_bench):
    bench = make_bench()
    bench.launcher.stubborn.add('recorder')
    bench.up().supervisor.request_stop('test')
    bench.run(4.9)
    assert bench.living() == ['simulator', 'recorder']
    bench.run(0.4)
    assert bench.supervisor.phase is Phase.STOPPED
    assert [line for line in bench.lines if 'recorder: did not stop in time: killed' in line]


def test_a_second_request_asks_all_at_once_and_a_third_kills(make_bench):
    bench = make_bench()
    bench.launcher.stubborn.update(NODES + ('inference',))
    bench.up().supervisor.request_stop('SIGINT')
    bench.supervisor.request_stop('SIGINT')
    assert all(child.asked for child in bench.launcher.started)
    bench.run(1.0)
    assert len(bench.living()) == 4
    bench.supervisor.request_stop('SIGINT')
    bench.run(0.1)
    assert bench.supervisor.phase is Phase.STOPPED


def test_a_hurried_stop_kills_after_two_seconds(make_bench):
    bench = make_bench()
    bench.launcher.stubborn.add('inference')
    bench.up().supervisor.request_stop('SIGINT')
    bench.supervisor.request_stop('SIGINT')
    bench.run(2.1)
    assert bench.supervisor.phase is Phase.STOPPED


def slow_arm():
    """Return parameters of an arm that brakes from 0.9 rad/s with 0.1 rad/s^2."""
    return {'controller_bridge': {**defaults('controller_bridge'),
                                  'safety.acceleration_scale': 0.02}}


@pytest.mark.parametrize(('requests', 'after_s'), [(1, 5.0 + 9.0), (2, 2.0 + 9.0)])
def test_a_bridge_whose_arm_brakes_slowly_gets_the_time_for_it(make_bench, requests, after_s):
    bench = make_bench(parameters=slow_arm())
    bench.launcher.stubborn.add('controller_bridge')
    bench.up()
    for _ in range(requests):
        bench.supervisor.request_stop('SIGINT')
    bench.run(after_s - 0.1)
    assert 'controller_bridge' in bench.living()
    bench.run(1.0)
    assert 'controller_bridge' not in bench.living()


def test_a_bridge_whose_arm_brakes_slowly_can_fail(make_bench):
    """Without the parameters of its arm it would be killed while the arm still moves."""
    bench = make_bench()
    bench.launcher.stubborn.add('controller_bridge')
    bench.up().supervisor.request_stop('SIGINT')
    bench.run(5.1)
    assert 'controller_bridge' not in bench.living()


def test_a_stop_while_starting_stops(make_bench):
    bench = make_bench()
    bench.lifecycle.silent.add('simulator')
    bench.supervisor.start()
    bench.supervisor.request_stop('SIGINT')
    bench.run(1.0)
    assert bench.supervisor.phase is Phase.STOPPED
    assert bench.supervisor.exit_code == 0


def test_events_carry_name_pid_exit_code_and_steady_time(make_bench):
    bench = make_bench().up()
    bench.kill('inference')
    events = [json.loads(line) for line in bench.path.read_text().splitlines()]
    died = next(event for event in events if event['event'] == 'died')
    assert died['node'] == 'inference'
    assert died['exit_code'] == -9
    assert died['pid'] == bench.launcher.started[2].pid
    assert died['ns'] == bench.clock.mono_ns()
    assert S < died['ns'] < died['stamp_ns']


def test_exits_are_named_after_their_signal():
    assert describe_exit(-9) == 'SIGKILL'
    assert describe_exit(2) == 'exit code 2'
    assert describe_exit(-250) == 'signal 250'
