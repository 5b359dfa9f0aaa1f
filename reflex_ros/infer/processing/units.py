"""Whether the statistics of the training data have the declared units."""

from __future__ import annotations

from math import log, pi

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.processing.normalise import Normaliser
from reflex_ros.infer.processing.pipeline import Processing
from reflex_ros.infer.processing.robot import RobotMap

Array = npt.NDArray[np.float64]
TURN_RAD = 2.5 * pi
"""No joint of an arm reaches so far; smaller degrees cannot be told from radians."""
SLACK = 2.0
"""How often the gripper's range its statistics may reach, since they are estimates."""


def check_units(robot: RobotMap, processing: Processing, joints: tuple[str, ...]) -> None:
    """Refuse statistics that cannot have the declared units.

    The state is judged, and actions unless they are relative to it.

    Args:
        robot: With the units. processing: With the statistics.
        joints: Arm joint of each column.

    Raises:
        ModelError: Names the joint, its usual range, and the likely unit.
    """
    judged = [('state', processing.state_normaliser)]
    if not any(processing.relative):
        judged.append(('action', processing.action_normaliser))
    grippers = dict(zip(robot.arm_names, robot.is_gripper, strict=True))
    is_gripper = np.array([grippers[joint] for joint in joints])
    for kind, normaliser in judged:
        span = _span(normaliser)
        if span is None:
            continue
        _check_joints(robot, kind, joints, np.where(is_gripper[:, None], 0.0, span))
        for at in np.flatnonzero(is_gripper):
            _check_gripper(robot, kind, joints[at], span[at])


def _span(normaliser: Normaliser) -> Array | None:
    """Return the usual range of each column: float64[D, 2], or None if it is not known."""
    reach = normaliser.reach()
    return None if reach is None else np.stack([np.asarray(v, np.float64) for v in reach], 1)


def _check_joints(robot: RobotMap, kind: str, joints: tuple[str, ...], span: Array) -> None:
    largest = np.abs(span).max(axis=1)
    at = int(largest.argmax())
    if robot.joint_unit == 'rad' and largest[at] > TURN_RAD:
        raise _error(robot.joint_unit, 'deg', kind, joints[at], span[at], f'{TURN_RAD:.1f}')
    if robot.joint_unit == 'deg' and 0.0 < largest[at] < 2.0 * pi:
        raise _error(
            robot.joint_unit, 'rad', kind, joints[at], span[at], 'more than one turn in radians'
        )


def _check_gripper(robot: RobotMap, kind: str, joint: str, span: Array) -> None:
    unit, opening = robot.gripper_unit, robot.gripper_max_m
    full = {'m': opening, 'mm': 1000 * opening, 'fraction': 1.0, 'percent': 100.0}
    reach = float(np.abs(span).max())
    # Two per cent of the opening in a fine unit is a whole opening in a coarse one.
    is_small = unit in ('mm', 'percent') and 0.0 < reach < 0.02 * full[unit]
    if is_small or reach > SLACK * full[unit]:
        likely = min(full, key=lambda name: abs(log(reach / full[name])))
        raise _error(unit, likely, kind, joint, span, f'{full[unit]:g}')


def _error(unit: str, likely: str, kind: str, joint: str, span: Array, limit: str) -> ModelError:
    guess = 'it fits no other unit better' if likely == unit else f'it looks like {likely}'
    return ModelError(
        f'statistics do not have the declared unit {kind} {joint}: got a usual range of '
        f'{span[0]:.4g} to {span[1]:.4g}, expected values up to {limit} ({unit}); {guess}. '
        'Declare the unit of the training data.'
    )
