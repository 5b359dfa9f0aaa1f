"""Nodes started one by one, a participant that publishes what it should not, and the CAN tap."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml

from reflex_ros.core.types import JOINT_NAMES

PRCTL = ctypes.CDLL(None).prctl
PR_SET_PDEATHSIG = 1
"""Nodes end with the tests, also when those are killed."""
PATIENCE_S = 30.0
"""Longest wait for anything on a busy machine; nothing judges how long it took."""
MOTION_IDS = (0x155, 0x156, 0x157)
"""CAN ids of the joint targets."""


def until(condition, what='condition', seconds=PATIENCE_S):
    """Return the first true value of ``condition()``."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f'never happened: {what}'
        time.sleep(0.02)


class NodeProcess:
    """One node in a process of its own; its output goes to a file."""

    def __init__(self, name, params_file, log, namespace=''):
        self.name, self.log = name, log
        command = [sys.executable, '-m', f'reflex_ros.nodes.{name}', '--ros-args',
                   '--params-file', str(params_file)]
        command += ['-r', f'__ns:=/{namespace}'] if namespace else []
        with open(log, 'wb') as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                preexec_fn=lambda: PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM))

    @property
    def text(self):
        return self.log.read_text(errors='replace')

    @property
    def is_alive(self):
        return self.process.poll() is None

    def says(self, text, seconds=PATIENCE_S):
        until(lambda: text in self.text, f'{self.name} says {text!r}; it said: {self.text}',
              seconds)

    def wait(self):
        return self.process.wait(PATIENCE_S)

    def end(self):
        if self.is_alive:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S / 2)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Stage:
    """A run folder, nodes that are started by hand, and a participant of our own."""

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        self.folder.mkdir(parents=True, exist_ok=True)
        self.nodes, self.all = {}, []
        self._started = 0
        self._node = self._executor = None

    # ---- nodes ---------------------------------------------------------------------------

    def start(self, name, *, namespace='', **changes):
        """Start a node with the parameters of the demonstration and ``group.name`` changes."""
        from reflex_ros.bringup.settings import config_file, effective, write_params

        values = {'run.folder': str(self.folder), 'arm.port': self.port,
                  'policy.name': 'oracle', 'simulator.task': 'follow',
                  'safety.feedback_timeout_s': 1.0}
        self._started += 1
        path = self.folder / f'{name}-{self._started}.yaml'
        chosen = effective([config_file('sim.yaml')], {**values, **changes})
        write_params(path, chosen, namespace=namespace)
        return self.start_with(name, path, namespace=namespace)

    def start_with(self, name, path, *, namespace=''):
        """Start a node with a parameter file."""
        self._started += 1
        log = self.folder / f'{name}-{self._started}.log'
        self.all.append(NodeProcess(name, path, log, namespace))
        self.nodes[name] = self.all[-1]
        return self.nodes[name]

    def raw_params(self, name, **groups):
        """Write a parameter file without any check; return its path."""
        path = self.folder / f'raw-{name}.yaml'
        path.write_text(yaml.safe_dump({name: {'ros__parameters': groups}}))
        return path

    def change(self, name, transition):
        """Ask for a transition; return whether it succeeded, None without an answer."""
        from reflex_ros.core.errors import StaleError
        from reflex_ros.ros.client import Caller, LifecycleClient

        caller = Caller(self.node, timeout_s=PATIENCE_S)
        try:
            return LifecycleClient(caller, name).change(transition)
        except StaleError:
            return None
        finally:
            caller.close()

    def change_id(self, name, number, *, timeout_s=PATIENCE_S):
        """Ask for a transition by its number, sensible or not; None without an answer."""
        from lifecycle_msgs.msg import Transition
        from lifecycle_msgs.srv import ChangeState

        from reflex_ros.core.errors import StaleError
        from reflex_ros.ros.client import Caller

        caller = Caller(self.node, timeout_s=timeout_s)
        try:
            return caller.call(f'{name}/change_state', ChangeState, ChangeState.Request(
                transition=Transition(id=number))).success
        except StaleError:
            return None
        finally:
            caller.close()

    def state(self, name):
        from reflex_ros.ros.client import Caller, LifecycleClient

        caller = Caller(self.node, timeout_s=PATIENCE_S)
        try:
            return LifecycleClient(caller, name).state()
        finally:
            caller.close()

    def up(self, *names, **changes):
        """Start, configure and activate nodes, in this order; all must succeed."""
        for name in names:
            self.start(name, **changes)
        self.walk(*names)

    def walk(self, *names):
        """Configure and activate started nodes, in this order; all must succeed."""
        for transition in ('configure', 'activate'):
            for name in names:
                assert self.change(name, transition), self.nodes[name].text

    def refuses(self, name, *, node=''):
        """Return exit code and output of a node that refuses to be configured."""
        assert self.change(node or name, 'configure') in (False, None)
        code = self.nodes[name].wait()
        return code, self.nodes[name].text

    # ---- our own participant -------------------------------------------------------------

    @property
    def node(self):
        if self._node is None:
            from rclpy.node import Node

            self._node = Node('rogue', start_parameter_services=False)
        return self._node

    def publisher(self, name):
        """Return a publisher of a topic of the suite that has found its subscribers."""
        from reflex_ros.ros.qos import topic

        entry = topic(name)
        publisher = self.node.create_publisher(entry.message, entry.name, entry.qos)
        until(lambda: publisher.get_subscription_count() > 0, f'a subscriber of {name}')
        time.sleep(0.5)  # discovery is not symmetric
        return publisher

    def newest(self, name, *, wait=True):
        """Return a list that holds the newest message of a topic; filled while ``spin`` runs."""
        kept = []
        self.hear(name, lambda msg: kept.__setitem__(slice(None), [msg]))
        if wait:
            self.spin(lambda: kept, f'a message on {name}')
        return kept

    def hear(self, name, take):
        """Call ``take`` with every message of a topic while ``spin`` runs; return what hears."""
        from reflex_ros.ros.qos import topic

        entry = topic(name)
        return self.node.create_subscription(entry.message, entry.name, take, entry.qos)

    def spin(self, condition=lambda: False, what='', seconds=PATIENCE_S):
        """Take messages until ``condition()``; without ``what`` a timeout is fine."""
        import rclpy

        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                assert not what, f'never happened: {what}'
                return
            rclpy.spin_once(self.node, timeout_sec=0.05)

    @property
    def bridge(self):
        """Return the client of the bridge's services."""
        from reflex_ros.ros.client import BridgeClient, Caller

        return BridgeClient(Caller(self.node, timeout_s=PATIENCE_S))

    # ---- what reached the arm ------------------------------------------------------------

    def poses(self):
        """Return all joint targets that arrived at the arm, ``int[N, 6]`` in 0.001 deg.

        The simulator writes its tap in pieces; what is missing at the end is written when it
        stops, so stop it first.
        """
        from reflex_ros.sim.can_tap import read_tap

        path = self.folder / 'can_tap.bin'
        if not path.exists():
            return np.empty((0, 6), int)
        records = read_tap(path)[1]
        parts = []
        for can_id in MOTION_IDS:
            data = records['data'][records['can_id'] == can_id]
            parts.append(np.ascontiguousarray(data).view('>i4').reshape(-1, 2))
        rows = min(len(part) for part in parts)
        return np.hstack([part[:rows] for part in parts])

    def end_of_motion(self):
        """End bridge and simulator; return how far the targets of the run spread, deg."""
        for name in ('controller_bridge', 'simulator'):
            self.nodes[name].end()
        poses = self.poses()
        return float(np.ptp(poses, axis=0).max() / 1000) if len(poses) else 0.0

    def end_of_motion_only(self):
        """End bridge and simulator, in this order."""
        for name in ('controller_bridge', 'simulator'):
            self.nodes[name].end()

    def sent_ids(self):
        """Return the ids of all frames that reached a simulator of this run."""
        from reflex_ros.sim.can_tap import read_tap

        return {int(can_id) for path in self.folder.rglob('can_tap.bin')
                for can_id in np.unique(read_tap(path)[1]['can_id'])}

    def ticks(self):
        """Return the records of the ledger."""
        from reflex_ros.core.ledger import LedgerReader

        path = self.folder / 'ledger.bin'
        return LedgerReader(path).records() if path.exists() else None

    def causes(self, since=0):
        """Return the names of the causes in the ledger from record ``since`` on."""
        from reflex_ros.core.ledger import CAUSE_CODES

        records = self.ticks()
        found = () if records is None else np.unique(records['cause'][since:])
        return {CAUSE_CODES[code].value for code in found}

    def end(self):
        for node in reversed(self.all):
            node.end()
        if self._node is not None:
            self._node.destroy_node()


