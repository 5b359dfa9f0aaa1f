"""Entry point of ``reflex-ros``: finds the command and turns errors into exit codes."""

from __future__ import annotations

import argparse
import difflib
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

from reflex_ros.cli._output import discard, flushed
from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT, EXIT_INTERRUPTED, ReflexError


def commands() -> list[str]:
    """Return the names of the commands: the modules beside this one."""
    names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in names if name != 'main' and name[0] != '_')


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (``docs/faults.md``)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ('-h', '--help'):
        print(_overview())
        return EXIT_DONE if arguments else EXIT_INPUT
    name, *rest = arguments
    if name not in commands():
        near = difflib.get_close_matches(name, commands(), n=1, cutoff=0.0)
        print(f'reflex-ros: there is no command {name!r}; did you mean {near[0]!r}? '
              'See reflex-ros --help.', file=sys.stderr)
        return EXIT_INPUT
    module = importlib.import_module(f'reflex_ros.cli.{name}')
    parser = argparse.ArgumentParser(prog=f'reflex-ros {name}', description=module.__doc__)
    module.add_arguments(parser)
    options = parser.parse_args(rest)
    try:
        return flushed(int(module.run(options)))
    except ReflexError as error:
        print(f'{type(error).__name__}: {error}', file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return discard()
    except KeyboardInterrupt:
        # a running graph takes the signal itself; here nothing was started, or it has ended
        print('reflex-ros: interrupted', file=sys.stderr)
        return EXIT_INTERRUPTED


def _overview() -> str:
    lines = ['usage: reflex-ros COMMAND [OPTION]...', '', 'commands:']
    for name in commands():
        doc = importlib.import_module(f'reflex_ros.cli.{name}').__doc__ or ''
        lines.append(f'  {name:<12}{doc.splitlines()[0] if doc else ""}')
    lines += ['', 'reflex-ros COMMAND --help says more.',
              'exit codes: 0 done, 2 wrong input, 3 arm or bridge, 4 node lost, 5 over budget']
    return '\n'.join(lines)
