"""Run the grid of an experiment file on the virtual clock: tasks, modes, parts, delays, seeds.

Lines go to a folder for each file and are not run again; the same file and seed give equal lines.
``config/experiments`` has the files behind ``docs/results.md``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.cli._options import positive_int
from reflex_ros.core.errors import EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('files', nargs='+', type=Path, metavar='FILE', help='experiment file (YAML)')
    add('--out', type=Path, default=Path('results/experiments'), metavar='DIR',
        help='where the folders of the files go (default: %(default)s)')
    add('--seeds', type=positive_int, default=0, metavar='N',
        help='run the first N seeds (default: what the file says)')
    add('--workers', type=positive_int, default=0, metavar='N',
        help='processes (default: one for each core)')


def run(options: argparse.Namespace) -> int:
    """Check every file, then run them one after the other and print their tables."""
    from tqdm import tqdm

    from reflex_ros.study.experiment import run_experiment
    from reflex_ros.study.experiment_file import load_experiment
    from reflex_ros.study.experiment_table import table
    from reflex_ros.study.results import read_revision

    experiments = [load_experiment(path, seeds=options.seeds) for path in options.files]
    revision = read_revision()
    for one in experiments:
        with tqdm(unit='episode', desc=one.name) as bar:
            def show(done: int, total: int, bar: tqdm = bar) -> None:
                bar.total = total
                bar.update(done - bar.n)

            lines = run_experiment(one, options.out / one.name, revision=revision,
                                   workers=options.workers, tick=show)
        print('\n'.join(['', one.title, *table(one, lines)]))
    return EXIT_DONE
