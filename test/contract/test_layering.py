"""Imports go to a lower level only, ROS stays at the edge, and no module keeps state.

The sources are read, not imported, so the rules hold for what is imported late as well.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / 'reflex_ros').rglob('*.py'))

LEVELS = {
    'core': 0,
    'kernels': 0.5,
    'infer': 1, 'ring': 1, 'arm': 1, 'bag': 1, 'sim': 1,
    'stages': 2, 'analysis': 2, 'ros': 2,
    'nodes': 3, 'report': 3, 'train': 3, 'study': 3, 'doctor': 3,
    'bringup': 4,
    'cli': 5,
}
ROS_EDGE = {'ros', 'nodes', 'launch'}
CORE_LIBRARIES = {'numpy', 'yaml', 'ruckig', 'reflex_ros'}
CLOCK_CALLS = {
    'time', 'time_ns', 'monotonic', 'monotonic_ns', 'perf_counter', 'perf_counter_ns', 'sleep'
}
MUTABLE_CALLS = {
    'list', 'dict', 'set', 'bytearray', 'defaultdict', 'deque', 'Counter', 'OrderedDict'
}
MUTABLE_NODES = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def package_of(path):
    """Return the package of a source path relative to the root, '' for top-level modules."""
    return path.parts[1] if len(path.parts) > 2 else ''


def imports_of(tree, path):
    """Yield (line, dotted module) of every import, relative ones resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ''
            if node.level:
                parents = path.parts[: len(path.parts) - node.level]
                base = '.'.join([*parents, base]).rstrip('.')
            yield from ((node.lineno, f'{base}.{alias.name}') for alias in node.names)


def check_levels(tree, path):
    """Yield imports of the suite that do not go to a lower level."""
    own = package_of(path)
    level = LEVELS.get(own, 5 if path.name == '__main__.py' else 0)
    for line, module in imports_of(tree, path):
        parts = module.split('.')
        if parts[0] != 'reflex_ros' or len(parts) < 2 or parts[1] == own:
            continue
        if parts[1] in LEVELS and LEVELS[parts[1]] >= level:
            yield f'{path}:{line}: {own or path.name} imports {module}, which is not below it'


def check_ros(tree, path):
    """Yield imports of ROS outside its edge."""
    if package_of(path) in ROS_EDGE or path.parts[0] == 'launch':
        return
    for line, module in imports_of(tree, path):
        top = module.split('.')[0]
        if top == 'rclpy' or top.endswith(('_msgs', '_srvs', '_interfaces')):
            yield f'{path}:{line}: {module} belongs into {", ".join(sorted(ROS_EDGE))}'


def check_core_libraries(tree, path):
    """Yield imports of the core beyond its few libraries."""
    if package_of(path) != 'core':
        return
    for line, module in imports_of(tree, path):
        top = module.split('.')[0]
        if top not in CORE_LIBRARIES and top not in sys.stdlib_module_names:
            yield f'{path}:{line}: the core imports {module}'


def check_clock(tree, path):
    """Yield readings of a clock and sleeps outside the one clock module."""
    if path.parts[1:] == ('core', 'clock.py'):
        return
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree) if isinstance(node, ast.Import)
        for alias in node.names if alias.name == 'time'
    }
    for node in ast.walk(tree):
        is_use = (
            isinstance(node, ast.Attribute) and node.attr in CLOCK_CALLS
            and isinstance(node.value, ast.Name) and node.value.id in aliases
        )
        is_import = (
            isinstance(node, ast.ImportFrom) and node.module == 'time'
            and any(alias.name in CLOCK_CALLS for alias in node.names)
        )
        if is_use or is_import:
            yield f'{path}:{node.lineno}: takes time past core/clock.py; take a Clock'


