"""The commands by name, and what is said of them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from pathlib import Path

from reflex_ros.core.errors import EXIT_INPUT


def commands() -> list[str]:
    """Return the names of the commands: the modules beside this one."""
    names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in names if name != 'main' and name[0] != '_')


def unknown(name: str) -> int:
    """Say that there is no such command, and which one is near; return the exit code."""
    near = difflib.get_close_matches(name, commands(), n=1, cutoff=0.0)
    print(f'reflex-ros: there is no command {name!r}; did you mean {near[0]!r}? '
          'See reflex-ros --help.', file=sys.stderr)
    return EXIT_INPUT


def overview() -> str:
    """Return what ``reflex-ros --help`` prints."""
    lines = ['usage: reflex-ros COMMAND [OPTION]...', '', 'commands:']
    for name in commands():
        doc = importlib.import_module(f'reflex_ros.cli.{name}').__doc__ or ''
        lines.append(f'  {name:<12}{doc.splitlines()[0] if doc else ""}')
    lines += ['', 'reflex-ros COMMAND --help says more.',
              'exit codes: 0 done, 2 wrong input or output, 3 arm or bridge, 4 node lost, '
              '5 over budget', 'or nothing fits, 130 interrupted']
    return '\n'.join(lines)
