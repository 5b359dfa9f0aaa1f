"""Run the nodes against a simulated arm: no robot, no GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.cli._options import non_negative, positive
from reflex_ros.core.params import PARAMS

TASKS = next(spec.choices for spec in PARAMS if spec.name == 'simulator.task')
POLICIES = next(spec.choices for spec in PARAMS if spec.name == 'policy.name')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('--mode', choices=('reflex', 'sync', 'async_naive'), default='reflex',
        help='execution mode (default: %(default)s)')
    add('--policy', choices=POLICIES, default='tiny',
        help='oracle reads the true state of the simulator (default: %(default)s)')
    add('--checkpoint', type=Path, metavar='DIR',
        help='folder of the checkpoint (default: the one shipped with tiny)')
    add('--delay-ms', type=non_negative, default=0.0, metavar='MS',
        help='pad inference start to publication to at least this')
    add('--duration', type=positive, default=30.0, metavar='S',
        help='length from the first executed chunk on, s (default: %(default)g)')
    add('--seed', type=int, default=0, help='seed of the world and of the noise')
    add('--task', choices=TASKS, default='jump',
        help='what happens in the world (default: %(default)s)')
    add('--execute-steps', type=int, default=0, metavar='N',
        help='rows used before replacement (default: what the policy says)')
    add('--one-process', action=argparse.BooleanOptionalAction, default=True,
        help='encoder and policy in one process (default)')
    add('--two-processes', action='store_false', dest='one_process',
        help='encoder and policy in a process each')
    add('--view', action='store_true', help='show the camera images in a window')
    add('--runs', type=Path, default=Path('runs'), metavar='DIR',
        help='where run folders go (default: %(default)s)')
    add('-p', '--param', action='append', default=[], metavar='NAME:=VALUE',
        help='set a parameter of docs/parameters.md; may be repeated')


def run(options: argparse.Namespace) -> int:
    """Run the demonstration."""
    from reflex_ros.bringup.demo import DemoSpec, run_demo
    from reflex_ros.bringup.settings import parse_overrides

    return run_demo(DemoSpec(
        mode=options.mode, policy=options.policy, task=options.task, delay_ms=options.delay_ms,
        duration_s=options.duration, seed=options.seed, execute_steps=options.execute_steps,
        one_process=options.one_process, view=options.view, runs=options.runs,
        checkpoint=options.checkpoint,
        overrides=parse_overrides(options.param),
    ))
