"""Ask the bridge: what the arm does, hold, resume, recover."""

from __future__ import annotations

import argparse
import sys

from reflex_ros.cli._graph import add_graph_options, use_graph_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        'action', choices=('status', 'hold', 'resume', 'recover'),
        help='hold: decelerate and hold, the software stop; it replaces no emergency stop')
    parser.add_argument(
        '--arm-supported', action='store_true',
        help='recover: your word that a person or a stand supports the arm, which may sag; asked '
             'a second time for the same fault it may also cut the power, and the arm falls')
    add_graph_options(parser)


def run(options: argparse.Namespace) -> int:
    """Carry the action out."""
    use_graph_options(options)
    from reflex_ros.ros.operator import Operator

    with Operator(options.namespace) as operator:
        if options.action == 'status':
            print(operator.status())
            return 0
        bridge = operator.bridge
        reply = (operator.recover(_say, arm_supported=options.arm_supported)
                 if options.action == 'recover' else getattr(bridge, options.action)())
    print(f'{"accepted" if reply.accepted else "refused"}: {reply.reason}')
    return 0 if reply.accepted else 3


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
