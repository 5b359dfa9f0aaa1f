"""Differences of actions in degrees and millimetres, or in the checkpoint's units if unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from reflex_ros.study.inspect_tiny import TinySubject
from reflex_ros.study.inspect_units import is_gripper

Float64 = npt.NDArray[np.float64]
DEG, MM = 180.0 / np.pi, 1000.0
ARM_JOINTS = 6


@dataclass(frozen=True, slots=True)
class Metric:
    """How two chunks are compared.

    Attributes:
        names: Of the columns, after ``to_arm``.
        to_arm: From the policy's columns to rad and m; None = the units are not declared.
        dh: DH variant of the arm. note: What the reader should know of the units.
    """

    names: tuple[str, ...]
    to_arm: Callable[[Float64], Float64] | None
    dh: str = 'new'
    note: str = ''

    def summary(self, pairs: Sequence[tuple[Float64, Float64]]) -> dict[str, Any]:
        """Return the differences of all rows of all pairs of chunks.

        Args:
            pairs: Right and approximate actions, float64[chunk, columns] in the policy's units.
        """
        right, found = (np.concatenate(side) for side in zip(*pairs, strict=True))
        if self.to_arm is None:
            rows = np.abs(found - right)
            return {'checkpoint_units': _quantiles(rows.max(1)), 'by_column': self._worst(rows)}
        right, found = self.to_arm(right), self.to_arm(found)
        grips = np.array([is_gripper(name) for name in self.names])
        rows = np.abs(found - right) * np.where(grips, MM, DEG)
        summary: dict[str, Any] = {'by_column': self._worst(rows)}
        if not grips.all():
            summary['joint_deg'] = _quantiles(rows[:, ~grips].max(1))
        if grips.any():
            summary['gripper_mm'] = _quantiles(rows[:, grips].max(1))
        tips = tip_errors_mm(right[:, ~grips], found[:, ~grips], self.dh)
        if tips is not None:
            summary['tip_mm'] = _quantiles(tips)
        return summary

    def units(self) -> dict[str, str]:
        """Return the unit of each column of ``by_column``."""
        if self.to_arm is None:
            return dict.fromkeys(self.names, 'as in the checkpoint')
        return {name: 'mm' if is_gripper(name) else 'deg' for name in self.names}

    def _worst(self, rows: Float64) -> dict[str, float]:
        return dict(zip(self.names, rows.max(0).tolist(), strict=True))


def metric_of(subject: Any) -> Metric:
    """Return how the actions of an inspected checkpoint are compared.

    Raises:
        ConfigError: The robot's parameters do not fit. ModelError: Nor do its joints.
    """
    if isinstance(subject, TinySubject):
        return Metric(subject.arm_names, lambda columns: columns, subject.spec.dh)
    if subject.refusal is not None:
        raise subject.refusal
    if subject.binding is None:
        names = tuple(column.name for column in subject.columns('action'))
        return Metric(names, None, note=(
            'the units of the joints are not declared: differences are in the units of the '
            'checkpoint. Give --robot FILE or -p policy.joint_unit:=... for degrees and mm.'
        ))  # fmt: skip
    dh = str(subject.robot.values.get('arm.dh', 'new'))
    return Metric(subject.binding.arm_names, subject.binding.to_arm, dh)


def tip_errors_mm(right: Float64, found: Float64, dh: str) -> Float64 | None:
    """Return the distance of the tool points of each row, mm.

    None where the joints are not those of one PiPer, or the simulator's kinematics are not
    installed.
    """
    if right.shape[1] != ARM_JOINTS or find_spec('mujoco') is None:
        return None
    from reflex_ros.sim.kinematics import Kinematics

    kinematics = Kinematics(dh)
    tips = [np.stack([kinematics.tip(row)[0] for row in rows]) for rows in (right, found)]
    distances: Float64 = MM * np.linalg.norm(tips[1] - tips[0], axis=1)
    return distances


def _quantiles(values: Float64) -> Mapping[str, float]:
    return {'p50': float(np.median(values)), 'max': float(values.max())}
