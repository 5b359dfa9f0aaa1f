"""The suite on a robot: bridge, encoder, policy, recorder; cameras are up to you.

Run it with ``ros2 launch reflex_ros robot.launch.py params_file:=my_robot.yaml``. The arm holds
its pose until the operator calls ``resume``, unless ``run.autostart`` is set.
"""

from __future__ import annotations

from pathlib import Path

from launch.actions import OpaqueFunction
from launch.substitutions import LaunchConfiguration

from launch import LaunchDescription
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup.graph import ALL, PARTS, suite
from reflex_ros.bringup.launching import argument, graph_actions
from reflex_ros.bringup.settings import config_file, effective
from reflex_ros.core.clock import SystemClock


def set_up(context):
    """Return the actions for the arguments."""
    def value(name):
        return LaunchConfiguration(name).perform(context)

    files = [value('robot_file') or config_file('robots/piper.yaml'), value('params_file')]
    mode = effective(files, {})['controller_bridge']['chunk.mode']
    kind = mode if value('part') == ALL else value('part')
    folder = RunFolder.create(Path(value('runs')).resolve(), kind, SystemClock())
    graph = suite(simulated=False, one_process=value('one_process') == 'true',
                  record=value('record') == 'true', part=value('part'))
    parameters = effective(files, {'run.folder': str(folder.path)})
    return graph_actions(graph, folder, parameters, namespace=value('namespace'))


def generate_launch_description():
    """Return the description."""
    flags = ('true', 'false')
    return LaunchDescription([
        argument('params_file', str(config_file('robot.yaml')),
                 'cameras, checkpoint and limits of your robot'),
        argument('robot_file', '', 'the arm; default: config/robots/piper.yaml'),
        argument('namespace', '', 'namespace of all nodes'),
        argument('one_process', 'true', 'encoder and policy in one process', flags),
        argument('part', ALL, 'what runs on this machine (docs/offboard.md)', PARTS),
        argument('record', 'true', 'whether a bag is recorded', flags),
        argument('runs', 'runs', 'folder of the run folders'),
        OpaqueFunction(function=set_up),
    ])
