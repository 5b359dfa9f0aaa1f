"""Enabling: power joint by joint, take CAN control, hold the measured pose, prove it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.arm import checks, wire
from reflex_ros.arm.protocol import always
from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ArmError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.arm.commands import Commands
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.arm.feedback import FeedbackBook, FeedbackView
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import FloatArray

POWER_PERIOD_NS = 60 * MS
"""Motor states arrive every 25 ms; asking faster only fills the bus."""
DRIVER_TIMEOUT_NS = 300 * MS
"""Older motor states prove nothing."""
HOLD_PERIOD_NS = 20 * MS
HOLD_NS = 240 * MS
HOLD_TIMEOUT_NS = 2_000 * MS
HOLD_SPEED_PERCENT = 10
MOTION_RAD = 0.03
STILL_NS, STILL_TIMEOUT_NS = 100 * MS, 3_000 * MS
STILL_RAD = 0.005


class EnablingSequence:
    """Powers an arm and makes it hold where it is.

    Args:
        config: Time bounds and names.
        clock: Paces the sequence.
        commands, book: The open bus.
    """

    def __init__(
        self,
        config: DriverConfig,
        clock: Clock,
        *,
        commands: Commands,
        book: FeedbackBook,
    ) -> None:
        self._config = config
        self._clock = clock
        self._commands = commands
        self._book = book

    def run(self, limits: JointLimits, *, go_on: Callable[[], None] = always) -> FloatArray:
        """Wait until the arm is still, power it, then stream its pose until it obeys.

        The pose is measured after the power is on: whatever sank until then must not be pulled
        back. Power stays on if the sequence fails. Blocks for up to ten seconds.

        Args:
            limits: Range in force; a pose just outside is held at its edge.
            go_on: Called before each joint gets its power; raises to end it there.

        Returns:
            ``float64[7]`` the pose that the arm holds, rad and m.

        Raises:
            ArmError: ``arm_moving``, ``enable_timeout``, ``pose_implausible``, ``mode_refused``,
                ``moved_while_enabling``.
        """
        self._wait_still()
        self._power_joints(go_on)
        start = self._wait_still()
        hold = checks.check_pose(start, self._config.names, limits)
        self._stream(hold, start)
        return hold

    def _wait_still(self) -> FloatArray:
        end_ns = self._clock.mono_ns() + STILL_TIMEOUT_NS
        before = self._book.view()
        while True:
            self._clock.sleep_until(self._clock.mono_ns() + STILL_NS)
            view = self._book.view()
            moved = np.abs(view.position - before.position)[:wire.JOINTS]
            # Old feedback stands still too.
            if view.joints_ns > before.joints_ns and np.all(moved < STILL_RAD):
                return view.position
            if self._clock.mono_ns() > end_ns:
                raise ArmError(
                    f'Arm enable: got {np.max(moved):.4f} rad of motion in {STILL_NS // MS} ms, '
                    f'expected less than {STILL_RAD} rad. Let the arm come to rest, support it '
                    'if it sinks, then enable again.',
                    code='arm_moving',
                )
            before = view

    def _power_joints(self, go_on: Callable[[], None]) -> None:
        begin_ns = self._clock.mono_ns()
        off = self._unpowered()
        while off:
            now_ns = self._clock.mono_ns()
            if now_ns - begin_ns > self._config.enable_timeout_ns:
                raise ArmError(
                    f'Arm enable: got {", ".join(f"joint{j}" for j in off)} without power after '
                    f'{self._config.enable_timeout_ns / 1e9:.1f} s, expected all six powered. '
                    'Check the emergency stop and the supply; the powered joints stay powered.',
                    code='enable_timeout',
                )
            for joint in off:
                go_on()
                self._commands.power_on(joint)
            self._clock.sleep_until(now_ns + POWER_PERIOD_NS)
            off = self._unpowered()

    def _unpowered(self) -> list[int]:
        view, since_ns = self._book.view(), self._clock.mono_ns() - DRIVER_TIMEOUT_NS
        return [
            i + 1 for i, driver in enumerate(view.drivers)
            if driver is None or view.drivers_ns[i] < since_ns
            or not driver.bits & wire.ENABLED_BIT
        ]

    def _stream(self, hold: FloatArray, start: FloatArray) -> None:
        begin_ns = self._clock.mono_ns()
        obeyed_ns = 0
        while True:
            now_ns = self._clock.mono_ns()
            self._commands.hold(hold, percent=HOLD_SPEED_PERCENT)
            self._clock.sleep_until(now_ns + HOLD_PERIOD_NS)
            view = self._book.view()
            self._check_still(view, hold, start)
            if not self._obeys(view, begin_ns):
                obeyed_ns = 0
            elif not obeyed_ns:
                obeyed_ns = now_ns
            if obeyed_ns and self._clock.mono_ns() - obeyed_ns >= HOLD_NS:
                return
            if now_ns - begin_ns > HOLD_TIMEOUT_NS:
                raise self._not_obeyed(view)

    @staticmethod
    def _obeys(view: FeedbackView, since_ns: int) -> bool:
        status = view.status
        return (
            status is not None and view.status_ns > since_ns
            and status.control_mode == wire.CONTROL_CAN and status.move_mode == wire.MOVE_JOINT
            and view.gripper is not None and bool(view.gripper.bits & wire.ENABLED_BIT)
        )

    def _check_still(self, view: FeedbackView, hold: FloatArray, start: FloatArray) -> None:
        moved = np.abs(view.position - start)[:wire.JOINTS]
        allowed = MOTION_RAD + np.abs(hold - start)[:wire.JOINTS]
        if np.any(moved > allowed):
            i = int(np.argmax(moved - allowed))
            raise ArmError(
                f'Arm enable {self._config.names[i]}: got a motion of {moved[i]:.3f} rad, '
                f'expected less than {allowed[i]:.3f} rad while holding. Nothing more is sent and '
                'power stays on; support the arm and check load, zero and installation angle.',
                code='moved_while_enabling',
            )

    def _not_obeyed(self, view: FeedbackView) -> ArmError:
        status = view.status
        got = 'no status' if status is None else (
            f'control mode {status.control_mode}, move mode {status.move_mode}, gripper '
            f'{"on" if view.gripper and view.gripper.bits & wire.ENABLED_BIT else "off"}')
        return ArmError(
            f'Arm enable: got {got}, expected control mode 1 (CAN), move mode 1 (joints), gripper '
            'on. End teach mode, release the emergency stop, then check and enable again.',
            code='mode_refused',
        )
