"""Options that find a running graph."""

from __future__ import annotations

import argparse
import os


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
