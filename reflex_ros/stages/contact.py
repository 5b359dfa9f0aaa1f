"""Whether the arm pushes against something: it lags behind its command and the motor is loaded.

A stiff arm that is blocked is commanded on until its lag is large, and then held there: it goes on
pushing. Lag alone is also slip, load or a damaged reading, and current alone is weight or
acceleration; both together, for some time, are contact.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reflex_ros.core.clock import MS
from reflex_ros.core.interpolate import revolute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reflex_ros.core.types import ArmFeedback, FloatArray

LEAST_READINGS = 3
"""So many different readings must agree: a damaged one is no contact."""


@dataclass(frozen=True, slots=True)
class ContactBounds:
    """What counts as contact.

    Attributes:
        error_rad: Lag of a joint behind its command.
        effort_nm: ``float`` of each of six joints: torque estimated from its current.
        hold_ns: Both must last this long.
    """

    error_rad: float = 0.12
    effort_nm: tuple[float, ...] = (8.0, 8.0, 8.0, 3.0, 3.0, 3.0)
    hold_ns: int = 100 * MS


@dataclass(frozen=True, slots=True)
class Contact:
    """Joints that push.

    Attributes:
        joints: Which, ``bool[J]``. ``text``: the words for a person.
        position: ``float64[J]`` where the arm is: of each joint the median of the newest readings,
            since the arm is led there and one of them may be damaged.
    """

    joints: npt.NDArray[np.bool_]
    text: str
    position: FloatArray


class ContactWatch:
    """Looks for contact, one reading at a time.

    Args:
        bounds: What counts.
        names: Joint names, seven for each arm; grippers hold things and are not judged.
    """

    def __init__(self, bounds: ContactBounds, names: tuple[str, ...]) -> None:
        self._bounds, self._names = bounds, names
        self._joints = revolute(len(names))
        arms = int((~self._joints).sum())
        self._effort = np.tile([*bounds.effort_nm, np.inf], arms)
        self.restart()

    def restart(self) -> None:
        """Forget what was seen."""
        self._since_ns = np.zeros(len(self._names), np.int64)
        self._readings = np.zeros(len(self._names), np.int64)
        self._last_ns = 0
        self._positions: deque[FloatArray] = deque(maxlen=LEAST_READINGS)

    def overload(self, reading: ArmFeedback) -> str:
        """Return which joints have more torque than contact takes, '' if none.

        Without lag it is weight, or a motor that slipped and reports where it should be.
        """
        over = np.flatnonzero(self._joints & (np.abs(reading.effort) > self._effort))
        loads = ', '.join(f'{self._names[i]} {abs(reading.effort[i]):.1f} N·m' for i in over)
        return f'High load: {loads}. Compare the arm with `joint_states` by eye; it may have ' \
               'slipped without knowing.' if loads else ''

    def look(self, command: FloatArray | None, reading: ArmFeedback) -> Contact | None:
        """Return the contact that a reading completes, None as long as there is none.

        Args:
            command: ``float64[J]`` last command, None if there is none to follow.
            reading: Newest reading; one that was seen before does not count again.
        """
        if command is None or reading.mono_ns <= self._last_ns:
            return None
        self._last_ns = reading.mono_ns
        self._positions.append(reading.position)
        error = np.abs(command - reading.position)
        effort = np.abs(reading.effort)
        lags = self._joints & (error > self._bounds.error_rad)
        pushes = lags & (effort > self._effort) if lags.any() else lags
        if not pushes.any():
            self._readings.fill(0)
            return None
        self._since_ns = np.where(pushes & (self._readings > 0), self._since_ns, reading.mono_ns)
        self._readings = np.where(pushes, self._readings + 1, 0)
        lasts = reading.mono_ns - self._since_ns >= self._bounds.hold_ns
        found = pushes & lasts & (self._readings >= LEAST_READINGS)
        if not found.any():
            return None
        there = middle(self._positions)
        error = np.abs(command - there)
        worst = int(np.argmax(np.where(found, error, 0.0)))
        self.restart()
        return Contact(found, (
            f'contact at {self._names[worst]}: got {error[worst]:.2f} rad behind its command at '
            f'{effort[worst]:.1f} N·m, expected at most {self._bounds.error_rad:.2f} rad or '
            f'{self._effort[worst]:.1f} N·m. It gave way; look, free it, then resume.'), there)


def middle(positions: Iterable[FloatArray]) -> FloatArray:
    """Return the median of each joint, ``float64[J]``: one damaged reading does not count."""
    return np.asarray(np.median(np.array([*positions]), axis=0))
