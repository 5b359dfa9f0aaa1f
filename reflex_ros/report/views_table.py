"""What a checkpoint is and needs, as lines for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from reflex_ros.report.table import WIDTH, Style

Facts = Mapping[str, Any]
LABEL = 18


def format_facts(facts: Facts, *, style: Style | None = None) -> str:
    """Return the facts of ``study.inspect`` as sections of lines, about 80 columns wide.

    Args:
        facts: As a subject of ``study.inspect`` returns them.
        style: None for what standard output can show.
    """
    style = style or Style.of(sys.stdout)
    sections = (
        (f'{facts["family"]}  {facts["folder"]}', _identity(facts)),
        ('Cameras, in the order of the slots', _cameras(facts)),
        ('Rates', _rates(facts)),
        ('State', _statistics(facts, 'state')),
        ('Action', _statistics(facts, 'action')),
        ('Text', _text(facts)),
        ('Memory', _memory(facts)),
        ('Needs from the robot', _needs(facts)),
        ('Files (SHA-256)', [f'  {value[:16]}  {name}' for name, value in facts['files'].items()]),
        ('Notes', [line for note in facts['notes'] for line in _bullet(note)]),
    )
    return '\n\n'.join(
        '\n'.join([style.paint(title, 'bold'), *lines]) for title, lines in sections if lines
    )


def bytes_text(count: float) -> str:
    """Return a number of bytes in the unit that suits it (1 MiB = 1024 * 1024 bytes)."""
    for unit in ('B', 'KiB', 'MiB'):
        if count < 1024:
            return f'{count:.0f} {unit}' if unit == 'B' else f'{count:.1f} {unit}'
        count /= 1024
    return f'{count:.2f} GiB'


def _identity(facts: Facts) -> list[str]:
    counts = {name: n for name, n in facts['parameters'].items() if name != 'all'}
    parts = ', '.join(f'{name} {_count(n)}' for name, n in counts.items())
    return [
        *_field('model_id', facts['model_id']),
        *_field('layout', facts['layout']),
        *_field('parameters', f'{_count(facts["parameters"]["all"])}: {parts}'),
        *_field('sizes', ', '.join(f'{k} {_plain(v)}' for k, v in facts['sizes'].items())),
    ]


def _cameras(facts: Facts) -> list[str]:
    rows = []
    for camera in facts['cameras']:
        shape, (width, height) = camera['shape_in_training'], camera['wh_seen']
        trained = f'{shape[2]} x {shape[1]}' if shape and len(shape) == 3 else 'unknown'
        note = ', may be absent' if camera['may_be_absent'] else ''
        rows.append(f'  {camera["slot"]:>2}  {camera["camera"]:<24} trained on {trained}, seen '
                    f'as {width} x {height}{note}')  # fmt: skip
    return rows


def _rates(facts: Facts) -> list[str]:
    chunk = facts['chunk']
    lines = [
        *_field('chunk', f'{chunk["rows"]} rows, at most {chunk["n_action_steps"]} meant to be '
                f'executed; {chunk["execute_steps"]} are, unless chunk.execute_steps says another '
                'number'),
        *_field('denoise steps', str(chunk['denoise_steps'])),
    ]
    if chunk['step_period_s'] is None:
        return lines + _field('step period', f'unknown: {chunk["step_period"]}')
    period = f'{1000 * chunk["step_period_s"]:g} ms ({chunk["step_period"]})'
    frames = (f'{chunk["frames_at_most"]}, every {1000 * chunk["frame_period_s"]:g} ms'
              if 'frames_at_most' in chunk else '')  # fmt: skip
    return lines + _field('step period', period) + (_field('frames', frames) if frames else [])


def _statistics(facts: Facts, kind: str) -> list[str]:
    rows, mode = facts['statistics'][kind], facts['normalisation'][kind]
    names = [key for key in rows[0] if key not in ('column', 'unit', 'usual', 'is_relative')]
    head = f'  {mode:<22}{"".join(f"{name:>10}" for name in names)}{"usual range":>20}  unit'
    lines = [head]
    for row in rows:
        figures = ''.join(f'{row[name]:>10.4g}' for name in names)
        usual = row['usual']
        span = 'unknown' if usual is None else f'{usual[0]:.4g} to {usual[1]:.4g}'
        relative = ', offset to the state' if row['is_relative'] else ''
        lines.append(f'  {row["column"]:<22}{figures}{span:>20}  {row["unit"]}{relative}'.rstrip())
    if any(row['unit'].endswith('?') for row in rows):
        lines.append('  a unit with ? is what the range looks like; nobody has declared it')
    return lines


def _text(facts: Facts) -> list[str]:
    words, prompt = facts['tokenizer'], facts['prompt']
    lines = [
        *_field('tokenizer', f'{words["ids"]} ids for {words["rows_of_table"]} rows of the table, '
                f'at most {words["max_length"]} tokens: {words["file"]}'),
        *_field('example', repr(prompt['text'])),
        *_items('its tokens', [repr(text) for text in prompt['tokens']]),
    ]  # fmt: skip
    if prompt['cut_off']:
        lines += _field('cut off', f'{prompt["cut_off"]} tokens')
    return lines


def _memory(facts: Facts) -> list[str]:
    memory, dtype = facts['memory'], facts['dtype']
    stored = ', '.join(
        f'{entry["tensors"]} tensors {name} {bytes_text(entry["bytes"])}'
        for name, entry in memory['stored'].items()
    )
    names = tuple(memory['by_dtype'])
    lines = [
        *_field('stored', stored),
        *_field('computes in', f'{dtype["computes_in"]} (config.json: {dtype["config"]})'),
        f'  {"":<34}{"".join(f"{name:>12}" for name in names)}',
    ]
    labels = (
        ('mapped_bytes', 'weights mapped from the file'),
        ('converted_bytes', 'weights held in memory'),
        ('slot_bytes', 'one key/value slot'),
        ('ring_bytes', f'ring of {memory["ring"]["slots"]} slots'),
        ('policy_copy_bytes', 'copy that the policy works on'),
    )
    for key, label in labels:
        row = ''.join(f'{bytes_text(memory["by_dtype"][name][key]):>12}' for name in names)
        lines.append(f'  {label:<34}{row}')
    shape = ' x '.join(map(str, memory['slot']['shape']))
    return lines + _field('slot', f'{shape} ({memory["slot"]["axes"]})')


def _needs(facts: Facts) -> list[str]:
    robot = facts['robot']
    cameras = ', '.join(f'{c["camera"]} (any size, made {c["wh_seen"][0]} x {c["wh_seen"][1]})'
                        if facts['layout'] == 'snapshot' else
                        f'{c["camera"]} ({c["wh_seen"][0]} x {c["wh_seen"][1]})'
                        for c in facts['cameras'] if not c['may_be_absent'])  # fmt: skip
    columns = ', '.join(c['column'] for c in facts['columns'])
    relative = facts['normalisation']['actions_relative_to_state']
    lines = _field('cameras', cameras) + _field('joints', columns)
    if relative:
        lines += _field('relative', f'{", ".join(relative)}: offsets to the measured state')
    if robot['to_set']:
        lines += _field('to set', ', '.join(robot['to_set']))
    if not robot['given']:
        return lines + _field('robot', 'not given: --robot FILE and -p policy.joint_unit:=... '
                              'show how its joints and cameras bind')  # fmt: skip
    lines += _field('robot', robot['given'])
    for joint in robot['joints']:
        factor = '' if joint['scale'] == 1.0 else f', the arm\'s value times {joint["scale"]:g}'
        lines.append(f'    {joint["column"]:<20} is {joint["joint"]:<10} in {joint["unit"]}'
                     f'{factor}')  # fmt: skip
    lines += [f'    {name:<20} is {topic}' for name, topic in robot['cameras'].items()]
    for refusal in robot['refusals']:
        lines += _bullet(f'DOES NOT FIT: {refusal}')
    return lines


def _field(label: str, text: str) -> list[str]:
    lines = wrap(text, WIDTH - LABEL - 2, break_long_words=True, break_on_hyphens=False) or ['']
    return [f'  {label:<{LABEL}}{lines[0]}', *(f'  {"":<{LABEL}}{line}' for line in lines[1:])]


def _items(label: str, items: Sequence[str]) -> list[str]:
    """Return items side by side, none of them broken."""
    lines = ['']
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) >= WIDTH - LABEL - 2:
            lines.append('')
        lines[-1] += f' {item}' if lines[-1] else item
    return [f'  {label if at == 0 else "":<{LABEL}}{line}' for at, line in enumerate(lines)]


def _bullet(text: str) -> list[str]:
    lines = wrap(text, WIDTH - 4, break_on_hyphens=False)
    return [f'  - {lines[0]}', *(f'    {line}' for line in lines[1:])]


def _count(number: int) -> str:
    for size, unit in ((1e9, 'G'), (1e6, 'M'), (1e3, 'k')):
        if number >= size:
            return f'{number / size:.2f} {unit}'
    return str(number)


def _plain(value: object) -> str:
    return '/'.join(map(str, value)) if isinstance(value, Sequence) and not isinstance(
        value, str) else str(value)
