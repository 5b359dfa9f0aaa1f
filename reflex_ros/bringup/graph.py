"""The graph of processes: what runs, in which order, and what follows from a death.

The one description that the supervisor and the launch files read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from reflex_ros.core.clock import S
from reflex_ros.core.errors import EXIT_ARM, EXIT_NODE_LOST
from reflex_ros.core.param_table import BRIDGE, ENCODER, POLICY, RECORDER, SIMULATOR
from reflex_ros.stages.build import limits_from

if TYPE_CHECKING:
    from reflex_ros.core.param_table import Value

INFERENCE = 'inference'
"""Executable that hosts encoder and policy in one process, on two threads."""

ALL, ROBOT = 'all', 'robot'
PARTS = (ALL, ROBOT, INFERENCE)
"""What of the suite runs on this machine: all of it; arm, cameras and recorder; or encoder and
policy."""

RESTART_BACKOFF_S = (1.0, 2.0, 4.0)
"""Waits before the restarts of one process; there are as many restarts as waits."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process.

    Attributes:
        executable: Name of the executable and of its module in ``reflex_ros.nodes``.
        hosts: Lifecycle nodes in it, in the order in which they are configured.
        is_restarted: Whether it is restarted after its death.
        is_urgent: Whether it gets a higher priority, where that is allowed.
        exit_code: Exit code of the suite once it is lost.
        linger_s: Time that the others go on after its loss, so that they can record it.
        stop_rank: Processes stop in this order; equal ranks stop together.
        stop_s: Time that it may need for its stop beyond what any process does.
    """

    executable: str
    hosts: tuple[str, ...]
    is_restarted: bool = True
    is_urgent: bool = False
    exit_code: int = EXIT_NODE_LOST
    linger_s: float = 0.0
    stop_rank: int = 1
    stop_s: float = 0.0


# The bridge stops first, so that the end of the motion is recorded and simulated.
_SIMULATOR = ProcessSpec(
    SIMULATOR, (SIMULATOR,), is_restarted=False, is_urgent=True, exit_code=EXIT_ARM, linger_s=1.0,
    stop_rank=3,
)
_BRIDGE = ProcessSpec(
    BRIDGE, (BRIDGE,), is_restarted=False, is_urgent=True, exit_code=EXIT_ARM, stop_rank=0,
)
_ENCODER = ProcessSpec(ENCODER, (ENCODER,))
_POLICY = ProcessSpec(POLICY, (POLICY,))
_INFERENCE = ProcessSpec(INFERENCE, (ENCODER, POLICY))
_RECORDER = ProcessSpec(RECORDER, (RECORDER,), stop_rank=2)

# The recorder sees everything, and nothing moves before all that feeds the bridge is running.
_ACTIVATION = (RECORDER, SIMULATOR, ENCODER, POLICY, BRIDGE)


@dataclass(frozen=True, slots=True)
class Graph:
    """The processes of one run, in their order of start.

    Attributes:
        processes: What runs.
    """

    processes: tuple[ProcessSpec, ...]

    @property
    def configure_order(self) -> tuple[str, ...]:
        """Lifecycle nodes in the order in which they are configured: that of their start."""
        return tuple(node for process in self.processes for node in process.hosts)

    @property
    def activate_order(self) -> tuple[str, ...]:
        """Lifecycle nodes in the order in which they are activated; the bridge last."""
        return tuple(node for node in _ACTIVATION if node in self.configure_order)

    @property
    def is_far_from_the_arm(self) -> bool:
        """Whether the policy runs here, and the bridge on another machine."""
        return POLICY in self.configure_order and BRIDGE not in self.configure_order

    @property
    def stop_groups(self) -> tuple[tuple[ProcessSpec, ...], ...]:
        """Processes that stop together, first group first."""
        ranks = sorted({process.stop_rank for process in self.processes})
        return tuple(
            tuple(process for process in self.processes if process.stop_rank == rank)
            for rank in ranks
        )


def patient(graph: Graph, parameters: Mapping[str, Mapping[str, Value]]) -> Graph:
    """Return the graph with the time that the bridge needs to brake the arm from full speed.

    Args:
        graph: What runs.
        parameters: Every parameter of every node; the limits are the bridge's.
    """
    if BRIDGE not in parameters:
        return graph
    params = parameters[BRIDGE]
    period_ns = round(S / cast('float', params['control.rate_hz']))
    stop_s = limits_from(params).longest_stop_ns(period_ns) / S
    return Graph(tuple(
        replace(process, stop_s=stop_s) if BRIDGE in process.hosts else process
        for process in graph.processes))


def suite(*, simulated: bool, one_process: bool = True, record: bool = True,
          part: str = ALL) -> Graph:
    """Return the graph of the suite, or of the part of it that one of two machines runs.

    Args:
        simulated: Whether the simulator takes the place of arm and cameras.
        one_process: Whether encoder and policy share a process, as they should on one GPU.
        record: Whether a bag is recorded, where the bridge runs.
        part: One of ``PARTS``.
    """
    inference = [_INFERENCE] if one_process else [_ENCODER, _POLICY]
    if part == INFERENCE:
        return Graph(tuple(inference))
    processes = [_SIMULATOR, _BRIDGE] if simulated else [_BRIDGE]
    processes += inference if part == ALL else []
    return Graph((*processes, _RECORDER) if record else tuple(processes))


def recording() -> Graph:
    """Return the graph that only records what others run."""
    return Graph((_RECORDER,))
