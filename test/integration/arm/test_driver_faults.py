"""What the driver refuses, notices and survives."""

from __future__ import annotations

import struct
import time

import numpy as np
import pytest

from reflex_ros.core.errors import ArmError
from reflex_ros.sim.faults import Direction, Fault, Kind

pytestmark = pytest.mark.realtime


def refusal(call):
    with pytest.raises(ArmError) as caught:
        call()
    assert 'got' in str(caught.value) and 'expected' in str(caught.value)
    return caught.value.code


@pytest.mark.parametrize(('fault', 'code'), [
    (Fault(Kind.WRONG_LIMITS, lower_deg=-0.1, upper_deg=0.1), 'limits_implausible'),
    (Fault(Kind.WRONG_LIMITS, acceleration_rad_s2=655.0), 'limits_implausible'),
    (Fault(Kind.WRONG_LIMITS, gripper_range_mm=0), 'gripper_range_zero'),
    (Fault(Kind.FIRMWARE, version='S-V1.5-2'), 'firmware_old'),
    (Fault(Kind.FIRMWARE, version='S-Vnone'), 'firmware_unknown'),
    (Fault(Kind.TEACH_MODE), 'teach_mode'),
    (Fault(Kind.ESTOP), 'arm_estop'),
    (Fault(Kind.STATUS, status=4), 'arm_target_beyond_limit'),
    (Fault(Kind.DRIVER_FLAGS, joints=(2,), flags=('collision',)), 'joint2_collision'),
    (Fault(Kind.SILENCE, ids=(0x2A8,)), 'feedback_incomplete'),
    (Fault(Kind.SECOND_COMMANDER), 'foreign_commander'),
    (Fault(Kind.SILENCE, ids=(0x473,)), 'limits_unknown'),
], ids=lambda value: value if isinstance(value, str) else value.kind.value)
def test_arm_that_must_not_be_enabled_is_refused(serve, drive, fault, code):
    server = serve()
    server.inject(fault)
    time.sleep(0.05)
    arm = drive(server)
    found = refusal(lambda: (arm.connect(), arm.check()))
    assert found == code
    assert not any(can_id in (0x151, 0x155, 0x471) for can_id, _ in server.commands)
    assert refusal(arm.enable) == 'arm_state'


def test_leader_arm_is_recognised_by_its_frames(serve, drive):
    arm = drive(serve(is_leader=True), connect_timeout_ns=500_000_000)
    assert refusal(arm.connect) == 'leader_mode'


def test_silent_arm_is_refused_and_the_channel_is_free_again(server, drive):
    server.inject(Fault(Kind.SILENCE, duration_s=0.8))
    time.sleep(0.05)
    arm = drive(server, connect_timeout_ns=300_000_000)
    assert refusal(arm.connect) == 'feedback_none'
    time.sleep(0.8)
    drive(server).connect()


def test_silence_is_a_fault_and_stops_every_command(server, drive, tools, wait):
    arm = tools.ready(drive(server, feedback_timeout_ns=100_000_000))
    pose = arm.feedback().position
    wait(lambda: arm.send(pose))
    server.inject(Fault(Kind.SILENCE))
    wait(lambda: 'feedback_lost' in arm.faults())
    assert not arm.send(pose) and arm.stats().last_refusal == 'feedback_lost'
    assert arm.stats().feedback_age_ns > 100_000_000
    time.sleep(0.05)
    before = len(server.commands)
    assert not arm.send(pose)
    time.sleep(0.05)
    assert len(server.commands) == before
    server.arm.faults.clear()
    wait(lambda: arm.send(pose))


def test_dead_server_is_a_fault_at_once_and_no_command_is_accepted(driver, server, wait):
    pose = driver.feedback().position
    assert driver.send(pose)
    server.stop()
    assert wait(driver.faults) < 0.2
    before = len(server.commands)
    assert not driver.send(pose) and len(server.commands) == before
    assert set(driver.faults()) <= {'bus_lost', 'feedback_lost'}
    wait(lambda: 'feedback_lost' in driver.faults())
    assert not driver.stats().is_connected


def test_killed_simulator_is_a_fault_at_once_and_no_command_is_accepted(
    simulator, drive, tools, wait,
):
    arm = tools.ready(drive(simulator))
    pose = arm.feedback().position
    assert arm.send(pose)
    simulator.kill()
    assert wait(arm.faults) < 0.2
    sent = arm.stats().sent_frames
    assert not arm.send(pose) and arm.stats().sent_frames == sent
    reply = arm.clear_faults(arm_supported=True)
    assert not reply.accepted and 'Start the simulator' in reply.reason


def test_dead_bus_costs_no_cpu_and_its_reader_ends(driver, server, wait):
    server.stop()
    wait(lambda: 'bus_lost' in driver.faults())
    reader = driver._link._reader
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.15
    driver.disconnect()
    assert not reader.is_alive()


