"""Threads that run stages in real time, for the nodes and for the inproc wiring."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from reflex_ros.core.clock import MS
from reflex_ros.stages.pipeline import Turn

if TYPE_CHECKING:
    from reflex_ros.core.clock import Clock, Instant
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import StageStatus
    from reflex_ros.stages.base import Output

IDLE_WAIT_S = 0.1
SLEEP_NS = 20 * MS
STOP_WAIT_S = 10.0
"""An inference may be under way when the worker is asked to stop."""


class WorkedStage(Protocol):
    """What encoder and policy have in common."""

    def begin(self, now: Instant) -> None:
        """Mark the stage busy."""

    def step(self, now: Instant) -> tuple[tuple[Output, ...], Probe]:
        """Run one step."""

    def end(self, now: Instant, *, published: int) -> None:
        """Mark the stage idle."""

    def status(self, now: Instant) -> StageStatus:
        """Return a sign of life."""


class StageWorker:
    """One stage on a thread of its own. Inputs that come while it steps wait in an inbox.

    Args:
        stage: The stage; only this worker may call it.
        clock: Both times.
        due: Steady instant at which a step is due, None while an input is missing; called with
            the stage at rest.
        publish: Takes the outputs of a step once they may be published.
        failed: Takes an exception of the stage; the worker has ended then.
        name: Name of the thread.
        turn: Shared with the stages that never step beside this one; None for one of its own.
    """

    def __init__(self, stage: WorkedStage, *, clock: Clock, due: Callable[[Instant], int | None],
                 publish: Callable[[tuple[Output, ...]], None],
                 failed: Callable[[BaseException], None], name: str,
                 turn: Turn | None = None) -> None:
        self._stage = stage
        self._clock = clock
        self._due = due
        self._publish = publish
        self._failed = failed
        self._turn = turn or Turn()
        self._wake = self._turn.changed
        self._inbox: dict[object, Callable[[], None]] = {}
        self._is_stepping = self._is_stopping = False
        self._name = name
        self._newest_status: StageStatus | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start a thread; may be called again after ``stop``."""
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def feed(self, take: Callable[[], None], *, newest: str = '') -> None:
        """Give the stage an input: ``take`` is called at once, or after the running step.

        Args:
            take: Hands the input over.
            newest: Inputs of this name replace each other while they wait, so that a long step
                does not pile up what only its newest counts of.
        """
        with self._wake:
            if self._is_stepping:
                key = newest or object()
                self._inbox.pop(key, None)
                self._inbox[key] = take
                return
            take()
            self._wake.notify_all()

    def status(self) -> StageStatus:
        """Return the stage's sign of life to publish; safe while it steps."""
        with self._wake:
            self._newest_status = self._stage.status(self._clock.now())
            return self._newest_status

    def last_status(self) -> StageStatus:
        """Return the newest sign of life, for who only looks: a number is for one message."""
        return self._newest_status or self.status()

    def stop(self) -> bool:
        """End the thread after its running step, whose outputs are dropped if they still wait.

        Returns:
            Whether it ended in time.
        """
        with self._wake:
            self._is_stopping = True
            self._wake.notify_all()
        if self._thread is None or not self._thread.is_alive():
            return True
        self._thread.join(STOP_WAIT_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while self._await_due():
                self._step()
        except BaseException as error:  # the thread's owner decides, nothing is swallowed
            with self._wake:
                self._turn.give(self)
            self._failed(error)

    def _await_due(self) -> bool:
        """Wait until a step is due; False to end. Leaves the stage marked busy."""
        with self._wake:
            while not self._is_stopping:
                now = self._clock.now()
                due_ns = self._due(now)
                is_due = due_ns is not None and due_ns <= now.mono_ns
                if is_due and self._turn.take(self):
                    self._is_stepping = True
                    self._stage.begin(now)
                    return True
                if not is_due:
                    self._turn.leave(self)
                # for the instant that is due, else for an input or for its turn
                left_ns = 0 if due_ns is None else due_ns - now.mono_ns
                self._wake.wait(min(IDLE_WAIT_S, left_ns / 1e9) if left_ns > 0 else IDLE_WAIT_S)
            self._turn.leave(self)
            return False

    def _step(self) -> None:
        outputs, probe = self._stage.step(self._clock.now())
        not_before_ns = max((o.not_before_ns for o in outputs), default=0)
        is_whole = self._sleep(max(probe.ready_ns if outputs else 0, not_before_ns))
        # nobody may have received what was sent later: it would count as lost on its way
        sent = self._clock.now()
        if is_whole:
            self._publish(outputs)
        else:
            outputs = ()
        with self._wake:
            self._stage.end(sent, published=len(outputs))
            self._is_stepping = False
            waiting, self._inbox = self._inbox, {}
            for take in waiting.values():
                take()
            self._turn.give(self)

    def _sleep(self, until_ns: int) -> bool:
        """Sleep in short pieces; False if a stop came first."""
        while not self._is_stopping:
            now_ns = self._clock.mono_ns()
            if now_ns >= until_ns:
                return True
            self._clock.sleep_until(min(until_ns, now_ns + SLEEP_NS))
        return False


class TickLoop:
    """Calls ``step`` on a fixed grid of absolute deadlines.

    After an overrun it resumes at the newest due instant and never catches up.

    Args:
        step: Takes the present, the due instant (steady ns) and its index.
        period_ns: Grid. ``start_ns``: steady instant of index 0, None = when the loop starts.
        first_index: First index that may run.
        clock: Both times.
        failed: Takes an exception of ``step``; the loop has ended then.
        name: Name of the thread.
    """

    def __init__(self, step: Callable[[Instant, int, int], None], *, period_ns: int, clock: Clock,
                 failed: Callable[[BaseException], None], name: str = 'tick',
                 start_ns: int | None = None, first_index: int = 0) -> None:
        self._step = step
        self._start_ns = start_ns
        self._first_index = first_index
        self._period_ns = period_ns
        self._clock = clock
        self._failed = failed
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    @property
    def is_running(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> bool:
        """End the loop after its running tick; return whether it ended in time."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WAIT_S)
        return not self._thread.is_alive()

    def run(self) -> None:
        """Run on the calling thread until ``stop``."""
        start_ns = self._clock.mono_ns() if self._start_ns is None else self._start_ns
        index = self._first_index
        while not self._is_stopping.is_set():
            due_ns = start_ns + index * self._period_ns
            self._clock.sleep_until(due_ns)
            self._step(self._clock.now(), due_ns, index)
            overdue = (self._clock.mono_ns() - due_ns) // self._period_ns
            index += max(1, overdue)

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:  # the thread's owner decides, nothing is swallowed
            self._failed(error)
