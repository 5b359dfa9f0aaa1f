"""The suite against the simulated arm.

Run it with ``ros2 launch reflex_ros sim.launch.py mode:=sync policy:=oracle``.
"""

from __future__ import annotations

from pathlib import Path

from launch.actions import OpaqueFunction
from launch.substitutions import LaunchConfiguration

from launch import LaunchDescription
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup.demo import DemoSpec, parameters
from reflex_ros.bringup.graph import suite
from reflex_ros.bringup.launching import argument, graph_actions
from reflex_ros.bringup.settings import config_file, effective
from reflex_ros.core.clock import SystemClock


def set_up(context):
    """Return the actions for the arguments."""
    def value(name):
        return LaunchConfiguration(name).perform(context)

    spec = DemoSpec(
        mode=value('mode'), policy=value('policy'), task=value('task'),
        delay_ms=float(value('delay_ms')), duration_s=0.0, seed=int(value('seed')),
        execute_steps=int(value('execute_steps')), one_process=value('one_process') == 'true',
        view=False, runs=Path(value('runs')).resolve(), overrides={},
    )
    files, port = [config_file('sim.yaml')], int(value('port'))
    effective(files, parameters(spec, spec.runs, port=port))
    folder = RunFolder.create(spec.runs, spec.mode, SystemClock())
    graph = suite(simulated=True, one_process=spec.one_process)
    chosen = effective(files, parameters(spec, folder.path, port=port))
    return graph_actions(graph, folder, chosen, namespace=value('namespace'))


def generate_launch_description():
    """Return the description."""
    return LaunchDescription([
        argument('mode', 'reflex', 'execution mode', ('reflex', 'sync', 'async_naive')),
        argument('policy', 'tiny', 'policy', ('tiny', 'oracle')),
        argument('task', 'jump', 'what happens in the world'),
        argument('delay_ms', '0.0', 'inference start to publication is padded to this, ms'),
        argument('seed', '0', 'seed of the world and of the noise'),
        argument('execute_steps', '0', 'rows used before replacement; 0: what the policy says'),
        argument('port', '29536', 'TCP port of the CAN bus'),
        argument('namespace', '', 'namespace of all nodes'),
        argument('one_process', 'true', 'encoder and policy in one process', ('true', 'false')),
        argument('runs', 'runs', 'folder of the run folders'),
        OpaqueFunction(function=set_up),
    ])