def test_reader_ends_on_disconnect_from_a_silent_bus(driver, server):
    server.inject(Fault(Kind.BUS_OFF))
    time.sleep(0.1)
    reader, start = driver._link._reader, time.monotonic()
    driver.disconnect()
    assert not reader.is_alive() and time.monotonic() - start < 1.0


def test_pulled_server_is_recovered_by_a_controlled_reconnect(driver, server, drive, wait):
    server.pull()
    wait(lambda: 'bus_lost' in driver.faults())
    reply = driver.clear_faults(arm_supported=False)
    assert reply.accepted, reply.reason
    assert driver.stats().reconnects == 1
    assert not driver.send(driver.feedback().position), 'must be enabled again'
    driver.check()
    driver.enable()
    assert driver.send(driver.feedback().position)


def test_foreign_commander_stops_our_commands(driver, server, wait):
    server.inject(Fault(Kind.SECOND_COMMANDER, duration_s=0.2))
    wait(lambda: 'foreign_commander' in driver.faults())
    assert not driver.send(driver.feedback().position)
    assert driver.stats().foreign_frames > 0


def test_teach_button_ends_our_control(driver, server, wait):
    server.inject(Fault(Kind.TEACH_MODE, duration_s=0.3))
    wait(lambda: 'control_mode_lost' in driver.faults())
    before = len(server.commands)
    assert not driver.send(driver.feedback().position) and len(server.commands) == before


def test_joint_without_power_is_named(driver, server, wait):
    server.inject(Fault(Kind.POWER_LOSS, joints=(3,)))
    wait(driver.faults)
    assert driver.faults() == driver.feedback().faults == ('joint3_disabled',)
    assert not driver.send(driver.feedback().position)


def test_collision_is_cleared_without_losing_power(driver, server, wait):
    server.inject(Fault(Kind.DRIVER_FLAGS, joints=(2,), flags=('collision',), duration_s=0.05))
    wait(lambda: 'joint2_collision' in driver.faults())
    time.sleep(0.1)
    reply = driver.clear_faults(arm_supported=False)
    assert reply.accepted, reply.reason
    assert all(driver.feedback().enabled) and 0x150 not in {i for i, _ in server.commands}
    clear = [data for can_id, data in server.commands if can_id == 0x475]
    assert clear == [bytes([7, 0, 0, 0x7F, 0xFF, 0xAE, 0, 0])]


def resets(server):
    return [data for can_id, data in server.commands if can_id == 0x150]


def test_power_is_cut_only_for_faults_that_a_reset_was_offered_for(driver, server, wait):
    server.inject(Fault(Kind.ESTOP))
    wait(lambda: 'arm_estop' in driver.faults())
    reply = driver.clear_faults(arm_supported=True)
    assert not reply.accepted and 'arm_estop stays' in reply.reason and not resets(server)
    server.inject(Fault(Kind.DRIVER_FLAGS, joints=(2,), flags=('stall',)))
    wait(lambda: 'joint2_stall' in driver.faults())
    reply = driver.clear_faults(arm_supported=True)
    assert not reply.accepted and 'joint2_stall' in reply.reason and not resets(server)
    driver.clear_faults(arm_supported=True)
    assert resets(server), 'asked again for the same two'


def test_power_is_cut_only_for_faults_that_a_reset_was_offered_for_can_fail(driver, server, wait):
    driver._offered = frozenset({'arm_estop'})
    server.inject(Fault(Kind.ESTOP))
    wait(lambda: 'arm_estop' in driver.faults())
    driver.clear_faults(arm_supported=True)
    assert resets(server)


def test_a_hold_while_the_errors_are_cleared_keeps_the_power(driver, server, wait):
    server.inject(Fault(Kind.ESTOP))
    wait(lambda: 'arm_estop' in driver.faults())
    assert not driver.clear_faults(arm_supported=True).accepted, 'only offers it'

    def held():
        raise ArmError('got a hold, expected none', code='recovery_ended')

    assert refusal(lambda: driver.clear_faults(arm_supported=True, go_on=held)) == 'recovery_ended'
    time.sleep(0.1)
    assert not resets(server) and all(driver.feedback().enabled[:6])


def powered(server):
    """Return the joints that were asked to take power, in order."""
    return [data[0] for can_id, data in server.commands if can_id == 0x471]


def test_enabling_ends_before_the_next_joint_gets_power(server, drive, wait):
    arm, asked = drive(server), []
    arm.connect()
    arm.check()

    def go_on():
        asked.append(len(asked))
        if len(asked) == 4:  # once before it begins, then before each joint
            raise ArmError('got a hold, expected none', code='recovery_ended')

    assert refusal(lambda: arm.enable(go_on=go_on)) == 'recovery_ended'
    wait(lambda: len(powered(server)) >= 2)
    time.sleep(0.1)
    assert powered(server) == [1, 2]
    assert not any(can_id in (0x151, 0x155) for can_id, _ in server.commands)
    assert not arm.send(arm.feedback().position)


