"""Golden bytes of every frame, with the SDK's own encoder and decoder as second opinion."""

from __future__ import annotations

import dataclasses
import random

import can
import pytest
from piper_sdk.piper_msgs.msg_v2 import ArmMsgType as Type
from piper_sdk.piper_msgs.msg_v2 import PiperMessage
from piper_sdk.protocol.protocol_v2.piper_protocol_v2 import C_PiperParserV2

from reflex_ros.core.errors import LayoutError
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.can_codec import CanFrame, decode_command, decode_feedback, encode

# (message, id, data bytes grouped by field)
COMMANDS = [
    (codec.Motion(1), 0x150, '01 00 00 0000000000'),  # emergency stop
    (codec.Motion(2), 0x150, '02 00 00 0000000000'),  # resume: power cut
    (codec.Motion(0, 0, 2), 0x150, '00 00 02 0000000000'),  # end of teaching
    (codec.Mode(1, 1, 100), 0x151, '01 01 64 00 00 00 0000'),  # CAN, MOVE J, 100 %
    (codec.Mode(1, 4, 30, 0xAD, 5, 3), 0x151, '01 04 1e ad 05 03 0000'),
    (codec.PoseTarget(1, 56128, -1), 0x152, '0000db40 ffffffff'),  # x 56.128 mm, y
    (codec.PoseTarget(2, 213266, 0), 0x153, '00034112 00000000'),  # z, rx
    (codec.PoseTarget(3, 85000, -90000), 0x154, '00014c08 fffea070'),  # ry 85 deg, rz -90 deg
    (codec.JointTarget(1, 90000, 30000), 0x155, '00015f90 00007530'),  # 90 deg, 30 deg
    (codec.JointTarget(3, -40000, 0), 0x156, 'ffff63c0 00000000'),  # -40 deg, 0
    (codec.JointTarget(5, 1, -1), 0x157, '00000001 ffffffff'),  # one step up, one step down
    (codec.ArcPoint(2), 0x158, '02 00000000000000'),
    (codec.GripperTarget(30000, 1000, 1), 0x159, '00007530 03e8 01 00'),  # 30 mm, 1 N·m, on
    (codec.GripperTarget(0, 5000, 3, 0xAE), 0x159, '00000000 1388 03 ae'),  # on, clear, set zero
    (codec.MitTarget(1, 0x7FFF_7FF_051_666_7F_7), 0x15A, '7fff 7ff 051 666 7f 7'),
    (codec.Linkage(0xFA, 0x10, 0x20, 0), 0x470, 'fa 10 20 00 00000000'),  # leader
    (codec.Power(7, 2), 0x471, '07 02 000000000000'),  # all on
    (codec.Power(3, 1), 0x471, '03 01 000000000000'),  # joint 3 off
    (codec.LimitQuery(6, 1), 0x472, '06 01 000000000000'),  # angle and speed
    (codec.LimitQuery(1, 2), 0x472, '01 02 000000000000'),  # acceleration
    (codec.LimitSetting(2, 1800, -5, 0x7FFF), 0x474, '02 0708 fffb 7fff 00'),
    (codec.JointSetting(7, 0, 0, 0x7FFF, 0xAE), 0x475, '07 00 00 7fff ae 0000'),  # clear errors
    (codec.JointSetting(1, 0xAE, 0xAE, 500, 0), 0x475, '01 ae ae 01f4 00 0000'),
    (codec.ParameterQuery(4), 0x477, '04 00 00 00 00 000000'),
    (codec.ParameterQuery(0, 1, 2, 0xAE, 3), 0x477, '00 01 02 ae 03 000000'),
    (codec.EndSpeedSetting(500, 1000, 1, 65535), 0x479, '01f4 03e8 0001 ffff'),
    (codec.CrashSetting(bytes([1, 2, 3, 4, 5, 8])), 0x47A, '01 02 03 04 05 08 0000'),
    (codec.GripperSetting(100, 70, 1), 0x47D, '64 46 01 0000000000'),
    (codec.FirmwareQuery(), 0x4AF, '01 00000000000000'),
]
FEEDBACK = [
    (codec.Status(1, 7, 1, 0, 1, 0, 0b000010, 0b100000), 0x2A1, '01 07 01 00 01 00 02 20'),
    (codec.EndPose(1, 56128, -1), 0x2A2, '0000db40 ffffffff'),
    (codec.EndPose(2, 213266, 0), 0x2A3, '00034112 00000000'),
    (codec.EndPose(3, 85000, -90000), 0x2A4, '00014c08 fffea070'),
    (codec.JointAngles(1, 90000, 30000), 0x2A5, '00015f90 00007530'),
    (codec.JointAngles(3, -40000, 0), 0x2A6, 'ffff63c0 00000000'),
    (codec.JointAngles(5, 1, -1), 0x2A7, '00000001 ffffffff'),
    (codec.GripperState(30000, -1000, 0xC0), 0x2A8, '00007530 fc18 c0 00'),
    (codec.MotorState(1, -3000, 300, 7), 0x251, 'f448 012c 00000007'),  # -3 rad/s, 0.3 A
    (codec.MotorState(6, 3000, -300, -7), 0x256, '0bb8 fed4 fffffff9'),
    (codec.DriverState(1, 240, 35, -38, 0x40, 150), 0x261, '00f0 0023 da 40 0096'),
    (codec.DriverState(6, 240, -5, 38, 0x10, 0), 0x266, '00f0 fffb 26 10 0000'),
    (codec.AngleLimit(2, 1800, 0, 3000), 0x473, '02 0708 0000 0bb8 00'),  # 180 deg, 0, 3 rad/s
    (codec.AngleLimit(3, 0, -1700, 3000), 0x473, '03 0000 f95c 0bb8 00'),
    (codec.SettingAck(0x71), 0x476, '71 00 000000000000'),
    (codec.SettingAck(0x75, 1), 0x476, '75 01 000000000000'),
    (codec.EndSpeed(500, 1000, 1, 65535), 0x478, '01f4 03e8 0001 ffff'),
    (codec.CrashLevels(bytes([1, 2, 3, 4, 5, 8])), 0x47B, '01 02 03 04 05 08 0000'),
    (codec.AccelerationLimit(4, 500), 0x47C, '04 01f4 0000000000'),  # 5 rad/s²
    (codec.GripperParameters(100, 70, 1), 0x47E, '64 46 01 0000000000'),
    (codec.FirmwareText(b'S-V1.8-3'), 0x4AF, '532d56312e382d33'),
]
IDS = [f'{can_id:03X}-{type(message).__name__}' for message, can_id, _ in COMMANDS + FEEDBACK]


