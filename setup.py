"""Installs what only a ROS workspace needs: the ament marker, launch and configuration files.

Everything else is declared in ``setup.cfg``, but for the Python version: read from there it
becomes an object, and colcon, which takes the setup apart as literals, gives up.
"""

from glob import glob

from setuptools import setup

PACKAGE = 'reflex_ros'
SHARE = f'share/{PACKAGE}'

setup(
    python_requires='>=3.11,<3.13',
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{PACKAGE}']),
        (SHARE, ['package.xml']),
        (f'{SHARE}/launch', sorted(glob('launch/*.py'))),
        (f'{SHARE}/config', sorted(glob('config/*.yaml'))),
        (f'{SHARE}/config/faults', sorted(glob('config/faults/*.yaml'))),
        (f'{SHARE}/config/foxglove', sorted(glob('config/foxglove/*.json'))),
        (f'{SHARE}/config/robots', sorted(glob('config/robots/*.yaml'))),
    ],
)
