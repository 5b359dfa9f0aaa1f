"""Fault scripts are strict, and each fault does what it says, for as long as it says."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml

from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.can_codec import decode_feedback, encode
from reflex_ros.sim.emulator import PERIOD_NS, Emulator
from reflex_ros.sim.faults import (
    PARAMETERS,
    REQUIRED,
    Direction,
    Fault,
    FaultScript,
    Kind,
    load_faults,
    parse_faults,
)
from reflex_ros.sim.injector import FaultInjector
from reflex_ros.sim.plant import KinematicPlant

POWERED = 0x40


class Bench:
    """An emulated arm under a fault script."""

    def __init__(self, *faults, seed=0):
        self.clock = ManualClock(3 * S)
        injector = FaultInjector(FaultScript(tuple(faults), seed))
        self.arm = Emulator(KinematicPlant(self.clock), 3 * S, faults=injector)

    def send(self, *messages):
        for message in messages:
            frame = encode(message)
            self.arm.receive(frame.can_id, frame.data, self.clock.mono_ns())

    def run(self, seconds):
        out = []
        for _ in range(round(seconds / 0.005)):
            self.clock.advance(PERIOD_NS)
            now_ns = self.clock.mono_ns()
            out += self.arm.due(now_ns) + self.arm.step(now_ns)
        return out

    def ready(self):
        self.send(codec.Power(7, 2), codec.Mode(1, 1, 100))
        return self

    def status(self):
        return [decode_feedback(*f) for f in self.run(0.01) if f.can_id == 0x2A1][-1]

    def answer(self, message):
        self.send(message)
        frames = self.arm.due(self.clock.mono_ns())
        return decode_feedback(*frames[-1])


def ids(frames):
    return Counter(frame.can_id for frame in frames)


def script(*faults, **top):
    return parse_faults({'schema': 1, 'faults': list(faults), **top}, source='test.yaml')


# --- the script ------------------------------------------------------------------------------

EXAMPLE = """
schema: 1
seed: 7
faults:
  - {kind: silence, start_s: 2.0, duration_s: 0.5}
  - {kind: drop, start_s: 5, duration_s: 3.0, probability: 0.2, ids: [0x2A5, 0x2A6]}
  - {kind: delay, delay_s: 0.02, direction: commands}
  - {kind: wrong_limits, joints: [2], lower_deg: -0.1, upper_deg: 0.1}
  - {kind: driver_flags, flags: [collision, motor_hot], joints: [1, 6], latched: false}
  - {kind: second_commander, joints_deg: [0, 10, -10, 0, 0, 0]}
  - {kind: estop, start_s: 12.0}
