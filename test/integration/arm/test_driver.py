"""The driver and the unmodified SDK against an emulated arm: what is sent, and what never is."""

from __future__ import annotations

import os
import struct
import threading
from contextlib import nullcontext

import numpy as np
import pytest

from reflex_ros.arm import driver as driver_module
from reflex_ros.arm import wire
from reflex_ros.core.errors import ArmError
from reflex_ros.core.priority import pinned

pytestmark = pytest.mark.realtime

QUERIES = {0x472, 0x477, 0x4AF}


def ids(server):
    return [can_id for can_id, _ in server.commands]


def targets(server):
    """Return the joint frames as (id, first, second)."""
    return [(i, *struct.unpack('>ii', d)) for i, d in server.commands if 0x155 <= i <= 0x157]


def test_connect_and_check_send_queries_only(server, drive):
    arm = drive(server)
    arm.connect()
    report = arm.check()
    assert set(ids(server)) <= QUERIES
    assert report.firmware.startswith('S-V') and report.gripper_range_m == pytest.approx(0.07)
    assert set(report.rates_hz) >= set(wire.CYCLIC_IDS)


def test_enable_powers_one_joint_at_a_time_and_holds_the_pose(server, drive, tools):
    arm = tools.ready(drive(server))
    power = [data for can_id, data in server.commands if can_id == 0x471]
    assert {data[0] for data in power} == {1, 2, 3, 4, 5, 6} and {d[1] for d in power} == {2}
    assert len(set(targets(server))) == 3, 'one pose, however often it was sent'
    first = next(i for i in ids(server) if i in (0x151, 0x155))
    assert first == 0x155, 'the pose must arrive before the mode'
    assert np.abs(arm.feedback().position[1:3]).max() < 1.0


def test_command_is_four_frames_and_the_mode_once(driver, server, stream):
    server.forget()
    assert all(stream(driver, driver.feedback().position, 0.2))
    assert ids(server) == [0x151, *[0x155, 0x156, 0x157, 0x159] * 10]
    mode = next(d for i, d in server.commands if i == 0x151)
    assert mode == bytes([1, 1, 100, 0, 0, 0, 0, 0])


def test_bytes_on_the_bus_are_the_command(driver, server, wait):
    command = driver.feedback().position + 0.01
    wait(lambda: len(server.commands) == driver.stats().sent_frames)
    server.forget()
    assert driver.send(command)
    wait(lambda: len(server.commands) == 5)
    angles = [round(np.degrees(angle) * 1000) for angle in command[:6]]
    assert targets(server) == [(0x155 + k, *angles[2 * k:2 * k + 2]) for k in range(3)]
    opening = struct.unpack('>iHBB', server.commands[-1][1])
    assert opening == (round(command[6] * 1e6), 1000, 1, 0)


def test_whole_life_writes_nothing_persistent(driver, server, stream):
    stream(driver, driver.feedback().position, 0.2)
    driver.clear_faults(arm_supported=False)
    driver.disconnect()
    assert server.arm.firmware.persistent_writes == 0
    assert not any(wire.is_forbidden(wire.Frame(*frame)) for frame in server.commands)


def test_disconnect_leaves_the_motors_powered(driver, server):
    driver.disconnect()
    assert 0x150 not in ids(server)
    assert all(data[1] == wire.POWER_ON for can_id, data in server.commands if can_id == 0x471)


def test_disable_needs_the_operator_s_word(driver, server, wait):
    assert not driver.disable(arm_supported=False).accepted
    assert all(driver.feedback().enabled)
    assert driver.disable(arm_supported=True).accepted
    wait(lambda: not any(driver.feedback().enabled))


def test_shadow_mode_sends_no_command_frame(server, drive, tools, stream):
    arm = tools.ready(drive(server, send=False))
    pose = arm.feedback().position
    pose[1:3] = np.clip(pose[1:3], *(limit[1:3] for limit in (arm.limits().lower,
                                                              arm.limits().upper)))
    assert not any(stream(arm, pose, 0.1))
    assert arm.stats().last_refusal == 'shadow' and arm.stats().is_shadow
    assert not arm.clear_faults(arm_supported=True).accepted
    assert set(ids(server)) <= QUERIES and arm.faults() == ()


