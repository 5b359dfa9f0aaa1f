"""Nothing that a damaged machine holds ends a visit or passes for health."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reflex_ros.doctor.model import Check, Level
from reflex_ros.doctor.registry import CHECKS
from reflex_ros.doctor.visit import visit

READ = ('can-interface', 'can-bitrate', 'can-state', 'can-restart', 'can-queue', 'can-errors',
        'realtime', 'memlock', 'cpu-governor', 'dds-profile', 'socket-buffer', 'shared-memory',
        'gpu')
IP = 'ip -json -details -statistics link show dev can0'
SMI = 'nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader'


def files(folder):
    return sorted(path for path in folder.rglob('*') if path.is_file())


def garbage(folder):
    rng = random.Random(1)
    for path in files(folder):
        path.write_bytes(rng.randbytes(200))


def empty(folder):
    for path in files(folder):
        path.write_bytes(b'')


def missing(folder):
    for path in files(folder):
        path.unlink()


def folders(folder):
    for path in files(folder):
        path.unlink()
        path.mkdir()


def numbers(folder):
    for path in files(folder):
        path.write_text('-99999999999999999999999999999999\n')


def loops(folder):
    for path in files(folder):
        path.unlink()
        path.symlink_to(path)


@pytest.mark.parametrize('damage', [garbage, empty, missing, folders, numbers, loops])
@pytest.mark.parametrize('name', ['robot_x86', 'jetson', 'bus_off'])
def test_a_damaged_tree_is_judged_to_the_end(machine, tools, name, damage):
    found = tools.look(machine(name, change=damage, answers={IP: '\x00[', SMI: ''}), *READ)
    assert [check for check, _ in found if check.startswith('can')]
    assert {check for check, _ in found} == set(READ)
    assert not [f.value for _, f in found if 'stumbled' in f.value]


def test_permission_denied_is_judged_to_the_end(machine, tools, monkeypatch):
    context = machine()

    def refuse(*arguments, **options):
        raise PermissionError(13, 'Permission denied')

    for name in ('open', 'exists', 'iterdir'):
        monkeypatch.setattr(Path, name, refuse)
    found = dict(tools.look(context, *READ))
    assert set(found) == set(READ)
    assert not [f.value for f in found.values() if 'stumbled' in f.value]
    assert found['can-interface'].level is Level.FAIL


@pytest.mark.parametrize('answer', [
    '', 'null', '[]', '[null]', '[[]]', '{}', '[{"linkinfo": 3}]', '"can0"', '[1e999]',
    '[{"linkinfo": {"info_kind": 7, "info_data": {"bittiming": [], "state": 4,'
    ' "berr_counter": "x", "restart_ms": true}, "info_xstats": []}, "stats64": null}]',
    '[' * 100_000, '[{"linkinfo": {"info_data": {"bittiming": {"bitrate": 1000000.0}}}}]',
])
def test_an_odd_answer_of_ip_is_no_health(machine, tools, answer):
    found = tools.levels(machine(answers={IP: answer}), 'can-bitrate', 'can-state')
    assert found['can-bitrate'] in ('warn', 'fail') and found['can-state'] == 'warn'


def test_seeded_answers_never_end_a_visit(machine, tools):
    context = machine()
    whole = context.host.answer(*IP.split())
    rng = random.Random(5)
    for _ in range(60):
        at = rng.randrange(len(whole))
        cut = whole[:at] + rng.choice(['', 'x', '{', '"', '-1', 'null']) + whole[at + 1:]
        found = tools.look(machine(answers={IP: cut}), 'can')
        assert not [f.value for _, f in found if 'stumbled' in f.value]


def test_a_check_that_stumbles_is_a_failure_of_its_own(machine):
    def stumble(context):
        yield from ()
        raise RuntimeError('no such luck\nsecond line')

    check = Check('can-queue', 'can', '', '', '', stumble)
    (_, finding), = visit(machine(), [check])
    assert finding.level is Level.FAIL
    assert finding.value == 'the check itself stumbled: RuntimeError: no such luck'
    assert 'reflex-ros doctor --only can-queue' in finding.remedy


def test_stumbling_can_fail(machine, tools):
    def broken(folder):
        raise OverflowError('of a probe')

    found = tools.look(machine(disk=broken), 'disk-space')
    assert [f.level for _, f in found] == [Level.FAIL]


def test_every_check_gives_at_least_one_line_on_every_machine(machine, tools):
    found = tools.look(machine(change=missing), *[check.name for check in CHECKS])
    assert {name for name, _ in found} == {check.name for check in CHECKS}
