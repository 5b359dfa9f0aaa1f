"""Two arms under one bridge in real time: as ``fault_pair``, at the simulator's socket.

Both arms are behind one server, each on a channel of its own, and each has a driver with the
SDK's sockets and threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.arm.several import SeveralArms
from reflex_ros.study.fault_arrivals import Arrivals
from reflex_ros.study.fault_pair import SIDES, PairOracle, not_braked
from reflex_ros.study.fault_socket_rig import PRIORITY, SocketRig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reflex_ros.arm.driver import PiperDriver
    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.types import FloatArray
    from reflex_ros.study.fault_rig import RigOptions


class SocketPairRig(SocketRig):
    """``SocketRig`` with two arms; ``bus`` is that of the left one, into which faults reach."""

    sides = SIDES
    make_model = PairOracle

    def _join(self, drivers: Sequence[PiperDriver]) -> Arm:
        return SeveralArms(dict(zip(self.sides, drivers, strict=True)))

    def judge(self, from_s: float) -> Arrivals:
        """Judge what reached either arm."""
        found = [self._judge(n, from_s) for n in range(len(self.sides))]
        texts = [f'{side}: {text}' for side, one in zip(self.sides, found, strict=True)
                 for text in one.violations]
        return Arrivals(sum(one.commands for one in found), *(
            max(getattr(one, name) for one in found) for name in (
                'spread_s', 'max_velocity', 'max_acceleration', 'max_jerk')), tuple(texts))

    def stream(self) -> tuple[FloatArray, FloatArray]:
        """Return times of the run in s and commands ``float64[N, 7]`` of the right arm."""
        return self._stream(1)

    def further(self, from_s: float, to_s: float) -> list[str]:
        """Return a problem if the right arm was not led to rest while the left had a fault."""
        return not_braked(self, from_s, to_s)


def make_socket_rig(folder: Path, options: RigOptions, *, priority: int = PRIORITY) -> SocketRig:
    """Return a rig with as many arms as the options say."""
    return (SocketPairRig if options.is_pair else SocketRig)(folder, options, priority=priority)
