from __future__ import annotations

from concurrent.futures import Future

import pytest

from reflex_ros.bringup.event_log import EventLog
from reflex_ros.bringup.graph import patient, suite
from reflex_ros.bringup.supervise import Phase, Supervisor
from reflex_ros.core.clock import MS, ManualClock, S


class FakeChild:
    """A process that runs until it is told to die; patient ones stop at once when asked."""

    def __init__(self, spec, pid, *, stubborn=False):
        self.spec = spec
        self.pid = pid
        self.code = None
        self.asked = 0
        self._stubborn = stubborn

    def poll(self):
        return self.code

    def terminate(self):
        self.asked += 1
        if not self._stubborn:
            self.code = 0

    def kill(self):
        self.code = -9

    def tail(self, lines=12):
        return ['last words']


class FakeLauncher:
    def __init__(self):
        self.started = []
        self.stubborn = set()

    def start(self, spec):
        child = FakeChild(
            spec, 100 + len(self.started), stubborn=spec.executable in self.stubborn)
        self.started.append(child)
        return child

    def newest(self, name):
        return [child for child in self.started if child.spec.executable == name][-1]


class FakeLifecycle:
    """Answers at once, but for nodes that are named in ``silent`` or ``refusing``."""

    def __init__(self):
        self.asked = []
        self.silent = set()
        self.refusing = set()

    def request(self, node, transition):
        self.asked.append(f'{transition} {node}')
        future = Future()
        if node not in self.silent:
            future.set_result('no' if node in self.refusing else '')
        return future

    def close(self):
        pass


class Bench:
    """A supervisor on a manual clock, with fakes around it."""

    def __init__(self, folder, graph):
        self.clock = ManualClock(S)
        self.launcher = FakeLauncher()
        self.lifecycle = FakeLifecycle()
        self.lines = []
        self.path = folder / 'supervisor.jsonl'
        self.log = EventLog(self.path, self.clock, printer=self.lines.append)
        self.supervisor = Supervisor(
            graph, launcher=self.launcher, lifecycle=self.lifecycle, clock=self.clock,
            log=self.log)

    def up(self):
        self.supervisor.start()
        self.supervisor.step()
        assert self.supervisor.phase is Phase.RUNNING
        self.lifecycle.asked.clear()
        return self

    def run(self, seconds):
        for _ in range(round(seconds * 50)):
            self.clock.advance(20 * MS)
            self.supervisor.step()

    def kill(self, name, code=-9):
        self.launcher.newest(name).code = code
        self.run(0.02)

    def living(self):
        return [child.spec.executable for child in self.launcher.started if child.code is None]


@pytest.fixture
def make_bench(tmp_path):
    benches = []

    def make(*, parameters=None, **options):
        graph = patient(suite(simulated=True, **options), parameters or {})
        benches.append(Bench(tmp_path, graph))
        return benches[-1]

    yield make
    for bench in benches:
        bench.log.close()
