"""A bridge over an obedient arm on a manual clock, and chunks made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.clock import MS, Instant, ManualClock, S
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import JOINT_NAMES, ActionChunk, Entry, Stitch
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.bridge_config import BridgeConfig

HOME = np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.02])
TICK = 20 * MS


class Obedient:
    """A plant that is where it was told to be."""

    def __init__(self):
        self.position = HOME.copy()
        self.offset = np.zeros(7)

    def command(self, joints_rad, gripper_m):
        self.position = np.array([*joints_rad, gripper_m])

    def joint_state(self):
        return self.position + self.offset, np.zeros(7)


class Rig:
    """A bridge with everything around it; ``tick`` runs its loop."""

    def __init__(self, *, send=True, activate=True, autostart=True, **config):
        self.clock = ManualClock(mono_ns=S)
        self.plant = Obedient()
        self.arm = DirectArm(self.plant, self.clock, limits=piper_limits(), send=send)
        defaults = {'ramp_ns': 100 * MS, 'instruction': 'go', 'is_autostarted': autostart}
        self.bridge = Bridge(self.arm, BridgeConfig(**{**defaults, **config}), self.clock)
        self.index = self.chunks = 0
        self.start_ns = S
        self.outputs = []
        if activate:
            self.bridge.connect()
            self.bridge.activate()

    @property
    def now(self):
        return self.clock.now()

    @property
    def next_due_ns(self):
        return self.start_ns + self.index * TICK

    def tick(self, count=1, *, late_ns=0):
        """Run due ticks and return their records, skipped ones included."""
        from reflex_ros.core.types import ControlTick

        new = []
        for _ in range(count):
            self.clock.sleep_until(self.next_due_ns + late_ns)
            new += self.bridge.step(self.now, self.next_due_ns, self.index)
            self.index += 1
        self.outputs += new
        return [o.value for o in new if isinstance(o.value, ControlTick)]

    def chunk(self, *, at_ns=None, to=None, rows=20, start=None, **changes):
        """Return a chunk from ``start`` to ``to``, row 0 at the steady instant ``at_ns``."""
        start = HOME if start is None else start
        to = start if to is None else to
        at_ns = self.next_due_ns if at_ns is None else at_ns
        self.chunks += 1
        now = self.now
        stamp = now.stamp_ns - now.mono_ns
        values = {
            'number': self.chunks, 'chunk_id': self.chunks, 'block_number': self.chunks,
            'epoch': self.bridge.epoch, 'observation_stamp_ns': now.stamp_ns - 30 * MS,
            'newest_stamp_ns': now.stamp_ns - 30 * MS, 'oldest_stamp_ns': now.stamp_ns - 30 * MS,
            'step0_at_ns': at_ns + stamp, 'state_at_ns': at_ns + stamp, 'step_period_ns': TICK,
            'execute_steps': 5, 'joint_names': JOINT_NAMES,
            'positions': np.linspace(start, to, rows), 'predicted_state': start,
            'stitch': Stitch.BLEND, 'entry': Entry.ALIGNED,
            'inference_start_ns': now.mono_ns - 20 * MS,
            'inference_start_stamp_ns': now.stamp_ns - 20 * MS,
        }
        return ActionChunk(**{**values, **changes})

    def offer(self, chunk):
        """Offer a chunk and return its trace if it was judged at once, else None."""
        outputs = self.bridge.offer(chunk, self.now)
        self.outputs += outputs
        return outputs[-1].value if outputs else None

    def run_up(self, ticks=30):
        """Hold the home pose with chunks until the arm tracks."""
        for _ in range(0, ticks, 5):
            self.offer(self.chunk())
            self.tick(5)

    def traces(self):
        from reflex_ros.core.types import ChunkTrace

        return [o.value for o in self.outputs if isinstance(o.value, ChunkTrace)]

    def plans(self):
        from reflex_ros.core.types import Plan

        return [o.value for o in self.outputs if isinstance(o.value, Plan)]


@pytest.fixture
def rig():
    """Make rigs."""
    return Rig


@pytest.fixture
def home():
    return HOME.copy()


@pytest.fixture
def move():
    """Return the home pose with joint1 elsewhere."""
    def moved(rad):
        pose = HOME.copy()
        pose[0] = rad
        return pose

    return moved


@pytest.fixture
def instant():
    """Make instants with ROS time far from steady time."""
    def make(mono_ns, offset_ns=1_700_000_000 * S):
        return Instant(mono_ns, mono_ns + offset_ns)

    return make


@pytest.fixture
def edited():
    return replace
