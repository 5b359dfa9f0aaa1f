"""Definitions, core types and documentation of the messages say the same."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum

import pytest

from reflex_ros.core import types

PUBLISHED = [
    'ActionChunk', 'ChunkTrace', 'ControlTick', 'KvBlock', 'Plan', 'SimTruth', 'StageStatus',
    'StallEvent', 'Task',
]  # fmt: skip
PARTS = ('CameraStatus', 'NamedPose', 'SimEvent', 'SlotRef', 'StageTime')
MESSAGES = sorted([*PUBLISHED, *PARTS])
CONSTANTS = {
    'STATE_SOURCE': types.StateSource,
    'STITCH': types.Stitch,
    'ENTRY': types.Entry,
    'ARM_STATE': types.ArmState,
    'FATE': types.Fate,
    'REASON': types.RejectReason,
    'VERDICT': types.Verdict,
    'CAUSE': types.Cause,
}

# Core fields whose name in the message is another one. A stamp ``x_stamp_ns`` becomes ``x_stamp``
# and an instant ``x_ns`` in ROS time becomes ``x``; both are found by rule.
RENAMED = {
    ('*', 'stamp_ns'): 'header',
    ('ActionChunk', 'observation_stamp_ns'): 'header',
    ('ActionChunk', 'inference_start_stamp_ns'): 'inference_start',
    ('ActionChunk', 'joint_names'): 'trajectory',
    ('ActionChunk', 'positions'): 'trajectory',
    ('Plan', 'joint_names'): 'trajectory',
    ('Plan', 'setpoint_stamps_ns'): 'trajectory',
    ('Plan', 'setpoints'): 'trajectory',
}
WITHOUT_CORE_FIELD = {'schema_version', 'has_pinned'}


def definition_lines(root, name):
    folder = 'srv' if (root / 'reflex_msgs' / 'srv' / f'{name}.srv').exists() else 'msg'
    path = root / 'reflex_msgs' / folder / f'{name}.{folder}'
    return path.read_text(encoding='utf-8').splitlines()


def fields_of(lines):
    """Return name → type of every field, constants left out."""
    pattern = re.compile(r'^([A-Za-z_/0-9]+(?:\[\])?) ([a-z][a-z0-9_]*)\b')
    found = (pattern.match(line) for line in lines)
    return {match[2]: match[1] for match in found if match}


def constants_of(lines):
    found = (re.match(r'^string ([A-Z_]+)="(.*)"$', line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def uncommented(lines):
    """Return the fields without a comment right above or on their line."""
    bad, commented = [], False
    for line in lines:
        is_field = bool(line) and not line.startswith('#') and line != '---' and '=' not in line
        if is_field and not commented and '#' not in line:
            bad.append(line)
        commented = line.startswith('#')
    return bad


def name_in_message(core_type, field, fields):
    key = (core_type, field) if (core_type, field) in RENAMED else ('*', field)
    candidates = (RENAMED.get(key), field, field.removesuffix('_ns'))
    return next((name for name in candidates if name in fields), None)


@pytest.mark.parametrize('name', [*MESSAGES, 'Hold', 'Recover', 'Resume', 'SetInstruction'])
def test_every_field_is_commented(root, name):
    assert uncommented(definition_lines(root, name)) == []


def test_a_field_without_a_comment_can_fail():
    assert uncommented(['# Right.', 'uint8 a', 'uint8 b']) == ['uint8 b']


def test_the_list_of_messages_is_complete(root):
    found = sorted(path.stem for path in (root / 'reflex_msgs' / 'msg').glob('*.msg'))
    text = (root / 'reflex_msgs' / 'CMakeLists.txt').read_text(encoding='utf-8')
    assert found == MESSAGES == sorted(re.findall(r'msg/(\w+)\.msg', text))


@pytest.mark.parametrize('name', PUBLISHED)
def test_header_number_and_schema_come_first(root, name):
    fields = fields_of(definition_lines(root, name))
    assert list(fields.items())[:3] == [
        ('header', 'std_msgs/Header'),
        ('number', 'uint64'),
        ('schema_version', 'uint16'),
    ]


@pytest.mark.parametrize('name', [name for name in MESSAGES if hasattr(types, name)])
def test_every_core_field_has_a_message_field_and_the_reverse(root, name):
    fields = fields_of(definition_lines(root, name))
    core = [field.name for field in dataclasses.fields(getattr(types, name))]
    mapped = {field: name_in_message(name, field, fields) for field in core}
    assert [field for field, found in mapped.items() if found is None] == []
    extra = set(fields) - set(mapped.values()) - WITHOUT_CORE_FIELD
    assert extra == set()


@pytest.mark.parametrize('name', MESSAGES)
def test_times_have_the_type_of_their_clock(root, name):
    for field, kind in fields_of(definition_lines(root, name)).items():
        if field.endswith('_ns'):
            assert kind == 'int64', field
        if field.endswith(('_stamp', '_since', '_at', '_end')):
            assert kind == 'builtin_interfaces/Time', field


@pytest.mark.parametrize('name', MESSAGES)
def test_constants_are_exactly_the_enumerations(root, name):
    constants = constants_of(definition_lines(root, name))
    for prefix, enum in CONSTANTS.items():
        found = {k: v for k, v in constants.items() if k.startswith(f'{prefix}_')}
        expected = {f'{prefix}_{member.name}': member.value for member in enum}
        assert found in ({}, expected), prefix
    known = tuple(f'{prefix}_' for prefix in CONSTANTS)
    assert [name for name in constants if not name.startswith(known)] == []


def test_every_enumeration_of_the_messages_is_text():
    assert all(issubclass(enum, str) and issubclass(enum, Enum) for enum in CONSTANTS.values())


def test_the_document_names_every_message(root):
    text = (root / 'docs' / 'messages.md').read_text(encoding='utf-8')
    headings = set(re.findall(r'^### (\w+)$', text, re.MULTILINE)) - {'Parts'}
    assert headings == set(PUBLISHED)
    assert [name for name in PARTS if f'`{name}`' not in text] == []


def test_bags_can_be_written_from_the_definitions(root):
    typesys = pytest.importorskip('rosbags.typesys')
    store = typesys.get_typestore(typesys.Stores.ROS2_JAZZY)
    parsed = {}
    for name in MESSAGES:
        text = '\n'.join(definition_lines(root, name))
        parsed.update(typesys.get_types_from_msg(text, f'reflex_msgs/msg/{name}'))
    store.register(parsed)
    assert store.types['reflex_msgs/msg/ControlTick'].CAUSE_PLAN_END == 'plan_end'
