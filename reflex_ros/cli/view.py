"""Export a recorded run for the Rerun viewer: joints, plan, commands, cameras on one timeline.

BAG is a bag (folder or file) or a run folder; of a damaged one what is whole is exported. Needs
rerun-sdk (requirements/view.txt). For Foxglove, live or with a bag: config/foxglove/reflex.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.core.errors import EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('bag', type=Path, metavar='BAG', help='bag or run folder')
    parser.add_argument('--output', type=Path, metavar='FILE.rrd',
                        help='default: view.rrd in a run folder, BAG.rrd beside a bag')
    parser.add_argument('--spawn', action='store_true', help='open it in the viewer')


def run(options: argparse.Namespace) -> int:
    """Write the recording, say what is in it, open it if asked to."""
    from reflex_ros.report.view import export, progress_bar
    from reflex_ros.report.view_rerun import open_viewer

    result = export(options.bag, options.output, progress=progress_bar())
    cameras = ', '.join(f'{n} of {name}' for name, n in sorted(result.frames.items()))
    print(f'{result.path}: {result.ticks} ticks, frames: {cameras or "none"}')
    for note in result.notes:
        print(f'  missing: {note}')
    if options.spawn:
        open_viewer(result.path)
    return EXIT_DONE
