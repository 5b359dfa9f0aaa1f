"""Give a new instruction; the arm decelerates, and goes on with its first chunk."""

from __future__ import annotations

import argparse

from reflex_ros.cli._graph import add_graph_options, use_graph_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('text', help='instruction in natural language')
    add_graph_options(parser)


def run(options: argparse.Namespace) -> int:
    """Call the service."""
    use_graph_options(options)
    from reflex_ros.ros.operator import Operator

    with Operator(options.namespace) as operator:
        reply = operator.bridge.set_instruction(options.text)
    print(f'{"accepted" if reply.accepted else "refused"}: {reply.reason}')
    return 0 if reply.accepted else 3
