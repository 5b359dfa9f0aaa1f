"""Look at bus, arm, cameras and machine before anything moves, and say what to do.

No command is ever sent to the arm: it is listened to and asked for firmware and limits.
Exit code 0 if nothing failed, 1 if something did, 2 for wrong use.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.cli._graph import add_graph_options, use_graph_options
from reflex_ros.cli._options import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('--params-file', type=Path, action='append', default=[], metavar='FILE', dest='files',
        help='parameter file, later ones win (default: config/robots/piper.yaml)')
    add('-p', '--param', action='append', default=[], metavar='NAME:=VALUE',
        help='set a parameter of docs/parameters.md; may be repeated')
    add('--arm', action='append', default=[], metavar='CHANNEL[@HOST:PORT]', dest='arms',
        help='CAN interface, or channel of a socketcand server; may be repeated')
    add('--cameras', nargs='+', default=[], metavar='TOPIC', help='image topics')
    add('--checkpoint', type=Path, metavar='DIR', help='default: that of the parameters')
    add('--seconds', type=positive, default=5.0, metavar='S',
        help='length of each measurement (default 5; 20 resolves p99.9)')
    add('--runs', type=Path, default=Path('runs'), metavar='DIR', help='where run folders go')
    add('--only', nargs='+', default=[], metavar='NAME', help='checks or groups, see --list')
    add('--skip', nargs='+', default=[], metavar='NAME', help='checks or groups to leave out')
    add('--listen-only', action='store_true', help='do not even ask for firmware and limits')
    add('--json', metavar='FILE', help='write everything to this file; - = standard output')
    add('--list', action='store_true', help='name the checks and end')
    add_graph_options(parser)


def run(options: argparse.Namespace) -> int:
    """Look, print, return the exit code."""
    use_graph_options(options)
    from reflex_ros.bringup.settings import config_file, parse_overrides
    from reflex_ros.doctor.main import examine, listing

    if options.list:
        print(listing())
        return 0
    files = options.files or [config_file('robots/piper.yaml')]
    return examine(options, files, parse_overrides(options.param))
