"""Conditions of the markers, and what tests with ROS share."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _reason_without_ros():
    # The source folder reflex_msgs/ would satisfy an import of the package name alone.
    try:
        if importlib.util.find_spec('rclpy') and importlib.util.find_spec('reflex_msgs.msg._plan'):
            return ''
    except ModuleNotFoundError:
        pass
    return 'rclpy or reflex_msgs is missing: run make setup'


def _reason_without_gpu():
    if importlib.util.find_spec('torch') is None:
        return 'torch is not installed'
    import torch

    return '' if torch.cuda.is_available() else 'no NVIDIA GPU'


def _reason_without_arm():
    allowed = os.environ.get('REFLEX_ALLOW_MOTION') == '1'
    return '' if allowed else 'moves a real arm: set REFLEX_ALLOW_MOTION=1 to allow it'


def _reason_without_launch():
    found = importlib.util.find_spec('launch') and importlib.util.find_spec('launch_ros')
    # Without the packages the folder launch/ of this repository answers as a namespace.
    is_real = found and importlib.util.find_spec('launch').origin
    return '' if is_real else 'the launch packages of a ROS installation are missing'


CONDITIONS = {
    'ros': _reason_without_ros,
    'gpu': _reason_without_gpu,
    'hardware': _reason_without_arm,
    'launch': _reason_without_launch,
}


def pytest_collection_modifyitems(items):
    for marker, condition in CONDITIONS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = condition() if marked else ''
        for item in marked if reason else []:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope='session', autouse=True)
def only_this_host(tmp_path_factory):
    """Fail the run if this process or one that it starts connects to another host."""
    guard = ROOT / 'test' / 'guard'
    log = tmp_path_factory.mktemp('guard') / 'attempts.txt'
    before = {name: os.environ.get(name) for name in ('PYTHONPATH', 'REFLEX_GUARD_LOG')}
    os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, (str(guard), before['PYTHONPATH'])))
    os.environ['REFLEX_GUARD_LOG'] = str(log)
    load_guard(guard)
    yield log
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    attempts = log.read_text() if log.exists() else ''
    assert not attempts, f'somebody tried to reach another host:\n{attempts}'


def load_guard(folder):
    """Install the hook in this process; it stays, as audit hooks do."""
    spec = importlib.util.spec_from_file_location('reflex_guard', folder / 'sitecustomize.py')
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.fixture
def root():
    """Return the root of the repository."""
    return ROOT


@pytest.fixture
def ros_env(monkeypatch, tmp_path):
    """Keep a test's ROS traffic on this host and in a domain of its own; return the domain."""
    domain = 1 + os.getpid() % 100
    monkeypatch.setenv('ROS_DOMAIN_ID', str(domain))
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    monkeypatch.setenv('ROS_LOG_DIR', str(tmp_path / 'ros_log'))
    return domain


@pytest.fixture
def ros(ros_env):
    """Start ROS for a test and end it; a test makes its own nodes."""
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    yield rclpy
    rclpy.try_shutdown()
