"""Run the suite on a robot until Ctrl-C, without ros2 launch."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('--params-file', type=Path, action='append', required=True, metavar='FILE', dest='files',
        help='parameter file, e.g. config/robots/piper.yaml; may be repeated, later ones win')
    add('-p', '--param', action='append', default=[], metavar='NAME:=VALUE',
        help='set a parameter of docs/parameters.md; may be repeated')
    add('--namespace', default='', help='namespace of the nodes')
    add('--one-process', action=argparse.BooleanOptionalAction, default=True,
        help='encoder and policy in one process (default)')
    add('--two-processes', action='store_false', dest='one_process',
        help='encoder and policy in a process each')
    add('--part', choices=('all', 'robot', 'inference'), default='all',
        help='what runs on this machine: all; arm and recorder; encoder and policy '
        '(docs/offboard.md)')
    add('--record', action=argparse.BooleanOptionalAction, default=True,
        help='record a bag into the run folder (default)')
    add('--runs', type=Path, default=Path('runs'), metavar='DIR',
        help='where run folders go (default: %(default)s)')


def run(options: argparse.Namespace) -> int:
    """Run the suite."""
    from reflex_ros.bringup.robot import RobotSpec, run_robot
    from reflex_ros.bringup.settings import parse_overrides

    return run_robot(RobotSpec(
        files=tuple(options.files), namespace=options.namespace,
        one_process=options.one_process, record=options.record, runs=options.runs,
        overrides=parse_overrides(options.param), part=options.part,
    ))
