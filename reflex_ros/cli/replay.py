"""Replay a recorded run: cameras and arm from a bag, everything else computed again.

With --virtual the stages run in this process on a virtual clock: fast, and the same bag, seed and
options give the same output. Else the real nodes run in recorded time, and * is refused.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reflex_ros.cli._options import non_negative
from reflex_ros.core.errors import EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('bag', type=Path, help='run folder, or one bag')
    add('--output', type=Path, required=True, metavar='DIR', help='new run folder')
    add('--virtual', action='store_true', help='in this process, on a virtual clock')
    add('--seed', type=int, help='of the noise and of what is drawn (default: as recorded)')
    add('--mode', choices=('reflex', 'sync', 'async_naive'), help='instead of the recorded one')
    add('--stitch', choices=('replace', 'blend', 'rtc'), help='instead of the recorded one')
    add('--policy', help='instead of the recorded one')
    add('--execute-steps', type=int, metavar='N', help='rows used before replacement')
    add('--delay-ms', type=non_negative, metavar='MS',
        help='pad inference start to publication to at least this')
    add('--inject', action='append', default=[], metavar='ITEM[,ITEM]...',
        help='*: denoise.p95=120ms,spike=400ms@3%%,drop=camera.wrist@1%%; see docs/replay.md')
    add('--costs', choices=('recorded', 'drawn'), default='recorded',
        help='latencies when they were recorded (default), or *: drawn from their distribution')
    add('--arm', choices=('recorded', 'obedient'),
        help='where it was (default), or *: where it is commanded to be (default for sync)')
    add('--params-file', type=Path, help='parameters of the run, if not beside the bag')
    add('-p', '--param', action='append', default=[], metavar='NAME:=VALUE',
        help='set a parameter of docs/parameters.md; may be repeated')


def run(options: argparse.Namespace) -> int:
    """Replay and print the figures before and after."""
    from reflex_ros.bringup.replay import replay
    from reflex_ros.bringup.replay_figures import format_figures
    from reflex_ros.bringup.replay_input import ReplaySpec
    from reflex_ros.bringup.replay_options import overrides_of
    from reflex_ros.stages.replay_inject import parse_injections

    spec = ReplaySpec(
        options.bag, options.output, options.seed, overrides_of(options),
        parse_injections(options.inject), options.costs == 'recorded',
        options.arm and options.arm == 'recorded', options.params_file)
    if not options.virtual:
        from reflex_ros.bringup.replay_nodes import replay_nodes

        return replay_nodes(spec)
    done = replay(spec, is_shown=sys.stderr.isatty())
    format_figures(done)
    print(f'  content {done.content}\n  {options.output}')
    return EXIT_DONE
