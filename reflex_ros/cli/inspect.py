"""Say what a checkpoint is, needs and sees, before anything moves.

Prints a table. A picture shows the images as the network gets them, the state, the text of each
token and the first chunk; it needs one of --input, --bag, --live. Nothing is commanded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.cli._graph import add_graph_options, use_graph_options
from reflex_ros.cli._options import non_negative, positive
from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('checkpoint', type=Path, help='checkpoint folder')
    add('--robot', type=Path, action='append', default=[], metavar='FILE',
        help='parameter file, e.g. config/robots/piper.yaml; may be repeated, later ones win')
    add('-p', '--param', action='append', default=[], metavar='NAME:=VALUE',
        help='set a parameter, e.g. policy.joint_unit:=rad; may be repeated')
    add('--json', type=Path, metavar='FILE', help='write everything to this file')
    add('--picture', type=Path, metavar='OUT.png', help='draw what the model sees')
    source = parser.add_mutually_exclusive_group()
    source.add_argument('--input', type=Path, metavar='IN.npz', help='in the layout of predict')
    source.add_argument('--bag', type=Path, metavar='RUN', help='run folder or bag with images')
    source.add_argument('--live', action='store_true', help='from the topics of a running graph')
    add('--row', type=int, default=0, help='of IN.npz (default 0)')
    add('--at', type=non_negative, default=0.0, metavar='S', help='seconds after the bag starts')
    add('--wait', type=positive, default=10.0, metavar='S', help='longest wait for live topics')
    add('--task', metavar='TEXT', help='instruction; it wins over a recorded one')
    add('--seed', type=int, default=0, help='of the noise, if IN.npz has none')
    add('--dtype', choices=('float32', 'bfloat16'), help="default: the checkpoint's")
    add_graph_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table, write what was asked for."""
    from reflex_ros.bringup.settings import parse_overrides
    from reflex_ros.report.views import write_sight
    from reflex_ros.report.views_table import format_facts
    from reflex_ros.study.inspect import Source, look, open_subject, robot_of, write_json

    use_graph_options(options)
    source = Source(options.input, options.row, options.bag, options.at, options.live,
                    options.namespace, options.wait, options.task, options.seed)
    robot = robot_of(options.robot, parse_overrides(options.param), run=options.bag)
    subject = open_subject(options.checkpoint, robot, dtype=options.dtype)
    facts, sight = subject.facts(options.task), look(subject, source)
    print(format_facts(facts))
    if options.json:
        write_json(options.json, facts, sight)
    if options.picture:
        print(f'picture: {write_sight(options.picture, sight)}')
    return EXIT_INPUT if facts['robot']['refusals'] else EXIT_DONE
