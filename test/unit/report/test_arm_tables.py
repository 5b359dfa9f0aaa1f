"""The tables of docs/arm.md say what runs, and the shipped limits are the firmware's at most."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reflex_ros.arm.states import TRANSITIONS
from reflex_ros.core.params import PARAMS, load_yaml
from reflex_ros.core.types import ArmState, Cause
from reflex_ros.report import arm_tables

ROOT = Path(__file__).parents[3]
JOINT_LIMITS = ('lower_rad', 'upper_rad', 'velocity_rad_s', 'acceleration_rad_s2', 'jerk_rad_s3')


def above_firmware(params):
    """Return the limits of a parameter file that are above what the firmware can be set to."""
    velocity, acceleration = arm_tables.FIRMWARE_MAXIMA
    maxima = (('arm.velocity_rad_s', velocity), ('arm.acceleration_rad_s2', acceleration))
    return [f'{name} joint{i + 1}' for name, most in maxima
            for i, value in enumerate(params[name]) if value > most]


@pytest.fixture
def piper():
    return load_yaml(ROOT / 'config' / 'robots' / 'piper.yaml', 'controller_bridge')


def test_every_joint_has_every_limit(piper):
    for name in JOINT_LIMITS:
        assert len(piper[f'arm.{name}']) == 6, name
    assert all(piper[f'arm.gripper_{name}'] > 0 for name in (
        'max_m', 'velocity_m_s', 'acceleration_m_s2', 'jerk_m_s3'))


def test_no_limit_is_above_the_firmware_s(piper):
    assert above_firmware(piper) == []


def test_no_limit_is_above_the_firmware_s_can_fail(piper):
    faster = {**piper, 'arm.velocity_rad_s': (3.0, 3.1, 3.0, 3.0, 3.0, 3.0)}
    assert above_firmware(faster) == ['arm.velocity_rad_s joint2']


def test_the_state_table_holds_every_transition():
    head, *rows = arm_tables.states(ROOT)
    assert [row[0] for row in rows] == [f'`{state.value}`' for state in ArmState]
    assert all(len(row) == len(head) for row in rows)
    assert sum(cell != '' for row in rows for cell in row[1:-1]) == len(TRANSITIONS)


def test_the_watchdogs_name_parameters_that_exist():
    known = {spec.name for spec in PARAMS}
    named = {name for one in arm_tables.WATCHDOGS for name in re.findall(r'`([\w.]+)`', one.bound)}
    assert named and named <= known


def test_every_watched_cause_has_a_row():
    watched = {one.cause for one in arm_tables.WATCHDOGS}
    assert {Cause.ARM_FAULT, Cause.CAMERA_LATE, Cause.CAMERA_FROZEN, Cause.STATE_STALE,
            Cause.CHUNK_REJECTED, Cause.CLOCK, Cause.NODE_DEAD, Cause.TRACKING, Cause.TICK_LATE,
            Cause.PLAN_END} == watched
