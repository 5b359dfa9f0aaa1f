"""The table of a checkpoint says what the facts say, in lines that fit a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from reflex_ros.report.table import Style
from reflex_ros.report.views_table import bytes_text, format_facts
from reflex_ros.study.inspect import open_subject, robot_of
from reflex_ros.study.inspect_robot import Robot

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = {family: ROOT / 'test' / 'data' / 'parity' / family / 'checkpoint'
           for family in ('pi0', 'pi05', 'smolvla')}  # fmt: skip
FOLDERS['tiny'] = ROOT / 'reflex_ros' / 'data' / 'tiny'


@pytest.fixture(scope='module', params=FOLDERS)
def facts(request):
    return open_subject(FOLDERS[request.param], Robot()).facts()


def test_everything_that_a_user_asks_for_is_in_the_table(facts):
    text = format_facts(facts, style=Style())
    words = ' '.join(text.split())
    for row in facts['statistics']['state']:
        assert row['column'] in text
    for name, value in facts['files'].items():
        assert name in text and value[:16] in text
    for camera in facts['cameras']:
        assert camera['camera'] in text
    assert f'{facts["chunk"]["rows"]} rows' in text
    for entry in facts['memory']['by_dtype'].values():
        assert bytes_text(entry['slot_bytes']) in text and bytes_text(entry['ring_bytes']) in text
    for name in facts['robot']['to_set']:
        assert name in words
    if facts['chunk']['step_period_s'] is None:
        assert 'Set policy.step_period_s to 1 / fps' in words


def test_no_line_is_wider_than_a_narrow_terminal(facts):
    lines = format_facts(facts, style=Style()).splitlines()
    assert max(map(len, lines[1:])) <= 100


def test_a_refusal_is_in_the_table():
    robot = robot_of((), {'camera.names': ['nose']})
    text = format_facts(open_subject(FOLDERS['pi0'], robot).facts(), style=Style())
    assert 'DOES NOT FIT: camera.names: got nose' in text


@pytest.mark.parametrize(('count', 'text'), [
    (0, '0 B'), (1023, '1023 B'), (1024, '1.0 KiB'), (3 * 1024**2, '3.0 MiB'),
    (7 * 1024**3, '7.00 GiB'), (3000 * 1024**3, '3000.00 GiB'),
])  # fmt: skip
def test_bytes_have_the_unit_that_suits_them(count, text):
    assert bytes_text(count) == text
