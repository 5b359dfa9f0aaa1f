"""The speed card of the README and the tables of ``docs/gpu.md``, from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reflex_ros.core.errors import ConfigError

PREFIX = 'policy='


def card_lines(result: Mapping[str, Any]) -> list[str]:
    """Return time of a call by policy, beside the least of this GPU and the reference's way.

    Raises:
        ConfigError: The result is not one of a GPU.
    """
    require_gpu(result)
    rows = [_policy_row(stage) for stage in _stages(result) if stage['name'].startswith(PREFIX)]
    head = ['policy', 'whole call p50', 'p99', 'p99.9', 'denoise loop', 'least of this GPU',
            'reference', 'memory', 'of the reference']
    about = (f'Images to actions, ms: {result["gpu"]}, bfloat16, random weights, 10 steps, '
             f'{result["config"]["calls"]} calls, prefix and loop as graphs; the denoise loop is '
             'device time of a replay. The reference is the same network eagerly with a prefix '
             'cache, on the same GPU.')
    return [about, '', *_table(head, rows), *_unfinished(result)]


def _policy_row(stage: Mapping[str, Any]) -> list[str]:
    family, views, chunk = stage['name'].removeprefix(PREFIX).split(':')
    found = {record['what']: record for record in stage['records']}
    name = f'`{family}`, {views} views, chunk {chunk}'
    if 'call' not in found:
        return [name, f'not measured: {stage["status"]}', *[''] * 7]
    wall, reference = found['call']['wall_ms'], found.get('reference')
    least = sum(found['roofline']['least_ms'].values()) if 'roofline' in found else None
    return [
        name, *(_ms(wall[key]) for key in ('p50', 'p99', 'p999')),
        _ms(found['parts']['device_ms']['denoise']['p50']), _ms(least),
        _ms(reference and reference['wall_ms']['p50']), _gb(found['call']['peak_mb']),
        _gb(reference and reference['peak_mb']),
    ]


def detail_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the gap by cause, the fusions, the hand-off and the arrangements.

    Raises:
        ConfigError: The result is not one of a GPU.
    """
    require_gpu(result)
    made = [*_gaps(result)]
    for name, title, keys in (
        ('fusions', 'fusions of the action expert (Pi0.5, denoise loop)', ('fusion', 'wall_ms')),
        ('streams', 'denoise loop beside an encoder', ('arrangement', 'wall_ms')),
        ('handoff', 'staging copy of a prefix, by memory of the ring', ('way', 'stage_ms')),
        ('fp8', 'prefix of Pi0.5', ('prefix', 'device_ms')),
    ):
        made += ['', *_spreads(result, name, title, keys)]
    return made


def _gaps(result: Mapping[str, Any]) -> list[str]:
    rows = [[f'`{stage["name"].removeprefix(PREFIX)}`',
             *(_ms(value) for value in record['gap_ms'].values())]
            for stage in _stages(result) for record in stage['records']
            if record.get('what') == 'roofline']
    head = ['ms above the least', 'vision', 'prefix', 'denoise', 'host and copies']
    return _table(head, rows)


def _spreads(result: Mapping[str, Any], name: str, title: str,
             keys: tuple[str, str]) -> list[str]:
    """Return the spread of every record of a stage that has one."""
    label, times = keys
    rows = [[str(record[label]), *(_ms(record[times][key]) for key in ('p50', 'p99', 'p999'))]
            for stage in _stages(result) if stage['name'] == name
            for record in stage['records'] if times in record]
    if not rows:
        return [f'{title[0].upper()}{title[1:]}: not measured.']
    return _table([title, 'p50', 'p99', 'p99.9'], rows)


def require_gpu(result: Mapping[str, Any]) -> None:
    """Refuse a result that was made without a GPU: it says nothing about one.

    Raises:
        ConfigError: It was.
    """
    if result['config']['device'] != 'cuda' or not result['gpu']:
        raise ConfigError(
            f'speed card: got a result of device {result["config"]["device"]!r}, expected one of '
            'a GPU. Remove it and run make gpu on a machine with one.'
        )


def _unfinished(result: Mapping[str, Any]) -> list[str]:
    missed = [f'{stage["name"]} ({stage["status"]})' for stage in _stages(result)
              if stage['status'] != 'ok']
    return ['', f'Stages that did not finish: {", ".join(missed)}.'] if missed else []


def _stages(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    stages: Sequence[Mapping[str, Any]] = result['summary']['stages']
    return stages


def _ms(value: float | None) -> str:
    return '' if value is None else f'{value:.3g}'


def _gb(value: float | None) -> str:
    return '' if value is None else f'{value / 1e3:.2f} GB'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ['---'] * len(head), *rows]
    return ['| ' + ' | '.join(line) + ' |' for line in lines]
