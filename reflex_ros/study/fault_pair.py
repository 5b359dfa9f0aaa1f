"""Two arms under one bridge on the virtual clock: a fault strikes the left one.

Both move alike, each on a bus of its own. What the left arm gets is judged as that of a single
arm is; the right one has no fault and must be brought to rest within its limits, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.arm.several import SeveralArms
from reflex_ros.core.clock import S
from reflex_ros.core.types import JOINT_NAMES, ArmState
from reflex_ros.sim.plant import KinematicPlant
from reflex_ros.study.fault_judge import Judgement
from reflex_ros.study.fault_rig import FaultRig
from reflex_ros.study.fault_swing import FaultyOracle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import FloatArray
    from reflex_ros.stages.models import InferRequest
    from reflex_ros.stages.virtual import VirtualRun
    from reflex_ros.study.fault_bus import VirtualBus
    from reflex_ros.study.fault_rig import RigOptions
    from reflex_ros.study.fault_socket_rig import SocketRig

    Rig = FaultRig | SocketRig

SIDES = ('left', 'right')
ONE = len(JOINT_NAMES)
STILL_RAD_S = 2e-3
"""Twice the resolution of the wire in a period."""
BRAKED = 10
"""Commands at least of an arm that is braked from 1.6 rad/s at 5 rad/s²: it takes 16."""


class PairOracle(FaultyOracle):
    """Leads both arms the same way: what the left one is to do, from where the right one is."""

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Return the names of both arms."""
        return tuple(f'{side}_{name}' for side in SIDES for name in JOINT_NAMES)

    def infer(self, request: InferRequest, probe: Probe) -> FloatArray | None:
        """Return ``float64[horizon, 14]``, None for a block that is gone."""
        left, right = request.state[:ONE], request.state[ONE:]
        rows = super().infer(replace(request, state=left), probe)
        return None if rows is None else np.hstack([rows, rows - left + right])


class PairRig(FaultRig):
    """``FaultRig`` with two arms; ``bus`` is that of the left one, into which faults reach."""

    make_model = PairOracle
    buses: Mapping[str, VirtualBus]

    def _make_arm(self, run: VirtualRun) -> Arm:
        start = self.world.joint_state()[0]
        self._plant = KinematicPlant(run.clock, start=start[:6], gripper_m=float(start[6]))
        right, other = self._make_one(run, self._plant, 'right')
        left, self.bus = self._make_one(run, self.world, 'left')
        self.buses = {'left': self.bus, 'right': other}
        return SeveralArms({'left': left, 'right': right})

    def start(self) -> None:
        """Connect, check and enable; raises what an arm refuses with."""
        self.buses['right'].start()
        super().start()

    def pose(self) -> FloatArray:
        """Return where both arms truly are, ``float64[12]``."""
        return np.concatenate([super().pose(), self._plant.joint_state()[0][:6]])

    def recover(self, *, arm_supported: bool = False) -> None:
        """Let the operator recover; the stream of the right arm begins anew, too."""
        begins = self.run.bridge.states.state is ArmState.FAULTED
        received = self.buses['right'].received
        before = len(received.times_ns)
        super().recover(arm_supported=arm_supported)
        if begins and self.replies[-1].accepted:
            received.restarts += [before, len(received.times_ns)]

    def judge(self, from_s: float) -> Judgement:
        """Judge what reached either arm."""
        return _both(dict(zip(SIDES, (super().judge(from_s), self._judge(
            self.buses['right'].received, [], from_s)), strict=True)))

    def stream(self) -> tuple[FloatArray, FloatArray]:
        """Return times of the run in s and commands ``float64[N, 7]`` of the right arm."""
        return self._stream(self.buses['right'])

    def further(self, from_s: float, to_s: float) -> list[str]:
        """Return a problem if the right arm was not led to rest while the left had a fault."""
        return not_braked(self, from_s, to_s)


def not_braked(rig: Rig, from_s: float, to_s: float) -> list[str]:
    """Return a problem if the arm of ``rig.stream`` was not led to rest while another had a fault.

    Args:
        rig: The run, over. from_s, to_s: From the fault to the recovery, in times of the run.
    """
    faulted = [t for t in rig.ticks(from_s, to_s) if t.arm_state is ArmState.FAULTED]
    if not faulted:
        return []
    times_s, rows = rig.stream()
    begin_s, end_s = ((t.due_ns - rig.run.start_ns) / S for t in (faulted[0], faulted[-1]))
    chosen = np.flatnonzero((times_s >= begin_s) & (times_s <= end_s))
    last = rows[max(chosen[0] - 1, 0):chosen[-1] + 1, :6] if len(chosen) else rows[:0, :6]
    speeds = np.abs(np.diff(last, axis=0)).max(axis=1, initial=0.0) / (rig.period_ns / S)
    if len(speeds) >= BRAKED and speeds[-1] <= STILL_RAD_S:
        return []
    end = speeds[-1] if len(speeds) else np.nan
    return [f'the right arm got {len(speeds)} commands while the left had a fault, the last at '
            f'{end:.2f} rad/s, expected {BRAKED} and a rest']


def _both(found: Mapping[str, Judgement]) -> Judgement:
    texts: Iterable[str] = (f'{side}: {text}' for side, one in found.items()
                            for text in one.violations)
    every = found.values()
    return Judgement(sum(one.commands for one in every), *(
        max(getattr(one, name) for one in every)
        for name in ('max_velocity', 'max_acceleration', 'max_jerk')), tuple(texts))


def make_rig(folder: Path, options: RigOptions) -> FaultRig:
    """Return a rig with as many arms as the options say."""
    return (PairRig if options.is_pair else FaultRig)(folder, options)