def frame_of(can_id, text):
    return CanFrame(can_id, bytes.fromhex(text.replace(' ', '')))


@pytest.mark.parametrize(('message', 'can_id', 'text'), COMMANDS + FEEDBACK, ids=IDS)
def test_every_message_has_its_golden_bytes(message, can_id, text):
    assert encode(message) == frame_of(can_id, text)


@pytest.mark.parametrize(('message', 'can_id', 'text'), COMMANDS)
def test_golden_bytes_decode_to_the_command(message, can_id, text):
    assert decode_command(*frame_of(can_id, text)) == message


@pytest.mark.parametrize(('message', 'can_id', 'text'), FEEDBACK)
def test_golden_bytes_decode_to_the_feedback(message, can_id, text):
    assert decode_feedback(*frame_of(can_id, text)) == message


def test_golden_bytes_cover_every_frame_class():
    covered = {type(message) for message, _, _ in COMMANDS + FEEDBACK}
    assert covered == set(codec.COMMANDS.values()) | set(codec.FEEDBACK.values())


def test_ids_of_one_direction_belong_to_one_class():
    for table, union in ((codec.COMMANDS, codec.Command), (codec.FEEDBACK, codec.Feedback)):
        assert len(table) == sum(len(kind.WIRE.ids) for kind in union.__args__)


