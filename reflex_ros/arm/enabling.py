"""Enabling: power joint by joint, take CAN control, hold the measured pose, prove it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.arm import wire
from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ArmError

if TYPE_CHECKING:
    from reflex_ros.arm.commands import Commands
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.arm.feedback import FeedbackBook, FeedbackView
    from reflex_ros.core.clock import Clock
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

    def run(self, hold: FloatArray) -> None:
        """Power joints 1..6 and the gripper, then stream ``hold`` until the arm obeys it.

        Power stays on if it fails. Blocks for up to seven seconds.

        Args:
            hold: ``float64[7]`` the measured pose, clipped to the limits.

        Raises:
            ArmError: ``enable_timeout``, ``mode_refused``, ``moved_while_enabling``.
        """
        start = self._book.view().position
        self._power_joints()
        self._stream(hold, start)

    def _power_joints(self) -> None:
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
