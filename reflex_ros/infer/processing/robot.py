"""What a robot says of itself: names, units and range, as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reflex_ros.core import params
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import BRIDGE, POLICY

JOINTS = ('joint1', 'joint2', 'joint3', 'joint4', 'joint5', 'joint6', 'gripper')
GRIPPER = 'gripper'
JOINT_UNITS = MappingProxyType({'rad': 1.0, 'deg': 180.0 / pi})
GRIPPER_UNITS = ('m', 'mm', 'fraction', 'percent')
UNDECLARED = 'undeclared'
DECLARE = 'Declare the unit of the training data.'


@dataclass(frozen=True, slots=True)
class RobotMap:
    """How a policy's columns are written for an arm.

    Attributes:
        arm_names: Joints of the arm, in its order; those that end in ``gripper`` are openings.
        joint_names: Columns of the policy in its order: the arm's joint of each, or
            ``column=joint`` where the names differ. Upper case, ``_`` and a final ``.pos`` do
            not count. Empty: as the checkpoint stores them.
        joint_unit: ``rad`` or ``deg``, of the training data, or ``undeclared``.
        gripper_unit: ``m``, ``mm``, ``fraction`` (0 closed, 1 open), ``percent``, or
            ``undeclared``.
        gripper_max_m: Largest total opening, m.
    """

    arm_names: tuple[str, ...] = JOINTS
    joint_names: tuple[str, ...] = ()
    joint_unit: str = UNDECLARED
    gripper_unit: str = UNDECLARED
    gripper_max_m: float = 0.07

    @property
    def is_gripper(self) -> tuple[bool, ...]:
        """Whether each joint of the arm is an opening."""
        return tuple(plain_name(name).endswith(GRIPPER) for name in self.arm_names)

    def scales(self) -> tuple[float, ...]:
        """Return what each arm value (rad, m) is multiplied by for the policy.

        Raises:
            ConfigError: A unit is not declared or unknown, or the range is not positive.
        """
        grippers = self.is_gripper
        joint = gripper = 1.0
        if not all(grippers):
            joint = _choose('policy.joint_unit', self.joint_unit, JOINT_UNITS)
        if any(grippers):
            if not 0.0 < self.gripper_max_m < 1.0:
                raise ConfigError(
                    f'units cannot be used arm.gripper_max_m: got {self.gripper_max_m}, expected '
                    '0 to 1 (m). Give the largest total opening.'
                )
            scales = (1.0, 1000.0, 1.0 / self.gripper_max_m, 100.0 / self.gripper_max_m)
            table = dict(zip(GRIPPER_UNITS, scales, strict=True))
            gripper = _choose('policy.gripper_unit', self.gripper_unit, table)
        return tuple(gripper if is_gripper else joint for is_gripper in grippers)


def _choose(name: str, unit: str, table: Mapping[str, float]) -> float:
    if unit not in table:
        raise ConfigError(
            f'units cannot be used {name}: got {unit!r}, expected one of '
            f'{", ".join(table)}. {DECLARE}'
        )
    return table[unit]


def plain_name(name: str) -> str:
    """Return a joint's name without what naming habits add."""
    return re.sub(r'[_\s]', '', name.lower().removesuffix('.pos'))


def robot_map(values: Mapping[str, Any]) -> RobotMap:
    """Return the map of a robot from parameters.

    Args:
        values: By name: ``arm.prefix``, ``arm.gripper_max_m``, ``policy.joint_names``,
            ``policy.joint_unit``, ``policy.gripper_unit``. A unit that is absent is not declared.
    """
    prefix = str(values.get('arm.prefix', ''))
    return RobotMap(
        arm_names=tuple(f'{prefix}{name}' for name in JOINTS),
        joint_names=tuple(values.get('policy.joint_names', ())),
        joint_unit=str(values.get('policy.joint_unit', UNDECLARED)),
        gripper_unit=str(values.get('policy.gripper_unit', UNDECLARED)),
        gripper_max_m=float(values.get('arm.gripper_max_m', 0.07)),
    )


def read_robot(*files: Path | str) -> RobotMap:
    """Return the map of a robot from parameter files, later ones first in rank.

    Only what the files set is declared: no unit is taken from a default.

    Raises:
        ConfigError: A file is wrong; see ``core.params.load_yaml``.
    """
    values: dict[str, Any] = {}
    for file in files:
        for node in (BRIDGE, POLICY):
            values |= params.load_yaml(file, node)
    return robot_map(values)
