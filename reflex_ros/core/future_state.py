"""The state at a future instant, from the commands that will lead there.

Equation (3) of the paper: the command due at t + Delta stands for the state at t + Delta.
"""

from __future__ import annotations

import numpy as np

from reflex_ros.core.interpolate import SetpointPath
from reflex_ros.core.types import ArmState, FloatArray, Plan

_COMMANDED = frozenset({ArmState.ENABLED, ArmState.RAMP_IN, ArmState.TRACKING, ArmState.HOLDING})


def predict(
    plan: Plan | None,
    at_stamp_ns: int,
    *,
    max_tracking_error_rad: float,
    epoch: int | None = None,
) -> FloatArray | None:
    """Return the commanded state at ``at_stamp_ns``, or None where the measured one is better.

    Assumes that the arm follows its commands; contact, slip and saturation show as tracking
    error, above whose bound nothing is predicted. Grippers are left out of the bound: a gripper
    that holds an object never reaches its command. While the bridge holds, the plan is the hold
    pose and so is the prediction; after the plan's end its last setpoint is held.

    Args:
        plan: Newest plan, None if there is none.
        at_stamp_ns: Instant asked for, ROS time.
        max_tracking_error_rad: Largest tracking error of a joint, rad.
        epoch: Epoch of the observation; a plan of another epoch predicts nothing.

    Returns:
        ``float64[J]`` in the plan's joint order, a copy; None without a plan, finite
        setpoints or feedback, in another epoch, with an arm that obeys no commands, or above the
        bound.
    """
    if plan is None or plan.setpoints is None or plan.setpoint_stamps_ns is None:
        return None
    if len(plan.setpoints) == 0 or plan.arm_state not in _COMMANDED:
        return None
    if epoch is not None and plan.epoch != epoch:
        return None
    if not _is_tracking(plan, max_tracking_error_rad):
        return None
    if not np.isfinite(plan.setpoints).all():
        return None
    # a piece depends on the rows before and behind it, and on no others
    after = int(np.searchsorted(plan.setpoint_stamps_ns, at_stamp_ns, side='right'))
    near = slice(max(0, after - 2), after + 2)
    path = SetpointPath(plan.setpoint_stamps_ns[near], plan.setpoints[near])
    return path.at(at_stamp_ns).position.copy()


def _is_tracking(plan: Plan, max_tracking_error_rad: float) -> bool:
    """Return whether every joint is known to be near its command; nan is not near."""
    if plan.tracking_error is None or len(plan.tracking_error) != len(plan.joint_names):
        return False
    return all(abs(error) <= max_tracking_error_rad for name, error in zip(
        plan.joint_names, plan.tracking_error.tolist(), strict=True)
        if not name.endswith('gripper'))
