"""The lines on a terminal, and the JSON."""

from __future__ import annotations

import io
import json

import pytest

from reflex_ros.doctor.model import Finding, Level, fail, ok
from reflex_ros.doctor.registry import CHECKS, GROUPS
from reflex_ros.doctor.report import Screen, dump, format_counts, format_line, to_json
from reflex_ros.doctor.visit import choose, exit_code, visit

CHECK = CHECKS[0]
TYPES = {'check': str, 'group': str, 'subject': str, 'level': str, 'value': str,
         'measured': dict, 'remedy': str}
TOP = {'schema': int, 'machine': dict, 'choices': dict, 'exit_code': int, 'counts': dict,
       'findings': list}


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self):
        return True


def faults_of(document):
    """Yield what is wrong with a JSON document of the doctor."""
    for name, kind in TOP.items():
        if type(document.get(name)) is not kind:
            yield f'{name} is {type(document.get(name)).__name__}'
    if set(document) != set(TOP):
        yield f'keys {sorted(document)}'
    levels = [level.value for level in Level]
    for finding in document.get('findings') or ():
        if set(finding) != set(TYPES):
            yield f'finding has {sorted(finding)}'
        yield from (f'{finding.get("check")}: {name} is {finding.get(name)!r}'
                    for name, kind in TYPES.items() if type(finding.get(name)) is not kind)
        if finding.get('check') not in {check.name for check in CHECKS}:
            yield f'unknown check {finding.get("check")}'
        if finding.get('level') not in levels:
            yield f'unknown level {finding.get("level")}'
        if finding.get('level') in ('warn', 'fail') and not finding.get('remedy'):
            yield f'{finding.get("check")}: no remedy'
        if finding.get('level') == 'ok' and finding.get('remedy'):
            yield f'{finding.get("check")}: a remedy for nothing'
    found = [finding.get('level') for finding in document.get('findings') or ()]
    if document.get('counts') != {level: found.count(level) for level in levels}:
        yield f'counts {document.get("counts")}'
    if document.get('exit_code') != int('fail' in found):
        yield f'exit code {document.get("exit_code")}'


def document_of(context, name=()):
    lines = list(visit(context, choose(name)))
    code = exit_code([finding.level for _, finding in lines])
    return json.loads(dump(to_json(lines, context.choices, code)))


@pytest.mark.parametrize('name', ['robot_x86', 'jetson', 'no_can', 'bus_off', 'no_rt'])
def test_the_json_of_every_machine_keeps_the_schema(machine, name):
    assert list(faults_of(document_of(machine(name)))) == []


def test_a_healthy_robot_ends_with_0_and_a_broken_one_with_1(machine):
    assert document_of(machine())['exit_code'] == 0
    assert document_of(machine('jetson'))['exit_code'] == 0
    assert document_of(machine('bus_off'))['exit_code'] == 1


@pytest.mark.parametrize('damage', [
    lambda d: d.pop('machine'), lambda d: d.update(more=1), lambda d: d.update(exit_code=1),
    lambda d: d['findings'][0].update(level='good'), lambda d: d['findings'][0].pop('remedy'),
    lambda d: d['findings'][0].update(level='fail'), lambda d: d['counts'].update(ok=0),
    lambda d: d['findings'][0].update(check='other'), lambda d: d['findings'].pop(),
    lambda d: d['findings'][0].update(remedy='Do this.'),
])
def test_the_schema_can_fail(machine, damage):
    document = document_of(machine())
    damage(document)
    assert list(faults_of(document))


def test_numbers_that_json_does_not_know_become_null(machine):
    line = CHECK, ok('x', a=float('nan'), b=float('inf'), c=1.23456789, d=(1, True), e=Level.OK)
    found = json.loads(dump(to_json([line], machine().choices, 0)))['findings'][0]['measured']
    assert found == {'a': None, 'b': None, 'c': 1.234568, 'd': [1, True], 'e': 'ok'}


def test_a_line_has_level_name_subject_value_and_the_remedy_below():
    finding = fail('500000 bit/s', 'sudo ip link', subject='can0')
    assert format_line(CHECK, finding) == (
        f'FAIL  {CHECK.name:<16}can0: 500000 bit/s\n      -> sudo ip link')
    assert '\n' not in format_line(CHECK, ok('fine'))


def test_names_of_others_cannot_move_the_cursor():
    text = format_line(CHECK, fail('a\x1b[2Jb', 'c\rd\ne', subject='\x07'))
    assert '\x1b' not in text and '\r' not in text and '\x07' not in text
    assert text.count('\n') == 1


@pytest.mark.parametrize(('stream', 'environ', 'has_colour'), [
    (Terminal(), {}, True), (Terminal(), {'NO_COLOR': '1'}, False), (io.StringIO(), {}, False)])
def test_colours_only_where_somebody_looks(stream, environ, has_colour):
    Screen(stream, io.StringIO(), environ).line(CHECK, ok('fine'))
    assert ('\x1b[32m' in stream.getvalue()) == has_colour


def test_progress_only_on_a_terminal_and_gone_before_the_line():
    note, quiet = Terminal(), io.StringIO()
    for stream in (note, quiet):
        screen = Screen(io.StringIO(), stream, {})
        screen.measuring('clock at 50 Hz', 5.0)
        screen.line(CHECK, ok('fine'))
    assert '... clock at 50 Hz, 5 s' in note.getvalue()
    assert note.getvalue().endswith('\r')
    assert quiet.getvalue() == ''


def test_counts_name_every_level():
    lines = [(CHECK, ok('a')), (CHECK, ok('b')), (CHECK, fail('c', 'd'))]
    assert format_counts(lines) == '2 OK, 0 WARN, 1 FAIL, 0 SKIP'


def test_names_and_groups_are_stable_and_told_apart():
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names) and not set(names) & set(GROUPS)
    assert max(map(len, names)) < 16
    assert all(check.measures and check.limits and check.remedy for check in CHECKS)


def test_a_finding_without_numbers_has_an_empty_table():
    assert Finding(Level.SKIP, 'x').measured == {}