def test_reserved_bytes_are_ignored_when_read():
    assert decode_command(0x471, bytes.fromhex('0702ffffffffffff')) == codec.Power(7, 2)


def test_unknown_ids_decode_to_none():
    assert decode_command(0x2A1, bytes(8)) is None
    assert decode_feedback(0x155, bytes(8)) is None
    assert decode_command(0x7FF, b'') is None


@pytest.mark.parametrize('length', [0, 7, 9])
def test_frames_that_are_not_eight_bytes_are_refused(length):
    with pytest.raises(LayoutError, match=f'0x155: got {length} data bytes, expected 8'):
        decode_command(0x155, bytes(length))


@pytest.mark.parametrize('message', [
    codec.JointTarget(1, 2**31, 0), codec.JointTarget(2, 0, 0), codec.Mode(1, 1, 256),
    codec.MotorState(7, 0, 0, 0), codec.Mode(1, 1, -1),
])
def test_values_that_do_not_fit_are_refused(message):
    with pytest.raises(LayoutError, match=type(message).__name__):
        encode(message)


def test_random_feedback_survives_encoding_and_decoding():
    rng = random.Random(3)
    for _ in range(300):
        can_id = rng.choice(list(codec.FEEDBACK))
        message = decode_feedback(can_id, rng.randbytes(8))
        frame = encode(message)
        assert frame.can_id == can_id
        assert decode_feedback(*frame) == message


# --- the SDK as oracle -----------------------------------------------------------------------

def sdk_encode(kind, part=None, **values):
    message = PiperMessage()
    message.type_ = kind
    target = getattr(message, part) if part else message
    for name, value in values.items():
        assert hasattr(target, name), name
        setattr(target, name, value)
    out = can.Message()
    assert C_PiperParserV2().EncodeMessage(message, out)
    return CanFrame(out.arbitration_id, bytes(out.data))


def sdk_decode(message):
    frame = encode(message)
    out = PiperMessage()
    received = can.Message(arbitration_id=frame.can_id, data=frame.data, is_extended_id=False)
    assert C_PiperParserV2().DecodeMessage(received, out)
    return out


