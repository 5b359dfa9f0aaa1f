"""What an arm says of itself, planted at an emulated one."""

from __future__ import annotations

import pytest

from reflex_ros.arm import checks
from reflex_ros.arm.config import DriverConfig
from reflex_ros.core.errors import ArmError
from reflex_ros.doctor.arm import is_recommended
from reflex_ros.doctor.arm_sample import QUERY_IDS, ArmSample
from reflex_ros.doctor.context import Choices
from reflex_ros.sim.faults import Fault, Kind


@pytest.fixture
def visit(machine, emulate, tools):
    """Return ``visit(check, *faults, **emulator_config) -> findings``."""
    def make(check, *faults, asks=True, **config):
        sample = emulate(*faults, asks=asks, **config)
        context = machine(arm=lambda *arguments: sample)
        return [finding for _, finding in tools.look(context, check)]

    return make


def worst(findings):
    return max((f.level.value for f in findings), key=('skip', 'ok', 'warn', 'fail').index)


def test_a_healthy_arm_says_what_it_is(visit):
    feedback, = visit('arm-feedback')
    assert feedback.value.startswith('17 ids; 200 Hz: 200 to 200')
    assert feedback.measured['rates_hz']['0x2A5'] == pytest.approx(200, abs=5)
    assert feedback.measured['rates_hz']['0x261'] == pytest.approx(40, abs=3)
    status, = visit('arm-status')
    assert status.value == 'standby, no fault, 0 of 7 motors powered, pose in range'
    firmware, = visit('arm-firmware')
    assert firmware.level.value == 'ok' and firmware.measured['firmware'] == 'S-V1.8-9'
    limits = visit('arm-limits')
    assert [f.subject for f in limits] == [*(f'joint{i}' for i in range(1, 7)), 'gripper']
    assert {f.level.value for f in limits} == {'ok'}


@pytest.mark.parametrize(('check', 'fault', 'level', 'value', 'remedy'), [
    ('arm-feedback', Fault(Kind.DROP, ids=(0x263,)), 'fail', '0x263', 'Check the cable'),
    ('arm-feedback', Fault(Kind.DROP, ids=(0x2A8,), probability=0.3), 'warn', 'slow: 0x2A8',
     'Relieve the computer'),
    ('arm-status', Fault(Kind.ESTOP), 'fail', 'arm_estop', 'recover'),
    ('arm-status', Fault(Kind.TEACH_MODE), 'fail', '2 (teach)', 'End teach mode'),
    ('arm-status', Fault(Kind.SECOND_COMMANDER, period_s=0.02), 'fail', 'another sender', ''),
    ('arm-status', Fault(Kind.DRIVER_FLAGS, joints=(2,), flags=('driver_hot',)), 'fail',
     'joint2_driver_hot', 'cool'),
    ('arm-firmware', Fault(Kind.FIRMWARE, version='S-V1.6-3'), 'fail', 'S-V1.6-3',
     'Update it with the vendor tool'),
    ('arm-firmware', Fault(Kind.FIRMWARE, version='S-V1.8-7'), 'warn', 'older than S-V1.8-9',
     'Plan an update'),
    ('arm-firmware', Fault(Kind.FIRMWARE, version='nothing'), 'fail', 'no answer',
     'Power the arm off and on'),
])
def test_a_fault_has_verdict_value_and_remedy(visit, check, fault, level, value, remedy):
    finding, = visit(check, fault)
    assert finding.level.value == level
    assert value in finding.value and remedy in finding.remedy


@pytest.mark.parametrize(('check', 'silent'), [
    ('arm-feedback', {'is_leader': True}), ('arm-status', {'is_leader': True})])
def test_an_arm_in_leader_mode_is_named_once(visit, check, silent):
    finding, = visit(check, **silent)
    assert finding.level.value == ('fail' if check == 'arm-feedback' else 'skip')
    assert check != 'arm-feedback' or 'leader' in finding.value


def test_limits_are_judged_joint_by_joint(visit):
    fault = Fault(Kind.WRONG_LIMITS, joints=(3,), lower_deg=-90.0)
    found = {f.subject: f for f in visit('arm-limits', fault)}
    assert [name for name, f in found.items() if f.level.value != 'ok'] == ['joint3']
    assert found['joint3'].level.value == 'warn'
    assert 'arm -1.571 to 0.000 rad' in found['joint3'].value
    assert 'lower end -2.967' in found['joint3'].value
    assert 'arm.lower_rad' in found['joint3'].remedy
    assert found['joint3'].measured['lower_rad'] == pytest.approx(-1.5708, abs=1e-3)


