"""Only the recorder, for a suite that something else has started without one.

Run it with ``ros2 launch reflex_ros record.launch.py params_file:=my_robot.yaml``.
"""

from __future__ import annotations

from pathlib import Path

from launch.actions import OpaqueFunction
from launch.substitutions import LaunchConfiguration

from launch import LaunchDescription
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup.graph import recording
from reflex_ros.bringup.launching import argument, graph_actions
from reflex_ros.bringup.settings import config_file, effective
from reflex_ros.core.clock import SystemClock


def set_up(context):
    """Return the actions for the arguments."""
    def value(name):
        return LaunchConfiguration(name).perform(context)

    files = [value('params_file')]
    effective(files, {})
    folder = RunFolder.create(Path(value('runs')).resolve(), 'recording', SystemClock())
    chosen = effective(files, {
        'run.folder': str(folder.path), 'recorder.images': value('images') == 'true'})
    return graph_actions(recording(), folder, chosen, namespace=value('namespace'))


def generate_launch_description():
    """Return the description."""
    return LaunchDescription([
        argument('params_file', str(config_file('robot.yaml')), 'cameras and topics'),
        argument('images', 'false', 'whether images are recorded as well', ('true', 'false')),
        argument('namespace', '', 'namespace of the suite'),
        argument('runs', 'runs', 'folder of the run folders'),
        OpaqueFunction(function=set_up),
    ])