def check_state(tree, path):
    """Yield ``global``, mutable containers of modules and classes, and import side effects."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield f'{path}:{node.lineno}: global {", ".join(node.names)}'
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for node in (node for body in bodies for node in body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_mutable(node):
            yield f'{path}:{node.lineno}: mutable container; use a tuple or MappingProxyType'
    for node in tree.body:
        if is_side_effect(node):
            yield f'{path}:{node.lineno}: importing this module does something'


def is_mutable(node):
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    if names <= {'__all__', '__slots__', '__match_args__'}:
        return False
    if isinstance(node.value, ast.Call):
        function = node.value.func
        return getattr(function, 'id', getattr(function, 'attr', '')) in MUTABLE_CALLS
    return isinstance(node.value, MUTABLE_NODES)


def is_side_effect(node):
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.For | ast.While | ast.With | ast.AugAssign | ast.Delete)


CHECKS = (check_levels, check_ros, check_core_libraries, check_clock, check_state)


def offenders(check, sources):
    """Return what a check finds in (relative path, text) pairs."""
    return [line for path, text in sources for line in check(ast.parse(text), path)]


@pytest.fixture(scope='module')
def sources():
    return [(path.relative_to(ROOT), path.read_text(encoding='utf-8')) for path in SOURCES]


def test_sources_were_found(sources):
    assert len(sources) > 10


@pytest.mark.parametrize('check', CHECKS, ids=lambda check: check.__name__)
def test_no_source_breaks_the_rule(check, sources):
    found = offenders(check, sources)
    assert not found, '\n'.join(found)


def test_every_package_has_a_level():
    packages = {path.parent.name for path in (ROOT / 'reflex_ros').glob('*/__init__.py')}
    assert packages - {'data'} <= set(LEVELS)


@pytest.mark.parametrize(('check', 'path', 'text'), [
    (check_levels, 'core/x.py', 'from reflex_ros.arm import driver'),
    (check_levels, 'core/x.py', 'def f():\n    import reflex_ros.stages.bridge'),
    (check_levels, 'sim/x.py', 'from reflex_ros.arm.wire import encode'),
    (check_levels, 'sim/x.py', 'from reflex_ros import arm'),
    (check_levels, 'sim/x.py', 'from ..arm import wire'),
    (check_levels, 'ros/x.py', 'from reflex_ros.stages import bridge'),
    (check_levels, 'x.py', 'import reflex_ros.core.types as t; import reflex_ros.cli'),
    (check_ros, 'stages/x.py', 'import rclpy.node'),
    (check_ros, 'stages/x.py', 'from sensor_msgs.msg import Image'),
    (check_ros, 'core/x.py', 'from std_srvs.srv import Trigger'),
    (check_core_libraries, 'core/x.py', 'import torch'),
    (check_clock, 'arm/x.py', 'import time\ntime.sleep(1)'),
    (check_clock, 'arm/x.py', 'import time as t\nt.monotonic_ns()'),
    (check_clock, 'arm/x.py', 'from time import sleep'),
    (check_state, 'arm/x.py', 'def f():\n    global a\n    a = 1'),
    (check_state, 'arm/x.py', 'CACHE = {}'),
    (check_state, 'arm/x.py', 'CACHE: dict = dict()'),
    (check_state, 'arm/x.py', 'from collections import deque\nQ = deque()'),
    (check_state, 'arm/x.py', 'class A:\n    seen = []'),
    (check_state, 'arm/x.py', 'import os\nos.environ["A"] = "b"'),
    (check_state, 'arm/x.py', 'print("hello")'),
])
def test_rules_can_fail(check, path, text):
    assert offenders(check, [(Path('reflex_ros', path), text)])


@pytest.mark.parametrize(('check', 'path', 'text'), [
    (check_levels, 'stages/x.py', 'from reflex_ros.arm import driver'),
    (check_levels, 'arm/x.py', 'from reflex_ros.arm.wire import encode'),
    (check_levels, 'arm/x.py', 'from . import wire'),
    (check_ros, 'ros/x.py', 'import rclpy'),
    (check_core_libraries, 'core/x.py', 'import numpy.typing as npt; import heapq'),
    (check_clock, 'core/clock.py', 'import time\ntime.sleep(1)'),
    (check_clock, 'arm/x.py', 'self.time.sleep(1)'),
    (check_state, 'arm/x.py', '__all__ = ["a"]\nA = (1, 2)\nB = frozenset({1})\nC = f({1: 2})'),
])
def test_rules_allow_what_is_right(check, path, text):
    assert not offenders(check, [(Path('reflex_ros', path), text)])
