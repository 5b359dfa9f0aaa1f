"""What the driver sees on its own."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from reflex_ros.arm import health, wire
from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.faults import FAULTS, REFUSALS, explain
from reflex_ros.arm.health import Health
from reflex_ros.core.clock import MS, S


def judge(view, now_ns, *, is_open=True, failures=0, short=0, has_control=True):
    counts = SimpleNamespace(failed_in_a_row=failures, short_in_a_row=short)
    gate = SimpleNamespace(counts=counts)
    judged = Health(DriverConfig(), link=SimpleNamespace(is_open=is_open), gate=gate)
    return judged.faults(view, now_ns, has_control=has_control)


def test_healthy_arm_has_no_fault(healthy, now_ns):
    assert judge(healthy(), now_ns) == ()


def test_feedback_is_lost_after_a_hundred_milliseconds_and_not_before(healthy, now_ns):
    assert judge(healthy(), now_ns + 100 * MS) == ()
    assert judge(healthy(), now_ns + 101 * MS) == ('feedback_lost',)


@pytest.mark.parametrize('change', [
    {'status_ns': 99 * S}, {'gripper_ns': 99 * S},
    {'motors_ns': (99 * S,) + (100 * S,) * 5}, {'drivers_ns': (99 * S,) + (100 * S,) * 5},
])
def test_silent_status_is_a_fault_although_joints_speak(healthy, now_ns, change):
    assert judge(healthy(**change), now_ns) == ('status_lost',)


def test_bus_and_commander_faults(healthy, now_ns):
    assert judge(healthy(), now_ns, is_open=False) == ('bus_lost',)
    assert judge(healthy(), now_ns, failures=5) == ('send_failed',)
    assert judge(healthy(), now_ns, short=4) == ()
    assert judge(healthy(), now_ns, short=5) == ('send_failed',), 'one frame of each is missing'
    assert judge(healthy(foreign_ns=now_ns), now_ns) == ('foreign_commander',)
    assert judge(healthy(leader_ns=now_ns), now_ns) == ('leader_mode',)


def test_lost_control_counts_only_while_we_have_it(healthy, now_ns):
    off = wire.DriverState(24.0, 35, 38, 0x00)
    on = wire.DriverState(24.0, 35, 38, 0x40)
    view = healthy(drivers=(on, on, off, on, on, on), status=wire.Status(2, 0, 1, 0, 0, 0, 0))
    assert judge(view, now_ns) == ('joint3_disabled', 'control_mode_lost')
    assert judge(view, now_ns, has_control=False) == ()


def test_a_gripper_that_lost_power_or_zero_is_a_fault_while_we_have_control(healthy, now_ns):
    view = healthy(gripper_lost=wire.ENABLED_BIT)
    assert judge(view, now_ns) == ('gripper_disabled',)
    assert judge(healthy(gripper_lost=wire.HOMED_BIT), now_ns) == ('gripper_zero_lost',)
    assert judge(view, now_ns, has_control=False) == ()


def test_every_fault_that_can_occur_is_explained(healthy, now_ns):
    every = wire.DriverState(24.0, 35, 38, 0xBF)
    for code in range(1, 32):
        view = healthy(drivers=(every,) * 6, gripper=wire.GripperState(0.0, 0.0, 0x3F),
                       status=wire.Status(2, code, 1, 0, 0, 0x3F, 0x3F),
                       foreign_ns=now_ns, leader_ns=now_ns, status_ns=1, gripper_lost=0xC0)
        for fault in judge(view, now_ns, is_open=False, failures=9):
            text = explain(fault)
            assert text.startswith(fault + ': ') and text.endswith('.')
    assert explain('no_such_code') == 'no_such_code'


def test_every_listed_fault_says_what_to_do():
    assert all(f.meaning.endswith('.') and f.what_to_do.endswith('.') for f in FAULTS.values())


def test_every_code_that_is_raised_is_listed():
    raised = set()
    for path in Path(health.__file__).parent.glob('*.py'):
        text = path.read_text()
        raised |= set(re.findall(r"code='(\w+)'", text))
        raised |= set(re.findall(r"'(can_\w+|limits_\w+|pose_\w+)'\)?$", text, re.MULTILINE))
    assert len(raised) > 20
    assert not raised - set(FAULTS) - set(REFUSALS)
