"""Ask a recorder that keeps the last seconds in memory to write them (recorder.snapshot_s)."""

from __future__ import annotations

import argparse

from reflex_ros.cli._graph import add_graph_options, use_graph_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_graph_options(parser)


def run(options: argparse.Namespace) -> int:
    """Call the service."""
    use_graph_options(options)
    from reflex_ros.ros.operator import Operator

    with Operator(options.namespace) as operator:
        reply = operator.snapshot()
    print(f'{"accepted" if reply.accepted else "refused"}: {reply.reason}')
    return 0 if reply.accepted else 3
