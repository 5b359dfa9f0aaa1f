"""At most five tests judge a wall clock: all others are true on a machine of any speed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MOST = 5


def judging(source: str) -> int:
    """Return how many tests of a file carry the marker ``wallclock``."""
    tree = ast.parse(source)
    tests = [n for n in ast.walk(tree)
             if isinstance(n, ast.FunctionDef) and n.name.startswith('test_')]
    whole = [n for n in tree.body if isinstance(n, ast.Assign)
             and any(isinstance(t, ast.Name) and t.id == 'pytestmark' for t in n.targets)]
    if any('wallclock' in ast.unparse(n) for n in whole):
        return len(tests)
    return sum('wallclock' in ast.unparse(d) for t in tests for d in t.decorator_list)


def test_at_most_five_tests_judge_a_wall_clock():
    found = {p.name: judging(p.read_text(encoding='utf-8')) for p in TESTS.rglob('test_*.py')}
    assert 1 <= sum(found.values()) <= MOST, {k: v for k, v in found.items() if v}


@pytest.mark.parametrize(('source', 'count'), [
    ('pytestmark = pytest.mark.wallclock\ndef test_a(): pass\ndef test_b(): pass', 2),
    ('@pytest.mark.wallclock\ndef test_a(): pass\ndef test_b(): pass', 1),
    ('def test_a(): pass', 0),
])
def test_at_most_five_tests_judge_a_wall_clock_can_fail(source, count):
    assert judging(source) == count
