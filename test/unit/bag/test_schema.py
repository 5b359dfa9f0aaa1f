from __future__ import annotations

import json
from pathlib import Path

import pytest

from reflex_ros.bag.schema import contained_types, default_shares, find_schema, hash_of
from reflex_ros.core.errors import ConfigError

ROOT = Path(__file__).parents[3]
NAMES = sorted(path.stem for path in (ROOT / 'reflex_msgs' / 'msg').glob('*.msg'))
COMMON = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage', 'sensor_msgs/msg/JointState',
          'diagnostic_msgs/msg/DiagnosticArray', 'rosgraph_msgs/msg/Clock')


@pytest.mark.parametrize('name', NAMES)
def test_the_hash_of_a_definition_is_the_installed_one(name):
    kind = f'reflex_msgs/msg/{name}'
    schema = find_schema(kind, shares=[ROOT])
    installed = [share / f'{kind}.json' for share in default_shares()]
    path = next((path for path in installed if path.is_file()), None)
    if path is None:
        pytest.skip('reflex_msgs is not installed')
    hashes = json.loads(path.read_text())['type_hashes']
    (installed_hash,) = (h['hash_string'] for h in hashes if h['type_name'] == kind)
    assert schema.rihs01 == installed_hash
    assert find_schema(kind).rihs01 == installed_hash


def test_another_definition_has_another_hash():
    kind = 'reflex_msgs/msg/SlotRef'
    schema = find_schema(kind, shares=[ROOT])
    changed = schema.text.replace('uint32 slot', 'uint64 slot')
    assert changed != schema.text
    assert hash_of(kind, changed) != schema.rihs01


@pytest.mark.parametrize('kind', COMMON)
def test_common_types_need_no_installation(kind):
    schema = find_schema(kind, shares=[])
    assert schema.rihs01.startswith('RIHS01_')
    assert hash_of(kind, schema.text) == schema.rihs01


def test_a_definition_carries_every_type_it_contains_once():
    text = find_schema('reflex_msgs/msg/ActionChunk', shares=[ROOT]).text
    parts = [line[5:] for line in text.splitlines() if line.startswith('MSG: ')]
    assert len(parts) == len(set(parts))
    assert {'std_msgs/Header', 'builtin_interfaces/Time', 'reflex_msgs/StageTime',
            'trajectory_msgs/JointTrajectoryPoint'} <= set(parts)


def test_constants_bounds_and_comments_are_no_types():
    text = (
        '# Pose of nothing\nuint8 A=1\nstring<=10 name "x"\nfloat64[3] a\nint32[<=4] b\n'
        'string text # Header header\nSlotRef[] slots\nstd_msgs/Header header\n'
        'pkg/msg/Deep deep\n'
    )
    assert contained_types('mine/msg/T', text) == [
        'mine/msg/SlotRef', 'std_msgs/msg/Header', 'pkg/msg/Deep'
    ]


def test_an_unknown_type_is_named():
    with pytest.raises(ConfigError, match='reflex_msgs/msg/Nothing is unknown'):
        find_schema('reflex_msgs/msg/Nothing', shares=[ROOT])
