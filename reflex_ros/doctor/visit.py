"""Runs the chosen checks; nothing that a broken machine does ends the visit."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reflex_ros.core.errors import EXIT_DONE, ConfigError, ReflexError
from reflex_ros.doctor.model import Check, Finding, Level, fail, from_error, skip
from reflex_ros.doctor.registry import CHECKS, EMPTY, GROUPS

if TYPE_CHECKING:
    from reflex_ros.doctor.context import Context

EXIT_FOUND = 1
"""At least one check failed."""


def choose(only: Sequence[str] = (), skipped: Sequence[str] = ()) -> tuple[Check, ...]:
    """Return the checks of the named checks and groups, in their order.

    Args:
        only: Names of checks or groups; () for all.
        skipped: Names that are left out.

    Raises:
        ConfigError: A name is unknown, or nothing is left.
    """
    known = {check.name for check in CHECKS} | set(GROUPS)
    for name in (*only, *skipped):
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
            raise ConfigError(
                f'check {name} is unknown: got {name!r}, expected a check or a group, e.g. '
                f'{near[0]}. See reflex-ros doctor --list.')
    chosen = tuple(check for check in CHECKS
                   if (not only or {check.name, check.group} & set(only))
                   and not {check.name, check.group} & set(skipped))
    if not chosen:
        raise ConfigError(
            'no check is left: got everything skipped, expected at least one. Skip less.')
    return chosen


def visit(context: Context, checks: Sequence[Check]) -> Iterator[tuple[Check, Finding]]:
    """Yield every line as it is known."""
    for check in checks:
        yield from ((check, finding) for finding in _run(check, context))


def _run(check: Check, context: Context) -> list[Finding]:
    found: list[Finding] = []
    try:
        found.extend(check.run(context))
        return found or list(EMPTY[check.group](context))
    except ImportError as error:
        return [*found, skip(f'cannot be looked at here: {error}', 'See ros-packages.')]
    except ReflexError as error:
        return [*found, from_error(error)]
    except Exception as error:  # a machine so odd that a check stumbles is a finding, no crash
        text = f'{type(error).__name__}: {error}'.splitlines()[0]
        return [*found, fail(f'the check itself stumbled: {text}',
                             f'reflex-ros doctor --only {check.name} --json -   # report it')]


def exit_code(levels: Sequence[Level]) -> int:
    """Return 1 if anything failed, else 0."""
    return EXIT_FOUND if Level.FAIL in levels else EXIT_DONE
