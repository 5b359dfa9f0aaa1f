"""Figures, stalls and losses of a recorded run: table, JSON, and one HTML page.

BAG is a bag (folder or file) or a run folder. Of a run folder summary.json and picture.png are
written too. A damaged bag gives a partial report that says what is missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT, ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('bag', type=Path, nargs='+', metavar='BAG',
                        help='bag or run folder, e.g. runs/*')
    parser.add_argument('--json', metavar='FILE', help='write the report as JSON; - prints it')
    parser.add_argument('--html', type=Path, metavar='FILE',
                        help='write one page that needs no network')


def run(options: argparse.Namespace) -> int:
    """Report each bag; exit code 2 if one could not be."""
    from reflex_ros.report.show import show

    if len(options.bag) > 1 and (options.json or options.html):
        raise ConfigError(
            f'report of several bags: got {len(options.bag)} with --json or --html, expected one. '
            'Give one bag.')
    if options.json and options.html and Path(options.json).resolve() == options.html.resolve():
        raise ConfigError(
            f'report of {options.bag[0]}: got {options.html} for --json and --html, expected two '
            'files. Name another one.')
    shown = [show(path, json_to=options.json, html_to=options.html) for path in options.bag]
    return EXIT_DONE if all(shown) else EXIT_INPUT
