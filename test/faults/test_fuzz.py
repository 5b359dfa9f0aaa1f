"""Random and damaged messages, CAN frames and YAML: only our own errors, and no wrong command.

Seeded and bounded: 2 000 inputs of each kind in every run of the tests (YAML: 500 of each kind of
file), 100 000 in ``make faults``.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from reflex_ros.arm import faults as arm_faults
from reflex_ros.arm import wire
from reflex_ros.arm.direct import DirectArm
from reflex_ros.arm.feedback import FeedbackBook
from reflex_ros.arm.states import may_send
from reflex_ros.bringup.settings import effective
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ConfigError, LayoutError, ReflexError
from reflex_ros.core.limits import Limited, Limiter
from reflex_ros.core.param_table import BRIDGE
from reflex_ros.core.params import load_yaml
from reflex_ros.core.types import JOINT_NAMES, ArmState, Cause, ControlTick, Verdict
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.emulator import PERIOD_NS, Emulator
from reflex_ros.sim.faults import load_faults
from reflex_ros.sim.plant import HOME, KinematicPlant
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.bridge_config import BridgeConfig
from reflex_ros.study.fault_judge import judge
from reflex_ros.study.fault_rig import FaultRig, RigOptions

FEW = 2_000
COUNTS = [FEW, pytest.param(100_000, marks=[pytest.mark.faults, pytest.mark.timeout(0)])]
PERIOD = 20 * MS
INT32, INT64, UINT64 = 2**31 - 1, 2**63 - 1, 2**64 - 1
NUMBERS = (0.0, -0.0, 1.0, -1.0, 1e-300, 1e9, -1e9, 1e300, float('nan'), float('inf'),
           float('-inf'), 6.3, -6.3, 0.05)
TEXTS = ('', ' ', 'x', 'joint1', 'gripper', 'blend', 'replace', 'rtc', 'restart', 'aligned',
         'measured', 'predicted', 'none', 'ä' * 50, '\x00', 'z' * 5000)


def spread(work, count, seed=1):
    """Do ``work(count, seed)``, many inputs in shares on all cores; return shares and results."""
    cores = len(os.sched_getaffinity(0)) if count > FEW else 1
    shares = [count // cores + (n < count % cores) for n in range(cores)]
    jobs = [(share, seed + n) for n, share in enumerate(shares)]
    if cores == 1:
        return [(count, work(*jobs[0]))]
    with multiprocessing.get_context('fork').Pool(cores) as pool:
        return list(zip(shares, pool.starmap(work, jobs, chunksize=1), strict=True))


# ---- messages --------------------------------------------------------------------------------


class Loop:
    """A bridge over a direct arm that takes messages and ticks, and what it commanded."""

    def __init__(self):
        self.clock = ManualClock(mono_ns=10 * S)
        plant = KinematicPlant(self.clock, gripper_m=0.02)
        command, self.times, self.commands = plant.command, [], []

        def noted(joints, gripper):
            self.times.append(self.clock.mono_ns() / S)
            self.commands.append([*joints, gripper])
            command(joints, gripper)

        plant.command = noted
        from reflex_ros.core.limits import piper_limits

        self.limits = piper_limits()
        self.bridge = Bridge(DirectArm(plant, self.clock, limits=self.limits),
                             BridgeConfig(instruction='go', is_autostarted=True), self.clock)
        self.bridge.connect()
        self.bridge.activate()
        self.index, self.start_ns = 0, self.clock.mono_ns()

    def tick(self):
        due_ns = self.start_ns + self.index * PERIOD
        self.clock.sleep_until(due_ns)
        for output in self.bridge.step(self.clock.now(), due_ns, self.index):
            tick = output.value
            if isinstance(tick, ControlTick) and tick.verdict in (Verdict.HELD, Verdict.STOPPED):
                assert tick.cause is not Cause.NONE, f'tick {tick.index} was held for nothing'
        self.index += 1

    def judge(self):
        return judge(np.array(self.times), np.array(self.commands), limits=self.limits,
                     period_s=PERIOD / S)


def make_chunk(loop, rng, number):
    """Return an honest chunk message that moves the arm a little."""
    from builtin_interfaces.msg import Duration
    from reflex_msgs import msg as reflex_msg
    from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

    from reflex_ros.ros.convert_basic import time_to_msg

    now_ns = loop.clock.stamp_ns()
    stamp = time_to_msg(now_ns)
    pose = np.array(loop.commands[-1] if loop.commands else [*HOME, 0.02])
    rows = rng.randint(1, 12)
    points = [
        JointTrajectoryPoint(
            positions=list(pose + np.array([0.02 * k] * 6 + [0.0])),
            time_from_start=Duration(nanosec=k * PERIOD)) for k in range(rows)]
    chunk = reflex_msg.ActionChunk(
        chunk_id=number, block_number=1, epoch=loop.bridge.epoch, newest_stamp=stamp,
        oldest_stamp=stamp, step0_at=stamp, state_at=stamp, step_period_ns=PERIOD,
        execute_steps=5, entry='restart', inference_start=stamp,
        inference_start_ns=loop.clock.mono_ns(), trajectory=JointTrajectory(
            joint_names=list(JOINT_NAMES), points=points))
    chunk.header.stamp = chunk.trajectory.header.stamp = stamp
    return chunk


def damage(msg, rng):
    """Change one field, or one of a field's field, to another value of its type."""
    name, kind = rng.choice(list(msg.get_fields_and_field_types().items()))
    value = getattr(msg, name)
    if hasattr(value, 'get_fields_and_field_types'):
        damage(value, rng)
    elif kind in ('double', 'float'):
        setattr(msg, name, rng.choice(NUMBERS))
    elif kind == 'boolean':
        setattr(msg, name, not value)
    elif kind == 'string':
        setattr(msg, name, rng.choice(TEXTS))
    elif 'int' in kind and not kind.startswith('sequence'):
        bits = int(''.join(c for c in kind if c.isdigit()))
        low, high = (0, 2**bits - 1) if kind.startswith('u') else (-2**(bits - 1),
                                                                  2**(bits - 1) - 1)
        near = value + rng.choice((-1, 1, 10**6, 10**9))
        setattr(msg, name, min(max(rng.choice((low, high, 0, 1, near)), low), high))
    elif kind.startswith('sequence'):
        _damage_sequence(msg, name, kind, list(value), rng)