J = 'arm_joint_ctrl'
SDK_COMMANDS = [
    (codec.Motion(1, 0, 2), Type.PiperMsgMotionCtrl_1, 'arm_motion_ctrl_1',
     {'emergency_stop': 1, 'track_ctrl': 0, 'grag_teach_ctrl': 2}),
    (codec.Mode(1, 1, 55, 0xAD, 5, 2), Type.PiperMsgMotionCtrl_2, 'arm_motion_ctrl_2',
     {'ctrl_mode': 1, 'move_mode': 1, 'move_spd_rate_ctrl': 55, 'mit_mode': 0xAD,
      'residence_time': 5, 'installation_pos': 2}),
    (codec.PoseTarget(1, -5, 6), Type.PiperMsgMotionCtrlCartesian_1, 'arm_motion_ctrl_cartesian',
     {'X_axis': -5, 'Y_axis': 6}),
    (codec.PoseTarget(2, 7, -8), Type.PiperMsgMotionCtrlCartesian_2, 'arm_motion_ctrl_cartesian',
     {'Z_axis': 7, 'RX_axis': -8}),
    (codec.PoseTarget(3, -9, 1), Type.PiperMsgMotionCtrlCartesian_3, 'arm_motion_ctrl_cartesian',
     {'RY_axis': -9, 'RZ_axis': 1}),
    (codec.JointTarget(1, -150000, 180000), Type.PiperMsgJointCtrl_12, J,
     {'joint_1': -150000, 'joint_2': 180000}),
    (codec.JointTarget(3, -170000, 100000), Type.PiperMsgJointCtrl_34, J,
     {'joint_3': -170000, 'joint_4': 100000}),
    (codec.JointTarget(5, 70000, -120000), Type.PiperMsgJointCtrl_56, J,
     {'joint_5': 70000, 'joint_6': -120000}),
    (codec.ArcPoint(3), Type.PiperMsgCircularPatternCoordNumUpdateCtrl, 'arm_circular_ctrl',
     {'instruction_num': 3}),
    (codec.GripperTarget(65000, 1500, 3, 0xAE), Type.PiperMsgGripperCtrl, 'arm_gripper_ctrl',
     {'grippers_angle': 65000, 'grippers_effort': 1500, 'status_code': 3, 'set_zero': 0xAE}),
    (codec.Linkage(0xFC, 0x10, 0x20, 0x20), Type.PiperMsgMasterSlaveModeConfig, 'arm_ms_config',
     {'linkage_config': 0xFC, 'feedback_offset': 0x10, 'ctrl_offset': 0x20,
      'linkage_offset': 0x20}),
    (codec.Power(6, 2), Type.PiperMsgMotorEnableDisableConfig, 'arm_motor_enable',
     {'motor_num': 6, 'enable_flag': 2}),
    (codec.LimitQuery(5, 2), Type.PiperMsgSearchMotorMaxAngleSpdAccLimit,
     'arm_search_motor_max_angle_spd_acc_limit', {'motor_num': 5, 'search_content': 2}),
    (codec.LimitSetting(4, 1000, -1000, 2500), Type.PiperMsgMotorAngleLimitMaxSpdSet,
     'arm_motor_angle_limit_max_spd_set',
     {'motor_num': 4, 'max_angle_limit': 1000, 'min_angle_limit': -1000, 'max_joint_spd': 2500}),
    (codec.JointSetting(7, 0, 0xAE, 400, 0xAE), Type.PiperMsgJointConfig, 'arm_joint_config',
     {'joint_motor_num': 7, 'set_motor_current_pos_as_zero': 0,
      'acc_param_config_is_effective_or_not': 0xAE, 'max_joint_acc': 400,
      'clear_joint_err': 0xAE}),
    (codec.ParameterQuery(2, 0, 0, 0xAE, 1), Type.PiperMsgParamEnquiryAndConfig,
     'arm_param_enquiry_and_config',
     {'param_enquiry': 2, 'param_setting': 0, 'data_feedback_0x48x': 0,
      'end_load_param_setting_effective': 0xAE, 'set_end_load': 1}),
    (codec.EndSpeedSetting(1, 2, 3, 4), Type.PiperMsgEndVelAccParamConfig,
     'arm_end_vel_acc_param_config',
     {'end_max_linear_vel': 1, 'end_max_angular_vel': 2, 'end_max_linear_acc': 3,
      'end_max_angular_acc': 4}),
    (codec.CrashSetting(bytes([1, 2, 3, 4, 5, 6])), Type.PiperMsgCrashProtectionRatingConfig,
     'arm_crash_protection_rating_config',
     {f'joint_{n}_protection_level': n for n in range(1, 7)}),
    (codec.GripperSetting(150, 100, 4), Type.PiperMsgGripperTeachingPendantParamConfig,
     'arm_gripper_teaching_param_config',
     {'teaching_range_per': 150, 'max_range_config': 100, 'teaching_friction': 4}),
]


@pytest.mark.parametrize(('message', 'kind', 'part', 'values'), SDK_COMMANDS)
def test_the_sdk_encodes_the_same_command(message, kind, part, values):
    frame = sdk_encode(kind, part, **values)
    assert encode(message) == frame
    assert decode_command(*frame) == message


