"""What the bridge asks of an arm, whatever stands behind it.

Two implementations keep this contract: ``arm.driver.PiperDriver`` (a real or a simulated arm on a
CAN bus) and ``arm.direct.DirectArm`` (a plant in the same process). One contract test runs against
both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from reflex_ros.core.types import JOINT_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import ArmFeedback, FloatArray, Reply

FEEDBACK_TIMEOUT_NS = 100_000_000
"""Feedback older than this is lost: fault ``feedback_lost``, nothing is sent."""


RECOVERY_NS = 60_000_000_000
"""Clearing the faults of one arm, checking and enabling it end before, if each step takes as long
as it may: a bus opened twice, every question asked ten times, the power at the last moment."""


def recovery_ns(joints: int) -> int:
    """Return the longest that recovering takes: the arms take their turn.

    Args:
        joints: Of all arms, grippers included.
    """
    return RECOVERY_NS * max(1, -(-joints // len(JOINT_NAMES)))


@dataclass(frozen=True, slots=True)
class ArmReport:
    """What ``check`` found; the arm did not move.

    Attributes:
        firmware: Version as the arm reports it, e.g. ``S-V1.8-3``; 'direct' without firmware.
        position: ``float64[J]`` measured pose, rad and m.
        limits: Ours intersected with those the arm reports.
        gripper_range_m: Opening that the arm reports, m.
        control_mode, arm_status: Raw codes.
        enabled: Per joint (gripper last), whether the motor is powered.
        rates_hz: Measured frames per second by CAN id, {} without a bus.
        warnings: Findings that do not forbid motion, each with what to do.
    """

    firmware: str
    position: FloatArray = field(compare=False)
    limits: JointLimits = field(compare=False)
    gripper_range_m: float
    control_mode: int
    arm_status: int
    enabled: tuple[bool, ...]
    rates_hz: dict[int, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BusStats:
    """Counters since ``connect``; a copy.

    Attributes:
        is_connected: Whether the bus is open and its reader alive.
        is_shadow: Whether command frames are withheld (``send: false``).
        frames: Frames received. ``rates_hz``: frames per second by CAN id over the last second.
        feedback_age_ns: Steady age of the newest complete joint set, -1 if none yet.
        sent_commands: Commands of which every frame was handed to the bus.
        sent_frames: Frames handed to the bus. ``failed_frames``: frames the bus did not take.
        blocked_frames: Frames stopped before the bus because they were not the requested ones.
        refused_commands: Commands answered with False. ``last_refusal``: why, '' if never.
        foreign_frames: Command frames from another sender. ``decode_errors``: bad frames.
        incoherent_sets: Joint sets dropped because a part was missing.
        reconnects: Times the bus was reopened.
    """

    is_connected: bool = False
    is_shadow: bool = False
    frames: int = 0
    rates_hz: dict[int, float] = field(default_factory=dict)
    feedback_age_ns: int = -1
    sent_commands: int = 0
    sent_frames: int = 0
    failed_frames: int = 0
    blocked_frames: int = 0
    refused_commands: int = 0
    last_refusal: str = ''
    foreign_frames: int = 0
    decode_errors: int = 0
    incoherent_sets: int = 0
    reconnects: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """What left of one command; true if all of it did.

    Attributes:
        columns: ``bool[J]`` whether the joint's target was handed over.
        failure: Why an arm refused its part altogether, '' if none did.
    """

    columns: npt.NDArray[np.bool_] = field(compare=False)
    failure: str = ''

    def __bool__(self) -> bool:
        """Return whether the whole command was handed over."""
        return bool(self.columns.all())

    @classmethod
    def nothing(cls, joints: int, failure: str = '') -> Sent:
        """Return what became of a command of which nothing left."""
        return cls(np.zeros(joints, bool), failure)

    @classmethod
    def whole(cls, joints: int) -> Sent:
        """Return what became of a command that left."""
        return cls(np.ones(joints, bool))


def always() -> None:
    """Go on, whatever happens."""


class Arm(Protocol):
    """One arm. Order of use: connect, check, enable, send at 50 Hz, disconnect.

    ``connect``, ``check``, ``enable`` and ``clear_faults`` block; the others do not. ``send`` is
    for one thread only, the first that calls it; ``feedback``, ``faults``, ``limits`` and
    ``stats`` are safe from any thread.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Return the joint names, gripper last; the order of every vector here."""

    def connect(self) -> None:
        """Open the bus and wait for the first complete feedback; sends queries only.

        Raises:
            ArmError: The bus cannot be opened, is in use by another bridge, or is silent.
        """

    def check(self) -> ArmReport:
        """Decide whether this arm may be enabled; blocks for about one second, moves nothing.

        Raises:
            ArmError: Anything forbids motion; the code and the text say what and what to do.
        """

    def enable(self, *, go_on: Callable[[], None] = always) -> FloatArray:
        """Power the joints and hold the measured pose; returns once the arm does so.

        Needs a passed ``check``. In shadow mode only the pose is read. Power stays on if the
        sequence fails: the arm would fall.

        Args:
            go_on: Called before each joint gets its power; raises to end it there. Joints that
                have power by then keep it.

        Returns:
            ``float64[J]`` the pose that was commanded and that the arm holds: commands begin
            there, not at a reading of their own, which may be damaged.

        Raises:
            ArmError: A motor, the control mode or the pose did not do what was asked.
        """

    def feedback(self) -> ArmFeedback:
        """Return a copy of the newest coherent reading; ``mono_ns`` tells its age, 0 = none.

        Its ``faults`` are those in force, as ``faults()`` says them: the bridge looks nowhere
        else at a tick.
        """

    def send(self, position: FloatArray) -> Sent:
        """Hand one command to the bus.

        The bus may take some frames and not the others. What left moves its joints, so it is told
        joint by joint: the next command goes on from what the arm has seen.

        Args:
            position: ``float64[J]`` absolute positions, rad and m of total opening.

        Returns:
            What was handed over; true if it was every frame. If not: not enabled, a fault is in
            force, the bus did not take a frame, or shadow mode; ``stats().last_refusal`` says
            which.

        Raises:
            ConfigError: Wrong shape, not finite, outside the limits or a jump; nothing was sent.
            ArmError: A second thread sends (code ``second_sender``).
        """

    def clear_faults(self, *, arm_supported: bool, go_on: Callable[[], None] = always) -> Reply:
        """Try to clear the faults; blocks for seconds, see ``RECOVERY_NS``.

        Errors are cleared without removing power first, and a silent bus is opened again. Only if
        that does not help is a reset offered, which cuts the power: the arm falls. It is reset
        once this is called again for faults that it was offered for, with ``arm_supported`` True.

        Args:
            arm_supported: The operator's word, and that this is the second request.
            go_on: Called before the bus is reopened and before the power is cut; raises to end
                it there, with the power as it is.
        """

    def faults(self) -> tuple[str, ...]:
        """Return the codes of the faults in force, () if none; see ``docs/faults.md``."""

    def limits(self) -> JointLimits:
        """Return the limits in force: ours, intersected with the arm's after ``check``."""

    def disconnect(self) -> None:
        """Close the bus. Motors keep their power and the arm holds its last target."""

    def stats(self) -> BusStats:
        """Return the counters."""