def _damage_sequence(msg, name, kind, items, rng):
    act = rng.randrange(5)
    if items and act == 0:
        del items[rng.randrange(len(items))]
    elif items and act == 1:
        items.append(items[rng.randrange(len(items))])
    elif items and act == 2:
        rng.shuffle(items)
    elif act == 3:
        items = []
    elif items:
        at = rng.randrange(len(items))
        if hasattr(items[at], 'get_fields_and_field_types'):
            damage(items[at], rng)
        elif 'double' in kind:
            items[at] = rng.choice(NUMBERS)
        elif 'string' in kind:
            items[at] = rng.choice(TEXTS)
    setattr(msg, name, items)


def fuzz_messages(loop, count, seed=1):
    """Offer honest and damaged chunks and signs of life in turns; return what was accepted."""
    from reflex_msgs import msg as reflex_msg

    from reflex_ros.ros.convert_flow import action_chunk_from_msg
    from reflex_ros.ros.convert_status import stage_status_from_msg

    rng, accepted, refused = random.Random(seed), 0, 0
    for n in range(1, count + 1):
        is_chunk = rng.random() < 0.8
        msg = reflex_msg.StageStatus(
            node=rng.choice(('policy', 'vision_encoder')), sent_ns=loop.clock.mono_ns(),
            cameras=[reflex_msg.CameraStatus(camera='main')])
        if is_chunk:
            msg = make_chunk(loop, rng, loop.bridge._intake._last_id + 1)
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            damage(msg, rng)
        try:
            if is_chunk:
                before = len(loop.bridge.offer(action_chunk_from_msg(msg), loop.clock.now()))
                accepted += before == 0
            else:
                loop.bridge.status(stage_status_from_msg(msg), loop.clock.now())
        except ReflexError:
            refused += 1
        if n % 4 == 0:
            loop.tick()
    return accepted, refused


