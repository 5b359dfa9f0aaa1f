"""The visit on a terminal and as JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

from reflex_ros.core.machine import describe_machine
from reflex_ros.doctor.model import Check, Finding, Level

if TYPE_CHECKING:
    from reflex_ros.doctor.context import Choices

SCHEMA = 1
COLOURS = MappingProxyType(
    {Level.OK: '32', Level.WARN: '33', Level.FAIL: '31', Level.SKIP: '2'})
NAME_WIDTH = 16
Line = tuple[Check, Finding]


def is_terminal(stream: TextIO) -> bool:
    """Return whether somebody looks at the stream."""
    return stream.isatty()


class Screen:
    """Prints lines as they come, and what is being measured in between.

    Args:
        out: Where lines go, None for nowhere.
        note: Where progress goes; only if it is a terminal.
        environ: ``NO_COLOR`` switches colours off.
    """

    def __init__(
        self, out: TextIO | None, note: TextIO, environ: Mapping[str, str]
    ) -> None:
        self._out, self._note = out, note
        self._has_colour = out is not None and is_terminal(out) and not environ.get('NO_COLOR')
        self._pending = 0

    def measuring(self, what: str, seconds: float) -> None:
        """Show what is being measured, on a terminal only."""
        if not is_terminal(self._note):
            return
        self.clear()
        text = f'... {what}' + (f', {seconds:g} s' if seconds else '')
        self._note.write(text)
        self._note.flush()
        self._pending = len(text)

    def clear(self) -> None:
        """Remove the progress."""
        if self._pending:
            self._note.write('\r' + ' ' * self._pending + '\r')
            self._note.flush()
            self._pending = 0

    def line(self, check: Check, finding: Finding) -> None:
        """Print one line, and the remedy below it."""
        self.clear()
        if self._out is not None:
            print(format_line(check, finding, has_colour=self._has_colour), file=self._out,
                  flush=True)

    def summary(self, lines: Sequence[Line]) -> None:
        """Print the counts."""
        if self._out is not None:
            print(format_counts(lines), file=self._out)


def format_line(check: Check, finding: Finding, *, has_colour: bool = False) -> str:
    """Return one line, and the remedy on a second one."""
    level = f'{finding.level.value.upper():<4}'
    if has_colour:
        level = f'\x1b[{COLOURS[finding.level]}m{level}\x1b[0m'
    subject = f'{_shown(finding.subject)}: ' if finding.subject else ''
    text = f'{level}  {check.name:<{NAME_WIDTH}}{subject}{_shown(finding.value)}'
    return text + (f'\n      -> {_shown(finding.remedy)}' if finding.remedy else '')


def _shown(text: str) -> str:
    """Return a text without what would move the cursor; names come from elsewhere."""
    return ''.join(c if c.isprintable() else '?' for c in text)


def format_counts(lines: Sequence[Line]) -> str:
    """Return how many lines are of each level."""
    found = Counter(finding.level for _, finding in lines)
    return ', '.join(f'{found[level]} {level.value.upper()}' for level in Level)


def to_json(lines: Sequence[Line], choices: Choices, exit_code: int) -> dict[str, Any]:
    """Return everything in JSON types."""
    found = Counter(finding.level for _, finding in lines)
    return {
        'schema': SCHEMA,
        'machine': describe_machine(),
        'choices': {'arms': [arm.bus_name for arm in choices.arms],
                    'cameras': dict(choices.cameras), 'seconds': choices.seconds,
                    'runs': str(choices.runs), 'asks_arm': choices.asks_arm},
        'exit_code': exit_code,
        'counts': {level.value: found[level] for level in Level},
        'findings': [
            {'check': check.name, 'group': check.group, 'subject': finding.subject,
             'level': finding.level.value, 'value': finding.value,
             'measured': _plain(finding.measured), 'remedy': finding.remedy}
            for check, finding in lines
        ],
    }


def dump(content: Mapping[str, Any]) -> str:
    """Return JSON text that ends in a newline and has no NaN."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + '\n'


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
