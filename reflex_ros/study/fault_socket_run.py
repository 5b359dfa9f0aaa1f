"""The loop of one fault on real threads, and what can be broken in it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any, cast

from reflex_ros.core.clock import MS, Instant, S
from reflex_ros.core.priority import freeze_garbage, realtime
from reflex_ros.stages.inproc import STATUS_NS, InprocConfig, InprocRun
from reflex_ros.stages.worker import TickLoop
from reflex_ros.study.fault_socket_scene import Scene, WallTimeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.arm.driver import PiperDriver
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.ledger import LedgerWriter
    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import ArmFeedback, ByteArray
    from reflex_ros.stages.base import Output
    from reflex_ros.stages.encoder import EncoderStage
    from reflex_ros.stages.worker import StageWorker
    from reflex_ros.study.fault_socket_scene import SteppedClock
    from reflex_ros.study.fault_swing import FaultyOracle

SOON_NS = 5 * MS
BELOW = 10
"""How much lower the priority of encoder, policy and cameras is than that of bus and ticks."""


class SocketRun(InprocRun):
    """The inproc wiring over a real driver, from whose parts single ones can be taken.

    Args:
        config: Settings. arm: The driver. limits: Of the arm. clock: Whose stamps can be stepped.
        model: The policy. render: Makes the pictures, None for frames without pixels.
        priority: FIFO priority of ticks and bus, 0 = normal.

    Attributes:
        start_ns: Instant of tick 0. codes: Fault codes that were in force.
        sent_ns: How long after it was due a tick that found itself on time had ended, at worst.
        woke_ns: How late at worst cameras, inference or signs of life went on after a sleep.
        tick_ns: How late at worst a tick began, or was left out, that no fault made late.
    """

    def __init__(self, config: InprocConfig, *, arm: PiperDriver, limits: JointLimits,
                 clock: SteppedClock, model: FaultyOracle, priority: int,
                 render: Callable[[object, str, int], ByteArray] | None) -> None:
        super().__init__(config, world=Scene(), plant=None, limits=limits,  # type: ignore[arg-type]
                         clock=clock, model=model, render=render, arm=arm)
        self.arm, self.clock, self._priority = arm, clock, priority
        self.timeline = WallTimeline(clock, self._failures.take)
        self.start_ns = 0
        self.codes: list[str] = []
        self._dead: set[str] = set()
        self._released = threading.Event()
        self._stall: Callable[[int], bool] | None = None
        self.sent_ns = self.woke_ns = self.tick_ns = 0
        self._looked_ns = self._stopped_ns = self._asked_ns = self._next_ns = 0
        model.slept = self._woke
        self._time_ticks()

    @property
    def encoder(self) -> EncoderStage:
        """Return the encoder."""
        return self._encoder

    def worker(self, name: str) -> StageWorker:
        """Return the thread of the encoder or of the policy."""
        return {'encoder': self._encoder_worker, 'policy': self._policy_worker}[name]

    # ---- the run -----------------------------------------------------------------------------

    def enable(self) -> None:
        """Connect, check and enable the arm; raises what it refuses with."""
        freeze_garbage()
        with realtime(self._priority):
            self.bridge.connect()
            self.bridge.activate()

    def go(self, ledger: LedgerWriter, start_ns: int) -> None:
        """Run from tick 0 for the configured time, then stand still; the arm holds.

        Raises:
            BaseException: Whatever ended one of the threads.
        """
        self.bridge.use_ledger(ledger)
        self.start_ns = start_ns
        with realtime(self._priority):
            self._loop = TickLoop(self._tick, period_ns=self._config.bridge.period_ns,
                                  clock=self.clock, failed=self._failures.take,
                                  start_ns=start_ns)
            self._loop.start()
        # a thread that waits for one of ours, or for Python's lock, waits for no other program
        with realtime(max(0, self._priority - BELOW)):
            for name in ('encoder', 'policy'):
                if name not in self._dead:
                    self.worker(name).start()
            self._cameras.start()
            self.timeline.start()
            self._live(start_ns + self._config.duration_ns)
        self._end()
        if self._failures.first is not None:
            raise self._failures.first

    def _live(self, end_ns: int) -> None:
        while self._failures.first is None and self.clock.mono_ns() < end_ns:
            due_ns = min(end_ns, self.clock.mono_ns() + STATUS_NS)
            self.clock.sleep_until(due_ns)
            self._woke(due_ns)
            self._statuses()

    def _end(self) -> None:
        self._loop.stop()
        self.end_ns = self.clock.mono_ns()
        self._released.set()
        self.timeline.stop()
        self._is_stopping.set()
        self._cameras.join(5.0)
        for name in ('encoder', 'policy'):
            self.worker(name).stop()

    def _statuses(self) -> None:
        for name in ('encoder', 'policy'):
            if name in self._dead:
                continue
            status = self.worker(name).status()
            with self._lock:
                self.bridge.status(status, self.clock.now())

    def _tick(self, now: Instant, due_ns: int, index: int) -> None:
        if self._next_ns > max(self._asked_ns, self._stopped_ns):
            self.tick_ns = max(self.tick_ns, now.mono_ns - self._next_ns)
        self._next_ns = due_ns + self._config.bridge.period_ns
        stall, self._stall = self._stall, None
        if stall is not None and stall(due_ns):
            return
        super()._tick(now, due_ns, index)
        self.codes += [code for code in self.arm.faults() if code not in self.codes]

    def _look(self) -> None:
        if self._looked_ns:
            self._woke(self._looked_ns + self._config.camera_period_ns)
        self._looked_ns = self.clock.mono_ns()
        super()._look()

    def _woke(self, due_ns: int) -> None:
        """Note when a thread went on that slept until ``due_ns``."""
        if due_ns > self._stopped_ns:
            self.woke_ns = max(self.woke_ns, self.clock.mono_ns() - due_ns)

    def _time_ticks(self) -> None:
        step = self.bridge.step

        def timed(now: Instant, due_ns: int, index: int) -> tuple[Output, ...]:
            outputs = step(now, due_ns, index)
            if 2 * (now.mono_ns - due_ns) <= self._config.bridge.period_ns:
                self.sent_ns = max(self.sent_ns, self.clock.mono_ns() - due_ns)
            return outputs

        self.bridge.step = timed  # type: ignore[method-assign]

    # ---- what can be broken ------------------------------------------------------------------

    def guarded(self, call: Callable[[Instant], Any]) -> Any:
        """Return what a call of the bridge returns, with the bridge to itself."""
        with self._lock:
            return call(self.clock.now())

    def kill(self, name: str) -> None:
        """End a stage's thread; it gives no sign of life any more."""
        self._dead.add(name)
        self.worker(name).stop()

    def revive(self, name: str) -> None:
        """Start a stage's thread again."""
        self._dead.discard(name)
        self.worker(name).start()

    def hang(self, name: str) -> None:
        """Let the next step of a stage take for ever."""
        stage: Any = {'encoder': self._encoder, 'policy': self.policy}[name]
        step = stage.step

        def hung(now: Instant) -> Any:
            self._released.wait()
            return step(now)

        stage.step = hung

    def late_tick(self, seconds: float) -> None:
        """Run the next tick late."""
        def stall(due_ns: int) -> bool:
            self._sleep_as_asked(due_ns + round(seconds * S))
            return False

        self._stall = stall

    def freeze(self, seconds: float) -> None:
        """Let the next tick stand still between reading the clock and sending."""
        feedback, arm = self.arm.feedback, cast('Any', self.arm)
        step, bridge = self.bridge.step, cast('Any', self.bridge)

        def late() -> ArmFeedback:
            arm.feedback = feedback
            self._sleep_as_asked(self.clock.mono_ns() + round(seconds * S))
            return feedback()

        def frozen(now: Instant, due_ns: int, index: int) -> tuple[Output, ...]:
            bridge.step = step
            arm.feedback = late
            sent_ns = self.sent_ns
            outputs = step(now, due_ns, index)
            self.sent_ns = sent_ns  # it sent nothing, and no machine was late
            return outputs

        bridge.step = frozen

    def skip_ticks(self, number: int) -> None:
        """Keep the loop's thread for some ticks."""
        def stall(due_ns: int) -> bool:
            self._sleep_as_asked(due_ns + number * self._config.bridge.period_ns)
            return True

        self._stall = stall

    def _sleep_as_asked(self, until_ns: int) -> None:
        """Keep the tick's thread: ticks due until then are late by order."""
        self._asked_ns = until_ns
        self.clock.sleep_until(until_ns)

    def stop_process(self, seconds: float) -> None:
        """Stop this whole process for a while, as a debugger or a full disk does."""
        me = os.getpid()
        subprocess.Popen(['/bin/sh', '-c', f'sleep {seconds:.3f}; kill -CONT {me}'])
        # whoever sleeps meanwhile wakes late, and this is no fault of the machine
        self._stopped_ns = self.clock.mono_ns() + round(seconds * S) + STATUS_NS
        os.kill(me, signal.SIGSTOP)

    def restart_time(self) -> None:
        """Tell encoder and policy that simulated time went back."""
        self._encoder_worker.feed(self._encoder.restart_time)
        self._policy_worker.feed(self.policy.restart_time)


def soon(clock: Clock) -> Instant:
    """Return a moment ahead on both clocks, at which a loop may begin."""
    now = clock.now()
    return Instant(now.mono_ns + SOON_NS, now.stamp_ns + SOON_NS)
