"""Entry point of ``reflex-ros``: finds the command and turns errors into exit codes.

Little is imported before Ctrl-C is heard, and the rest is only imported when it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def commands() -> list[str]:
    """Return the names of the commands."""
    from reflex_ros.cli import _commands

    return _commands.commands()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (``docs/faults.md``)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        from reflex_ros.bringup.guard import guarded

        return guarded(lambda: _run(arguments))
    except KeyboardInterrupt:  # while that was imported
        print('reflex-ros: interrupted', file=sys.stderr)
        return 130


def _run(arguments: Sequence[str]) -> int:
    import importlib

    from reflex_ros.cli._commands import overview, unknown
    from reflex_ros.cli._parser import CommandParser
    from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT

    if not arguments or arguments[0] in ('-h', '--help'):
        print(overview())
        return EXIT_DONE if arguments else EXIT_INPUT
    name, *rest = arguments
    if name not in commands():
        return unknown(name)
    module = importlib.import_module(f'reflex_ros.cli.{name}')
    parser = CommandParser(prog=f'reflex-ros {name}', description=module.__doc__)
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(rest)))
