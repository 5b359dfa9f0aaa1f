"""What a document or a node names is a topic or service that exists: no arm stays silent."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')

from reflex_ros.ros.qos import SERVICES, TOPICS

pytestmark = pytest.mark.ros

ROOT = Path(__file__).parents[2]
KNOWN = {topic.name.lstrip('/') for topic in TOPICS} | set(SERVICES)
OTHERS = {'rosout', '~/snapshot'}
"""Of ROS itself, and the recorder's own service."""
COMMAND = re.compile(
    r'ros2 (?:topic|service) (?:echo|hz|info|pub|call|bw|delay)(?: -\S+)* (/?[\w/]+)')
MAKERS = {'create_publisher', 'create_subscription', 'create_service', 'create_client', 'topic'}


def named_in(text):
    """Return the topics and services that the commands of a text name, without ``/``."""
    return [name.lstrip('/') for name in COMMAND.findall(text)]


def literals(source):
    """Return the names that code hands to what makes publishers, readers, services or clients."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        maker = getattr(call.func, 'attr', getattr(call.func, 'id', ''))
        if maker in MAKERS:
            found += [argument.value.lstrip('/') for argument in call.args[:2]
                      if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
    return found


def unknown(names):
    return sorted(name for name in names if name not in KNOWN | OTHERS and 'camera/' not in name)


def test_every_command_of_the_documents_names_a_topic_that_exists():
    paths = [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]
    named = {path.name: named_in(path.read_text(encoding='utf-8')) for path in paths}
    assert sum(map(len, named.values())) >= 2, 'some commands were found'
    assert {name: bad for name, found in named.items() if (bad := unknown(found))} == {}


def test_a_topic_that_nobody_hears_in_a_document_can_fail():
    text = 'ros2 topic echo /joint_states_single\nros2 service call /resume reflex_msgs/srv/Resume'
    assert unknown(named_in(text)) == ['joint_states_single']


def test_nodes_make_no_topic_but_those_of_the_table():
    sources = [*(ROOT / 'reflex_ros/nodes').glob('*.py'), *(ROOT / 'reflex_ros/ros').glob('*.py')]
    names = [name for path in sources for name in literals(path.read_text(encoding='utf-8'))]
    assert len(names) >= 15 and unknown(names) == []


def test_a_name_that_stands_in_no_table_can_fail():
    source = "node.create_publisher(JointState, 'joint_ctrl_single', 1)\ntopic('action_chunk')"
    assert unknown(literals(source)) == ['joint_ctrl_single']