@pytest.mark.parametrize(('fault', 'value'), [
    (Fault(Kind.WRONG_LIMITS, joints=(5,), lower_deg=-0.1, upper_deg=0.1), 'joint5'),
    (Fault(Kind.WRONG_LIMITS, joints=(4,), lower_deg=150.0, upper_deg=170.0), 'joint4'),
    (Fault(Kind.WRONG_LIMITS, joints=(1,), speed_rad_s=0.0), 'top speed 0'),
    (Fault(Kind.WRONG_LIMITS, joints=(6,), acceleration_rad_s2=0.0), 'top acceleration 0'),
    (Fault(Kind.DROP, ids=(0x473,)), 'no answer'),
    (Fault(Kind.WRONG_LIMITS, gripper_range_mm=0), 'gripper range'),
])
def test_limits_that_the_driver_refuses_are_failures(visit, fault, value):
    failed = [f for f in visit('arm-limits', fault) if f.level.value == 'fail']
    assert failed and any(value in f.value for f in failed)
    assert all(f.remedy for f in failed)


@pytest.mark.parametrize('fault', [
    None, Fault(Kind.WRONG_LIMITS, joints=(2,), lower_deg=10.0),
    Fault(Kind.WRONG_LIMITS, joints=(5,), lower_deg=-0.1, upper_deg=0.1),
    Fault(Kind.WRONG_LIMITS, joints=(2, 4), speed_rad_s=11.0),
])
def test_a_joint_fails_exactly_if_the_driver_refuses(visit, emulate, fault):
    faults = () if fault is None else (fault,)
    config = DriverConfig()
    try:
        checks.arm_limits(emulate(*faults).view, config.own_limits, gripper_max_m=0.07)
        is_refused = False
    except ArmError:
        is_refused = True
    assert (worst(visit('arm-limits', *faults)) == 'fail') == is_refused


def test_a_narrow_gripper_is_a_warning(visit, machine, emulate, tools):
    sample = emulate()
    wide = Choices((DriverConfig(gripper_max_m=0.1),), tools.params())
    context = machine(arm=lambda *arguments: sample, choices=wide)
    finding = tools.look(context, 'arm-limits')[-1][1]
    assert finding.level.value == 'warn' and 'arm.gripper_max_m: 0.070' in finding.remedy


@pytest.mark.parametrize(('code', 'level'), [
    ('can_interface_missing', 'fail'), ('bus_lost', 'fail'), ('channel_in_use', 'skip')])
def test_an_arm_that_cannot_be_heard_is_named_once(machine, tools, code, level):
    error = ArmError('CAN bus can0: got trouble, expected none. Do this.', code=code)
    context = machine(arm=lambda *arguments: ArmSample(error=error))
    found = tools.levels(context, 'arm')
    assert found == {'arm-feedback': level, 'arm-status': 'skip', 'arm-firmware': 'skip',
                     'arm-limits': 'skip'}


def test_listening_only_asks_nothing_and_says_so(machine, tools, emulate):
    choices = Choices((DriverConfig(),), tools.params(), asks_arm=False)
    asked = []

    def listen(config, seconds, asks):
        asked.append(asks)
        return emulate(asks=asks)

    context = machine(arm=listen, choices=choices)
    found = dict(tools.look(context, 'arm'))
    assert asked == [False]
    assert found['arm-firmware'].value == 'not asked: --listen-only'
    assert found['arm-feedback'].level.value == 'ok'


def test_an_arm_is_listened_to_once_for_all_its_checks(machine, tools, healthy_arm):
    calls = []
    context = machine(arm=lambda *arguments: calls.append(arguments) or healthy_arm)
    tools.look(context, 'arm')
    assert len(calls) == 1


def test_the_driver_is_asked_with_questions_only():
    assert {hex(i) for i in QUERY_IDS} == {'0x4af', '0x472', '0x477'}


@pytest.mark.parametrize(('version', 'expected'), [
    ('S-V1.8-9', True), ('S-V1.9-0', True), ('S-V1.8-8', False), ('', False)])
def test_recommended_firmware(version, expected):
    assert is_recommended(version) is expected
