from __future__ import annotations

import pytest

from reflex_ros.bringup.graph import recording, suite
from reflex_ros.core.param_table import NODES


@pytest.mark.parametrize('one_process', [True, False])
def test_the_simulated_suite_hosts_every_node_once(one_process):
    graph = suite(simulated=True, one_process=one_process)
    assert sorted(graph.configure_order) == sorted(NODES)
    assert sorted(graph.activate_order) == sorted(NODES)


def test_a_robot_has_no_simulator_and_may_record_nothing():
    graph = suite(simulated=False, record=False)
    assert graph.configure_order == ('controller_bridge', 'vision_encoder', 'policy')
    assert graph.activate_order == ('vision_encoder', 'policy', 'controller_bridge')


def test_what_moves_the_arm_is_never_restarted_by_itself():
    graph = suite(simulated=True, one_process=False)
    assert [spec.executable for spec in graph.processes if not spec.is_restarted] == [
        'simulator', 'controller_bridge']


def test_every_process_is_in_one_stop_group():
    graph = suite(simulated=True, one_process=False)
    stopped = [spec.executable for group in graph.stop_groups for spec in group]
    assert sorted(stopped) == sorted(spec.executable for spec in graph.processes)


def test_recording_alone_runs_only_the_recorder():
    assert recording().configure_order == recording().activate_order == ('recorder',)
