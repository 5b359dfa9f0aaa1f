"""Errors of the suite.

One type for each thing that the caller can do about it:

``ReflexError``
    Base of all of them; ``exit_code`` is what a command line ends with.
``ConfigError`` (2)
    A parameter, file, name or unit is wrong: correct the input.
``LayoutError`` (2)
    Two sides disagree about a memory or tensor layout: start both with the same configuration.
``ModelError`` (2)
    A checkpoint is incomplete, mis-shaped or not finite: use another one.
``StaleError`` (4)
    Data is too old or its source has died: restart the source.
``ArmError`` (3)
    The arm or its bus refused or fell silent; carries a fault code and the recent past.

A message reads ``<what failed> <which one>: got <value>, expected <constraint>. <What to do.>``
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_INPUT = 2
EXIT_ARM = 3
EXIT_NODE_LOST = 4
EXIT_BUDGET = 5
EXIT_INTERRUPTED = 130


class ReflexError(Exception):
    """Base of every error that the suite raises on purpose."""

    exit_code = EXIT_INPUT


class ConfigError(ReflexError):
    """A parameter, file, name or unit is wrong."""


class LayoutError(ReflexError):
    """Two sides disagree about a memory or tensor layout."""


class ModelError(ReflexError):
    """A checkpoint is incomplete, mis-shaped or holds numbers that are not finite."""


class StaleError(ReflexError):
    """Data is older than its age limit or its source has died."""

    exit_code = EXIT_NODE_LOST


class ArmError(ReflexError):
    """The arm or its bus refused a request or fell silent.

    Args:
        message: What failed, got, expected, what to do.
        code: Stable snake_case identifier of the fault, listed in ``docs/faults.md``.
        recent: States and commands of the last two seconds, newest last, for the report.
    """

    exit_code = EXIT_ARM

    def __init__(
        self, message: str, *, code: str = 'arm', recent: tuple[object, ...] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.recent = recent
