"""Files and functions stay small enough to be read."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ('reflex_ros', 'test', 'launch', 'bench', 'cmake')
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob('*.py'))

FILE_LINES = 500
FUNCTION_LINES = 70
MEDIAN_LINES = 12
P90_LINES = 45
FOLDER_LINES = (('reflex_ros/nodes', 150), ('reflex_ros/cli', 60))
"""Folders of thin wiring, with their own limit."""


def file_limit(path):
    """Return the limit of a file, by its path relative to the root."""
    folder = path.parent.as_posix()
    return next((lines for name, lines in FOLDER_LINES if folder == name), FILE_LINES)


def functions_of(text):
    """Yield (name, first line, lines) of every function, its docstring included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def long_files(sources):
    return [
        f'{path}: {len(text.splitlines())} lines, at most {file_limit(path)}'
        for path, text in sources if len(text.splitlines()) > file_limit(path)
    ]


def long_functions(sources):
    return [
        f'{path}:{line}: {name} has {lines} lines, at most {FUNCTION_LINES}'
        for path, text in sources for name, line, lines in functions_of(text)
        if lines > FUNCTION_LINES
    ]


def function_sizes(sources):
    """Return the sizes of the library's functions, sorted."""
    return sorted(
        lines for path, text in sources if path.parts[0] == 'reflex_ros'
        for _, _, lines in functions_of(text)
    )


@pytest.fixture(scope='module')
def sources():
    return [(path.relative_to(ROOT), path.read_text(encoding='utf-8')) for path in SOURCES]


def test_no_file_is_too_long(sources):
    found = long_files(sources)
    assert not found, '\n'.join(found)


def test_no_function_is_too_long(sources):
    found = long_functions(sources)
    assert not found, '\n'.join(found)


def test_most_functions_are_short(sources):
    sizes = function_sizes(sources)
    assert statistics.median(sizes) <= MEDIAN_LINES
    assert sizes[int(0.9 * len(sizes))] <= P90_LINES


def test_sizes_can_fail():
    body = '\n'.join(['def f():'] + ['    a = 1'] * 70)
    planted = [(Path('reflex_ros/core/x.py'), body + '\n' * 431)]
    assert long_files(planted) == ['reflex_ros/core/x.py: 501 lines, at most 500']
    assert long_functions(planted) == ['reflex_ros/core/x.py:1: f has 71 lines, at most 70']
    assert long_files([(Path('reflex_ros/cli/x.py'), 'a\n' * 61)])
    assert function_sizes(planted) == [71]
