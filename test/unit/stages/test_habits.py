"""What a tick must not do, and the loop at 200 Hz."""

from __future__ import annotations

import ast
import gc
import logging
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.core.clock import MS
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import ArmState, ControlTick, Verdict

ROOT = Path(__file__).parents[3]
FAST_NS = 5 * MS
TICK_BYTES = 64 * 1024
"""Most memory that one tick may take for itself while it runs."""
GROWTH_BLOCKS = 300
"""Most blocks that five hundred ticks may leave behind: caches and counters."""
QUIET = ('stages/bridge.py', 'stages/bridge_intake.py', 'stages/bridge_readings.py',
         'stages/bridge_task.py', 'stages/tick.py', 'stages/mover.py', 'stages/follower.py',
         'stages/contact.py', 'stages/seam.py', 'stages/worker.py', 'stages/accounts.py',
         'arm/driver.py', 'arm/commands.py', 'arm/gate.py', 'arm/checks.py', 'arm/feedback.py',
         'arm/health.py', 'arm/several.py', 'core/limits.py', 'core/brake.py', 'core/ledger.py',
         'core/cause.py', 'nodes/bridge_topics.py')
"""Sources that run in every tick or for every frame."""
WORDS = frozenset({'logging', 'get_logger', 'print', 'warn'})


def run(r, ticks, *, chunk_each=5):
    """Let a rig track without keeping what it puts out."""
    for i in range(ticks):
        if i % chunk_each == 0:
            r.bridge.offer(r.chunk(), r.now)
        r.clock.sleep_until(r.next_due_ns)
        r.bridge.step(r.now, r.next_due_ns, r.index)
        r.index += 1


@pytest.fixture
def tracking(rig):
    r = rig()
    run(r, 300)
    assert r.bridge.states.state is ArmState.TRACKING
    return r


def blocks():
    """Return how many blocks are in use, without the garbage that tests before left."""
    gc.collect()
    return sys.getallocatedblocks()


def test_ticks_leave_nothing_behind(tracking):
    before = blocks()
    run(tracking, 500)
    assert blocks() - before < GROWTH_BLOCKS


def test_ticks_leave_nothing_behind_can_fail(tracking):
    kept, before = [], blocks()
    step = tracking.bridge.step
    tracking.bridge.step = lambda *args: kept.append(step(*args))
    run(tracking, 500)
    assert blocks() - before > GROWTH_BLOCKS


def peak(r):
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        run(r, 4, chunk_each=100)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_tick_takes_little_memory(tracking):
    assert peak(tracking) < TICK_BYTES


def test_a_tick_takes_little_memory_can_fail(tracking):
    step = tracking.bridge.step
    tracking.bridge.step = lambda *args: (np.ones(100_000), step(*args))[1]
    assert peak(tracking) > TICK_BYTES


def test_ticks_log_nothing(tracking, monkeypatch):
    said = []
    monkeypatch.setattr(logging.Logger, 'handle', lambda self, record: said.append(record))
    run(tracking, 100)
    assert not said


def talkers(text):
    """Return the lines of a source that write to a log or to the screen."""
    return [node.lineno for node in ast.walk(ast.parse(text))
            if (isinstance(node, ast.Name) and node.id in WORDS)
            or (isinstance(node, ast.Attribute) and node.attr in WORDS)]


@pytest.mark.parametrize('name', QUIET)
def test_what_runs_in_every_tick_cannot_log(name):
    assert talkers((ROOT / 'reflex_ros' / name).read_text(encoding='utf-8')) == []


def test_what_runs_in_every_tick_cannot_log_can_fail():
    assert talkers('def tick(self):\n    self.get_logger().info(1)') == [2]


# ---- 200 Hz ----------------------------------------------------------------------------------


@pytest.fixture
def fast(rig):
    return rig(period_ns=FAST_NS, max_age_ns=2000 * MS)


def commands(r, ticks):
    """Run ticks of 5 ms and return their records."""
    found = []
    for _ in range(ticks):
        due_ns = r.start_ns + r.index * FAST_NS
        r.clock.sleep_until(due_ns)
        out = r.bridge.step(r.now, due_ns, r.index)
        found += [o.value for o in out if isinstance(o.value, ControlTick)]
        r.index += 1
    return found


def test_200_hz_is_sent_in_every_tick_within_the_limits(fast, move):
    r = fast
    r.offer(r.chunk(at_ns=r.now.mono_ns))
    commands(r, 60)
    r.offer(r.chunk(at_ns=r.now.mono_ns, to=move(0.5), rows=40))
    ticks = commands(r, 150)
    assert all(t.is_sent for t in ticks) and len(ticks) == 150
    assert {t.verdict for t in ticks} <= {Verdict.FRESH, Verdict.LIMITED}
    path, limits = np.array([t.command for t in ticks]), piper_limits()
    assert np.ptp(path[:, 0]) > 0.3
    for bound in (limits.velocity, limits.acceleration, limits.jerk):
        path = np.diff(path, axis=0) / (FAST_NS / 1e9)
        assert (np.abs(path) <= bound * (1 + 1e-6) + 1e-3).all()


def test_200_hz_holds_a_late_tick_and_never_catches_up(fast):
    r = fast
    r.offer(r.chunk(at_ns=r.now.mono_ns, rows=100))
    commands(r, 40)
    due_ns = r.start_ns + r.index * FAST_NS
    r.clock.sleep_until(due_ns + 3 * MS)
    late = [o.value for o in r.bridge.step(r.now, due_ns, r.index)
            if isinstance(o.value, ControlTick)]
    r.index += 1
    assert [t.is_sent for t in late] == [False]
    assert [t.is_sent for t in commands(r, 3)] == [True] * 3


def test_an_arm_that_moves_does_not_rest_at_200_hz_either(fast):
    r = fast
    r.offer(r.chunk(at_ns=r.now.mono_ns))
    commands(r, 60)
    r.bridge.hold(r.now)
    r.plant.offset[0] = 0.4
    commands(r, 1)
    r.plant.offset[0] = 0.41  # 2 rad/s
    commands(r, 1)
    r.plant.offset[0] = 0.42
    r.clock.advance(FAST_NS)
    assert not r.bridge.resume(r.now)[0].accepted
