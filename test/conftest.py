"""Conditions of the markers, and what tests with ROS share."""

from __future__ import annotations

import importlib.util
import os
import re
from functools import cache
from pathlib import Path

import pytest

# one thread, asleep when it waits: several tests and nodes share few cores
os.environ.setdefault('OMP_NUM_THREADS', '1')
os.environ.setdefault('OMP_WAIT_POLICY', 'PASSIVE')

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


REAL_TIME = re.compile(r'mark\.(ros|can|realtime)\b')
"""Files with one of these markers run nodes, buses or threads in real time."""
NICENESS = 15
"""Of whatever computes beside tests in real time: those get a core when they need one."""


def pytest_collection_modifyitems(config, items):
    """Put what runs in real time first: the worker that gets it needs the longest."""
    if 'PYTEST_XDIST_WORKER' in os.environ:
        items.sort(key=lambda item: not is_real_time(str(item.path)))
    _skip_what_misses_something(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give the files in real time to one worker, one after the other, and the others by file."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.split('::', 1)[0]
            return 'real time' if is_real_time(str(config.rootpath / path)) else path

    return ByFile(config, log)


def pytest_runtest_setup(item):
    """Give way to the worker with the tests in real time."""
    is_beside = 'PYTEST_XDIST_WORKER' in os.environ and not is_real_time(str(item.path))
    if is_beside and os.getpriority(os.PRIO_PROCESS, 0) < NICENESS:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)


@cache
def is_real_time(path):
    """Whether a test file runs nodes, buses or threads in real time."""
    return REAL_TIME.search(Path(path).read_text(encoding='utf-8')) is not None


def _skip_what_misses_something(items):
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


@pytest.fixture(scope='session', autouse=True)
def only_allowed_frames(tmp_path_factory, only_this_host):
    """Fail the run if a simulated arm of any run folder was sent a frame off the allow-list."""
    yield
    found = forbidden_frames(tmp_path_factory.getbasetemp())
    assert not found, 'frames that must never leave:\n' + '\n'.join(found)


def forbidden_frames(folder):
    """Return the frames in the taps under a folder that the driver must never send."""
    from reflex_ros.sim.can_tap import read_tap

    found = []
    for path in sorted(folder.rglob('can_tap.bin')):
        kinds = {(int(r['can_id']), bytes(r['data'])) for r in read_tap(path)[1]
                 if int(r['can_id']) not in POSES}
        found += [f'{path}: {text}' for text in forbidden_of(kinds)]
    return found


def forbidden_of(kinds):
    """Return in words which of some frames, as (id, data), must never leave the driver."""
    from reflex_ros.arm.wire import Frame, is_forbidden

    return [f'0x{can_id:X} {data.hex()}' for can_id, data in sorted(kinds)
            if is_forbidden(Frame(can_id, data))]


POSES = (0x155, 0x156, 0x157)
"""Joint targets: always allowed, and most of a tap."""
AROUND_THE_DRIVER = ('integration/sim/', 'unit/sim/', 'unit/report/test_audit.py',
                     'contract/test_wire.py')
"""Tests of the simulator itself: they send it frames of their own, some of which no driver may."""


@pytest.fixture(scope='session')
def frames_on_sockets():
    """Collect what every simulated arm of this process is sent, as a set of (id, data)."""
    from reflex_ros.sim.can_tap import CommandTap

    seen, record = set(), CommandTap.record

    def noted(self, channel, frame, mono_ns):
        if frame.can_id not in POSES:
            seen.add((frame.can_id, bytes(frame.data)))
        record(self, channel, frame, mono_ns)

    CommandTap.record = noted
    yield seen
    CommandTap.record = record


@pytest.fixture(autouse=True)
def only_allowed_leave(request, frames_on_sockets):
    """Fail a test in which a simulated arm was sent a frame off the allow-list."""
    frames_on_sockets.clear()
    yield
    may_send_any = any(part in str(request.node.path) for part in AROUND_THE_DRIVER)
    if not may_send_any and not request.node.name.partition('[')[0].endswith('_can_fail'):
        found = forbidden_of(frames_on_sockets.copy())
        assert not found, 'frames that must never leave:\n' + '\n'.join(found)


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
    domain = clean_domain()
    monkeypatch.setenv('ROS_DOMAIN_ID', str(domain))
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    monkeypatch.setenv('ROS_LOG_DIR', str(tmp_path / 'ros_log'))
    return domain