def test_latched_stop_is_reset_only_with_a_supported_arm(driver, server, wait):
    server.inject(Fault(Kind.ESTOP))
    wait(lambda: 'arm_estop' in driver.faults())
    reply = driver.clear_faults(arm_supported=False)
    assert not reply.accepted and 'arm_supported' in reply.reason
    assert 0x150 not in {i for i, _ in server.commands}
    reply = driver.clear_faults(arm_supported=True)
    assert reply.accepted, reply.reason
    assert not any(driver.feedback().enabled[:6])
    driver.check()
    driver.enable()
    assert driver.send(driver.feedback().position)


def test_motor_that_does_not_power_up_is_named(server, drive):
    server.inject(Fault(Kind.DROP, ids=(0x471,), direction=Direction.COMMANDS))
    arm = drive(server, enable_timeout_ns=300_000_000)
    arm.connect()
    arm.check()
    with pytest.raises(ArmError, match='joint1, joint2') as caught:
        arm.enable()
    assert caught.value.code == 'enable_timeout'


def test_refused_mode_is_an_error_and_leaves_the_power_on(server, drive):
    server.inject(Fault(Kind.DROP, ids=(0x151,), direction=Direction.COMMANDS))
    arm = drive(server)
    arm.connect()
    arm.check()
    assert refusal(arm.enable) == 'mode_refused'
    assert all(arm.feedback().enabled[:6])
    assert not arm.send(arm.feedback().position)


class Drifting:
    """A plant that turns its base, from the start or once ``begins`` says so.

    Args:
        step_rad: How far it turns each time that it is read.
    """

    def __init__(self, *, is_moving=False, step_rad=0.002):
        self.position = np.array([0.0, 0.52, -0.7, 0.0, 0.17, 0.0, 0.0])
        self.is_moving, self.step_rad = is_moving, step_rad
        self.begins = lambda: False

    def command(self, joints_rad, gripper_m):
        self.is_moving = self.is_moving or self.begins()

    def joint_state(self):
        self.position[0] += self.step_rad if self.is_moving else 0.0
        return self.position.copy(), np.zeros(7)


def test_motion_while_enabling_is_an_error(serve, drive):
    plant = Drifting(step_rad=0.02)  # a few readings will do on a busy machine
    server = serve(plant=plant)
    # With the first pose that is streamed: the power alone takes as long as the machine wants.
    plant.begins = lambda: any(can_id == 0x155 for can_id, _ in server.commands)
    arm = drive(server)
    arm.connect()
    arm.check()
    assert refusal(arm.enable) == 'moved_while_enabling'
    assert not arm.send(np.clip(arm.feedback().position, arm.limits().lower, arm.limits().upper))


def test_moving_arm_is_not_powered(serve, drive):
    server = serve(plant=Drifting(is_moving=True))
    arm = drive(server)
    arm.connect()
    arm.check()
    assert refusal(arm.enable) == 'arm_moving'
    assert not any(can_id in (0x151, 0x155, 0x471) for can_id, _ in server.commands)


def test_pose_is_measured_after_the_power_is_on(server, drive):
    arm = drive(server)
    arm.connect()
    arm.check()
    held = arm.enable()
    pose = next(data for can_id, data in server.commands if can_id == 0x155)
    joint2 = struct.unpack('>ii', pose)[1]
    assert joint2 == pytest.approx(np.degrees(held[1]) * 1000, abs=1), 'what was commanded'
    assert joint2 == pytest.approx(np.degrees(arm.feedback().position[1]) * 1000, abs=300)


def test_lost_joint_frames_never_mix_two_cycles(driver, server, stream):
    server.inject(Fault(Kind.DROP, ids=(0x2A6,), probability=0.3, duration_s=0.5))
    stream(driver, driver.feedback().position, 0.5)
    assert driver.stats().incoherent_sets > 0


def test_rate_table_shows_a_missing_id(driver, server, wait):
    server.inject(Fault(Kind.SILENCE, ids=(0x264,)))
    wait(lambda: driver.stats().rates_hz.get(0x264) == 0.0, 3.0)
    assert driver.stats().rates_hz[0x263] > 10.0
    assert 'status_lost' in driver.faults()


def test_silent_but_open_bus_is_reopened_and_named_by_recover(driver, server, wait):
    server.inject(Fault(Kind.BUS_OFF, duration_s=2.0))
    wait(lambda: 'feedback_lost' in driver.faults(), 4.0)
    assert driver.stats().is_connected, 'the connection itself is alive'
    reply = driver.clear_faults(arm_supported=False)
    assert reply.accepted and driver.stats().reconnects == 1, reply


def test_silent_but_open_bus_can_fail(driver, server, wait):
    server.inject(Fault(Kind.BUS_OFF))
    wait(lambda: 'feedback_lost' in driver.faults(), 4.0)
    reply = driver.clear_faults(arm_supported=True)
    assert not reply.accepted and 'Check power, cable, bitrate' in reply.reason
    assert 0x150 not in {i for i, _ in server.commands}, 'silence is no reason to cut the power'
