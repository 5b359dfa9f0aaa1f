"""The suite against a recorded robot: its arm and cameras come from a bag, in recorded time.

Run it with ``ros2 launch reflex_ros replay.launch.py bag:=runs/<run> output:=/tmp/again``.
"""

from __future__ import annotations

from pathlib import Path

from launch.actions import OpaqueFunction
from launch.substitutions import LaunchConfiguration

from launch import LaunchDescription
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup.graph import suite
from reflex_ros.bringup.launching import argument, graph_actions
from reflex_ros.bringup.replay_input import ReplaySpec, open_source
from reflex_ros.bringup.replay_nodes import node_parameters
from reflex_ros.bringup.settings import parse_overrides


def set_up(context):
    """Return the actions for the arguments."""
    def value(name):
        return LaunchConfiguration(name).perform(context)

    overrides = {'chunk.mode': value('mode')} if value('mode') else {}
    overrides |= parse_overrides(value('params').split())
    source = open_source(ReplaySpec(Path(value('bag')), overrides=overrides))
    folder = RunFolder(Path(value('output')).resolve())
    parameters = node_parameters(source, folder, port=int(value('port')))
    folder.path.mkdir(parents=True)
    graph = suite(simulated=True, one_process=value('one_process') == 'true')
    return graph_actions(graph, folder, parameters, namespace=value('namespace'))


def generate_launch_description():
    """Return the description."""
    return LaunchDescription([
        argument('bag', '', 'run folder, or one bag'),
        argument('output', '', 'new run folder'),
        argument('mode', '', 'execution mode instead of the recorded one',
                 ('', 'reflex', 'sync', 'async_naive')),
        argument('params', '', 'NAME:=VALUE of docs/parameters.md, separated by spaces'),
        argument('port', '29536', 'TCP port of the CAN bus'),
        argument('namespace', '', 'namespace of all nodes'),
        argument('one_process', 'true', 'encoder and policy in one process', ('true', 'false')),
        OpaqueFunction(function=set_up),
    ])