"""


def test_a_script_is_read_as_written(tmp_path):
    path = tmp_path / 'faults.yaml'
    path.write_text(EXAMPLE, encoding='utf-8')
    read = load_faults(path)
    assert read.seed == 7
    assert [fault.kind for fault in read.faults] == [
        Kind.SILENCE, Kind.DROP, Kind.DELAY, Kind.WRONG_LIMITS, Kind.DRIVER_FLAGS,
        Kind.SECOND_COMMANDER, Kind.ESTOP]
    assert read.faults[1] == Fault(Kind.DROP, 5.0, 3.0, ids=(0x2A5, 0x2A6), probability=0.2)
    assert read.faults[2].direction is Direction.COMMANDS
    assert read.faults[4].flags == ('collision', 'motor_hot')
    assert read.faults[5].joints_deg == (0.0, 10.0, -10.0, 0.0, 0.0, 0.0)


def test_every_kind_has_its_parameters_listed():
    assert set(PARAMETERS) == set(Kind)
    assert all(REQUIRED[kind] <= PARAMETERS[kind] for kind in REQUIRED)


@pytest.mark.parametrize(('entry', 'text'), [
    ({'kind': 'silense'}, r"fault 1: got kind 'silense', expected .*did you mean 'silence'"),
    ({'start_s': 1}, 'got kind None'),
    ({'kind': 'silence', 'durations': 1}, r"key 'durations', .*did you mean 'duration_s'"),
    ({'kind': 'silence', 'probability': 0.5}, "key 'probability'"),
    ({'kind': 'estop', 'duration_s': 1}, "key 'duration_s'"),
    ({'kind': 'silence', 'start_s': -1}, r'start_s -1, expected a number 0 .. 1e\+06 \(s\)'),
    ({'kind': 'silence', 'start_s': float('nan')}, 'start_s nan'),
    ({'kind': 'silence', 'start_s': '2'}, "start_s '2'"),
    ({'kind': 'silence', 'start_s': True}, 'start_s True'),
    ({'kind': 'silence', 'ids': [0x800]}, r'ids \[2048\], expected a list of different items'),
    ({'kind': 'silence', 'ids': []}, r'ids \[\]'),
    ({'kind': 'silence', 'ids': 0x2A5}, 'ids 677'),
    ({'kind': 'drop', 'probability': 1.5}, 'probability 1.5'),
    ({'kind': 'drop', 'direction': 'both'}, "direction 'both', expected one of feedback, command"),
    ({'kind': 'delay'}, 'delay_s None'),
    ({'kind': 'driver_flags'}, 'flags None'),
    ({'kind': 'driver_flags', 'flags': ['hot']}, 'motor_hot'),
    ({'kind': 'wrong_limits', 'joints': [0]}, r'joints \[0\]'),
    ({'kind': 'wrong_limits', 'joints': [1, 1]}, r'joints \[1, 1\]'),
    ({'kind': 'firmware', 'version': 'S-V1.8-10'}, "version 'S-V1.8-10', expected 1 to 8"),
    ({'kind': 'status', 'status': 256}, 'status 256'),
    ({'kind': 'status', 'latched': 'yes'}, "latched 'yes', expected true or false"),
    ({'kind': 'second_commander', 'joints_deg': [1, 2]}, r'joints_deg \[1, 2\]'),
    ('silence', "got 'silence', expected keys with values"),
])
def test_a_wrong_entry_is_refused_and_named(entry, text):
    with pytest.raises(ConfigError, match=f'test.yaml.*{text}'):
        script(entry)


@pytest.mark.parametrize(('tree', 'text'), [
    (None, 'expected keys'), ([], 'expected keys'), ({}, 'schema None, expected 1'),
    ({'schema': 2}, 'schema 2'), ({'schema': 1, 'fault': []}, "did you mean 'faults'"),
    ({'schema': 1, 'faults': {}}, 'expected a list'), ({'schema': 1, 'seed': -1}, 'seed -1'),
])
def test_a_wrong_head_is_refused(tree, text):
    with pytest.raises(ConfigError, match=text):
        parse_faults(tree)


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match='none.yaml'):
        load_faults(tmp_path / 'none.yaml')
    bad = tmp_path / 'bad.yaml'
    bad.write_text('faults: [', encoding='utf-8')
    with pytest.raises(ConfigError, match='bad.yaml'):
        load_faults(bad)


def test_the_example_of_the_module_is_a_valid_script():
    from reflex_ros.sim import faults
    text = faults.__doc__.split('::', 1)[1].split('Times count', 1)[0]
    assert len(parse_faults(yaml.safe_load(text)).faults) == 3


# --- frames ----------------------------------------------------------------------------------

def test_without_faults_frames_pass_untouched():
    frames = Bench().run(0.5)
    assert len(frames) > 1500


def test_silence_lasts_exactly_its_window():
    bench = Bench(Fault(Kind.SILENCE, 0.1, 0.2))
    assert bench.run(0.095)
    assert not bench.run(0.2)
    assert bench.run(0.01)


def test_silence_of_one_id_leaves_the_others():
    seen = ids(Bench(Fault(Kind.SILENCE, ids=(0x2A6,))).run(0.2))
    assert 0x2A6 not in seen
    assert seen[0x2A5] == seen[0x2A7] == 40


def test_a_silent_arm_still_hears_and_a_dead_bus_does_not():
    for kind, control in ((Kind.SILENCE, 1), (Kind.BUS_OFF, 0)):
        bench = Bench(Fault(kind, 0.0, 0.1))
        bench.run(0.02)
        bench.send(codec.Mode(1, 1, 100))
        assert not bench.run(0.05)
        bench.run(0.1)
        assert bench.status().control == control


def test_dropping_hits_its_share_of_the_named_frames():
    seen = ids(Bench(Fault(Kind.DROP, probability=0.25, ids=(0x2A5,)), seed=1).run(5.0))
    assert seen[0x2A5] == pytest.approx(750, abs=50)
    assert seen[0x2A6] == 1000


def test_dropping_can_hit_commands():
    bench = Bench(Fault(Kind.DROP, direction=Direction.COMMANDS, ids=(0x156,)))
    bench.run(0.01)
    bench.ready().send(codec.JointTarget(1, 10_000, 40_000), codec.JointTarget(3, -60_000, 0))
    bench.run(1.0)
    position = bench.arm.firmware.target_rad
    assert position[0] == pytest.approx(0.17453, abs=1e-4)
    assert position[2] == pytest.approx(-0.70)  # -1.05 was asked for
    assert bench.arm.received[0x156] == 1


def test_delayed_frames_come_late_in_order_and_unchanged():
    bench = Bench(Fault(Kind.DELAY, delay_s=0.1, ids=(0x2A5, 0x2A7)))
    healthy = Bench()
    early, late = [], []
    for _ in range(40):
        early += [f for f in healthy.run(0.005) if f.can_id in (0x2A5, 0x2A7)]
        late += [f for f in bench.run(0.005) if f.can_id in (0x2A5, 0x2A7)]
    assert 36 <= len(late) <= 40
    assert late == early[:len(late)]


def test_a_delayed_frame_has_a_due_time_of_its_own():
    bench = Bench(Fault(Kind.DELAY, delay_s=0.007))
    bench.run(0.005)
    assert bench.arm.next_due_ns == bench.clock.mono_ns() + 7 * MS
    bench.clock.advance(7 * MS)
    assert len(bench.arm.due(bench.clock.mono_ns())) == 20
    assert bench.arm.next_due_ns is None


def test_delayed_commands_act_late():
    bench = Bench(Fault(Kind.DELAY, delay_s=0.1, direction=Direction.COMMANDS))
    bench.run(0.01)
    bench.ready()
    bench.run(0.08)
    assert bench.status().control == 0
    bench.run(0.03)
    assert bench.status().control == 1


def test_corruption_flips_the_asked_number_of_bits_and_keeps_the_id():
    healthy, bench = Bench(), Bench(Fault(Kind.CORRUPT, bits=3, ids=(0x2A5,)), seed=4)
    for good, bad in zip(healthy.run(0.1), bench.run(0.1), strict=True):
        difference = int.from_bytes(good.data, 'big') ^ int.from_bytes(bad.data, 'big')
        assert good.can_id == bad.can_id
        assert difference.bit_count() == (3 if good.can_id == 0x2A5 else 0)


def test_chances_repeat_with_the_seed():
    def run(seed):
        return Bench(Fault(Kind.DROP, probability=0.5), Fault(Kind.CORRUPT, probability=0.5),
                     seed=seed).run(0.2)
    assert run(1) == run(1)
    assert run(1) != run(2)


# --- the arm ---------------------------------------------------------------------------------

def test_wrong_limits_are_reported_for_the_named_joints_only():
    bench = Bench(Fault(Kind.WRONG_LIMITS, joints=(2,), lower_deg=-0.1, upper_deg=0.1,
                        acceleration_rad_s2=655.35, gripper_range_mm=0))
    bench.run(0.01)
    assert bench.answer(codec.LimitQuery(2, 1)) == codec.AngleLimit(2, 1, -1, 3000)
    assert bench.answer(codec.LimitQuery(2, 2)) == codec.AccelerationLimit(2, 65535)
    assert bench.answer(codec.LimitQuery(1, 1)) == codec.AngleLimit(1, 1500, -1500, 3000)
    assert bench.answer(codec.ParameterQuery(4)).range_mm == 0


def test_a_leader_fault_replaces_feedback_by_targets():
    bench = Bench(Fault(Kind.LEADER_MODE, 0.1, 0.1))
    bench.run(0.1)
    assert set(ids(bench.run(0.05))) == {0x151, 0x155, 0x156, 0x157, 0x159}
    bench.run(0.1)
    assert 0x2A5 in ids(bench.run(0.01))


def test_an_estop_stays_after_its_moment():
    bench = Bench(Fault(Kind.ESTOP, 0.1)).ready()
    assert bench.status().status == 0
    bench.run(1.0)
    assert bench.status().status == 1
    bench.send(codec.Motion(2))
    assert bench.status().status == 0


def test_a_teach_fault_ends_in_standby():
    bench = Bench(Fault(Kind.TEACH_MODE, 0.1, 0.2)).ready()
    bench.run(0.15)
    assert bench.status().control == 2
    bench.run(0.3)
    assert bench.status().control == 0


def test_a_latched_status_needs_clearing_and_returns_while_its_cause_lasts():
    bench = Bench(Fault(Kind.STATUS, 0.1, 0.2, status=7, comm_joints=(3,))).ready()
    bench.run(0.15)
    clear = codec.JointSetting(7, 0, 0, codec.KEEP, codec.APPLY)
    bench.send(clear)
    assert (bench.status().status, bench.status().comm_bits) == (7, 0b100)
    bench.run(0.3)
    assert bench.status().status == 7
    bench.send(clear)
    assert (bench.status().status, bench.status().comm_bits) == (0, 0)


def test_a_status_that_is_not_latched_goes_with_its_cause():
    bench = Bench(Fault(Kind.STATUS, 0.1, 0.2, status=14, latched=False)).ready()
    bench.run(0.15)
    assert bench.status().status == 14
    bench.run(0.3)
    assert bench.status().status == 0


def test_driver_flags_appear_on_the_named_joints_beside_the_power_bit():
    bench = Bench(Fault(Kind.DRIVER_FLAGS, flags=('collision', 'motor_hot'), joints=(1, 6)))
    bits = {}
    for frame in bench.ready().run(0.1):
        if 0x261 <= frame.can_id <= 0x266:
            bits[frame.can_id] = decode_feedback(*frame).bits
    assert bits == {0x261: 0x52, 0x266: 0x52, **dict.fromkeys(range(0x262, 0x266), POWERED)}


def test_another_firmware_version_is_reported_while_the_fault_lasts():
    bench = Bench(Fault(Kind.FIRMWARE, version='S-V1.5-1'))
    bench.run(0.01)
    bench.send(codec.FirmwareQuery())
    text = b''.join(f.data for f in bench.run(0.01) if f.can_id == 0x4AF)
    assert b'S-V1.5-1' in text


def test_a_second_commander_is_heard_and_obeyed():
    bench = Bench(Fault(Kind.SECOND_COMMANDER, 0.1, 2.0, period_s=0.02,
                        joints_deg=(20.0, 30.0, -40.0, 0.0, 0.0, 0.0)))
    bench.send(codec.Power(7, 2))
    seen = ids(bench.run(1.1))
    assert seen[0x151] == seen[0x155] == pytest.approx(51, abs=1)
    bench.run(0.9)
    assert bench.status().control == 1
    assert bench.arm.firmware.reading.joints_rad[0] == pytest.approx(0.349, abs=1e-3)


def test_a_second_commander_without_pose_asks_for_the_measured_one():
    bench = Bench(Fault(Kind.SECOND_COMMANDER))
    bench.send(codec.Power(7, 2))
    before = bench.arm.firmware.reading.joints_rad[1]
    bench.run(0.5)
    assert bench.arm.firmware.reading.joints_rad[1] == pytest.approx(before, abs=0.02)


def test_faults_can_be_added_and_cleared_while_running():
    bench = Bench()
    bench.arm.faults.inject(Fault(Kind.SILENCE, 0.05), bench.clock.mono_ns())
    assert bench.run(0.045)
    assert not bench.run(0.1)
    bench.arm.faults.clear()
    assert bench.run(0.01)


def test_two_faults_of_one_kind_both_apply():
    bench = Bench(Fault(Kind.SILENCE, ids=(0x2A5,)), Fault(Kind.SILENCE, ids=(0x2A6,)))
    seen = ids(bench.run(0.1))
    assert 0x2A5 not in seen
    assert 0x2A6 not in seen
    assert 0x2A7 in seen


def test_the_silence_check_can_fail():
    bench = Bench(Fault(Kind.SILENCE, 10.0, 0.2))
    bench.run(0.1)
    assert bench.run(0.2)
