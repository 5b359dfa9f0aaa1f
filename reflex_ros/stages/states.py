"""The state that an inference starts from: measured, or predicted from the bridge's plan."""

from __future__ import annotations

from collections import deque
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import S
from reflex_ros.core.future_state import predict
from reflex_ros.core.types import StateSource

if TYPE_CHECKING:
    from reflex_ros.core.types import FloatArray, KvBlock, Plan

STATES_KEPT = 100


class StateBuffer:
    """Measured joint states by ROS time; answers with the state at a past instant."""

    def __init__(self) -> None:
        self._states: deque[tuple[int, FloatArray]] = deque(maxlen=STATES_KEPT)

    def __len__(self) -> int:
        """Return the number of states."""
        return len(self._states)

    def add(self, stamp_ns: int, position: FloatArray) -> None:
        """Take one state; a stamp that is not newer than the last is ignored, and so is nan."""
        if not all(map(isfinite, position)):
            return
        if self._states and stamp_ns <= self._states[-1][0]:
            if stamp_ns > self._states[-1][0] - S:
                return
            self._states.clear()  # ROS time went back
        self._states.append((stamp_ns, position))

    def at(self, stamp_ns: int) -> FloatArray | None:
        """Return ``float64[J]`` at ``stamp_ns``, linear between samples, clamped outside."""
        after = None
        for sample in reversed(self._states):  # what is asked for is recent
            if sample[0] < stamp_ns:
                return sample[1] if after is None else _between(sample, after, stamp_ns)
            after = sample
        return None if after is None else after[1]


def _between(a: tuple[int, FloatArray], b: tuple[int, FloatArray], stamp_ns: int) -> FloatArray:
    if b[0] <= a[0]:
        return b[1]
    share = min(1.0, max(0.0, (stamp_ns - a[0]) / (b[0] - a[0])))
    return np.asarray(a[1] + share * (b[1] - a[1]))


class StateGuess:
    """The state of the arm when commands from an observation will start, for an encoder.

    Args:
        joint_names: Joints of the arm, in the order of the states.
        source: State that is asked for; the measured one stands in for a missing prediction.
        max_tracking_error_rad: See ``future_state.predict``.
    """

    def __init__(self, joint_names: tuple[str, ...], source: StateSource, *,
                 max_tracking_error_rad: float) -> None:
        self.joint_names = joint_names
        self._source, self._max_tracking_error_rad = source, max_tracking_error_rad
        self._states = StateBuffer()
        self._plan: Plan | None = None
        self.fallbacks = 0
        """How often the measured state had to stand in for a prediction."""

    def on_plan(self, plan: Plan) -> bool:
        """Take the bridge's plan; False if it is one of another arm."""
        if plan.joint_names != self.joint_names:
            return False
        self._plan = plan
        return True

    def on_joint_state(self, stamp_ns: int, position: FloatArray) -> None:
        """Take a measured state."""
        self._states.add(stamp_ns, position)

    def restart_time(self) -> None:
        """Forget all states after ROS time went back."""
        self._states = StateBuffer()

    def has_state(self) -> bool:
        """Return whether the arm has said where it is."""
        return len(self._states) > 0

    def at(self, stamp_ns: int, epoch: int) -> tuple[StateSource, int, FloatArray] | None:
        """Return source, instant (ROS time) and ``float64[J]`` for frames of ``stamp_ns``.

        A predicted state belongs to the first command from these frames, Delta later; a measured
        one to the frames. None while no state was measured.
        """
        measured = self._states.at(stamp_ns)
        if measured is None:
            return None
        if self._source is StateSource.PREDICTED:
            at_ns = stamp_ns + (self._plan.delta_ns if self._plan is not None else 0)
            state = predict(self._plan, at_ns, epoch=epoch,
                            max_tracking_error_rad=self._max_tracking_error_rad)
            if state is not None:
                return StateSource.PREDICTED, at_ns, state
            self.fallbacks += 1
        return StateSource.MEASURED, stamp_ns, measured


def has_state(block: KvBlock, joint_names: tuple[str, ...]) -> bool:
    """Return whether a block carries a finite state of just these joints, in this order."""
    state = block.state
    return (block.joint_names == joint_names and state is not None
            and state.shape == (len(joint_names),) and bool(np.isfinite(state).all()))
