"""Types of options that several commands take."""

from __future__ import annotations

import argparse
import math
import os

MOST_THREADS = 1024


def positive(text: str) -> float:
    """Return a finite number > 0."""
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f'got {text}, expected > 0')
    return value


def non_negative(text: str) -> float:
    """Return a finite number >= 0."""
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f'got {text}, expected >= 0')
    return value


def positive_int(text: str) -> int:
    """Return a whole number > 0."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f'got {text}, expected a whole number > 0')
    return value


def threads(text: str) -> int:
    """Return a number of threads that a machine can have."""
    value = positive_int(text)
    if value > MOST_THREADS:
        raise argparse.ArgumentTypeError(f'got {text}, expected <= {MOST_THREADS}')
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f'got {text}, expected a number')
    return value


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """Add what finds a running graph."""
    parser.add_argument('--namespace', default='', help='namespace of the nodes')
    parser.add_argument('--domain', type=int, metavar='ID',
                        help='domain id that a demonstration has printed')


def use_graph_options(options: argparse.Namespace) -> None:
    """Put them into the environment; call it before ROS is imported."""
    if options.domain is not None:
        os.environ['ROS_DOMAIN_ID'] = str(options.domain)
        os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