def clean_domain():
    """Return a ROS domain in which no process that was killed left shared memory of Fast DDS.

    Who meets such a port waits seconds for its dead listener. Domains differ by process, too.
    """
    taken = {(int(name.group(1)) - 7400) // 250
             for path in Path('/dev/shm').glob('fastrtps_port*')
             if (name := re.fullmatch(r'fastrtps_port(\d+)', path.name))}
    first = os.getpid() % 100
    wanted = [1 + (first + step) % 100 for step in range(100)]
    return next((domain for domain in wanted if domain not in taken), wanted[0])


@pytest.fixture(scope='session')
def make_domain():
    """Return ``clean_domain`` for fixtures that outlive a test."""
    return clean_domain


@pytest.fixture
def ros(ros_env):
    """Start ROS for a test and end it; a test makes its own nodes."""
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    yield rclpy
    rclpy.try_shutdown()


HOME = (0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.02)
"""Pose in which an arm can stay: rad, gripper m."""


@pytest.fixture
def family_checkpoint(tmp_path):
    """Return a maker of checkpoints with random weights that keep an arm near ``HOME``.

    ``change(config)`` edits the configuration; ``cameras`` are other names in the same order.
    """
    import json
    import shutil

    import numpy as np
    from safetensors.numpy import load_file, save_file

    def statistics(mean, std):
        wide = {'min': -4, 'q01': -2, 'q10': -1, 'q90': 1, 'q99': 2, 'max': 4}
        found = {name: mean + step * std for name, step in wide.items()}
        return {**found, 'mean': mean, 'std': std}

    def make(family, *, cameras=(), action_std=2e-4, home=HOME, change=None, name=''):
        folder = tmp_path / f'{family}-{name or len(list(tmp_path.iterdir()))}'
        shutil.copytree(ROOT / 'test' / 'data' / 'parity' / family / 'checkpoint', folder)
        narrow = np.array([action_std] * 6 + [min(action_std, 0.01)], np.float32)
        spread = np.array([0.5] * 6 + [0.02], np.float32)
        pose = np.asarray(home, np.float32)
        values = {'observation.state': statistics(pose, spread),
                  'action': statistics(pose, narrow)}
        for file in folder.glob('*normalizer*.safetensors'):
            tensors = load_file(file)
            for key in tensors:
                feature, kind = key.rsplit('.', 1)
                tensors[key] = values[feature][kind].astype(np.float32)
            save_file(tensors, file)
        config = json.loads((folder / 'config.json').read_text())
        if cameras:
            inputs = config['input_features']
            old = [key for key in inputs if '.images.' in key]
            views = {f'observation.images.{new}': inputs[key]
                     for new, key in zip(cameras, old, strict=False)}
            config['input_features'] = {**views, 'observation.state': inputs['observation.state']}
        if change is not None:
            change(config)
        (folder / 'config.json').write_text(json.dumps(config))
        return folder

    return make


@pytest.fixture
def family_params():
    """Return a maker of the parameters of all nodes for a checkpoint of ``family_checkpoint``."""
    from reflex_ros.core.param_table import BRIDGE, ENCODER, POLICY, SIMULATOR
    from reflex_ros.core.params import defaults

    def make(family, folder, **changes):
        values = {}
        for node in (SIMULATOR, ENCODER, POLICY, BRIDGE):
            values.update(defaults(node))
        chosen = {
            'policy.name': family, 'policy.checkpoint': str(folder), 'policy.joint_unit': 'rad',
            'policy.gripper_unit': 'm', 'policy.step_period_s': 0.04,
            'policy.joint_names': ('joint1', 'joint2', 'joint3', 'joint4', 'joint5', 'joint6',
                                   'gripper'),
            'camera.names': ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb'),
            **{name.replace('__', '.'): value for name, value in changes.items()},
        }
        assert not set(chosen) - set(values), set(chosen) - set(values)
        return {**values, **chosen}

    return make
