"""An arm whose plant lives in this process: for virtual runs, with the same contract and limits.

The CAN bus, the SDK and the firmware are not modelled here; the wall-clock loop with the simulator
proves those.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from reflex_ros.arm.checks import check_command, check_pose
from reflex_ros.arm.protocol import (
    FEEDBACK_TIMEOUT_NS,
    ArmReport,
    BusStats,
    Sent,
    always,
)
from reflex_ros.core.errors import ArmError
from reflex_ros.core.types import JOINT_NAMES, ArmFeedback, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.core.clock import Clock
    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import FloatArray

CONTROL_STANDBY, CONTROL_CAN = 0, 1
MAX_JUMP_RAD = 0.35
MAX_JUMP_M = 0.05


class Plant(Protocol):
    """A simulated arm: takes targets, answers with its joints."""

    def command(self, joints_rad: FloatArray, gripper_m: float) -> None:
        """Set the targets: ``float64[6]`` rad and the total opening in m."""

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity, each ``float64[7]`` (rad, m; rad/s, m/s)."""


class DirectArm:
    """``arm.protocol.Arm`` over a ``Plant``, without a bus.

    Args:
        plant: The simulated arm.
        clock: Stamps the feedback.
        limits: Range in force.
        names: Joint names, gripper last.
        send: False = shadow mode: everything but commands to the plant.
    """

    def __init__(
        self,
        plant: Plant,
        clock: Clock,
        *,
        limits: JointLimits,
        names: tuple[str, ...] = JOINT_NAMES,
        send: bool = True,
    ) -> None:
        self._plant = plant
        self._clock = clock
        self._limits = limits
        self._names = names
        self._is_shadow = not send
        self._max_jump = np.array([MAX_JUMP_RAD] * (len(names) - 1) + [MAX_JUMP_M])
        self._is_connected = self._is_checked = self._is_enabled = False
        self._faults: tuple[str, ...] = ()
        self._silent: ArmFeedback | None = None
        self._last: FloatArray | None = None
        self._sender: int | None = None
        self._sent = self._refused = 0
        self._last_refusal = ''

    @property
    def names(self) -> tuple[str, ...]:
        """Return the joint names."""
        return self._names

    def connect(self) -> None:
        """Mark the arm connected; a plant is always there."""
        self._is_connected = True
        self._sender = None

    def check(self) -> ArmReport:
        """Return the report of the plant."""
        self._need(self._is_connected, 'connected', 'Call connect() first.')
        self._refuse_faults('check')
        reading = self.feedback()
        self._check_pose(reading.position)
        self._is_checked = True
        return ArmReport(
            firmware='direct',
            position=reading.position,
            limits=self._limits,
            gripper_range_m=float(self._limits.upper[-1]),
            control_mode=reading.control_mode,
            arm_status=reading.arm_status,
            enabled=reading.enabled,
        )

    def enable(self, *, go_on: Callable[[], None] = always) -> FloatArray:
        """Hold the measured pose and return it."""
        self._need(self._is_checked, 'checked', 'Call check() first.')
        self._refuse_faults('enable')
        go_on()
        hold = check_pose(self.feedback().position, self._names, self._limits)
        self._last = hold
        self._is_enabled = True
        if not self._is_shadow:
            self._plant.command(hold[:-1].copy(), float(hold[-1]))
        return hold.copy()

    def feedback(self) -> ArmFeedback:
        """Return the plant's joints, stamped now."""
        if not self._is_connected:
            return _no_feedback(len(self._names))
        if self._silent is not None:
            return replace(self._silent, faults=self.faults())
        position, velocity = self._plant.joint_state()
        return ArmFeedback(
            mono_ns=max(1, self._clock.mono_ns()),  # 0 would mean "none yet"
            position=np.array(position, dtype=np.float64),
            velocity=np.array(velocity, dtype=np.float64),
            effort=np.full(len(self._names), np.nan),
            enabled=(self._is_enabled and not self._is_shadow,) * len(self._names),
            control_mode=self._control_mode,
            arm_status=0,
            faults=self.faults(),
        )

    def send(self, position: FloatArray) -> Sent:
        """Hand one command to the plant; see ``arm.protocol.Arm.send``."""
        self._own_thread()
        command = check_command(
            position, self._names, limits=self._limits, last=self._last, max_jump=self._max_jump,
            measured=self._measured(),
        )
        refusal = self._refusal()
        if not refusal:
            self._plant.command(command[:-1].copy(), float(command[-1]))
            self._sent += 1
        else:
            self._refused += 1
            self._last_refusal = refusal
        if not refusal or refusal == 'shadow':
            self._last = command
        return Sent.nothing(len(command)) if refusal else Sent.whole(len(command))

    def clear_faults(self, *, arm_supported: bool, go_on: Callable[[], None] = always) -> Reply:
        """Clear injected faults; nothing falls, so ``arm_supported`` makes no difference."""
        del arm_supported, go_on
        if self._silent is not None:
            return Reply(False, 'Feedback is lost. Restore the plant first.')
        self._faults = ()
        self._is_enabled = self._is_checked = False
        self._last = None
        return Reply(True, 'Faults cleared; check and enable again.')

    def faults(self) -> tuple[str, ...]:
        """Return the faults in force."""
        if not self._is_connected:
            return ()
        lost = self._clock.mono_ns() - self._feedback_ns() > FEEDBACK_TIMEOUT_NS
        return (*self._faults, 'feedback_lost') if lost else self._faults

    def limits(self) -> JointLimits:
        """Return the limits."""
        return self._limits

    def disconnect(self) -> None:
        """Leave the plant where it is; it keeps its last target."""
        self._is_connected = self._is_checked = self._is_enabled = False
        self._last = None

    def stats(self) -> BusStats:
        """Return the counters."""
        seen_ns = self._feedback_ns()
        age_ns = self._clock.mono_ns() - seen_ns if seen_ns else -1
        return BusStats(
            is_connected=self._is_connected,
            is_shadow=self._is_shadow,
            feedback_age_ns=age_ns,
            sent_commands=self._sent,
            refused_commands=self._refused,
            last_refusal=self._last_refusal,
        )

    def inject_faults(self, codes: tuple[str, ...]) -> None:
        """Put fault codes in force, for fault scripts; () removes them."""
        self._faults = codes

    def silence(self, is_silent: bool) -> None:
        """Freeze the feedback at the present reading, as a pulled cable does, or restore it."""
        self._silent = None
        if is_silent:
            self._silent = self.feedback()

    def _feedback_ns(self) -> int:
        """Return the instant of the newest feedback, 0 for none; as ``feedback`` says it."""
        if not self._is_connected:
            return 0
        return max(1, self._clock.mono_ns()) if self._silent is None else self._silent.mono_ns

    def _measured(self) -> FloatArray:
        """Return the newest position; as ``feedback`` says it."""
        if self._is_connected and self._silent is None:
            return self._plant.joint_state()[0]
        return self.feedback().position

    @property
    def _control_mode(self) -> int:
        return CONTROL_CAN if self._is_enabled and not self._is_shadow else CONTROL_STANDBY

    def _refusal(self) -> str:
        if not self._is_enabled:
            return 'not_enabled'
        faults = self.faults()
        if faults:
            return faults[0]
        return 'shadow' if self._is_shadow else ''

    def _refuse_faults(self, what: str) -> None:
        faults = self.faults()
        if faults:
            raise ArmError(
                f'Arm {what}: got fault {", ".join(faults)}, expected none. Recover first.',
                code=faults[0],
            )

    def _check_pose(self, position: FloatArray) -> None:
        for name, value in zip(self._names, position, strict=True):
            if not np.isfinite(value):
                raise ArmError(
                    f'Arm pose {name}: got {value}, expected a finite number (rad, m). '
                    'Restart the simulator.',
                    code='pose_implausible',
                )
        check_pose(position, self._names, self._limits)

    def _own_thread(self) -> None:
        me = threading.get_ident()
        if self._sender is None:
            self._sender = me
        if self._sender != me:
            raise ArmError(
                f'Arm send: got thread {me}, expected the one sender thread {self._sender}. '
                'Send from one thread only.',
                code='second_sender',
            )

    @staticmethod
    def _need(is_met: bool, state: str, todo: str) -> None:
        if not is_met:
            raise ArmError(f'Arm: got a request before it was {state}. {todo}', code='arm_state')


def _no_feedback(joints: int) -> ArmFeedback:
    nan = np.full(joints, np.nan)
    return ArmFeedback(0, nan, nan, nan, (False,) * joints, CONTROL_STANDBY, 0)