def fuzzed(count, seed):
    """Return what was accepted and refused by a loop of its own, and what the judge says."""
    loop = Loop()
    return *fuzz_messages(loop, count, seed), loop.judge()


@pytest.mark.ros
@pytest.mark.parametrize('count', COUNTS)
def test_no_message_ends_the_bridge_or_makes_a_wrong_command(count):
    for share, (accepted, refused, found) in spread(fuzzed, count):
        assert found.violations == ()
        assert accepted > share // 20 and refused > share // 50, 'both kinds must occur'
        assert found.max_velocity > 0.05, 'the arm must move, or nothing was judged'


@pytest.mark.ros
def test_a_wrong_command_would_be_seen_can_fail(monkeypatch):
    monkeypatch.setattr(Limiter, 'step', lambda self, setpoint: Limited(
        setpoint.position, setpoint.velocity, ()))
    loop = Loop()
    fuzz_messages(loop, 400)
    assert loop.judge().violations


# ---- CAN frames ------------------------------------------------------------------------------

KNOWN = (*range(0x2A1, 0x2A9), *range(0x251, 0x257), *range(0x261, 0x267), 0x473, 0x47C, 0x476,
         0x478, 0x47B, 0x47E, 0x4AF, *range(0x150, 0x160), *range(0x470, 0x47F), 0x191, 0x422)
SAID = tuple(wire.CYCLIC_IDS)
"""What an arm says all the time; commands of somebody else are a fault for a whole second."""


def random_frame(rng, ids=KNOWN):
    """Return an id and data, mostly of one of these ids and of full length."""
    can_id = rng.choice(ids) if rng.random() < 0.9 else rng.randrange(0x800)
    length = 8 if rng.random() < 0.9 else rng.randrange(9)
    kind = rng.randrange(3)
    if kind == 0:
        return can_id, rng.randbytes(length)
    if kind == 1:
        edge = rng.choice((b'\x00', b'\xff', b'\x7f', b'\x80'))
        return can_id, edge * length
    small = struct.pack('>hhhh', *(rng.randrange(-300, 300) for _ in range(4)))
    return can_id, small[:length]


@pytest.mark.parametrize('count', COUNTS)
def test_the_driver_decodes_any_frame(count):
    rng, book = random.Random(2), FeedbackBook()
    for n in range(1, count + 1):
        frame = wire.Frame(*random_frame(rng))
        book.on_frame(frame, mono_ns=n * MS, stamp_s=n * 1e-3)
        if n % 20 == 0:
            view = book.view()
            pose = view.position
            assert np.isnan(pose).all() or np.isfinite(pose).all()
            assert view.effort(is_old_scale=False).shape == (7,)
            if view.gripper is not None:
                arm_faults.gripper_faults(view.gripper)
            wire.firmware_key(view.firmware)
            book.rates_hz(n * MS)
            book.silent_ids(n * MS)
    assert book.view().frames == count


@pytest.mark.parametrize('count', COUNTS)
def test_the_simulated_arm_takes_any_frame_and_stays_in_its_range(count):
    rng, clock = random.Random(3), ManualClock(S)
    plant = KinematicPlant(clock)
    goals, command = [], plant.command
    plant.command = lambda joints, gripper: (goals.append([*joints, gripper]),
                                             command(joints, gripper))
    arm = Emulator(plant, S)
    for n in range(1, count + 1):
        can_id, data = random_frame(rng)
        for decode in (codec.decode_command, codec.decode_feedback):
            try:
                decode(can_id, data)
            except LayoutError:
                continue
        arm.receive(can_id, data, clock.mono_ns())
        if n % 25 == 0:
            clock.advance(PERIOD_NS)
            frames = arm.due(clock.mono_ns()) + arm.step(clock.mono_ns())
            assert all(len(frame.data) <= codec.FRAME_BYTES for frame in frames)
    assert np.isfinite(np.array(goals)).all()


