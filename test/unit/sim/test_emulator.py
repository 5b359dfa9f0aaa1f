"""The arm's state machine, frame by frame on a manual clock."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from reflex_ros.core.clock import MS, ManualClock
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.can_codec import CanFrame, decode_feedback, encode
from reflex_ros.sim.emulator import FIRMWARE_DELAY_NS, PERIOD_NS, Emulator, EmulatorConfig
from reflex_ros.sim.faults import Fault, Kind
from reflex_ros.sim.plant import HOME, KinematicPlant

START_NS = 5_000_000_000
POWERED = 0x40


class Bench:
    """One emulated arm on a manual clock."""

    def __init__(self, config=None, plant=None):
        self.clock = ManualClock(START_NS)
        self.plant = plant or KinematicPlant(self.clock)
        self.arm = Emulator(self.plant, START_NS, config=config)
        self.frames = []

    def send(self, *messages):
        for message in messages:
            frame = encode(message)
            self.arm.receive(frame.can_id, frame.data, self.clock.mono_ns())

    def answers(self):
        return [decode_feedback(*f) for f in self.arm.due(self.clock.mono_ns())]

    def run(self, seconds):
        """Advance in cycles; return the frames of all of them."""
        out = []
        for _ in range(round(seconds / 0.005)):
            self.clock.advance(PERIOD_NS)
            now_ns = self.clock.mono_ns()
            out += self.arm.due(now_ns) + self.arm.step(now_ns)
        self.frames = out
        return out

    def last(self, can_id):
        """Return the newest message of an id from one more quarter of a second of cycles."""
        self.run(0.03)
        return [decode_feedback(*f) for f in self.frames if f.can_id == can_id][-1]

    @property
    def status(self):
        return self.last(0x2A1)

    def joint_mdeg(self, joint):
        pair = self.last(0x2A5 + (joint - 1) // 2)
        return pair.first_mdeg if joint % 2 else pair.second_mdeg

    def ready(self, percent=100):
        """Power all motors and take control."""
        self.send(codec.Power(7, 2), codec.Mode(1, 1, percent))
        self.run(0.05)
        return self


@pytest.fixture
def bench():
    return Bench()


def joints(*mdeg):
    return [codec.JointTarget(n + 1, mdeg[n], mdeg[n + 1]) for n in (0, 2, 4)]


def home_mdeg():
    return [round(math.degrees(q) * 1000) for q in HOME]


def test_a_second_holds_3040_frames_in_the_documented_rates(bench):
    bench.run(0.05)
    counts = Counter(frame.can_id for frame in bench.run(1.0))
    assert sum(counts.values()) == 3040
    assert {i: n for i, n in counts.items() if n == 200}.keys() == {
        *range(0x2A1, 0x2A9), *range(0x251, 0x257)}
    assert {i: n for i, n in counts.items() if n == 40}.keys() == set(range(0x261, 0x267))


def test_every_cyclic_frame_decodes_with_the_codec(bench):
    for frame in bench.run(0.1):
        assert encode(decode_feedback(*frame)) == frame


def test_a_late_cycle_gives_one_set_of_frames_and_keeps_the_slow_rate(bench):
    bench.run(0.1)
    bench.clock.advance(500 * MS)
    late = bench.arm.step(bench.clock.mono_ns())
    assert len(late) == 20
    counts = Counter(frame.can_id for frame in bench.run(1.0))
    assert counts[0x261] in (40, 41)


def test_the_arm_starts_in_standby_without_power(bench):
    assert bench.status.control == 0
    assert not bench.last(0x261).bits & POWERED


def test_the_reported_pose_is_the_plant_in_thousandths_of_a_degree(bench):
    assert bench.ready().joint_mdeg(1) == home_mdeg()[0]


def test_joint_targets_move_the_arm_once_powered_and_controlled(bench):
    bench.ready()
    bench.send(*joints(20_000, 40_000, -50_000, 10_000, 20_000, -30_000))
    assert bench.status.motion == 1
    bench.run(1.0)
    assert [bench.joint_mdeg(j) for j in range(1, 7)] == pytest.approx(
        [20_000, 40_000, -50_000, 10_000, 20_000, -30_000], abs=2)
    assert bench.status.motion == 0


@pytest.mark.parametrize(('setup', 'reason'), [
    ([codec.Power(7, 2)], 'control_mode'),
    ([codec.Mode(1, 1, 100)], 'power'),
    ([codec.Power(7, 2), codec.Mode(0, 1, 100)], 'control_mode'),
    ([codec.Power(7, 2), codec.Mode(1, 0, 100)], 'move_mode'),
    ([codec.Power(7, 2), codec.Mode(1, 2, 100)], 'move_mode'),
    ([codec.Power(7, 2), codec.Mode(1, 4, 100, 0xAD)], 'move_mode'),
    ([codec.Power(7, 2), codec.Mode(1, 1, 100, 0xAD)], 'move_mode'),
    ([codec.Power(7, 2), codec.Mode(1, 1, 100), codec.Motion(1)], 'stopped'),
    ([codec.Power(7, 2), codec.Mode(1, 1, 100), codec.Motion(0, 0, 1)], 'control_mode'),
])
def test_joint_targets_are_ignored_in_every_other_state(bench, setup, reason):
    bench.send(*setup)
    bench.run(0.1)
    before = bench.joint_mdeg(1)
    bench.send(*joints(30_000, 60_000, -60_000, 0, 0, 0))
    bench.run(0.5)
    assert bench.joint_mdeg(1) == before
    assert bench.arm.firmware.ignored[reason] >= 3


def test_one_unpowered_joint_does_not_hold_back_the_others(bench):
    bench.send(*(codec.Power(joint, 2) for joint in (1, 2, 3, 4, 5)), codec.Mode(1, 1, 100))
    bench.run(0.05)
    bench.send(*joints(10_000, 30_000, -40_000, 5_000, 10_000, 20_000))
    bench.run(1.0)
    assert bench.joint_mdeg(5) == pytest.approx(10_000, abs=2)
    assert bench.joint_mdeg(6) == 0


def test_speed_percent_bounds_the_joint_speed(bench):
    bench.ready(percent=10)
    bench.send(*joints(90_000, 30_000, -40_000, 0, 0, 0))
    frames = bench.run(1.0)
    speeds = [decode_feedback(*f).speed_mrad_s for f in frames if f.can_id == 0x251]
    assert max(speeds) <= 301  # 10 % of 3 rad/s
    assert max(speeds) > 280


def test_a_target_beyond_the_range_is_ignored_and_reported(bench):
    bench.ready()
    bench.send(codec.JointTarget(1, 200_000, 50_000))
    status = bench.status
    assert (status.status, status.limit_bits) == (4, 0b000001)
    bench.run(1.0)
    assert bench.joint_mdeg(1) == 0
    assert bench.joint_mdeg(2) == pytest.approx(50_000, abs=2)
    bench.send(codec.JointTarget(1, 10_000, 50_000))
    assert (bench.status.status, bench.status.limit_bits) == (0, 0)


def test_an_emergency_stop_holds_the_pose_and_ignores_commands(bench):
    bench.ready(percent=20)
    bench.send(*joints(90_000, 30_000, -40_000, 0, 0, 0))
    bench.run(0.3)
    bench.send(codec.Motion(1))
    bench.run(0.5)
    stopped = bench.joint_mdeg(1)
    assert 1_000 < stopped < 60_000
    bench.send(codec.Mode(1, 1, 100), *joints(0, 0, 0, 0, 0, 0), codec.Power(7, 2))
    bench.run(0.5)
    assert bench.joint_mdeg(1) == stopped
    assert bench.status.status == 1
    assert bench.last(0x261).bits & POWERED


def test_resume_cuts_the_power_and_the_arm_sags(bench):
    bench.ready()
    before = bench.joint_mdeg(2)
    bench.send(codec.Motion(1), codec.Motion(2))
    bench.run(1.5)
    assert not bench.last(0x264).bits & POWERED
    assert bench.joint_mdeg(2) < before - 10_000
    assert (bench.status.status, bench.status.control) == (0, 0)
    assert not bench.last(0x2A8).bits & POWERED


def test_a_supported_arm_does_not_fall_when_its_power_is_cut(bench):
    bench.ready()
    before = bench.joint_mdeg(2)
    bench.arm.firmware.is_supported = True
    bench.send(codec.Motion(2))
    bench.run(1.0)
    assert not bench.last(0x262).bits & POWERED
    assert bench.joint_mdeg(2) == before
    bench.send(codec.Power(7, 2), codec.Power(7, 2))
    bench.run(0.05)
    bench.send(codec.Power(7, 1))  # nobody holds it any more
    bench.run(1.0)
    assert bench.joint_mdeg(2) < before - 10_000


def test_after_a_resume_each_motor_needs_two_enables(bench):
    bench.ready()
    bench.send(codec.Motion(2))
    bench.send(codec.Power(7, 2))
    assert not bench.last(0x261).bits & POWERED
    bench.send(codec.Power(1, 2))
    assert bench.last(0x261).bits & POWERED
    assert not bench.last(0x262).bits & POWERED


def test_an_arm_rests_until_it_is_powered_first(bench):
    bench.run(1.0)
    assert [bench.joint_mdeg(j) for j in range(1, 7)] == home_mdeg()
    assert not bench.last(0x261).bits & POWERED


def test_powering_a_fallen_joint_holds_it_where_it_is():
    bench = Bench(EmulatorConfig(is_supported=False))
    bench.run(1.0)
    fallen = bench.joint_mdeg(2)
    bench.ready()
    bench.run(1.0)
    assert bench.joint_mdeg(2) == pytest.approx(fallen, abs=1)
    assert fallen < home_mdeg()[1] - 10_000


def test_teaching_ignores_commands_and_the_first_mode_after_it(bench):
    bench.ready()
    bench.send(codec.Motion(0, 0, 1))
    bench.send(codec.Mode(1, 1, 100))
    assert bench.status.control == 2
    bench.send(codec.Motion(0, 0, 2), codec.Mode(1, 1, 100))
    assert bench.status.control == 0
    bench.send(codec.Mode(1, 1, 100))
    assert bench.status.control == 1


def test_leader_mode_sends_its_targets_and_no_feedback():
    bench = Bench(EmulatorConfig(is_leader=True))
    bench.send(codec.Power(7, 2), codec.Mode(1, 1, 100), codec.LimitQuery(1, 1),
               codec.FirmwareQuery())
    ids = {frame.can_id for frame in bench.run(0.2)}
    assert ids == {0x151, 0x155, 0x156, 0x157, 0x159}
    assert bench.arm.firmware.ignored['leader'] == 4


def test_the_leader_role_changes_only_with_a_restart(bench):
    bench.send(codec.Linkage(0xFA))
    assert bench.status.control == 0
    bench.arm.restart()
    assert {f.can_id for f in bench.run(0.05)} == {0x151, 0x155, 0x156, 0x157, 0x159}
    bench.send(codec.Linkage(0xFC))
    bench.arm.restart()
    assert bench.status.control == 0


def test_limit_queries_are_answered_one_joint_at_a_time(bench):
    bench.send(*(codec.LimitQuery(joint, 1) for joint in range(1, 7)))
    bench.send(codec.LimitQuery(3, 2))
    *angles, bound = bench.answers()
    assert [a.joint for a in angles] == [1, 2, 3, 4, 5, 6]
    assert angles[2] == codec.AngleLimit(3, 0, -1700, 3000)
    assert bound == codec.AccelerationLimit(3, 500)


def test_parameter_queries_are_answered(bench):
    bench.send(codec.ParameterQuery(1), codec.ParameterQuery(2), codec.ParameterQuery(4))
    assert bench.answers() == [
        codec.EndSpeed(500, 1000, 1000, 2000), codec.CrashLevels(bytes([1] * 6)),
        codec.GripperParameters(100, 70, 1)]


def test_the_firmware_text_comes_late_enough_for_the_sdk(bench):
    bench.send(codec.FirmwareQuery())
    assert bench.answers() == []
    assert bench.arm.next_due_ns == bench.clock.mono_ns() + FIRMWARE_DELAY_NS
    assert FIRMWARE_DELAY_NS >= MS
    bench.clock.advance(FIRMWARE_DELAY_NS)
    text = b''.join(answer.text for answer in bench.answers())
    assert b'S-V1.8-9' in text
    assert bench.arm.next_due_ns is None


def test_settings_are_kept_acknowledged_and_counted_as_flash_writes(bench):
    bench.send(codec.LimitSetting(1, 900, -900, codec.KEEP), codec.CrashSetting(bytes([2] * 6)),
               codec.GripperSetting(100, 100, 2), codec.EndSpeedSetting(1, 2, 3, 4))
    assert [a.setting for a in bench.answers()] == [0x74, 0x7A, 0x7D, 0x79]
    bench.send(codec.LimitQuery(1, 1), codec.ParameterQuery(2), codec.ParameterQuery(4),
               codec.ParameterQuery(1))
    assert bench.answers() == [
        codec.AngleLimit(1, 900, -900, 3000), codec.CrashLevels(bytes([2] * 6)),
        codec.GripperParameters(100, 100, 2), codec.EndSpeed(1, 2, 3, 4)]
    assert bench.arm.firmware.persistent_writes == 4


def test_factory_values_come_back_on_request(bench):
    bench.send(codec.LimitSetting(1, 900, -900, 1), codec.ParameterQuery(0, 1),
               codec.LimitQuery(1, 1))
    assert bench.answers()[-1] == codec.AngleLimit(1, 1500, -1500, 3000)


def test_clearing_errors_frees_the_joint_without_a_fall(bench):
    bench.ready()
    bench.arm.firmware.error_status = 7
    bench.arm.firmware.driver_bits[2] = 0x10
    before = bench.joint_mdeg(2)
    bench.send(*joints(10_000, 60_000, -40_000, 0, 0, 0))
    bench.run(0.3)
    assert bench.joint_mdeg(2) == before
    assert bench.status.status == 7
    assert bench.last(0x263).bits == POWERED | 0x10
    bench.send(codec.JointSetting(7, 0, 0, codec.KEEP, codec.APPLY))
    assert bench.status.status == 0
    assert bench.last(0x263).bits == POWERED
    assert bench.arm.firmware.persistent_writes == 0
    assert bench.joint_mdeg(2) == before


def test_clearing_errors_does_not_end_an_emergency_stop(bench):
    bench.ready()
    bench.send(codec.Motion(1), codec.JointSetting(7, 0, 0, codec.KEEP, codec.APPLY))
    assert bench.status.status == 1


def test_a_new_zero_shifts_the_reported_angle_and_not_the_arm(bench):
    bench.ready()
    true = bench.plant.joint_state()[0][1]
    bench.send(codec.JointSetting(2, codec.APPLY, 0, codec.KEEP, 0))
    assert bench.answers() == [codec.SettingAck(0x71), codec.SettingAck(0x75, 1)][-1:]
    bench.run(0.5)
    assert abs(bench.joint_mdeg(2)) <= 1
    assert bench.plant.joint_state()[0][1] == pytest.approx(true, abs=1e-6)
    assert bench.arm.firmware.persistent_writes == 1


def test_the_gripper_follows_within_its_range_while_powered(bench):
    bench.send(codec.GripperTarget(30_000, 1000, 1))
    bench.run(0.6)
    state = bench.last(0x2A8)
    assert state.opening_um == pytest.approx(30_000, abs=5)
    assert state.bits & POWERED
    bench.send(codec.GripperTarget(200_000, 1000, 1))
    bench.run(0.8)
    assert bench.last(0x2A8).opening_um == pytest.approx(70_000, abs=5)
    bench.send(codec.GripperTarget(0, 0, 0))
    assert not bench.last(0x2A8).bits & POWERED


def test_a_gripper_without_supply_takes_no_power_and_stays_where_it_is(bench):
    grip = codec.GripperTarget(60_000, 1000, 1)
    bench.send(grip)
    bench.arm.faults.inject(Fault(Kind.GRIPPER_POWER_LOSS, duration_s=0.2), bench.clock.mono_ns())
    assert not bench.last(0x2A8).bits & POWERED
    where = bench.last(0x2A8).opening_um
    bench.send(grip)
    bench.run(0.1)
    assert not bench.last(0x2A8).bits & POWERED
    assert bench.last(0x2A8).opening_um == pytest.approx(where, abs=100)
    bench.send(grip)
    bench.run(0.5)
    assert bench.last(0x2A8).bits & POWERED and bench.last(0x2A8).opening_um > where + 1000


def test_a_gripper_that_lost_its_zero_says_so_and_moves_on(bench):
    bench.arm.faults.inject(Fault(Kind.GRIPPER_ZERO_LOSS, duration_s=0.1), bench.clock.mono_ns())
    assert not bench.last(0x2A8).bits & codec.HOMED_BIT
    bench.run(0.1)
    assert bench.last(0x2A8).bits & codec.HOMED_BIT


def test_a_gripper_without_configured_range_does_not_open():
    bench = Bench(EmulatorConfig(gripper_range_mm=0))
    bench.send(codec.GripperTarget(30_000, 1000, 1), codec.ParameterQuery(4))
    assert bench.answers()[-1].range_mm == 0
    bench.run(0.5)
    assert bench.last(0x2A8).opening_um == 0


@pytest.mark.parametrize('frame', [
    CanFrame(0x155, b''), CanFrame(0x155, bytes(5)), CanFrame(0x471, bytes([9, 2, *[0] * 6])),
    CanFrame(0x471, bytes([1, 3, *[0] * 6])), CanFrame(0x472, bytes([0, 1, *[0] * 6])),
    CanFrame(0x472, bytes([1, 9, *[0] * 6])), CanFrame(0x475, bytes(8)),
    CanFrame(0x477, bytes(8)), CanFrame(0x474, bytes([7] * 8)),
])
def test_nonsense_is_counted_and_changes_nothing(bench, frame):
    bench.arm.receive(frame.can_id, frame.data, bench.clock.mono_ns())
    assert bench.arm.firmware.ignored['malformed'] == 1
    assert bench.answers() == []
    assert bench.arm.received[frame.can_id] == 1


@pytest.mark.parametrize('can_id', [0x000, 0x191, 0x422, 0x2A5, 0x7FF])
def test_ids_that_are_not_commands_are_counted(bench, can_id):
    bench.arm.receive(can_id, bytes(8), bench.clock.mono_ns())
    assert bench.arm.firmware.ignored['unknown_id'] == 1


def test_random_frames_never_raise(bench):
    rng = np.random.default_rng(5)
    for _ in range(3000):
        can_id = int(rng.choice([*range(0x150, 0x160), *range(0x470, 0x47F), 0x4AF]))
        size = int(rng.choice([8, 8, 8, 0, 3]))
        bench.arm.receive(can_id, rng.bytes(size), bench.clock.mono_ns())
        if rng.random() < 0.05:
            bench.run(0.005)
    assert sum(bench.arm.received.values()) == 3000


class HeldPlant:
    """A plant without sagging: it holds what it was told last, at once."""

    def __init__(self):
        self.position = np.array([*HOME, 0.0])
        self.commands = []

    def command(self, joints_rad, gripper_m):
        self.commands.append((joints_rad.copy(), gripper_m))
        self.position = np.append(joints_rad, gripper_m)

    def joint_state(self):
        return self.position.copy(), np.zeros(7)


def test_a_plant_that_cannot_sag_is_left_alone_until_powered():
    plant = HeldPlant()
    bench = Bench(plant=plant)
    bench.run(0.2)
    assert plant.commands == []
    plant.position[0] = 0.3  # somebody moved it meanwhile
    bench.ready()
    bench.run(0.1)
    assert plant.commands[0][0][0] == pytest.approx(0.3)
    assert plant.position[0] == pytest.approx(0.3)


def test_without_commands_the_arm_holds_its_last_target(bench):
    bench.ready()
    bench.send(*joints(10_000, 30_000, -40_000, 0, 0, 0))
    bench.run(5.0)
    assert bench.joint_mdeg(1) == pytest.approx(10_000, abs=2)
    assert bench.status.control == 1


def test_power_loss_of_one_joint_lets_it_fall(bench):
    bench.ready()
    bench.arm.faults.inject(Fault(Kind.POWER_LOSS, joints=(2,)), bench.clock.mono_ns())
    before = bench.joint_mdeg(2)
    bench.run(1.0)
    assert not bench.last(0x262).bits & POWERED
    assert bench.last(0x261).bits & POWERED
    assert bench.joint_mdeg(2) < before - 10_000