def test_no_float_reaches_the_sdk(driver, stream):
    sdk, seen = driver._link.sdk, []

    def spy(call):
        def checked(*args):
            seen.extend(args)
            return call(*args)
        return checked

    for name in ('JointCtrl', 'GripperCtrl', 'MotionCtrl_2'):
        setattr(sdk, name, spy(getattr(sdk, name)))
    pose = driver.feedback().position.astype(np.float32)
    assert all(stream(driver, pose, 0.2, each=lambda k: 0.0001 * k))
    for name in ('JointCtrl', 'GripperCtrl', 'MotionCtrl_2'):
        delattr(sdk, name)
    assert len(seen) == 4 + 10 * 10 and {type(value) for value in seen} == {int}


def test_sdk_used_around_the_driver_puts_nothing_on_the_bus(driver, server, stream):
    stop = threading.Event()

    def intrude():
        while not stop.is_set():
            driver._link.sdk.JointCtrl(0, 0, 0, 0, 0, 0)
            stop.wait(0.0005)

    pose = driver.feedback().position
    pose[0] = 0.2
    stream(driver, driver.feedback().position, 0.02)
    server.forget()
    thread = threading.Thread(target=intrude)
    thread.start()
    stream(driver, pose, 0.6)
    stop.set()
    thread.join()
    angles = [round(np.degrees(angle) * 1000) for angle in pose[:6]]
    wanted = {(0x155 + k, *angles[2 * k:2 * k + 2]) for k in range(3)}
    assert set(targets(server)) <= wanted and driver.stats().blocked_frames > 100


def test_second_driver_on_the_channel_is_refused(driver, server, drive):
    with pytest.raises(ArmError) as caught:
        drive(server).connect()
    assert caught.value.code == 'channel_in_use'
    assert driver.send(driver.feedback().position)


def test_two_arms_have_their_own_bus(serve, drive, tools, wait):
    servers = [serve(), serve()]
    arms = [tools.ready(drive(one, prefix=side)) for one, side in zip(
        servers, ('left_', 'right_'), strict=True)]
    for server, arm in zip(servers, arms, strict=True):
        wait(lambda s=server, a=arm: len(s.commands) == a.stats().sent_frames)
        server.forget()
    assert arms[1].send(arms[1].feedback().position)
    wait(lambda: len(servers[1].commands) == 5)
    assert not servers[0].commands
    assert arms[0].names[0] == 'left_joint1' and arms[1].names[-1] == 'right_gripper'


def test_missing_server_is_refused_at_once(drive, server, wait):
    arm = drive(server)
    server.stop()
    with pytest.raises(ArmError) as caught:
        arm.connect()
    assert caught.value.code == 'can_unreachable' and not arm.stats().is_connected


def core_of_the_reopened_reader(server, arm, wait):
    """Connect on one core, reopen from a thread on any; return the one and the reader's."""
    core = {min(os.sched_getaffinity(0))}
    with pinned(min(core)):
        arm.connect()
    wait(lambda: arm._link._reader)
    assert os.sched_getaffinity(arm._link._reader.native_id) == core
    server.pull()
    wait(lambda: 'bus_lost' in arm.faults())
    operator = threading.Thread(target=lambda: arm.clear_faults(arm_supported=False))
    operator.start()
    operator.join(10.0)
    assert arm.stats().reconnects == 1
    wait(lambda: arm._link._reader)
    return core, os.sched_getaffinity(arm._link._reader.native_id)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason='needs two cores')
def test_a_reopened_bus_keeps_the_core_of_its_reader(server, drive, wait):
    core, now = core_of_the_reopened_reader(server, drive(server), wait)
    assert now == core


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason='needs two cores')
def test_a_reopened_bus_keeps_the_core_can_fail(server, drive, wait, monkeypatch):
    monkeypatch.setattr(driver_module, 'scheduled', lambda like: nullcontext())
    core, now = core_of_the_reopened_reader(server, drive(server), wait)
    assert now > core
