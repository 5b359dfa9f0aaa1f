"""What a check says: one line with the measured value and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reflex_ros.doctor.context import Context

class Level(str, Enum):
    """How bad it is: ``fail`` forbids a run, ``warn`` does not, ``skip`` was not looked at."""

    OK = 'ok'
    WARN = 'warn'
    FAIL = 'fail'
    SKIP = 'skip'


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        level: How bad it is.
        value: What was measured, in words with units.
        remedy: What to do, '' for ``ok``; usually a command to copy.
        subject: Interface, topic, joint or folder that it is about; '' = this machine.
        measured: The same as numbers and texts, for JSON.
    """

    level: Level
    value: str
    remedy: str = ''
    subject: str = ''
    measured: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked at.

    Attributes:
        name: Stable name.
        group: ``can``, ``arm``, ``camera``, ``machine``, ``dds``, ``disk``, ``model``, ``ros``.
        measures, limits, remedy: For the documentation.
        run: Looks, and returns the lines.
    """

    name: str
    group: str
    measures: str
    limits: str
    remedy: str
    run: Callable[[Context], Iterable[Finding]]


def ok(
    value: str, *, subject: str = '', about: Mapping[str, object] | None = None, **measured: object
) -> Finding:
    """Return that something is as it should be.

    Args:
        value, subject: See ``Finding``.
        about, measured: What was measured; ``about`` is shared by several lines.
    """
    return Finding(Level.OK, value, '', subject, {**(about or {}), **measured})


def warn(
    value: str, remedy: str, *, subject: str = '', about: Mapping[str, object] | None = None,
    **measured: object,
) -> Finding:  # fmt: skip
    """Return that something works, but not well; arguments as for ``ok``."""
    return Finding(Level.WARN, value, remedy, subject, {**(about or {}), **measured})


def fail(
    value: str, remedy: str, *, subject: str = '', about: Mapping[str, object] | None = None,
    **measured: object,
) -> Finding:  # fmt: skip
    """Return that something does not work; arguments as for ``ok``."""
    return Finding(Level.FAIL, value, remedy, subject, {**(about or {}), **measured})


def skip(reason: str, remedy: str = '', *, subject: str = '') -> Finding:
    """Return that something was not looked at, and why."""
    return Finding(Level.SKIP, reason, remedy, subject)


def from_error(
    error: Exception, *, subject: str = '', about: Mapping[str, object] | None = None,
    **measured: object,
) -> Finding:  # fmt: skip
    """Return the failure that an error of the suite tells: what was got, then what to do."""
    what, _, remedy = str(error).partition('. ')
    return Finding(Level.FAIL, what, remedy or 'See docs/faults.md.', subject,
                   {**(about or {}), **measured})
