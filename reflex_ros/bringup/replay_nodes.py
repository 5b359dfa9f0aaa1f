"""A replay through the real nodes, in recorded time: the recording in the simulator's place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup import ending
from reflex_ros.bringup.demo import verdict
from reflex_ros.bringup.environment import choose_domain, free_tcp_port
from reflex_ros.bringup.graph import suite
from reflex_ros.bringup.replay_folder import require_new
from reflex_ros.bringup.replay_input import open_source
from reflex_ros.bringup.session import RunSpec, run_session
from reflex_ros.core.clock import MS, SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.files import make_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.bringup.replay_input import ReplaySpec, Source
    from reflex_ros.bringup.settings import Parameters
    from reflex_ros.bringup.status_line import Progress
    from reflex_ros.core.param_table import Value

TAIL_NS = 200 * MS
"""So much before the end of the recording the run ends: frames must not run out first."""


def replay_nodes(spec: ReplaySpec) -> int:
    """Replay a bag through the nodes and report it; return the exit code.

    Raises:
        ConfigError: The bag, a parameter or the output cannot be used.
    """
    source = open_source(spec)
    if spec.output is None:
        raise ConfigError(
            'replay through the nodes: got no output, expected a new folder. Name one.')
    if spec.injections.stages or spec.injections.drops or not spec.is_timed:
        got = '--inject' if spec.is_timed else '--costs drawn'
        raise ConfigError(
            f'replay through the nodes: got {got}, expected latencies as they are: the nodes '
            'take the time that they take. Add --virtual.'
        )
    if not source.is_arm_recorded:
        raise ConfigError(
            f'replay through the nodes: got an obedient arm (mode '
            f'{source.values["chunk.mode"]}), expected the recorded one. Add --virtual.'
        )
    for text in source.recorded.notes:
        print(f'noted: {text}')
    folder = RunFolder(spec.output.resolve())
    parameters = node_parameters(source, folder, port=free_tcp_port())
    make_folder(folder.path)
    run = RunSpec(suite(simulated=True), folder, parameters, domain=choose_domain(os.environ))
    result = run_session(run, until=_lasts(source))
    ending.report(folder)
    code, text = verdict(result)
    if text:
        print(text)
    return code


def node_parameters(source: Source, folder: RunFolder, *, port: int) -> Parameters:
    """Return the parameters of a replay's nodes.

    Args:
        source: The bag and its parameters. ``folder``: new run folder.
        port: TCP port of the bus.

    Raises:
        ConfigError: The folder exists.
    """
    require_new(folder.path)
    recorded = source.recorded
    chosen: dict[str, Value] = {
        'run.folder': str(folder.path), 'run.autostart': True, 'arm.port': port,
        'arm.transport': 'socketcand', 'arm.host': '127.0.0.1', 'simulator.port': port,
        'simulator.replay': str(recorded.folder.resolve()), 'simulator.faults': '',
        'recorder.images': bool(recorded.cameras),
        'run.instruction': recorded.instructions[0][1] if recorded.instructions else '',
    }
    return {
        node: {**values, **{name: chosen[name] for name in chosen if name in values}}
        for node, values in source.parameters.items()
    }


def _lasts(source: Source) -> Callable[[Progress, int], str]:
    """Return the rule that ends a run with its recording, which begins with the first tick."""
    clock, recorded = SystemClock(), source.recorded
    duration_ns = recorded.stop_ns - recorded.start_ns - TAIL_NS

    def until(now: Progress, active_ns: int) -> str:
        is_over = active_ns and clock.mono_ns() - active_ns >= duration_ns
        return 'the recording is over' if is_over else ''

    return until
