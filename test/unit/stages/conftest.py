"""A bridge over an obedient arm on a manual clock, a policy stage, and messages made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.clock import MS, Instant, ManualClock, S
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.probe import CostModel, ModelProbe, constant_costs
from reflex_ros.core.schedule import switches
from reflex_ros.core.types import (
    JOINT_NAMES,
    ActionChunk,
    ArmState,
    ChunkTrace,
    Entry,
    Fate,
    KvBlock,
    Mode,
    Plan,
    RejectReason,
    Stitch,
    Task,
)
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.bridge_config import BridgeConfig
from reflex_ros.stages.policy import PolicyConfig, PolicyStage

HOME = np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.02])
TICK = 20 * MS
T0 = 1_700_000_000 * S
DENOISE = 86


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


class Model:
    """A policy that holds the state it was given."""

    joint_names = JOINT_NAMES
    step_period_ns = 20 * MS
    ring_ok = True
    guided_rows = 50

    def __init__(self):
        self.requests = []
        self.is_gone = False

    def truth(self, truth):
        pass

    def infer(self, request, probe):
        self.requests.append(request)
        with probe.span('denoise'):
            return None if self.is_gone else np.tile(request.state, (50, 1))


class Bench:
    """A policy stage alone, told everything by hand; ``ms`` counts from ``T0``."""

    def __init__(self, instant, mode=Mode.REFLEX, *, switch=None, **config):
        self.instant = instant
        self.model = Model()
        costs = CostModel(constant_costs(denoise=float(DENOISE)), seed=0)
        self.stage = PolicyStage(
            self.model, PolicyConfig(mode, switches(mode, **(switch or {})), **config),
            lambda start: ModelProbe(start, costs))
        self.stage.on_task(Task(1, T0, T0 // S, 'go'))
        self.stage.on_joint_state(T0, np.zeros(7))

    def at(self, ms):
        return self.instant(5 * S + ms * MS, T0 - 5 * S)

    def block(self, number, ms=0, **changes):
        values = {'number': number, 'stamp_ns': T0 + ms * MS, 'epoch': T0 // S,
                  'camera_names': ('main',), 'camera_stamps_ns': (T0 + ms * MS,)}
        self.stage.on_block(KvBlock(**{**values, **changes}), self.at(ms))

    def plan(self, **changes):
        values = {
            'number': 1, 'stamp_ns': T0, 'epoch': T0 // S, 'arm_state': ArmState.TRACKING,
            'joint_names': JOINT_NAMES, 'latency_ns': 60 * MS, 'delta_ns': 90 * MS,
            'tracking_error': np.zeros(7), 'measured': np.zeros(7),
            'setpoint_stamps_ns': T0 + np.arange(50) * 20 * MS,
            'setpoints': np.linspace(0, 1, 50)[:, None] * np.ones(7)}
        self.stage.on_plan(Plan(**{**values, **changes}))

    def due(self, ms):
        at = self.stage.due_at(self.at(ms))
        return None if at is None else at <= self.at(ms).stamp_ns

    def infer(self, ms):
        now = self.at(ms)
        self.stage.begin(now)
        outputs, probe = self.stage.step(now)
        self.stage.end(self.at(ms + DENOISE), published=len(outputs))
        return outputs[0] if outputs else None, probe

    @staticmethod
    def trace(chunk_id, fate=Fate.REJECTED):
        return ChunkTrace(
            number=1, stamp_ns=T0, chunk_id=chunk_id, epoch=1, fate=fate,
            reason=RejectReason.NONE, text='', entered_row=-1, seam_position=0.0,
            seam_velocity=0.0, observation_stamp_ns=0, newest_stamp_ns=0,
            first_command_stamp_ns=0, accepted_ns=0, inference_start_ns=0, covered_ns=0,
            stalled_ticks=0, ticks=0)


@pytest.fixture
def bench(instant):
    """Make benches."""
    def make(*args, **kwargs):
        return Bench(instant, *args, **kwargs)

    return make


@pytest.fixture
def policy_model():
    """Return the class of the policies in benches."""
    return Model
