"""Somebody who pushes an emulated arm aside, whatever it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reflex_ros.sim.can_codec import JointTarget
    from reflex_ros.sim.firmware import Firmware


def push_firmware(firmware: Firmware, rad: float, seconds: float,
                  later: Callable[[float, Callable[[], object]], object]) -> None:
    """Hold joint 1 of an emulated arm aside and let go of it after a time.

    Args:
        firmware: Of the arm. rad: How far. seconds: How long. later: Calls back after seconds.
    """
    move, aside = firmware.move_joints, firmware.target_rad[0] + rad

    def pushed(message: JointTarget) -> None:
        move(message)
        firmware.target_rad[0] = aside

    firmware.target_rad[0], firmware.move_joints = aside, pushed  # type: ignore[method-assign]
    later(seconds, lambda: setattr(firmware, 'move_joints', move))
