"""Figures and picture of a run folder, from its ledger and its bag."""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('folder', type=Path, nargs='+', help='run folder, e.g. runs/*')


def run(options: argparse.Namespace) -> int:
    """Write summary.json and picture.png and print the table of each folder."""
    from reflex_ros.bag.run_folder import RunFolder
    from reflex_ros.bringup.ending import report

    reported = [report(RunFolder(folder)) for folder in options.folder]
    return EXIT_DONE if all(reported) else EXIT_INPUT
