"""Show a run in the Rerun viewer: joints, plan, commands, state and cameras on one timeline.

BAG is a bag (folder or file) or a run folder; of a damaged one what is whole is exported. --live
shows a running graph instead. Needs rerun-sdk (requirements/view.txt). For Foxglove, live or with
a bag: config/foxglove/reflex.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.cli._graph import add_graph_options, use_graph_options
from reflex_ros.cli._options import positive
from reflex_ros.core.errors import EXIT_DONE, ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('bag', type=Path, nargs='?', metavar='BAG', help='bag or run folder')
    add('--output', type=Path, metavar='FILE.rrd',
        help='default: view.rrd in a run folder, BAG.rrd beside a bag; none with --live')
    add('--spawn', action='store_true', help='open it in the viewer')
    add('--live', action='store_true', help='a running graph, until Ctrl-C')
    add('--connect', default='', metavar='URL', help='with --live: a viewer that runs already')
    add('--duration', type=positive, default=0.0, metavar='S', help='with --live: end after this')
    add_graph_options(parser)


def run(options: argparse.Namespace) -> int:
    """Show a bag or a running graph."""
    if options.live == (options.bag is not None):
        raise ConfigError('view: got ' + ('both' if options.live else 'neither') + ', expected '
                          'either BAG or --live. Give one of them.')
    if not options.live and (options.connect or options.duration or options.namespace):
        raise ConfigError('view of a bag: got --connect, --duration or --namespace, expected them '
                          'with --live alone. Leave them out.')
    return _live(options) if options.live else _export(options)


def _live(options: argparse.Namespace) -> int:
    use_graph_options(options)
    from reflex_ros.report.view_live import describe, follow
    from reflex_ros.report.view_rerun import Viewer

    print(describe(follow(Viewer(options.connect, options.spawn), output=options.output,
                          namespace=options.namespace, duration_s=options.duration)))
    return EXIT_DONE


def _export(options: argparse.Namespace) -> int:
    from reflex_ros.report.view import export_and_say

    export_and_say(options.bag, options.output, is_shown=options.spawn)
    return EXIT_DONE
