"""Certify what may be reused in a checkpoint, and measure what anything else costs.

Changes flow time, state, each image and the words one by one and says which keys and values moved.
Refuses (exit code 2) a model whose image encoder sees the flow time. Nothing is commanded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reflex_ros.cli._options import non_negative, positive, positive_int, threads
from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('checkpoint', type=Path, help='checkpoint folder')
    source = parser.add_mutually_exclusive_group()
    source.add_argument('--bag', type=Path, metavar='RUN', help='run folder or bag with images')
    source.add_argument('--input', type=Path, metavar='IN.npz', help='in the layout of predict')
    add('--observations', type=positive_int, default=4, metavar='N', help='how many (default 4)')
    add('--at', type=non_negative, default=0.0, metavar='S', help='seconds after the bag starts')
    add('--gap', type=positive, metavar='S', help='seconds between two observations of a bag')
    add('--task', metavar='TEXT', help='instruction; it wins over a recorded one')
    add('--seed', type=int, default=0, help='of noise and of made-up observations')
    add('--robot', type=Path, action='append', default=[], metavar='FILE',
        help='parameter file that declares names and units; may be repeated')
    add('-p', '--param', action='append', default=[], metavar='NAME:=VALUE',
        help='set a parameter, e.g. policy.joint_unit:=rad; may be repeated')
    add('--dtype', choices=('float32', 'bfloat16', 'float64'), help="default: the checkpoint's")
    add('--threads', type=threads, default=1, help='of torch (default 1)')
    add('--json', type=Path, metavar='FILE', help='write everything to this file')
    add('--page', type=Path, metavar='FILE.html', help='write a page to read')


def run(options: argparse.Namespace) -> int:
    """Print the certificate, write what was asked for."""
    from reflex_ros.bringup.settings import parse_overrides
    from reflex_ros.core.files import write_text
    from reflex_ros.report.verify import format_certificate, page
    from reflex_ros.study.inspect import robot_of
    from reflex_ros.study.verify import verify, write_json
    from reflex_ros.study.verify_scenes import Asked

    robot = robot_of(options.robot, parse_overrides(options.param), run=options.bag)
    asked = Asked(options.input, options.bag, options.at, options.observations, options.gap,
                  options.task, options.seed)  # fmt: skip
    report = verify(options.checkpoint, robot, asked, dtype=options.dtype,
                    threads=options.threads)  # fmt: skip
    print(format_certificate(report))
    if options.json:
        write_json(options.json, report)
    if options.page:
        write_text(options.page, page(report))
    for refusal in report['refusals']:
        print(f'ModelError: {refusal}', file=sys.stderr)
    return EXIT_INPUT if report['refusals'] else EXIT_DONE
