"""Motion of the bridge: from the plan and the last command to the command of this tick.

Held pose, ramp and plan all end in one limiter, so whatever is decided here the command stream
stays inside the limits and can always stop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reflex_ros.arm.checks import check_pose
from reflex_ros.arm.several import SeveralArms
from reflex_ros.arm.states import ArmEvent, StateMachine, may_send
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.fit import LONGEST_NS, Window, fit_blend
from reflex_ros.core.interpolate import Setpoint, revolute
from reflex_ros.core.limits import Limited, Limiter, Stream
from reflex_ros.core.types import ArmState
from reflex_ros.stages.catch_up import catch_up_speed
from reflex_ros.stages.follower import Follower, Running
from reflex_ros.stages.sender import Sender
from reflex_ros.stages.tick import Motion

if TYPE_CHECKING:
    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.fit import Fit
    from reflex_ros.core.types import FloatArray
    from reflex_ros.stages.bridge_config import BridgeConfig

_MOVING = (ArmState.RAMP_IN, ArmState.TRACKING)
PAUSE_NS = 100 * MS
"""Gap after which the arm has held, and ramps in anew even if its chunk is still live."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of one tick.

    Attributes:
        motion: What was wanted and sent.
        ended: Chunks that are over, and why. ``failure``: why the arm refused, '' if it did not.
    """

    motion: Motion
    ended: tuple[tuple[Running, str], ...] = ()
    failure: str = ''


class Mover:
    """Follows the plan of its follower while it is armed and live, else rests.

    Args:
        arm: Gets the commands.
        config: Durations and limits.
        states: State of the arm; changed here when motion begins or ends.
        clock: Read once more when a command is ready.

    Not thread-safe, but for ``seed`` while the arm may not be sent to.
    """

    def __init__(self, arm: Arm, config: BridgeConfig, states: StateMachine, *,
                 clock: Clock) -> None:
        self._arm = arm
        self._sender = Sender(arm, period_ns=config.period_ns, clock=clock)
        self._config = config
        self._states = states
        self.follower = Follower(blend_ns=config.blend_ns,
                                 blend_above_rad=config.blend_above_rad)
        self._limiter: Limiter | None = None
        self.is_armed = False
        self._needs_ramp = self._must_rest = True
        self._ramp_start_ns = self._ramp_ticks = 0
        self._ramp_from: FloatArray | None = None
        self._is_catching_up = self._ramps_fresh = False
        self._limited_ns = 0
        self._yield_to: FloatArray | None = None
        self._yields: npt.NDArray[np.bool_] | None = None
        self._may_brake = False
        self._ended: list[tuple[Running, str]] = []

    @property
    def position(self) -> FloatArray | None:
        """Return the last command, ``float64[J]``; None before the arm was enabled."""
        return None if self._limiter is None else self._limiter.position

    @property
    def held(self) -> FloatArray | None:
        """Return where the arm rests or goes to rest, ``float64[J]``, as for ``position``."""
        return None if self._limiter is None else self._rest_pose()

    @property
    def is_on_its_way(self) -> bool:
        """Return whether the stream goes to where the arm rests, before it ramps in."""
        if not self.is_armed or self._limiter is None or self._yield_to is None:
            return False
        return not np.allclose(self._limiter.position, self._yield_to, rtol=0.0, atol=1e-9)

    @property
    def needs_ramp(self) -> bool:
        """Return whether the next chunk ends a rest: it has been still since its observation."""
        return self._needs_ramp

    @property
    def is_overdue(self) -> bool:
        """Return whether the command of the newest tick was ready too late: nothing was sent."""
        return self._sender.is_overdue

    @property
    def is_at_rest(self) -> bool:
        """Return whether the command stream stands still or nothing may be sent."""
        if self._limiter is None or self._limiter.is_stopped:
            return True
        return not (may_send(self._states.state) or self._may_brake)

    @property
    def longest_stop_ns(self) -> int:
        """Return how long it may take to come to rest, within the limits that the arm has now."""
        limits = self._arm.limits()
        longest_ns = limits.longest_stop_ns(self._config.period_ns)
        if self._limiter is None or self._yield_to is None:
            return longest_ns
        # Joints that give way stop, and go where they were measured from rest to rest.
        far_s = np.abs(self._yield_to - self._limiter.position) / limits.velocity
        return 3 * longest_ns + round(float(far_s.max()) * S)

    # ---- requests ----------------------------------------------------------------------------

    def seed(self, pose: FloatArray) -> FloatArray:
        """Let the command stream start at rest in a pose, within the limits that the arm has now.

        Args:
            pose: ``float64[J]`` where the arm was proven to be; just outside the range counts as
                its edge.

        Returns:
            ``float64[J]`` the first command.

        Raises:
            ArmError: The pose lies outside the range; the stream is untouched.
        """
        limits, names = self._arm.limits(), self._arm.names
        limiter = Limiter(limits, period_ns=self._config.period_ns, names=names)
        limiter.reset(check_pose(pose, names, limits))
        self._limiter, self._yield_to = limiter, None
        self._may_brake = False
        return limiter.position

    def arm_motion(self, there: FloatArray | None = None) -> None:
        """Allow motion; the arm waits in ``holding`` for the first chunk, which then ramps in.

        Args:
            there: ``float64[J]`` where the arm rests away from its command. The stream goes there
                first, within its limits: it never steps, whatever was measured. Grippers stay: one
                that grips is away from its command.

        Raises:
            ArmError: It rests outside the range; nothing has changed.
        """
        assert self._limiter is not None
        if there is not None:
            names = self._arm.names
            pose = check_pose(there, names, self._arm.limits())
            there = np.where(revolute(len(names)), pose, self._limiter.position)
        self._yield_to, self._yields = there, None
        self.is_armed, self._needs_ramp, self._ramp_ticks = True, True, 0
        if self._states.state is ArmState.ENABLED:
            self._states.fire(ArmEvent.RESUME)
            self._states.fire(ArmEvent.HOLD)

    def disarm(self) -> None:
        """Forbid motion until ``arm_motion``: the next ticks decelerate and hold."""
        self.is_armed, self._needs_ramp, self._must_rest = False, True, True
        self._may_brake = isinstance(self._arm, SeveralArms)  # a fault of one leaves the others
        if self._yields is None:
            self._yield_to = None

    def give_way(self, measured: FloatArray, joints: npt.NDArray[np.bool_]) -> None:
        """Rest where some joints were measured: they push against something.

        Args:
            measured: ``float64[J]`` pose. ``joints``: which of them give way, ``bool[J]``.
        """
        assert self._limiter is not None
        limits = self._arm.limits()
        there = np.clip(measured, limits.lower, limits.upper)
        self._yield_to = np.where(joints, there, self._limiter.stop_position)
        self._yields = joints

    def drop(self) -> tuple[Running, ...]:
        """Forget the plan and return its chunks; the next tick rests, whatever comes meanwhile."""
        self._must_rest = True
        return self.follower.drop()

    def seam(self, running: Running, next_due_ns: int) -> FloatArray | None:
        """Return the step that ``running`` would make at its switch; None before enabling.

        A ramp hides a step but not its size: a first chunk far from the held pose is a wrong unit
        or a wrong normalisation, and must not sweep the arm there.

        Args:
            running: A chunk that was not offered to the follower yet.
            next_due_ns: First tick that could execute it.
        """
        if self._limiter is None:
            return None
        switch_ns = max(next_due_ns, running.step0_ns)
        current = self._current(switch_ns, next_due_ns=next_due_ns)
        origin = self._rest_pose() if current is None else current.position
        return np.asarray(running.path.at(switch_ns).position - origin)

    def fit(self, running: Running, next_due_ns: int) -> Fit | None:
        """Return how a chunk could be blended within the limits; None where none would be tried.

        Args:
            running: A chunk that takes over at the tick or later.
            next_due_ns: First tick that could execute it.
        """
        switch_ns = max(next_due_ns, running.step0_ns)
        is_behind_ramp = self._needs_ramp or self._states.state is ArmState.RAMP_IN
        if self._limiter is None or is_behind_ramp:
            return None
        window = Window(switch_ns, running.path.end_ns - running.chunk.step_period_ns,
                        self._config.period_ns, self._config.blend_ns)
        limits = self._arm.limits()
        if self._states.state not in _MOVING:
            most = catch_up_speed(running, switch_ns, self._config.catch_up_factor)
            limits = replace(limits, velocity=np.minimum(limits.velocity, most))
        return fit_blend(running.path, self._stream(switch_ns, next_due_ns), limits,
                         window=window, names=self._arm.names)

    def _rest_pose(self) -> FloatArray:
        assert self._limiter is not None
        return self._limiter.position if self._yield_to is None else self._yield_to.copy()

    def _stream(self, switch_ns: int, next_due_ns: int) -> Stream:
        """Return the command stream one period before a switch: as it is, or as it will be."""
        assert self._limiter is not None
        path = self.follower.left_at(switch_ns, next_due_ns=next_due_ns)
        period_ns = self._config.period_ns
        if switch_ns <= next_due_ns or path is None or self._states.state not in _MOVING:
            return self._limiter.stream
        first, second, third = (path.at(switch_ns - k * period_ns).position for k in (3, 2, 1))
        h = period_ns / S
        return Stream(third, (third - second) / h, (third - 2.0 * second + first) / h**2)

    # ---- the tick ----------------------------------------------------------------------------

    def step(self, due_ns: int, *, max_age_ns: int, is_state_good: bool) -> Moved:
        """Send this tick's command: the plan's if a live chunk covers the tick, else a rest.

        After ticks that sent nothing the command stream starts from rest at the last command.

        Args:
            due_ns: The tick.
            max_age_ns: Age at which an observation is no longer live.
            is_state_good: Whether the measured state is fresh and near its command, and the
                cameras show something new.
        """
        assert self._limiter is not None
        self._ended, self._sender.is_overdue = [], False
        self._after_gap(due_ns)
        self._take_over(due_ns)
        active = self.follower.active
        is_live = active is not None and active.covers(due_ns, max_age_ns)
        if active is None or not (is_live and is_state_good and self._may_move()):
            return self._rest(due_ns)
        self._enter_motion(active, due_ns)
        setpoint = self._setpoint(active, due_ns)
        try:
            limited = self._limiter.step(setpoint)
        except ConfigError as error:  # numbers that overflow between finite rows
            self._ended += [(running, str(error)) for running in self.follower.drop()]
            return self._rest(due_ns)
        if limited.limited or self._states.state is ArmState.RAMP_IN:
            self._limited_ns = due_ns
        elif due_ns - self._limited_ns > LONGEST_NS:  # a blend may still be under way before
            self._catch_up(None, due_ns)
        sent = self._sender.send(self._limiter, limited.position, due_ns)
        if self.is_overdue:
            return self._nothing()
        active.first_command_ns = active.first_command_ns or due_ns
        active.ticks += 1
        motion = Motion(active, setpoint.position, limited.position, limited.limited, bool(sent))
        return Moved(motion, tuple(self._ended), sent.failure)

    def brake_others(self, due_ns: int, *, seen_after_ns: int) -> Motion:
        """Decelerate the arms that have no fault while another has one; nothing with one arm.

        Args:
            due_ns: The tick.
            seen_after_ns: Steady instant; an arm not heard of since gets nothing.
        """
        self._sender.is_overdue = False
        if self._limiter is None or not isinstance(self._arm, SeveralArms):
            return Motion()
        self._after_gap(due_ns)
        self._may_brake = not self._limiter.is_stopped
        if self._limiter.is_stopped:
            return Motion()
        command = self._limiter.brake().position
        sent = self._sender.send(
            self._limiter, command, due_ns,
            partial(self._arm.brake, seen_after_ns=seen_after_ns))
        if not sent.columns.any():
            return Motion()
        return Motion(None, command, command, (), True)

    def _after_gap(self, due_ns: int) -> None:
        """Let joints start from rest that had no command for too long, after a pause all ramp."""
        assert self._limiter is not None
        if self._sender.goes_on(due_ns):
            return
        gap_ns = self._sender.gap_ns(due_ns)
        active = self.follower.active
        if active is not None and 2 * gap_ns.max() > 3 * self._config.period_ns:
            self._limited_ns = due_ns  # one lost command is to be made up for, too
            self._catch_up(active, due_ns)
        arrived = self._sender.arrived(gap_ns)
        if not arrived.any():
            return
        self._limiter.rest(arrived)
        if self._yield_to is not None and self._yields is not None:
            stay = arrived & ~self._yields
            self._yield_to = np.where(stay, self._limiter.position, self._yield_to)
        if gap_ns.max() > PAUSE_NS:
            self._needs_ramp, self._ramp_ticks = True, 0
            if self._states.state in _MOVING:
                self._states.fire(ArmEvent.HOLD)

    def _may_move(self) -> bool:
        """Return whether motion was asked for; a ramp begins at rest only."""
        assert self._limiter is not None
        if self._must_rest:
            return False
        is_waiting = self._needs_ramp and self._states.state is ArmState.HOLDING
        return self.is_armed and (not is_waiting or self._limiter.is_stopped)

    def _rest(self, due_ns: int) -> Moved:
        """Decelerate within the limits, then keep sending the held pose.

        A rest that was not sent has not begun: the next tick begins it, whatever comes meanwhile.
        """
        assert self._limiter is not None
        self._catch_up(None, due_ns)
        limited = self._braked()
        sent = self._sender.send(self._limiter, limited.position, due_ns)
        if self.is_overdue:
            return self._nothing()
        self._must_rest = self._must_rest and not self._sender.is_given
        if self._states.state in _MOVING:
            if self.is_armed and 2 * self._ramp_ticks * self._config.period_ns >= (
                    self._config.ramp_ns):
                # it has met the plan; plans shorter than the ramp must not ramp for ever
                self._needs_ramp = False
            self._states.fire(ArmEvent.HOLD)
        motion = Motion(self.follower.active, limited.position, limited.position, (), bool(sent))
        return Moved(motion, tuple(self._ended), sent.failure)

    def _braked(self) -> Limited:
        """Return the next command of coming to rest: where it is, or where joints give way."""
        assert self._limiter is not None
        if self._yield_to is None:
            return self._limiter.brake()
        return self._limiter.step(Setpoint(self._yield_to, np.zeros(len(self._yield_to))))

    def _take_over(self, due_ns: int) -> None:
        if not self.follower.is_due(due_ns):
            return
        ended = self.follower.switch(due_ns, self._current(due_ns, next_due_ns=due_ns), self.fit)
        active = self.follower.active
        text = f'followed by chunk {active.chunk.chunk_id}' if active else ''
        self._ended += [(running, running.refusal or text) for running in ended]
        if active is not None and active.is_apart and active.entered_ns == due_ns:
            self._limited_ns, self._is_catching_up = due_ns, True
        if active is not None and self._is_catching_up:
            self._catch_up(active, due_ns)

    def _catch_up(self, running: Running | None, due_ns: int) -> None:
        """Bound the speed of joints that are behind a chunk; None when nothing is to bound."""
        assert self._limiter is not None
        self._is_catching_up = running is not None
        speed = None
        if running is not None:
            gap = None
            if (self._states.state is ArmState.RAMP_IN and self._ramps_fresh
                    and self._ramp_from is not None):
                gap = running.path.at(due_ns).position - self._ramp_from
            speed = catch_up_speed(running, due_ns, self._config.catch_up_factor, gap,
                                   self._config.ramp_ns)
        self._limiter.slow_down(speed)

    def _enter_motion(self, active: Running, due_ns: int) -> None:
        assert self._limiter is not None
        state = self._states.state
        if state is ArmState.HOLDING:
            self._yield_to = None
            if self._needs_ramp:
                self._states.fire(ArmEvent.RESUME)
                self._ramp_start_ns = due_ns
                self._ramp_from = self._limiter.position
                self._ramps_fresh = active.entered_ns == due_ns
            else:
                self._states.fire(ArmEvent.TRACK)
            self._limited_ns = due_ns
            self._catch_up(active, due_ns)
        elif state is ArmState.RAMP_IN and due_ns - self._ramp_start_ns >= self._config.ramp_ns:
            self._states.fire(ArmEvent.TRACK)
            self._needs_ramp = False

    def _setpoint(self, active: Running, due_ns: int) -> Setpoint:
        setpoint = active.path.at(due_ns)
        if self._states.state is not ArmState.RAMP_IN:
            return setpoint
        assert self._ramp_from is not None
        self._ramp_ticks += 1
        share = (due_ns - self._ramp_start_ns) / self._config.ramp_ns
        return ramp(self._ramp_from, setpoint, share, self._config.ramp_ns)

    def _current(self, switch_ns: int, *, next_due_ns: int) -> Setpoint | None:
        """Return where the arm is going at a switch, None where a ramp will bridge the step.

        While it moves that is the plan's setpoint, also in a ramp: the ramp leads from the held
        pose to whatever the plan says, so a seam lies between two plans.
        """
        if self._states.state in _MOVING:
            planned = self.follower.origin(switch_ns, next_due_ns=next_due_ns)
            if planned is not None:
                return planned
        if self._needs_ramp or self._limiter is None:
            return None
        return Setpoint(self._limiter.position, self._limiter.velocity)

    def _nothing(self) -> Moved:
        return Moved(Motion(), tuple(self._ended))


def ramp(origin: FloatArray, target: Setpoint, share: float, duration_ns: int) -> Setpoint:
    """Return the setpoint between a held pose and a moving target; smooth at both ends.

    Args:
        origin: ``float64[J]`` held pose.
        target: Setpoint of the chunk.
        share: Part of the ramp that has passed, clamped to 0..1.
        duration_ns: Duration of the ramp.
    """
    u = min(1.0, max(0.0, share))
    s = u**3 * (10.0 - 15.0 * u + 6.0 * u * u)
    ds = 30.0 * u * u * (1.0 - u) ** 2 / (duration_ns / 1e9)
    gap = target.position - origin
    return Setpoint(origin + s * gap, s * target.velocity + ds * gap)
