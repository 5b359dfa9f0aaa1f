"""One run from its folder to its end: environment, supervisor, status, clean-up."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from reflex_ros.bringup.environment import child_environment
from reflex_ros.bringup.event_log import EventLog
from reflex_ros.bringup.graph import ProcessSpec, patient
from reflex_ros.bringup.leftovers import Leftovers
from reflex_ros.bringup.lifecycle import Lifecycle
from reflex_ros.bringup.process import ProcessLauncher, node_command
from reflex_ros.bringup.settings import write_params
from reflex_ros.bringup.status_line import Console, LedgerWatch, Progress, format_status
from reflex_ros.bringup.supervise import Phase, Supervisor
from reflex_ros.core.clock import MS, S, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

    from reflex_ros.bag.run_folder import RunFolder
    from reflex_ros.bringup.graph import Graph
    from reflex_ros.bringup.process import Child
    from reflex_ros.bringup.settings import Parameters
    from reflex_ros.bringup.status_line import Delays
    from reflex_ros.core.clock import Clock

POLL_NS = 20 * MS
"""Period of the supervisor: a death is noticed within it."""
REFRESH_NS = 2 * S


class Link(Lifecycle, Protocol):
    """Lifecycle requests, and the newest plan for the status."""

    @property
    def plan(self) -> Delays | None:
        """The newest plan of the bridge, None before the first."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run.

    Attributes:
        graph: What runs.
        folder: Run folder, with an absolute path; exists and is empty.
        parameters: Every parameter of every node.
        namespace: Namespace of the nodes.
        domain: Domain id of a run that stays on this machine; None: as the environment says.
        command: Command line of a process; None: the nodes of this package.
        companions: Command lines that are started once all is active and ended with the run;
            nothing follows from their death.
    """

    graph: Graph
    folder: RunFolder
    parameters: Parameters
    namespace: str = ''
    domain: int | None = None
    command: Callable[[ProcessSpec], Sequence[str]] | None = None
    companions: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended.

    Attributes:
        exit_code: Exit code of the supervisor.
        progress: What the ledger said last.
        signal: Name of the signal that ended it, '' if none did.
    """

    exit_code: int
    progress: Progress
    signal: str = ''


class Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP while it is entered; main thread only."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._previous: list[tuple[int, object]] = []

    def __enter__(self) -> Interrupts:
        """Take the signals over."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._previous.append((number, signal.signal(number, self._take)))
        return self

    def __exit__(self, *exc: object) -> None:
        """Give them back."""
        for number, handler in self._previous:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.names.append(signal.Signals(number).name)


def run_session(
    spec: RunSpec, *, until: Callable[[Progress, int], str], console: Console | None = None,
    make_link: Callable[[str, bool], Link] | None = None,
) -> Result:
    """Run a graph until ``until`` says why to stop, something is lost, or a signal comes.

    Blocks; call it from the main thread. Changes the environment of this process to that of the
    nodes, so that it finds them.

    Args:
        spec: The run.
        until: Given the progress and the steady instant since which all is active (0 before);
            returns why to stop, or ''.
        console: Where status and events go.
        make_link: Makes the link to the nodes from the namespace, and whether it tells the
            machine of the arm what time it is here.
    """
    clock = SystemClock()
    console = console or Console(sys.stdout, clock)
    folder = spec.folder
    write_params(folder.params, spec.parameters, namespace=spec.namespace)
    environment = child_environment(os.environ, logs=folder.logs / 'ros', domain=spec.domain)
    os.environ.update(environment)
    command = spec.command or (
        lambda process: node_command(process, folder.params, spec.namespace)
    )
    log = EventLog(folder.path / 'supervisor.jsonl', clock, printer=console.line)
    leftovers = Leftovers()
    link = (make_link or _ros_link)(spec.namespace, spec.graph.is_far_from_the_arm)
    supervisor = Supervisor(
        patient(spec.graph, spec.parameters),
        launcher=ProcessLauncher(command, logs=folder.logs, environment=environment),
        lifecycle=link, clock=clock, log=log, on_started=leftovers.note,
    )
    watch = LedgerWatch(folder.ledger, clock)
    companions = _Companions(spec.companions, folder.logs, environment)
    loop = _Loop(supervisor, link, watch, console, clock, leftovers, companions)
    interrupts = Interrupts()
    try:
        with interrupts:
            loop.run(interrupts, until)
    finally:
        console.end()
        companions.end()
        link.close()
        removed = leftovers.remove(ignored=os.getpid())
        if removed:
            log.event('shm_removed', text=f'shared-memory files removed: {len(removed)}')
        log.close()
    return Result(supervisor.exit_code, watch.latest(), ''.join(interrupts.names[:1]))


class _Companions:
    """Processes beside the graph."""

    def __init__(
        self, commands: Sequence[Sequence[str]], logs: Path, environment: Mapping[str, str]
    ) -> None:
        self._commands = list(commands)
        self._logs = logs
        self._environment = environment
        self._children: list[Child] = []

    def start(self) -> None:
        """Start those that are not started yet."""
        while self._commands:
            launcher = ProcessLauncher(
                self._next, logs=self._logs, environment=self._environment)
            self._children.append(launcher.start(ProcessSpec('companion', ())))

    def _next(self, spec: ProcessSpec) -> Sequence[str]:
        return self._commands.pop(0)

    def end(self) -> None:
        """End them."""
        for child in self._children:
            if child.poll() is None:
                child.kill()


class _Loop:
    """The main loop of a session."""

    def __init__(
        self, supervisor: Supervisor, link: Link, watch: LedgerWatch, console: Console,
        clock: Clock, leftovers: Leftovers, companions: _Companions,
    ) -> None:
        self._supervisor = supervisor
        self._link = link
        self._watch = watch
        self._console = console
        self._clock = clock
        self._leftovers = leftovers
        self._companions = companions
        self._start_ns = clock.mono_ns()
        self._refresh_ns = 0

    def run(self, interrupts: Interrupts, until: Callable[[Progress, int], str]) -> None:
        """Step the supervisor until everything has stopped."""
        supervisor, taken = self._supervisor, 0
        try:
            supervisor.start()
            while supervisor.phase is not Phase.STOPPED:
                supervisor.step()
                self._show()
                self._refresh()
                if supervisor.phase is Phase.RUNNING:
                    self._companions.start()
                if len(interrupts.names) > taken:
                    taken += 1
                    supervisor.request_stop(interrupts.names[taken - 1])
                elif supervisor.phase in (Phase.STARTING, Phase.RUNNING):
                    reason = until(self._watch.progress(), supervisor.active_ns)
                    if reason:
                        supervisor.request_stop(reason)
                self._clock.sleep_until(self._clock.mono_ns() + POLL_NS)
        except BaseException:
            supervisor.abort()
            raise

    def _show(self) -> None:
        supervisor = self._supervisor
        if supervisor.phase is Phase.STARTING:
            elapsed_s = (self._clock.mono_ns() - self._start_ns) / S
            self._console.status(f'{elapsed_s:6.1f} s  starting: {supervisor.waiting_for}')
        elif supervisor.phase is Phase.RUNNING:
            elapsed_s = (self._clock.mono_ns() - supervisor.active_ns) / S
            status = format_status(elapsed_s, self._watch.progress(), self._link.plan)
            restarts = f'  restarts {supervisor.restarts}' if supervisor.restarts else ''
            self._console.status(status + restarts)

    def _refresh(self) -> None:
        if self._clock.mono_ns() >= self._refresh_ns:
            self._refresh_ns = self._clock.mono_ns() + REFRESH_NS
            self._leftovers.refresh()


def _ros_link(namespace: str, tells_time: bool) -> Link:
    from reflex_ros.ros.graph_link import GraphLink

    return GraphLink(namespace, tells_time=tells_time)
