"""The suite on a robot, without ``ros2 launch``: the same graph, restarts included."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup import ending
from reflex_ros.bringup.graph import ALL, suite
from reflex_ros.bringup.session import RunSpec, run_session
from reflex_ros.bringup.settings import effective
from reflex_ros.core.clock import SystemClock
from reflex_ros.core.param_table import BRIDGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reflex_ros.bringup.status_line import Progress


@dataclass(frozen=True, slots=True)
class RobotSpec:
    """What the command line asks for.

    Attributes:
        files: Parameter files, later ones win.
        namespace: Namespace of the nodes.
        one_process: Whether encoder and policy share a process.
        record: Whether a bag is recorded.
        runs: Folder of the run folders.
        overrides: Further parameters by name; they win.
        part: What of the suite runs on this machine, one of ``graph.PARTS``.
    """

    files: tuple[Path, ...]
    namespace: str
    one_process: bool
    record: bool
    runs: Path
    overrides: Mapping[str, object]
    part: str = ALL


def run_robot(spec: RobotSpec) -> int:
    """Run the suite until a signal, then report it; return the exit code.

    Domain and discovery range stay as the environment has them: cameras and operators are on it.
    """
    values = effective(spec.files, spec.overrides)
    kind = str(values[BRIDGE]['chunk.mode']) if spec.part == ALL else spec.part
    folder = RunFolder.create(spec.runs.resolve(), kind, SystemClock())
    chosen = {**spec.overrides, 'run.folder': str(folder.path)}
    graph = suite(
        simulated=False, one_process=spec.one_process, record=spec.record, part=spec.part)
    run = RunSpec(graph, folder, effective(spec.files, chosen), namespace=spec.namespace)
    print(f'run folder: {folder.path}')
    if graph.is_far_from_the_arm:
        print(f'what the nodes say: {folder.logs}')
    elif not values[BRIDGE]['run.autostart']:
        print('the arm holds until you call: reflex-ros arm resume')
    result = run_session(run, until=never)
    if not graph.is_far_from_the_arm:
        ending.report(folder)
    return result.exit_code


def never(now: Progress, active_ns: int) -> str:
    """Let a run go on until somebody stops it."""
    return ''
