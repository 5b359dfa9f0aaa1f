"""A stage of real nodes, one of which is killed and started again, in a ROS domain of its own."""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from node_server import NODES  # noqa: E402

from reflex_ros.core.errors import StaleError  # noqa: E402
from reflex_ros.core.ledger import (  # noqa: E402
    CAUSE_CODES,
    HEADER_BYTES,
    LedgerReader,
    _count_whole,
)

ANSWER_S, RESTART_S, PATIENCE_S = 2.0, 120.0, 60.0
STARTS = 3
SETTINGS = {'simulator.task': 'jump', 'camera.period_s': 0.08, 'camera.max_age_s': 1.0,
            'safety.max_observation_age_s': 1.0}
"""A target that jumps: the arm is fast, and often. Few frames, since to draw them costs the most,
and they may be old: a busy machine is no fault."""


def stage_class():
    """Return the class of stages that the tests of this folder use."""
    spec = importlib.util.spec_from_file_location('faults_conftest', HERE / 'conftest.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BASE = stage_class()


class Tail:
    """The records of a ledger that grows, read once each."""

    def __init__(self, path):
        self._path, reader = path, LedgerReader(path)
        self._all, self._count = reader.records(), 0
        self._count = len(self._all)

    def records(self):
        """Return all records so far, not to be changed."""
        size = self._all.dtype.itemsize
        with open(self._path, 'rb') as file:
            file.seek(HEADER_BYTES + self._count * size)
            data = bytes(HEADER_BYTES) + file.read()
        new = np.frombuffer(data, self._all.dtype, _count_whole(data, size, 0), HEADER_BYTES)
        end = self._count + len(new)
        if end > len(self._all):
            self._all = np.concatenate([self._all[:self._count], np.zeros(
                max(end, 10_000), self._all.dtype)])
        self._all[self._count:end] = new
        self._count = end
        return self._all[:end]


# ---- processes -------------------------------------------------------------------------------


class Server:
    """The process that forks nodes."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / 'node_server.py')], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        self._process.stdout.readline()

    def ask(self, *order):
        self._process.stdin.write(json.dumps(order) + '\n')
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self):
        self._process.stdin.close()
        self._process.wait(30.0)


class ServedNode:
    """A node that the server forked; the same as ``NodeProcess`` of the tests."""

    def __init__(self, server, name, params_file, log):
        self.name, self.log, self._server = name, log, server
        self.pid = server.ask('start', name, str(params_file), str(log))
        self._code = None

    @property
    def text(self):
        return self.log.read_text(errors='replace') if self.log.exists() else ''

    @property
    def is_alive(self):
        if self._code is None:
            self._code = self._server.ask('poll', self.pid)
        return self._code is None

    def kill(self, number=signal.SIGKILL):
        """Send a signal and wait for the end."""
        if self.is_alive:
            self._code = self._server.ask('kill', self.pid, int(number))
        return self._code

    def end(self):
        """End it as a supervisor does."""
        self.kill(signal.SIGTERM)


class KillStage(BASE.Stage):
    """A stage whose processes are killed and started again, and what reached the arm."""

    def __init__(self, folder, port, seed, nodes=NODES):
        super().__init__(folder, port)
        self.names = nodes
        self.server, self.rng = Server(), random.Random(seed)
        self.taps, self.again, self.reader, self.recoveries = 0, 0, None, []

    def start_with(self, name, path, *, namespace=''):
        """Start a node with a parameter file."""
        self._started += 1
        log = self.folder / f'{name}-{self._started}.log'
        self.all.append(ServedNode(self.server, name, path, log))
        self.nodes[name] = self.all[-1]
        return self.nodes[name]

    def up_all(self):
        self.plan = []
        for name in self.names:
            self.launch(name)
        for name in self.names:
            self.walk_one(name)
        self.plan = self.newest('plan')
        self.tracks('at the start')

    def launch(self, name):
        changes = dict(SETTINGS)
        if name == 'simulator':  # a new one would write over the frames of the old one
            self.taps += 1
            self.tap_folder = self.folder / f'tap{self.taps}'
            self.tap_folder.mkdir()
            changes['run.folder'] = str(self.tap_folder)
        return self.start(name, **changes)

    def walk_one(self, name):
        """Make a started process active.

        The entities of a dead one are discovered for a while, and a request may go to them: so
        each request is repeated until the state says that it was taken.
        """
        from reflex_ros.ros.client import LifecycleClient

        steps = {'unconfigured': 'configure', 'inactive': 'activate'}

        def is_active():
            assert self.nodes[name].is_alive, self.nodes[name].text
            state = self.ask(lambda caller: LifecycleClient(caller, name).state())
            if state in steps:
                self.ask(lambda caller: LifecycleClient(caller, name).change(steps[state]))
            return state == 'active'

        self.spin(is_active, f'a new {name}', seconds=RESTART_S / STARTS)

    def restart(self, name):
        """Start a process and make it active; one that nobody can reach is started again.

        A participant of the middleware may stay unknown after many others died; its process
        waits for somebody to configure it, and a supervisor would end it.
        """
        for left in range(STARTS, 0, -1):
            self.launch(name)
            try:
                return self.walk_one(name)
            except AssertionError:
                if left == 1:
                    raise
                self.again += 1
                self.nodes[name].kill()

    def ask(self, request):
        """Return the answer of a service, None if none came in time."""
        from reflex_ros.ros.client import Caller

        caller = Caller(self.node, timeout_s=ANSWER_S)
        try:
            return request(caller)
        except StaleError:
            return None
        finally:
            caller.close()

    def accepted(self, request):
        """Return whether the bridge accepted a request, False without an answer."""
        from reflex_ros.ros.client import BridgeClient

        reply = self.ask(lambda caller: request(BridgeClient(caller)))
        return reply is not None and reply.accepted

    def tracks(self, when):
        """Wait until the arm tracks; one that is faulted for want of a machine is recovered."""
        def is_tracking():
            if self.is_faulted:
                self.resume()
            return self.plan and self.plan[0].arm_state == 'tracking'

        self.spin(is_tracking, f'tracking {when}', 2 * PATIENCE_S)

    @property
    def is_faulted(self):
        """Whether the bridge says that the arm is faulted."""
        return bool(self.plan) and self.plan[0].arm_state == 'faulted'

    def resume(self):
        """Resume; a faulted arm is recovered before, and what the diagnostics say is kept."""
        if self.is_faulted:
            self.recoveries.append(self.diagnosis())

        def resumes():
            if self.is_faulted:
                self.accepted(lambda bridge: bridge.recover(arm_supported=True))
            return self.accepted(lambda bridge: bridge.resume())

        self.spin(resumes, 'a resume', PATIENCE_S)

    def strike(self, name):
        """Kill at a random instant from now on; return the ledger's length then."""
        self.spin(seconds=self.rng.uniform(0.05, 0.8))
        assert self.nodes[name].kill() == -signal.SIGKILL
        return len(self.ticks())

    def ticks(self):
        """Return the records of the ledger."""
        if self.reader is None:
            self.reader = Tail(self.folder / 'ledger.bin')
        return self.reader.records()

    def causes(self, since=0):
        """Return the names of the causes in the ledger from record ``since`` on."""
        return {CAUSE_CODES[code].value for code in np.unique(self.ticks()['cause'][since:])}

    def diagnosis(self):
        """Return what the diagnostics say that is an error."""
        said = {}
        kept = self.hear('/diagnostics', lambda msg: said.update(
            (status.name, status.message) for status in msg.status if status.level != b'\x00'))
        self.spin(seconds=2.5)
        self.node.destroy_subscription(kept)
        return said

    def frames(self):
        """Return the records of the tap of the present simulator; it must have ended."""
        from reflex_ros.sim.can_tap import read_tap

        return read_tap(self.tap_folder / 'can_tap.bin')[1]

    def finish(self):
        """End the bridge, then all others."""
        self.nodes['controller_bridge'].end()
        self.end()
        self.server.end()
