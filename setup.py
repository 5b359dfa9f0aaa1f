"""Installs what only a ROS workspace needs: the ament marker, launch and configuration files.

Everything else is declared in ``setup.cfg``.
"""

from glob import glob

from setuptools import setup

PACKAGE = 'reflex_ros'
SHARE = f'share/{PACKAGE}'

setup(
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{PACKAGE}']),
        (SHARE, ['package.xml']),
        (f'{SHARE}/launch', sorted(glob('launch/*.py'))),
        (f'{SHARE}/config', sorted(glob('config/*.yaml'))),
        (f'{SHARE}/config/robots', sorted(glob('config/robots/*.yaml'))),
    ],
)
