"""Measure on this machine what the documents claim.

``policy``: full recomputation, what the reference implementations do, and what the nodes run, with
equal weights, inputs and results. Networks have random weights unless --checkpoint names a folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.cli._options import positive_int, threads
from reflex_ros.core.errors import EXIT_DONE

FAMILIES, SIZES, DTYPES = ('pi0', 'pi05', 'smolvla'), ('tiny', 'mid'), ('float32', 'bfloat16')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('topic', choices=('policy',), help='what to measure')
    add('--family', action='append', choices=FAMILIES, help='may be repeated (default: all)')
    add('--size', action='append', choices=SIZES, help='mid has 80 M weights (default: both)')
    add('--dtype', action='append', choices=DTYPES, help='may be repeated (default: both)')
    add('--checkpoint', type=Path, metavar='DIR', help='measure this checkpoint instead')
    add('--calls', type=positive_int, default=30, metavar='N',
        help='counted calls of each variant (default: %(default)s)')
    add('--threads', type=threads, default=1, help='of torch (default: %(default)s)')
    add('--seed', type=int, default=0, help='of weights and inputs')
    add('--out', type=Path, metavar='DIR', help='folder for a result file')
    add('--picture', type=Path, metavar='PNG', help='file for a picture')


def run(options: argparse.Namespace) -> int:
    """Measure, print the table, keep the result; a missed target is a result, no error."""
    from reflex_ros.core.files import check_file, make_folder
    from reflex_ros.study.bench_report import Options, keep, run_with_bar, table
    from reflex_ros.study.results import read_revision

    wanted = Options(
        tuple(options.family or FAMILIES), tuple(options.size or SIZES),
        tuple(options.dtype or DTYPES), options.checkpoint, options.calls,
        threads=options.threads, seed=options.seed,
    )
    if options.out is not None:
        make_folder(options.out)
    if options.picture is not None:
        check_file(options.picture)
    revision = read_revision()
    found = run_with_bar(wanted)
    print('\n'.join(table(found)))
    if options.out is not None:
        print(keep(found, wanted, options.out, revision))
    if options.picture is not None:
        from reflex_ros.study.bench_picture import write_picture

        print(write_picture(found, options.picture))
    return EXIT_DONE
