"""Every source compiles here without a warning and parses as the Pythons we support."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ('reflex_ros', 'test', 'launch', 'bench', 'cmake')
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob('*.py'))
VERSIONS = ((3, 11), (3, 12))


def fault(text, name, version):
    """Return why a source does not compile, '' if it does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            ast.parse(text, name, feature_version=version)
            compile(text, name, 'exec', dont_inherit=True)
    except (SyntaxError, Warning) as error:
        return f'{name}: {error}'
    return ''


@pytest.mark.parametrize('version', VERSIONS, ids=lambda version: '.'.join(map(str, version)))
def test_every_source_compiles(version):
    found = [fault(path.read_text(encoding='utf-8'), str(path), version) for path in SOURCES]
    assert not any(found), '\n'.join(filter(None, found))


@pytest.mark.parametrize('text', ['def f(:\n', 'a = "\\d"\n', 'assert (1, "x")\n'])
def test_compilation_can_fail(text):
    assert fault(text, 'x.py', (3, 11))
