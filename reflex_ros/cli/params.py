"""Print the table of parameters, or check parameter files."""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.core.params import NODES, PARAMS, kind, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('files', type=Path, nargs='*', metavar='FILE',
                        help='parameter files to check, later ones win; none: print the table')
    parser.add_argument('--node', choices=NODES, help='only this node')


def run(options: argparse.Namespace) -> int:
    """Print the table, or the values that the files lead to and where they leave the default."""
    for node in NODES:
        if options.node in (None, node):
            values = load(options.files, node)
            specs = [spec for spec in PARAMS if node in spec.nodes]
            shown = [spec for spec in specs if not options.files or
                     values[spec.name] != spec.default]
            print(f'{node}:')
            for spec in shown:
                value = f'{_text(values[spec.name])} {spec.unit}'.rstrip()
                print(f'  {spec.name:<34}{kind(spec):<8}{value}')
    if options.files:
        print('no error; shown is what differs from the defaults')
    return 0


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f'[{", ".join(str(item) for item in value)}]'
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'