def test_the_sdk_encodes_the_same_torque_target():
    frame = sdk_encode(Type.PiperMsgJointMitCtrl_3, 'arm_joint_mit_ctrl',
                       pos_ref=0x8123, vel_ref=0x7AB, kp=0x051, kd=0x666, t_ref=0x7F)
    message = decode_command(*frame)
    assert message.joint == 3
    assert message.fields == (0x8123, 0x7AB, 0x051, 0x666, 0x7F)
    assert message.is_intact
    assert not dataclasses.replace(message, word=message.word ^ 1 << 16).is_intact
    assert encode(message) == frame


def test_the_sdk_reads_status_and_errors_as_meant():
    got = sdk_decode(codec.Status(1, 7, 1, 0, 1, 0, 0b000010, 0b100000)).arm_status_msgs
    assert (got.ctrl_mode.value, got.arm_status.value, got.motion_status.value) == (1, 7, 1)
    assert got.err_status.joint_2_angle_limit
    assert got.err_status.communication_status_joint_6
    assert got.err_code == 0x0220


def test_the_sdk_reads_poses_and_angles_as_meant():
    assert sdk_decode(codec.JointAngles(3, -40000, 5)).arm_joint_feedback.joint_3 == -40000
    assert sdk_decode(codec.JointAngles(5, -1, 5)).arm_joint_feedback.joint_6 == 5
    assert sdk_decode(codec.EndPose(2, 213266, -3)).arm_end_pose.RX_axis == -3
    gripper = sdk_decode(codec.GripperState(30000, -1000, 0x40)).gripper_feedback
    assert (gripper.grippers_angle, gripper.grippers_effort) == (30000, -1000)
    assert gripper.foc_status.driver_enable_status


@pytest.mark.parametrize('joint', range(1, 7))
def test_the_sdk_reads_motors_and_drivers_as_meant(joint):
    motor = sdk_decode(codec.MotorState(joint, -3000, 300, 7))
    got = getattr(motor, f'arm_high_spd_feedback_{joint}')
    assert (got.motor_speed, got.current, got.pos) == (-3000, 300, 7)
    driver = sdk_decode(codec.DriverState(joint, 240, 35, -38, 0x50, 150))
    got = getattr(driver, f'arm_low_spd_feedback_{joint}')
    assert (got.vol, got.foc_temp, got.motor_temp, got.bus_current) == (240, 35, -38, 150)
    assert got.foc_status.driver_enable_status
    assert got.foc_status.collision_status


def test_the_sdk_reads_answers_as_meant():
    limit = sdk_decode(codec.AngleLimit(2, 1800, -5, 3000))
    limit = limit.arm_feedback_current_motor_angle_limit_max_spd
    assert (limit.motor_num, limit.max_angle_limit, limit.min_angle_limit,
            limit.max_joint_spd) == (2, 1800, -5, 3000)
    bound = sdk_decode(codec.AccelerationLimit(4, 500)).arm_feedback_current_motor_max_acc_limit
    assert (bound.joint_motor_num, bound.max_joint_acc) == (4, 500)
    gripper = sdk_decode(codec.GripperParameters(100, 70, 1)).arm_gripper_teaching_param_feedback
    assert (gripper.max_range_config, gripper.teaching_friction) == (70, 1)
    ack = sdk_decode(codec.SettingAck(0x75, 1)).arm_feedback_resp_set_instruction
    assert (ack.instruction_index, ack.is_set_zero_successfully) == (0x75, 1)
    speed = sdk_decode(codec.EndSpeed(1, 2, 3, 4)).arm_feedback_current_end_vel_acc_param
    assert (speed.end_max_linear_vel, speed.end_max_angular_acc) == (1, 4)
    crash = sdk_decode(codec.CrashLevels(bytes(range(1, 7))))
    assert crash.arm_crash_protection_rating_feedback.joint_6_protection_level == 6
    text = sdk_decode(codec.FirmwareText(b'S-V1.8-3')).firmware_data
    assert bytes(text) == b'S-V1.8-3'