FOLLOWING = (Verdict.FRESH, Verdict.LIMITED, Verdict.RAMPING)


class Fire:
    """The loop on a bus from which random frames come, and an operator who never gives up.

    Frames come one by one or in bursts, and seldom enough that the arm lives in between; few of
    them while it is brought back, so that some recoveries succeed.

    Args:
        folder: Of the rig. burst: Most frames at once. seconds: Length.
        chances: Of a shot per bus cycle of 5 ms: while the arm may be sent to, else.
    """

    def __init__(self, folder, burst, seconds, *, chances=(0.04, 0.005), seed=4):
        self._rng, self._burst, self._chances = random.Random(seed), burst, chances
        self._seconds, self.taken = seconds, 0
        self.rig = FaultRig(folder, RigOptions(duration_s=seconds))

    def run(self):
        """Run to the end; return what the judge says of all commands."""
        rig = self.rig
        rig.start()
        step = rig.bus._step

        def fire():
            is_alive = may_send(rig.run.bridge.states.state)
            if self._rng.random() < self._chances[not is_alive]:
                self._shoot()
            step()

        rig.bus._step = fire
        for n in range(1, round(4 * self._seconds)):
            rig.at(n / 4, self._bring_back)
        rig.finish()
        found = rig.judge(0.0)
        rig.close()
        return found

    @property
    def executed(self):
        """Return how many ticks sent a command that follows a plan."""
        return sum(tick.is_sent and tick.verdict in FOLLOWING for tick in self.rig.run.log.ticks)

    @property
    def recovered(self):
        """Return how many recoveries succeeded."""
        return sum(reply.accepted and reply.reason.startswith('Recovered')
                   for reply in self.rig.replies)

    def _shoot(self):
        count = self._rng.choice((1, 1, 2, 4, self._burst))
        ids = KNOWN if self._rng.random() < 0.2 else SAID
        self.rig.bus.link.take(
            [codec.CanFrame(*random_frame(self._rng, ids)) for _ in range(count)])
        self.taken += count

    def _bring_back(self):
        if self.rig.run.bridge.states.state is ArmState.FAULTED:
            self.rig.recover(arm_supported=True)
        if self.rig.run.bridge.states.state is ArmState.ENABLED:
            self.rig.resume()


    def missing(self, found):
        """Return what did not happen that must, or nothing was judged; () if all did."""
        happened = {
            'frames came': self.taken > 10 * self._seconds,
            'plans were executed': 10 * self.executed > len(self.rig.run.log.ticks),
            'the arm was recovered': self.recovered > self._seconds / 5,
            'the arm moved': found.max_velocity > 0.2,
        }
        return tuple(what for what, did in happened.items() if not did)


@pytest.mark.parametrize(('burst', 'seconds'), [
    (40, 8.0), pytest.param(400, 60.0, marks=[pytest.mark.faults, pytest.mark.timeout(0)])])
def test_a_driver_under_fire_makes_no_wrong_command(tmp_path, burst, seconds):
    fire = Fire(tmp_path, burst, seconds)
    found = fire.run()
    assert found.violations == ()
    assert fire.missing(found) == ()


def test_a_fire_under_which_nothing_lives_judges_nothing_can_fail(tmp_path):
    fire = Fire(tmp_path, 40, 3.0, chances=(1.0, 1.0))
    found = fire.run()
    assert found.violations == () and fire.executed == fire.recovered == 0
    assert fire.missing(found) == ('plans were executed', 'the arm was recovered', 'the arm moved')


