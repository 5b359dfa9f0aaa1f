"""Joints and cameras of a robot on the columns and images of a policy: by name, units declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError, ModelError
from reflex_ros.infer.processing.pipeline import Processing
from reflex_ros.infer.processing.robot import RobotMap, plain_name
from reflex_ros.infer.processing.units import check_units

Array = npt.NDArray[np.float64]
HINT = 'Correct policy.joint_names.'
EMPTY = 'empty_camera_'
"""Cameras that a policy declares only to leave them out."""


@dataclass(frozen=True, slots=True)
class JointBinding:
    """Arm joints on policy columns.

    Attributes:
        arm_names: Joints of the arm, in its order.
        columns: Names of the policy's columns, in its order.
        order: For each column, the index of its arm joint.
        scale: For each column, what an arm value (rad, m) is multiplied by.
    """

    arm_names: tuple[str, ...]
    columns: tuple[str, ...]
    order: tuple[int, ...]
    scale: tuple[float, ...]

    def from_arm(self, position: npt.ArrayLike) -> Array:
        """Return arm values as policy columns.

        Args:
            position: float[..., J], arm order, rad and m.

        Returns:
            float64[..., A], units of the policy, a copy.
        """
        values = np.asarray(position, dtype=np.float64)
        scaled: Array = values[..., list(self.order)] * np.asarray(self.scale)
        return scaled

    def to_arm(self, columns: npt.ArrayLike) -> Array:
        """Return the inverse of ``from_arm``: float64[..., J], arm order, rad and m, a copy."""
        values = np.asarray(columns, dtype=np.float64) / np.asarray(self.scale)
        back: Array = values[..., list(np.argsort(self.order))]
        return back


def bind_joints(robot: RobotMap, processing: Processing) -> JointBinding:
    """Return the binding of a robot to a policy.

    Args:
        robot: Names, units and gripper range of the arm.
        processing: Of the policy, for its columns, names and statistics.

    Raises:
        ConfigError: A unit is not declared, or a joint is missing, unknown, named twice, or not
            at the place where the checkpoint has it.
        ModelError: The policy has other columns than the arm has joints, or its statistics do
            not have the declared unit.
    """
    config = processing.config
    for name, dim in (('state', config.state_dim), ('action', config.action_dim)):
        if dim != len(robot.arm_names):
            raise ModelError(
                f'policy does not fit the arm {name}: got {dim} columns, expected '
                f'{len(robot.arm_names)} ({", ".join(robot.arm_names)}). '
                'Use a checkpoint of this arm.'
            )
    columns = _columns(robot, config.joint_names)
    order = tuple(robot.arm_names.index(joint) for _, joint in columns)
    scales = dict(zip(robot.arm_names, robot.scales(), strict=True))
    binding = JointBinding(
        robot.arm_names, tuple(name for name, _ in columns), order,
        tuple(scales[joint] for _, joint in columns),
    )  # fmt: skip
    check_units(robot, processing, tuple(joint for _, joint in columns))
    return binding


def _columns(robot: RobotMap, stored: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return pairs of column name and arm joint, in the policy's order."""
    if not stored and not robot.joint_names:
        raise ConfigError(
            'joints cannot be bound policy.joint_names: got none, and the checkpoint stores no '
            'names, expected the joint of each column in its order. '
            'Take the order of the training data.'
        )
    declared = [entry.partition('=')[::2] for entry in robot.joint_names or stored]
    if len(declared) != len(robot.arm_names):
        raise ConfigError(
            f'joints cannot be bound policy.joint_names: got {len(declared)} names, expected '
            f'{len(robot.arm_names)}. {HINT}'
        )
    for at, name in enumerate(stored):
        if plain_name(name) != plain_name(declared[at][0]):
            raise ConfigError(
                f'joints cannot be bound policy.joint_names column {at}: got {declared[at][0]}, '
                f'expected {name}, as the checkpoint stores. {HINT}'
            )
    pairs = [(name, _arm_joint(robot, name, joint)) for name, joint in declared]
    joints = [joint for _, joint in pairs]
    for joint in robot.arm_names:
        if joints.count(joint) != 1:
            names = ', '.join(name for name, _ in pairs)
            raise ConfigError(
                f'joints cannot be bound {joint}: got {joints.count(joint)} columns for it in '
                f'{names}, expected one. {HINT}'
            )
    return pairs


def _arm_joint(robot: RobotMap, name: str, joint: str) -> str:
    """Return the arm's joint of a column: the one it is given, else the one of equal name."""
    wanted = joint or name
    found = [own for own in robot.arm_names if plain_name(own) == plain_name(wanted)]
    if len(found) != 1:
        raise ConfigError(
            f'joints cannot be bound column {name}: got no joint {wanted} of the arm, expected '
            f'one of {", ".join(robot.arm_names)}. Write {name}=<joint> in policy.joint_names.'
        )
    return found[0]


def bind_cameras(
    policy_cameras: Sequence[str], available: Sequence[str],
    mapping: Mapping[str, str] | None = None,
) -> dict[str, str]:  # fmt: skip
    """Return which camera of the robot each camera of the policy gets.

    Args:
        policy_cameras: Names, in the policy's order.
        available: Names of the robot's cameras.
        mapping: Robot's camera by policy's camera, where the names differ; '' leaves a camera
            out on purpose, if the policy was trained to do without it.

    Returns:
        Robot's camera by policy's camera, in the policy's order, without those left out.

    Raises:
        ConfigError: A camera is missing, unknown, used twice or crossed with another; by name.
    """
    mapping = dict(mapping or {})
    for name in mapping:
        if name not in policy_cameras:
            raise _camera(name, 'a mapping for it', f'one of the policy {list(policy_cameras)}')
    bound: dict[str, str] = {}
    for name in policy_cameras:
        given = mapping.get(name, '' if name.startswith(EMPTY) else name)
        if given == '':
            continue
        if given not in available:
            raise _camera(name, f'no camera {given}', f'one of the robot {list(available)}')
        if given in bound.values():
            other = next(n for n, used in bound.items() if used == given)
            raise _camera(name, f'{given}, which {other} has already', 'a camera of its own')
        if given != name and given in policy_cameras and name in available:
            raise _camera(name, f'{given}, though both sides have a {name}', f'{name} (swapped)')
        bound[name] = given
    if not bound:
        raise _camera(policy_cameras[0] if policy_cameras else '', 'no camera', 'at least one')
    return bound


def _camera(name: str, got: str, expected: str) -> ConfigError:
    return ConfigError(
        f'cameras cannot be bound {name}: got {got}, expected {expected}. Name the cameras of '
        'the robot as the policy does, or map them.'
    )


__all__ = ['JointBinding', 'RobotMap', 'bind_cameras', 'bind_joints']
