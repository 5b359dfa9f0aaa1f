"""[bag] The Foxglove layout names only topics, fields and types that exist."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path

import pytest

from reflex_ros.bag.read import BagReader
from reflex_ros.bag.schema import find_schema, typestore_of
from reflex_ros.core.types import JOINT_NAMES

ROOT = Path(__file__).parents[2]
LAYOUT = ROOT / 'config' / 'foxglove' / 'reflex.json'
ARRAY_KINDS = {'ARRAY', 'SEQUENCE'}
PLOTTED = {'Plot': ('float', 'int', 'uint', 'bool'), 'StateTransitions': ('string', 'bool', 'int')}


@pytest.fixture
def layout():
    return json.loads(LAYOUT.read_text(encoding='utf-8'))


@pytest.fixture(scope='module')
def recorded():
    """Return topics and types of a bag that the recorder wrote."""
    with BagReader(ROOT / 'test' / 'data' / 'replay' / 'bag') as bag:
        return {name: info.type for name, info in bag.topics.items()}


@cache
def fields_of(kind):
    """Return the fields of a message type: name to (node kind, what)."""
    store = typestore_of([(kind, find_schema(kind, shares=(ROOT,)).text)])
    return {name: dict(fields) for name, (_, fields) in store.fielddefs.items()}


def leaf(kind, path):
    """Return the primitive that a field path ends in; raise KeyError with what is wrong."""
    known, here = fields_of(kind), kind
    for part in path.split('.'):
        name, _, index = part.rstrip(']').partition('[')
        if here not in known or name not in known[here]:
            raise KeyError(f'{here} has no field {name}')
        node, what = known[here][name]
        if bool(index) != (node.name in ARRAY_KINDS):
            raise KeyError(f'{here}.{name} is {"an" if not index else "no"} array')
        if index and int(index) >= len(JOINT_NAMES):
            raise KeyError(f'{here}.{name} has no element {index}')
        node, what = what[0] if index else (node, what)
        here = what if node.name == 'NAME' else what[0]
    return here


def leaves(node):
    if isinstance(node, str):
        return [node]
    return [*leaves(node['first']), *leaves(node['second'])]


def series(layout):
    """Yield (panel, topic, field path, kind of panel) of every message path."""
    for panel, config in layout['configById'].items():
        for entry in config.get('paths', []):
            topic, _, path = entry['value'].partition('.')
            yield panel, topic, path, panel.partition('!')[0]


def whole(layout):
    """Yield (topic, type it must have) of the panels that show whole messages."""
    for config in layout['configById'].values():
        for key, kind in (('topicPath', None), ('topicToRender', 'diagnostic_msgs/msg/'
                                                                 'DiagnosticArray')):
            if key in config:
                yield config[key], kind
        if 'imageMode' in config:
            yield config['imageMode']['imageTopic'], 'sensor_msgs/msg/Image'


def errors(layout, types):
    """Return what of a layout does not exist, in words."""
    found = []
    for panel, topic, path, kind in series(layout):
        if topic not in types:
            found.append(f'{panel}: no topic {topic}')
            continue
        try:
            primitive = leaf(types[topic], path)
        except KeyError as error:
            found.append(f'{panel}: {error.args[0]}')
            continue
        if not primitive.startswith(PLOTTED[kind]):
            found.append(f'{panel}: {topic}.{path} is a {primitive}')
    for topic, kind in whole(layout):
        if topic not in types or kind not in (None, types[topic]):
            found.append(f'no topic {topic} of type {kind}')
    placed, known = leaves(layout['layout']), set(layout['configById'])
    if len(placed) != len(set(placed)) or set(placed) != known:
        found.append(f'panels placed {sorted(placed)}, described {sorted(known)}')
    return found


def test_the_layout_fits_a_recorded_bag(layout, recorded):
    assert errors(layout, recorded) == []


@pytest.mark.ros
def test_the_layout_fits_the_topics_of_the_nodes(layout):
    from reflex_ros.ros.qos import TOPICS, camera_topic, image_topic

    image = image_topic(camera_topic('main'))
    types = {'/' + t.name.lstrip('/'): t.type for t in (*TOPICS, image)}
    assert errors(layout, types) == []


def test_the_layout_shows_every_joint_and_source(layout):
    shown = {(topic, path) for _, topic, path, _ in series(layout)}
    for index in range(len(JOINT_NAMES)):
        for topic, path in (('/control_tick', 'command'), ('/control_tick', 'measured'),
                            ('/control_tick', 'setpoint'), ('/joint_states', 'position'),
                            ('/plan', 'trajectory.points[0].positions')):
            assert (topic, f'{path}[{index}]') in shown
    assert {('/control_tick', 'verdict'), ('/control_tick', 'cause')} <= shown


@pytest.mark.parametrize(('old', 'new', 'said'), [
    ('/control_tick.verdict', '/control_tick.verdikt', 'has no field verdikt'),
    ('/control_tick.cause', '/control_tik.cause', 'no topic /control_tik'),
    ('/control_tick.late_ns', '/control_tick.verdict', 'is a string'),
    ('/plan.latency_ns', '/plan.latency_ns[0]', 'is no array'),
    ('/control_tick.command[6]', '/control_tick.command[7]', 'has no element 7'),
    ('/control_tick.command[0]', '/control_tick.command', 'is an array'),
    ('/camera/main/image_raw', '/camera/main/picture', 'no topic /camera/main/picture'),
    ('/diagnostics', '/control_tick', 'no topic /control_tick of type'),
])
def test_the_check_can_fail(layout, recorded, old, new, said):
    text = re.sub(f'"{re.escape(old)}"', f'"{new}"', json.dumps(layout))
    planted = json.loads(text)
    assert planted != layout
    assert any(said in error for error in errors(planted, recorded))


def test_a_panel_without_place_can_fail(layout, recorded):
    planted = copy.deepcopy(layout)
    planted['configById']['Plot!lost'] = {'paths': []}
    assert 'panels placed' in errors(planted, recorded)[0]