def test_a_wrong_command_under_fire_would_be_seen_can_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(Limiter, 'step', lambda self, setpoint: Limited(
        setpoint.position, setpoint.velocity, ()))
    assert Fire(tmp_path, 40, 4.0).run().violations


# ---- YAML ------------------------------------------------------------------------------------

PARAMS = """
controller_bridge:
  ros__parameters:
    arm: {channel: can0, lower_rad: [-2.6, 0.0, -2.9, -1.7, -1.2, -1.7], send: true}
    safety: {speed_scale: 0.3, ramp_s: 0.5}
    run.instruction: go
"""
ROBOT = """
/**:
  ros__parameters:
    arm:
      velocity_rad_s: [3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
      gripper_max_m: 0.07
    camera: {names: [main]}
"""
SCRIPT = """
schema: 1
seed: 7
faults:
  - {kind: silence, start_s: 2.0, duration_s: 0.5, ids: [0x2A5]}
  - {kind: driver_flags, flags: [stall], joints: [2], latched: false}
  - {kind: second_commander, joints_deg: [0, 1, 2, 3, 4, 5]}
"""
TOKENS = ('.nan', '.inf', '-1', '0', '1e999', '9' * 400, 'null', '~', '[]', '{}', '[[[[', '}',
          ': ', '- ', '\n', '\t', '"', "'", '&a', '*a', '<<: *a', '!!python/object:os.system x',
          '!!set', '!!bool x', '!!int ', '!!timestamp x', '2026-99-99', '!!binary aGk=', '0x7FF',
          'true', 'yes', '2026-01-01', '? ', '|', '%', '\x00',
          '\ud7ff', 'kind: estop', '/**', 'ros__parameters', '1_000', '190:20:30', '#')


def damaged_text(text, rng):
    """Return a text with a few characters or tokens cut, doubled or replaced."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 1, 3, 12)))
        new = rng.choice(TOKENS) if rng.random() < 0.7 else chr(rng.randrange(1, 0x250))
        text = text[:at] + new + text[end:]
    return text


READERS = {
    'params': (PARAMS, lambda path: load_yaml(path, BRIDGE)),
    'robot': (ROBOT, lambda path: effective([path], {})),
    'faults': (SCRIPT, load_faults),
}


IN_MEMORY = Path('/dev/shm')
"""Where a file costs nothing: hundreds of thousands are written."""


def read_damaged(kind, count, seed):
    """Return how many damaged texts were read, and how many refused without words."""
    text, read = READERS[kind]
    rng, good, wordless = random.Random(seed), 0, 0
    with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        path = Path(folder) / 'file.yaml'
        path.write_text(text)
        read(path)
        for _ in range(count):
            path.write_text(damaged_text(text, rng), encoding='utf-8', errors='replace')
            try:
                read(path)
                good += 1
            except ConfigError as error:
                wordless += not ('got' in str(error) and 'expected' in str(error))
    return good, wordless


@pytest.mark.parametrize('kind', READERS)
@pytest.mark.parametrize('count', COUNTS)
def test_any_text_is_read_or_refused_in_words(kind, count):
    number = count // (1 if count > FEW else 4)
    for _, (good, wordless) in spread(partial(read_damaged, kind), number, seed=5):
        assert not wordless
        assert good, 'some texts must still be readable'


def test_another_error_would_be_seen_can_fail(tmp_path):
    path = tmp_path / 'file.yaml'
    path.write_text(SCRIPT.replace('0.5', '"half"'))
    with pytest.raises(ConfigError):
        load_faults(path)
    script = replace(load_faults_of(tmp_path, SCRIPT), seed=-1)
    assert script.seed == -1, 'a script made by hand is not checked'


def load_faults_of(folder, text):
    path = folder / 'script.yaml'
    path.write_text(text)
    return load_faults(path)
