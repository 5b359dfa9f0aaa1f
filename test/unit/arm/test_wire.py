"""Golden bytes of every frame the driver writes or reads, written by hand from the protocol."""

from __future__ import annotations

import math

import pytest

from reflex_ros.arm import wire


def h(text: str) -> bytes:
    return bytes.fromhex(text)


SENT = {
    # ctrl 01 = CAN, move 01 = MOVE J, speed 0x1E = 30 %, 00 = position-velocity, rest unchanged
    'mode': (wire.mode_frame(30), 0x151, '01 01 1E 00 00 00 00 00'),
    # joint 3, 02 = on
    'power_on': (wire.power_frame(3, wire.POWER_ON), 0x471, '03 02 00 00 00 00 00 00'),
    # 07 = all and the gripper, 01 = off
    'power_off': (wire.power_frame(7, wire.POWER_OFF), 0x471, '07 01 00 00 00 00 00 00'),
    # 35.000 mm = 35000 um = 0x000088B8, 1.000 N m = 0x03E8, 01 = on, 00 = no zeroing
    'gripper': (wire.gripper_frame(35000, 1000, 1), 0x159, '00 00 88 B8 03 E8 01 00'),
    # 07 = all, no zero, acceleration not set (7FFF = keep), AE = clear errors
    'clear': (wire.clear_error_frame(), 0x475, '07 00 00 7F FF AE 00 00'),
    # 02 = resume, which cuts the power
    'reset': (wire.reset_frame(), 0x150, '02 00 00 00 00 00 00 00'),
    # joint 6, 01 = range and speed; 02 = acceleration
    'angle': (wire.limit_query_frame(6, 1), 0x472, '06 01 00 00 00 00 00 00'),
    'acceleration': (wire.limit_query_frame(1, 2), 0x472, '01 02 00 00 00 00 00 00'),
    # 04 = gripper parameters, 00 = set nothing, 03 = load: none given
    'gripper_query': (wire.gripper_query_frame(), 0x477, '04 00 00 00 03 00 00 00'),
    'firmware': (wire.firmware_query_frame(), 0x4AF, '01 00 00 00 00 00 00 00'),
}


@pytest.mark.parametrize('name', SENT)
def test_sent_frame_has_golden_bytes(name):
    frame, can_id, data = SENT[name]
    assert frame == (can_id, h(data))
    assert not wire.is_forbidden(frame)


def test_joint_frames_carry_two_angles_each_in_two_s_complement():
    frames = wire.joint_frames([1000, 30000, -40000, -1, 0, 120000])
    assert frames == (
        (0x155, h('00 00 03 E8 00 00 75 30')),  # 1.000 deg, 30.000 deg
        (0x156, h('FF FF 63 C0 FF FF FF FF')),  # -40.000 deg, -0.001 deg
        (0x157, h('00 00 00 00 00 01 D4 C0')),  # 0, 120.000 deg
    )


FORBIDDEN = {
    'zero_joints': (0x475, '07 AE 00 7F FF 00 00 00'),
    'set_acceleration': (0x475, '01 00 AE 01 F4 00 00 00'),
    'zero_gripper': (0x159, '00 00 00 00 03 E8 00 AE'),
    'angle_limits': (0x474, '01 05 DC FA 24 0B B8 00'),
    'leader': (0x470, 'FA 00 00 00 00 00 00 00'),
    'factory_limits': (0x477, '00 02 00 00 03 00 00 00'),
    'cyclic_48x': (0x477, '04 00 01 00 03 00 00 00'),
    'load': (0x477, '04 00 00 AE 01 00 00 00'),
    'end_speed': (0x479, '00 00 00 00 00 00 00 00'),
    'crash': (0x47A, '00 00 00 00 00 00 00 00'),
    'gripper_range': (0x47D, '64 46 01 00 00 00 00 00'),
    'leader_home': (0x191, '01 00 00 00 00 00 00 00'),
    'update': (0x422, '00 00 00 00 00 00 00 00'),
    'mit': (0x15A, '7F FF 7F F0 00 00 08 00'),
    'end_pose': (0x152, '00 00 DB 40 00 00 00 00'),
    'follow_mode': (0x151, '01 01 64 AD 00 00 00 00'),
    'linear_mode': (0x151, '01 02 64 00 00 00 00 00'),
    'teach': (0x150, '00 00 01 00 00 00 00 00'),
}