def assert_allowed(can_ids):
    """No frame of the SDK has an id outside the allow-list, whatever a test did."""
    from reflex_ros.study.fault_matrix import ALLOWED

    strange = sorted(hex(can_id) for can_id in set(can_ids) - ALLOWED)
    assert not strange, f'ids on the wire that are not allowed: {strange}'


@pytest.fixture
def only_allowed():
    """Return the check of the ids on the wire."""
    return assert_allowed


@pytest.fixture(scope='session')
def tell(request):
    """Return what prints a line now, whatever is captured: how far a long run is."""
    capture = request.config.pluginmanager.getplugin('capturemanager')

    def say(text):
        with capture.global_and_fixture_disabled():
            print(f'\n{text[:150]}', end='', flush=True)

    return say


@pytest.fixture(scope='session')
def tell_lines(tell):
    """Return what runs a command and passes its lines on."""
    def run(*command):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                tell(line.rstrip())

    return run


@pytest.fixture
def stage(ros, tmp_path):
    """Return a stage; its nodes are ended after the test."""
    from reflex_ros.bringup.environment import free_tcp_port

    made = Stage(tmp_path / 'run', free_tcp_port())
    yield made
    made.end()
    assert_allowed(made.sent_ids())


@pytest.fixture
def checkpoint(tmp_path):
    """Return the folder of a complete, very small checkpoint with random weights."""
    import torch

    from reflex_ros.infer.checkpoint import Scaling, Scalings
    from reflex_ros.infer.families import tiny
    from reflex_ros.infer.families.tiny_network import TinyConfig, TinyNetwork
    from reflex_ros.train.instructions import build_tokenizer

    torch.manual_seed(0)
    network = TinyNetwork(TinyConfig(
        image_size=16, vision_layers=1, layers=2, width=12, heads=2, kv_heads=1, head_dim=6,
        gate_hidden=8, horizon=6, rows_per_token=2, instruction_tokens=8, vocabulary=64, tau_dim=6,
        window=4))
    ones, rows = np.ones(7), np.ones((6, 7))
    folder = tmp_path / 'checkpoint'
    tiny.save(
        folder, network, scalings=Scalings(Scaling(ones, ones), Scaling(0 * rows, rows)),
        tokenizer=build_tokenizer(8),
        config={'joint_names': list(JOINT_NAMES), 'step_period_ns': 20_000_000,
                'frame_period_ns': 40_000_000, 'n_action_steps': 2, 'num_inference_steps': 10,
                'instruction': 'follow the pink ball', 'dh': 'new'})
    return folder
