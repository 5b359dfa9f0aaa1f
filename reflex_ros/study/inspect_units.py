"""Which unit the statistics of a column look like, where nobody has declared one."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi

from reflex_ros.infer.processing.robot import RobotMap, plain_name

LARGEST_RAD = 2.5 * pi
"""No joint of an arm reaches so far; smaller degrees cannot be told from radians."""
LARGEST_OPENINGS = (('m', 0.2), ('fraction', 2.0), ('mm or percent', 200.0))
"""Largest usual value of a gripper in each unit."""
GRIPPER = 'gripper'


def likely_unit(name: str, usual: Sequence[float]) -> str:
    """Return the unit that a usual range looks like, '' where it says nothing.

    Args:
        name: Of the column or its joint; one that ends in ``gripper`` is an opening.
        usual: Ends of its usual ranges, of state and action; empty = not known.
    """
    if not usual:
        return ''
    reach = max(abs(float(value)) for value in usual)
    if is_gripper(name):
        return next((unit for unit, most in LARGEST_OPENINGS if reach <= most), '')
    return 'deg' if reach > LARGEST_RAD else 'rad'


def declared_unit(robot: RobotMap, joint: str) -> str:
    """Return the unit in which a robot's parameters say that a joint is written."""
    return robot.gripper_unit if is_gripper(joint) else robot.joint_unit


def is_gripper(name: str) -> bool:
    """Whether a column is an opening, by its name."""
    return plain_name(name).endswith(GRIPPER)
