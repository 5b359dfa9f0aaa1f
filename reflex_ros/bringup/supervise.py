"""The supervisor: starts the graph, brings it up, restarts what may be restarted, stops it.

It is driven by ``step`` and never blocks, so its rules are tested without processes or ROS.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from reflex_ros.bringup.graph import RESTART_BACKOFF_S
from reflex_ros.bringup.lifecycle import Routine, RoutineState, Step
from reflex_ros.bringup.stopping import Stopping
from reflex_ros.core.clock import S
from reflex_ros.core.errors import EXIT_ARM, EXIT_DONE, EXIT_INPUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.bringup.event_log import EventLog
    from reflex_ros.bringup.graph import Graph, ProcessSpec
    from reflex_ros.bringup.lifecycle import Lifecycle
    from reflex_ros.bringup.process import Child, Launcher
    from reflex_ros.core.clock import Clock

LAST_WORDS_NS = 3 * S
"""A node that refuses to be configured exits by itself; its exit code and last words count."""


class Phase(Enum):
    """Where the supervisor is."""

    STARTING = 'starting'
    RUNNING = 'running'
    STOPPING = 'stopping'
    STOPPED = 'stopped'


@dataclass(slots=True)
class Member:
    """One process of the graph and what is going on with it.

    Attributes:
        spec: What it is.
        child: The process; None between a death and the restart.
        deaths: Times that it died while the graph was running.
        restart_ns: Steady instant of its restart, 0 = none is due.
        routine: Transitions under way after a restart.
        refused_ns: Steady instant at which a transition failed, 0 = none did.
    """

    spec: ProcessSpec
    child: Child | None = None
    deaths: int = 0
    restart_ns: int = 0
    routine: Routine | None = None
    refused_ns: int = 0


class Supervisor:
    """Runs a graph. Call ``start`` once, then ``step`` every few ms until ``STOPPED``.

    Args:
        graph: What to run.
        launcher: Starts processes.
        lifecycle: Changes states of lifecycle nodes.
        clock: Steady time.
        log: Where events go.
        on_started: Called with the pid of every process.

    Attributes:
        phase: Where it is.
        exit_code: Exit code of the run; 0 unless something was lost.
        active_ns: Steady instant at which the whole graph was active, 0 before.
    """

    def __init__(
        self, graph: Graph, *, launcher: Launcher, lifecycle: Lifecycle, clock: Clock,
        log: EventLog, on_started: Callable[[int], None] = lambda pid: None,
    ) -> None:
        self.phase = Phase.STARTING
        self.exit_code = EXIT_DONE
        self.active_ns = 0
        self._graph = graph
        self._launcher = launcher
        self._lifecycle = lifecycle
        self._clock = clock
        self._log = log
        self._on_started = on_started
        self._members = {spec.executable: Member(spec) for spec in graph.processes}
        self._bring_up: Routine | None = None
        self._stop_ns = 0
        self._stopping: Stopping | None = None

    @property
    def restarts(self) -> int:
        """Deaths that led to a restart."""
        return sum(member.deaths for member in self._members.values())

    @property
    def waiting_for(self) -> str:
        """What the bring-up is waiting for, '' when it is over."""
        step = self._bring_up.current if self._bring_up else None
        return f'{step.transition} {step.node}' if step else ''

    def start(self) -> None:
        """Start every process and begin to bring the graph up."""
        for member in self._members.values():
            self._spawn(member)
        steps = [Step('configure', node) for node in self._graph.configure_order]
        steps += [Step('activate', node) for node in self._graph.activate_order]
        self._bring_up = Routine(steps, self._lifecycle)

    def step(self) -> None:
        """Notice deaths, advance what is under way, restart and stop what is due."""
        if self.phase is Phase.STOPPED:
            return
        for member in self._members.values():
            self._notice_death(member)
        if self._stopping is not None:
            self._advance_stop(self._stopping)
            return
        self._advance_bring_up()
        for member in self._members.values():
            self._advance(member)
        if self._stop_ns and self._clock.mono_ns() >= self._stop_ns:
            self._begin_stop()

    def request_stop(self, reason: str) -> None:
        """Stop everything in order; asked again, stop faster."""
        if self._stopping is None:
            self._log.event('stop', text=f'stopping: {reason}')
            self._begin_stop()
        else:
            self._log.event('hurry', text=f'stopping faster: {reason}')
            self._stopping.hurry()

    def abort(self) -> None:
        """Ask everything to stop without waiting; the last resort after an error of our own."""
        for member in self._members.values():
            if member.child is not None and member.child.poll() is None:
                member.child.terminate()

    def _spawn(self, member: Member) -> None:
        member.child = self._launcher.start(member.spec)
        member.restart_ns = member.refused_ns = 0
        self._log.event('started', member.spec.executable, pid=member.child.pid)
        self._on_started(member.child.pid)

    def _notice_death(self, member: Member) -> None:
        child = member.child
        code = child.poll() if child is not None else None
        if child is None or code is None:
            return
        member.child = None
        name = member.spec.executable
        if self._stopping is not None:
            # On the way down an error is still worth its exit code, a kill was our own doing.
            self._log.event('exited', name, pid=child.pid, exit_code=code)
            return
        text = f'process {child.pid} died: {describe_exit(code)}'
        self._log.event('died', name, text=text, pid=child.pid, exit_code=code)
        self._log.lines(child.tail())
        if member.routine is not None:
            member.routine.cancel()
            member.routine = None
        self._after_death(member, code)

    def _after_death(self, member: Member, code: int) -> None:
        spec = member.spec
        if self.phase is Phase.STARTING:
            is_own = code in (EXIT_INPUT, EXIT_ARM)
            self._give_up(code if is_own else spec.exit_code, 'the graph did not come up')
        elif not spec.is_restarted:
            self._give_up(spec.exit_code, f'{spec.executable} is lost', after_s=spec.linger_s)
        elif code == EXIT_INPUT:
            self._give_up(code, f'{spec.executable} refuses its input')
        elif member.deaths >= len(RESTART_BACKOFF_S):
            self._give_up(spec.exit_code,
                          f'{spec.executable} is lost after {member.deaths} restarts')
        else:
            self._plan_restart(member)

    def _plan_restart(self, member: Member) -> None:
        wait_s = RESTART_BACKOFF_S[member.deaths]
        member.deaths += 1
        member.restart_ns = self._clock.mono_ns() + round(wait_s * S)
        self._log.event('restart_planned', member.spec.executable, text=(
            f'restart {member.deaths} of {len(RESTART_BACKOFF_S)} in {wait_s:g} s'))

    def _advance_bring_up(self) -> None:
        routine = self._bring_up
        if self.phase is not Phase.STARTING or routine is None or self._stop_ns:
            return
        known = len(routine.done)
        routine.advance()
        self._log_steps(routine, known)
        if routine.state is RoutineState.DONE:
            self.phase = Phase.RUNNING
            self.active_ns = self._clock.mono_ns()
            self._log.event('active', text='all nodes are active')
        elif routine.state is RoutineState.FAILED and routine.current is not None:
            self._refused(self._host_of(routine.current.node), routine)

    def _advance(self, member: Member) -> None:
        if self._stop_ns:
            return
        if member.restart_ns and self._clock.mono_ns() >= member.restart_ns:
            self._spawn(member)
            steps = [Step('configure', node) for node in member.spec.hosts]
            steps += [Step('activate', node) for node in member.spec.hosts]
            member.routine = Routine(steps, self._lifecycle)
        routine = member.routine
        if routine is None:
            return
        known = len(routine.done)
        routine.advance()
        self._log_steps(routine, known)
        if routine.state is RoutineState.DONE:
            member.routine = None
            self._log.event('restarted', member.spec.executable, text='is active again')
        elif routine.state is RoutineState.FAILED:
            self._refused(member, routine)

    def _refused(self, member: Member, routine: Routine) -> None:
        """Give a node that failed a transition the time to exit with its own code, then end it."""
        now_ns = self._clock.mono_ns()
        if member.refused_ns == 0:
            member.refused_ns = now_ns
            step = routine.current
            what = f'{step.transition} {step.node}' if step else 'transition'
            self._log.event('refused', member.spec.executable,
                            text=f'{what} failed: {routine.failure}')
        elif now_ns - member.refused_ns > LAST_WORDS_NS and member.child is not None:
            member.child.kill()

    def _log_steps(self, routine: Routine, known: int) -> None:
        for step in routine.done[known:]:
            past = 'configured' if step.transition == 'configure' else 'activated'
            self._log.event(past, step.node)

    def _host_of(self, node: str) -> Member:
        return next(member for member in self._members.values() if node in member.spec.hosts)

    def _give_up(self, exit_code: int, reason: str, *, after_s: float = 0.0) -> None:
        """Stop after a loss; the first loss decides the exit code."""
        if self._stop_ns:
            return
        self.exit_code = exit_code
        self._stop_ns = self._clock.mono_ns() + round(after_s * S)
        self._log.event('lost', text=f'stopping: {reason}', exit_code=exit_code)

    def _begin_stop(self) -> None:
        self.phase = Phase.STOPPING
        routines = [self._bring_up, *(member.routine for member in self._members.values())]
        for routine in routines:
            if routine is not None:
                routine.cancel()
        groups = [
            [self._members[spec.executable] for spec in group] for group in self._graph.stop_groups
        ]
        self._stopping = Stopping(groups, clock=self._clock, log=self._log)
        self._stopping.advance()

    def _advance_stop(self, stopping: Stopping) -> None:
        stopping.advance()
        if stopping.is_done:
            self.phase = Phase.STOPPED
            self._log.event('stopped', exit_code=self.exit_code)


def describe_exit(code: int) -> str:
    """Return an exit code in words."""
    if code >= 0:
        return f'exit code {code}'
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f'signal {-code}'
