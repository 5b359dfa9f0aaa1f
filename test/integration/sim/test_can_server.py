"""The server on loopback: the unmodified SDK, several arms, bad clients, restarts, lateness."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys

import pytest

from reflex_ros.core.errors import EXIT_INPUT, ConfigError
from reflex_ros.sim.can_server import CanServer
from reflex_ros.sim.can_tap import read_tap
from reflex_ros.sim.emulator import PERIOD_NS, Emulator
from reflex_ros.sim.faults import Fault, Kind

pytestmark = pytest.mark.realtime

TICK_NS = 20_000_000


def angles(arm):
    state = arm.GetArmJointMsgs().joint_state
    return [getattr(state, f'joint_{n}') for n in range(1, 7)]


def enable(arm, wait_for, timeout_s=5.0):
    assert wait_for(arm.EnablePiper, timeout_s)
    arm.MotionCtrl_2(1, 1, 100, 0)
    assert wait_for(lambda: arm.GetArmStatus().arm_status.ctrl_mode == 1)


# --- with the SDK ----------------------------------------------------------------------------

def test_the_sdk_connects_reads_the_version_and_every_feedback(serve, sdk, wait_for):
    server = serve('sdk_read', firmware='S-V1.8-3')
    arm = sdk(server.port, 'sdk_read')
    assert wait_for(lambda: arm.GetPiperFirmwareVersion() == 'S-V1.8-3')
    assert wait_for(lambda: min(
        arm.GetArmJointMsgs().Hz, arm.GetArmStatus().Hz, arm.GetArmGripperMsgs().Hz,
        arm.GetArmEndPoseMsgs().Hz, arm.GetArmHighSpdInfoMsgs().Hz,
        arm.GetArmLowSpdInfoMsgs().Hz) > 0)
    assert angles(arm)[1] != 0
    assert arm.isOk()


def test_the_sdk_enables(serve, sdk, wait_for):
    arm = sdk(serve('sdk_enable').port, 'sdk_enable')
    assert wait_for(lambda: arm.GetArmLowSpdInfoMsgs().Hz > 0)
    assert wait_for(arm.EnablePiper)
    assert arm.GetArmEnableStatus() == [True] * 6


def stream(arm, clock, count, skip=()):
    """Send commands at 50 Hz but those in ``skip``; return what should have been sent."""
    due_ns, sent = clock.mono_ns(), []
    for n in range(count):
        sent.append((200 * n, 30_000, -40_000, 0, 10_000, -100 * n))
        arm.MotionCtrl_2(1, 1, 100, 0)
        if n not in skip:
            arm.JointCtrl(*sent[-1])
        arm.GripperCtrl(500 * n, 1000, 1, 0)
        due_ns += TICK_NS
        clock.sleep_until(due_ns)
    return sent


def differences(tap, sent):
    """Return how the received joint frames differ from the sent ones, [] if they do not."""
    received = {i: [record.data for record in tap.recent(ids=[i])] for i in (0x155, 0x156, 0x157)}
    out = []
    for can_id, joint in ((0x155, 0), (0x156, 2), (0x157, 4)):
        wanted = [b''.join(v.to_bytes(4, 'big', signed=True) for v in row[joint:joint + 2])
                  for row in sent]
        if received[can_id] != wanted:
            out.append((can_id, len(received[can_id]), len(wanted)))
    return out


def test_every_streamed_command_arrives_once_unchanged_and_moves_the_arm(
        serve, sdk, clock, wait_for):
    server = serve('sdk_stream')
    arm = sdk(server.port, 'sdk_stream')
    enable(arm, wait_for)
    sent = stream(arm, clock, 50)
    assert wait_for(lambda: server.tap.counts('sdk_stream').get(0x159) == 50)
    assert differences(server.tap, sent) == []
    counts = server.tap.counts('sdk_stream')
    assert (counts[0x155], counts[0x151]) == (50, 51)
    stamps = [record.mono_ns for record in server.tap.recent(ids=[0x157])]
    assert stamps == sorted(stamps)
    assert wait_for(lambda: angles(arm) == pytest.approx(sent[-1], abs=5))
    assert wait_for(lambda: arm.GetArmGripperMsgs().gripper_state.grippers_angle > 24_000)


def test_the_comparison_of_sent_and_received_can_fail(serve, sdk, clock, wait_for):
    server = serve('sdk_lossy')
    arm = sdk(server.port, 'sdk_lossy')
    sent = stream(arm, clock, 5, skip=(3,))
    assert wait_for(lambda: server.tap.counts('sdk_lossy').get(0x159) == 5)
    assert differences(server.tap, sent) == [(0x155, 4, 5), (0x156, 4, 5), (0x157, 4, 5)]


def test_the_sdk_reads_the_limits_joint_by_joint(serve, sdk, wait_for):
    arm = sdk(serve('sdk_limits').port, 'sdk_limits')
    got = arm.GetCurrentMotorAngleLimitMaxVel
    limits = []
    for joint in range(1, 7):
        arm.SearchMotorMaxAngleSpdAccLimit(joint, 1)
        assert wait_for(
            lambda: got().current_motor_angle_limit_max_vel.motor_num == joint)  # noqa: B023
        limit = got().current_motor_angle_limit_max_vel
        limits.append((limit.min_angle_limit, limit.max_angle_limit, limit.max_joint_spd))
    assert limits == [(-1500, 1500, 3000), (0, 1800, 3000), (-1700, 0, 3000),
                      (-1000, 1000, 3000), (-700, 700, 3000), (-1200, 1200, 3000)]


def test_an_emergency_stop_and_a_reset_reach_the_arm(serve, sdk, wait_for):
    arm = sdk(serve('sdk_estop').port, 'sdk_estop')
    enable(arm, wait_for)
    arm.EmergencyStop(1)
    assert wait_for(lambda: arm.GetArmStatus().arm_status.arm_status == 1)
    before = angles(arm)[1]
    arm.JointCtrl(0, 90_000, -40_000, 0, 0, 0)
    arm.ResetPiper()
    assert wait_for(lambda: not any(arm.GetArmEnableStatus()))
    assert wait_for(lambda: angles(arm)[1] < before - 5_000)
    assert arm.GetArmStatus().arm_status.ctrl_mode == 0


def test_a_leader_gives_the_sdk_no_feedback(serve, sdk, wait_for):
    server = serve('sdk_leader', is_leader=True)
    arm = sdk(server.port, 'sdk_leader')
    assert wait_for(lambda: arm.GetArmJointCtrl().time_stamp > 0)
    assert arm.GetArmJointMsgs().time_stamp == 0
    assert arm.GetArmStatus().time_stamp == 0
    assert not arm.EnablePiper()


def test_silence_is_seen_by_the_sdk_and_ends(serve, sdk, clock, wait_for):
    server = serve('sdk_silence')
    arm = sdk(server.port, 'sdk_silence')
    assert wait_for(lambda: arm.GetArmJointMsgs().Hz > 0)
    faults = server.emulators['sdk_silence'].faults
    faults.inject(Fault(Kind.SILENCE), clock.mono_ns())
    assert wait_for(lambda: not arm.isOk())
    faults.clear()
    assert wait_for(arm.isOk)


def test_a_restarted_server_takes_the_same_port_and_the_sdk_reconnects(serve, sdk, wait_for):
    server = serve('sdk_restart')
    port = server.port
    arm = sdk(port, 'sdk_restart')
    assert wait_for(lambda: arm.GetArmJointMsgs().time_stamp > 0)
    server.stop()
    arm.DisconnectPort()
    again = serve('sdk_restart', port=port)
    assert again.port == port
    before = arm.GetArmJointMsgs().time_stamp
    arm.ConnectPort()
    assert wait_for(lambda: arm.GetArmJointMsgs().time_stamp > before)


def test_two_arms_on_one_port_do_not_mix(serve, sdk, wait_for):
    server = serve('sdk_left', 'sdk_right')
    left, right = sdk(server.port, 'sdk_left'), sdk(server.port, 'sdk_right')
    enable(left, wait_for)
    enable(right, wait_for)
    left.JointCtrl(20_000, 40_000, -40_000, 0, 0, 0)
    right.JointCtrl(-20_000, 60_000, -40_000, 0, 0, 0)
    assert wait_for(lambda: angles(left)[0] > 19_900)
    assert wait_for(lambda: angles(right)[0] < -19_900)
    assert angles(left)[0] > 19_900
    assert server.tap.counts('sdk_left')[0x155] == 1
    assert server.tap.counts('sdk_right')[0x155] == 1


# --- without the SDK -------------------------------------------------------------------------

def test_a_second_holds_about_3040_frames(serve, raw_client, clock):
    server = serve('can0')
    raw_client(server.port).enter()
    begin, begin_ns = server.stats(), clock.mono_ns()
    clock.sleep_until(begin_ns + 1_000_000_000)
    end, seconds = server.stats(), (clock.mono_ns() - begin_ns) / 1e9
    frames = end.frames_sent['can0'] - begin.frames_sent['can0']
    ticks = end.ticks - begin.ticks
    assert frames == pytest.approx(15.2 * ticks, abs=20)
    # A loaded machine may skip cycles, but each is either run or counted.
    assert ticks + end.missed_ticks - begin.missed_ticks == pytest.approx(200 * seconds, abs=3)


def test_garbage_does_not_hurt_the_other_clients(serve, raw_client, wait_for):
    server = serve('can0')
    good = raw_client(server.port).enter()
    bad = raw_client(server.port)
    bad.sock.sendall(b'\x00\xff<<<>>> GET / HTTP/1.1\r\n\r\n< send 155 8 1 > < rawmode >')
    bad.sock.sendall(b'x' * 100_000)
    assert wait_for(lambda: server.stats().malformed > 3)
    worse = raw_client(server.port).enter()
    worse.sock.sendall(b'< send 155 8 1 2 3 > < send FFFFFFFF 1 1 > < send 155 1 100 > < fly >')
    assert wait_for(lambda: server.stats().malformed > 7)
    assert len(good.frames(500)) >= 500
    assert server.is_running


def test_random_bytes_do_not_stop_the_server(serve, raw_client, wait_for):
    import random
    rng = random.Random(9)
    server = serve('can0')
    for _ in range(20):
        client = raw_client(server.port).enter()
        for _ in range(5):
            client.sock.sendall(rng.choice([b'< send 155 8 ', b'< open ', b'<', b'>']))
            client.sock.sendall(rng.randbytes(rng.randrange(200)) + b'>')
        client.sock.close()
    assert wait_for(lambda: server.stats().clients == 0)
    assert server.is_running
    assert raw_client(server.port).enter().frames(20)


def test_a_client_that_never_reads_slows_nobody(serve, raw_client, wait_for):
    server = serve('can0')
    raw_client(server.port, receive_bytes=4096).enter()
    good = raw_client(server.port).enter()
    assert wait_for(lambda: good.frames(200) and server.stats().dropped_writes > 20, 20.0)
    # A late cycle is late because of the machine; a blocking send would have lasted for ever.
    assert good.frames(200)


def test_an_unknown_channel_is_refused(serve, raw_client):
    client = raw_client(serve('can0').port)
    assert client.greeting == b'< hi >'
    assert client.ask(b'< open can7 >').startswith(b'< error')
    assert client.ask(b'< echo >') == b'< echo >'


def test_commands_of_a_raw_client_reach_the_arm(serve, raw_client, joint_target, wait_for):
    server = serve('can0')
    client = raw_client(server.port).enter()
    client.send(0x471, bytes([7, 2, 0, 0, 0, 0, 0, 0]))
    client.send(0x151, bytes([1, 1, 100, 0, 0, 0, 0, 0]))
    for can_id, data in joint_target.frames:
        client.send(can_id, data)
    firmware = server.emulators['can0'].firmware
    assert wait_for(lambda: not firmware.motion and firmware.control == 1 and all(
        firmware.powered))
    mdeg = [angle * 180_000 / 3.141592653589793 for angle in firmware.reading.joints_rad]
    assert mdeg == pytest.approx(joint_target.mdeg, abs=500)


def test_a_port_in_use_is_named(serve):
    port = serve('can0').port
    with pytest.raises(ConfigError, match=f'port {port} .*Stop what uses it'):
        serve('can0', port=port)


@pytest.mark.parametrize('channels', [{}, {'': None}, {'can 0': None}])
def test_channels_need_names_without_blanks(clock, channels):
    with pytest.raises(ConfigError, match='CAN server channels'):
        CanServer(channels, clock, port=0)


def test_a_server_that_is_not_started_has_no_port(clock, serve):
    server = serve('can0')
    server.stop()
    with pytest.raises(ConfigError, match='Start it'):
        _ = server.port
    server.start()
    assert server.is_running
    with pytest.raises(ConfigError, match='Stop it first'):
        server.start()


def test_stop_closes_every_connection(serve, raw_client, wait_for):
    server = serve('can0')
    port = server.port
    client = raw_client(port).enter()
    server.stop()

    def is_closed():
        try:
            return client.sock.recv(65536) == b''
        except ConnectionError:
            return True

    assert wait_for(is_closed)
    assert not server.is_running
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(('127.0.0.1', port))


def test_a_stalled_cycle_is_skipped_and_counted_not_caught_up(serve, clock, wait_for):
    stalls = iter([0] * 20 + [60_000_000])

    def stall(now_ns):
        clock.sleep_until(now_ns + next(stalls, 0))

    begin_ns = clock.mono_ns()
    server = serve('can0', before_tick=stall)
    assert wait_for(lambda: server.stats().ticks > 40)
    stats, elapsed_ns = server.stats(), clock.mono_ns() - begin_ns
    assert stats.missed_ticks >= 10
    assert stats.late_max_ns >= 50_000_000
    assert stats.ticks + stats.missed_ticks <= elapsed_ns // PERIOD_NS + 1


def test_a_failing_plant_stops_the_server_and_is_raised(clock):
    class Broken:
        """Fails on the third reading."""

        def __init__(self):
            self.readings = 0

        def command(self, joints_rad, gripper_m):
            del joints_rad, gripper_m

        def joint_state(self):
            import numpy as np
            self.readings += 1
            if self.readings > 2:
                raise RuntimeError('the plant broke')
            return np.zeros(7), np.zeros(7)

    server = CanServer({'can0': Emulator(Broken(), clock.mono_ns())}, clock, port=0)
    server.start()
    end_ns = clock.mono_ns() + 5_000_000_000
    while server.is_running and clock.mono_ns() < end_ns:
        clock.sleep_until(clock.mono_ns() + 5_000_000)
    with pytest.raises(RuntimeError, match='the plant broke'):
        server.close()


def test_the_tap_file_holds_what_the_socket_received(serve, raw_client, tmp_path, clock, wait_for):
    path = tmp_path / 'tap.bin'
    begin_ns = clock.mono_ns()
    server = serve('can0', tap_path=path)
    client = raw_client(server.port).enter()
    for n in range(10):
        client.send(0x155, bytes([n] * 8))
    assert wait_for(lambda: server.tap.counts('can0').get(0x155) == 10)
    server.close()
    head, records = read_tap(path)
    assert head['channels'] == ['can0']
    assert [bytes(data) for data in records['data']] == [bytes([n] * 8) for n in range(10)]
    assert (records['mono_ns'] >= begin_ns).all()
    assert server.stats().received == {'can0': {0x155: 10}}


# --- by hand ---------------------------------------------------------------------------------

def start_by_hand(*arguments):
    return subprocess.Popen(
        [sys.executable, '-m', 'reflex_ros.sim.can_server', *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_it_serves_by_hand_until_a_signal(raw_client, number):
    with start_by_hand('--port', '0', '--channel', 'left', '--channel', 'right') as process:
        head = json.loads(process.stdout.readline())
        assert head['channels'] == ['left', 'right']
        assert raw_client(head['port']).enter('right').frames(20)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert err == ''
    assert json.loads(out)['frames_sent']['left'] > 0


def test_a_wrong_fault_file_ends_with_the_exit_code_of_bad_input(tmp_path):
    path = tmp_path / 'faults.yaml'
    path.write_text('schema: 1\nfaults: [{kind: silense}]\n', encoding='utf-8')
    with start_by_hand('--port', '0', '--faults', str(path)) as process:
        out, err = process.communicate(timeout=20)
    assert process.returncode == EXIT_INPUT
    assert out == ''
    assert 'did you mean' in err
