"""The demonstration: the real nodes against a simulated arm on this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup import ending
from reflex_ros.bringup.environment import choose_domain, free_tcp_port
from reflex_ros.bringup.graph import suite
from reflex_ros.bringup.session import RunSpec, run_session
from reflex_ros.bringup.settings import config_file, effective
from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import EXIT_ARM, EXIT_DONE, EXIT_NODE_LOST
from reflex_ros.core.types import ArmState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reflex_ros.bringup.session import Result
    from reflex_ros.bringup.status_line import Progress
    from reflex_ros.core.clock import Clock

FIRST_CHUNK_S = 60.0
"""Longest wait for the first executed chunk once everything is active."""


@dataclass(frozen=True, slots=True)
class DemoSpec:
    """What the command line of the demonstration asks for.

    Attributes:
        mode: Execution mode. ``policy``: name of the policy. ``task``: simulated task.
        delay_ms: Inference start to publication is padded to this, ms.
        duration_s: Length from the first executed chunk on.
        seed: Seed of the world and of the noise.
        execute_steps: Rows that are used before replacement, 0: what the policy says.
        one_process: Whether encoder and policy share a process.
        view: Whether the camera images are shown in a window.
        runs: Folder of the run folders.
        overrides: Further parameters by name; they win.
        checkpoint: Folder of the checkpoint, None: the one shipped with the policy.
    """

    mode: str
    policy: str
    task: str
    delay_ms: float
    duration_s: float
    seed: int
    execute_steps: int
    one_process: bool
    view: bool
    runs: Path
    overrides: Mapping[str, object]
    checkpoint: Path | None = None


def run_demo(spec: DemoSpec) -> int:
    """Run the demonstration and report it; return the exit code."""
    files = [config_file('sim.yaml')]
    clock = SystemClock()
    port, domain = free_tcp_port(), choose_domain(os.environ)
    # A wrong value must not leave an empty run folder behind.
    effective(files, parameters(spec, spec.runs, port=port))
    folder = RunFolder.create(spec.runs.resolve(), spec.mode, clock)
    run = RunSpec(
        suite(simulated=True, one_process=spec.one_process), folder,
        effective(files, parameters(spec, folder.path, port=port)), domain=domain,
        companions=viewer(os.environ) if spec.view else (),
    )
    print(f'run folder: {folder.path}')
    print(f'to talk to it: export ROS_DOMAIN_ID={run.domain} '
          'ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST')
    result = run_session(run, until=lasts(spec.duration_s, clock))
    ending.report(folder)
    code, text = verdict(result)
    if text:
        print(text)
    return code


def viewer(environment: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the command of the image window, or say why there is none."""
    if not environment.get('DISPLAY'):
        print('no window: DISPLAY is not set; the frames will be in picture.png')
    elif importlib.util.find_spec('tkinter') is None:
        print('no window: Python has no tkinter; on Debian and Ubuntu it is in python3-tk')
    else:
        return ((sys.executable, '-m', 'reflex_ros.ros.viewer'),)
    return ()


def verdict(result: Result) -> tuple[int, str]:
    """Return the exit code of a demonstration and why it is not 0, where nothing said so yet."""
    now = result.progress
    if result.exit_code != EXIT_DONE:
        return result.exit_code, ''
    if now.arm_state == ArmState.FAULTED.value:
        return EXIT_ARM, f'the arm is faulted; the newest cause is {now.last_cause}'
    if not now.first_chunk_ns and not result.signal:
        cause = now.last_cause or 'unknown'
        return EXIT_NODE_LOST, f'no chunk was executed; the newest cause is {cause}'
    return EXIT_DONE, ''


def parameters(spec: DemoSpec, folder: Path, *, port: int) -> dict[str, object]:
    """Return the parameters that differ from ``config/sim.yaml``, by name.

    A chunk may get twice as old as the injected delay asks for before it counts as dead.
    """
    delay_s = spec.delay_ms / 1e3
    return {
        'run.folder': str(folder),
        'arm.port': port,
        'chunk.mode': spec.mode,
        'chunk.execute_steps': spec.execute_steps,
        'delay.injected_s': delay_s,
        'policy.name': spec.policy,
        'policy.checkpoint': str(spec.checkpoint.resolve()) if spec.checkpoint else '',
        'policy.seed': spec.seed,
        # a delay that is out of bounds is to be named itself, not what follows from it
        'safety.max_observation_age_s': min(max(0.5, 2 * delay_s + 0.15), 10.0),
        'simulator.seed': spec.seed,
        'simulator.task': spec.task,
        **spec.overrides,
    }


def lasts(duration_s: float, clock: Clock) -> Callable[[Progress, int], str]:
    """Return the rule that ends a run ``duration_s`` after its first executed chunk."""

    def until(now: Progress, active_ns: int) -> str:
        mono_ns = clock.mono_ns()
        if now.first_chunk_ns:
            is_over = mono_ns - now.first_chunk_ns >= duration_s * S
            return f'{duration_s:g} s are over' if is_over else ''
        if active_ns and mono_ns - active_ns >= FIRST_CHUNK_S * S:
            return f'no chunk was executed within {FIRST_CHUNK_S:g} s'
        return ''

    return until
