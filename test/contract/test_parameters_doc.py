"""``docs/parameters.md`` is what the parameter table says."""

from __future__ import annotations

from pathlib import Path

from reflex_ros.core.params import to_markdown

DOCUMENT = Path(__file__).parents[2] / 'docs' / 'parameters.md'


def test_document_equals_the_table():
    assert DOCUMENT.read_text(encoding='utf-8') == to_markdown(), 'run: make docs'


def test_document_check_can_fail():
    assert DOCUMENT.read_text(encoding='utf-8').replace('50.0', '51.0') != to_markdown()