@pytest.mark.parametrize('name', FORBIDDEN)
def test_persistent_or_unwanted_frame_is_forbidden(name):
    can_id, data = FORBIDDEN[name]
    assert wire.is_forbidden(wire.Frame(can_id, h(data)))


def test_received_frames_decode_to_physical_units():
    # mode 1, status 4, move 1, teach 0, motion 1, point 0, joint 2 at its limit, joint 6 silent
    assert wire.decode_status(h('01 04 01 00 01 00 02 20')) == (1, 4, 1, 0, 1, 2, 32)
    assert wire.decode_pair(h('FF FF 63 C0 00 00 75 30')) == (-40000, 30000)
    gripper = wire.decode_gripper(h('00 00 88 B8 FC 18 40 00'))  # 35 mm, -1000 mN m, on
    assert gripper == pytest.approx((0.035, -1.0, 0x40))
    motor = wire.decode_motor(h('FE 0C 01 2C 00 00 00 00'))  # -500 mrad/s, 300 mA
    assert motor == pytest.approx((-0.5, 0.3))
    driver = wire.decode_driver(h('00 F0 00 23 F6 60 00 96'))  # 24.0 V, 35 C, -10 C, on + error
    assert driver == pytest.approx((24.0, 35, -10, 0x60))
    limit = wire.decode_angle_limit(h('03 00 00 F9 5C 0B B8 00'))  # 0.0, -170.0 deg, 3 rad/s
    assert limit == pytest.approx((3, math.radians(-170), 0.0, 3.0))
    rate = wire.decode_acceleration_limit(h('06 01 F4 00 00 00 00 00'))  # 500 = 5 rad/s^2
    assert rate == pytest.approx((6, 5.0))
    assert wire.decode_gripper_range(h('64 46 01 00 00 00 00 00')) == pytest.approx(0.07)


def test_angles_survive_the_round_trip_within_half_a_unit():
    for angle in (-2.6179, -1e-6, 0.0, 0.5, 3.14):
        back = wire.mdeg_to_rad(wire.rad_to_mdeg(angle))
        assert abs(back - angle) <= math.radians(0.0005) + 1e-12
    assert wire.rad_to_mdeg(math.pi) == 180_000
    assert type(wire.rad_to_mdeg(0.5)) is int and type(wire.m_to_um(0.05)) is int
    assert wire.m_to_um(-1e-9) == 0


@pytest.mark.parametrize(('text', 'version'), [
    (b'H-V1.2-1S-V1.8-320260101', 'S-V1.8-3'),
    (b'S-V1.8', ''),
    (b'', ''),
    (b'S-Vx.y-z', ''),
])
def test_firmware_is_found_in_what_the_arm_sends(text, version):
    assert wire.firmware_in(text) == version


def test_firmware_versions_compare_as_numbers():
    keys = [wire.firmware_key(v) for v in ('S-V1.6-3', '1.7-3', 'S-V1.8-2', '1.8-10')]
    assert keys == sorted(keys) and None not in keys
    assert wire.firmware_key('latest') is None


def test_old_firmware_scales_only_the_first_three_torques():
    assert wire.torque_nm(1, 1.0, is_old_scale=True) == pytest.approx(4.725)
    assert wire.torque_nm(4, 1.0, is_old_scale=True) == pytest.approx(0.95844)
    assert wire.torque_nm(1, 1.0, is_old_scale=False) == pytest.approx(1.18125)
