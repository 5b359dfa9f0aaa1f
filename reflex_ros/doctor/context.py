"""What the checks share: choices, machine, probes, and what was measured once for several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reflex_ros.doctor.can_link import CanFacts, read_can

if TYPE_CHECKING:
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.core.param_table import Value
    from reflex_ros.doctor.arm_sample import ArmSample
    from reflex_ros.doctor.host import Host
    from reflex_ros.doctor.probes import Probes
    from reflex_ros.ros.camera_log import CameraLog


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chose.

    Attributes:
        arms: Buses to look at.
        cameras: Image topic by name, {} for none.
        params: Every parameter of every node, by name.
        checkpoint: Folder, None = the one of the parameters.
        seconds: Length of each measurement, s.
        runs: Where run folders go.
        asks_arm: Whether the arm is asked for firmware and limits; False: only listened to.
        namespace: Of the camera topics.
    """

    arms: tuple[DriverConfig, ...]
    params: Mapping[str, Value]
    cameras: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Path | None = None
    seconds: float = 5.0
    runs: Path = Path('runs')
    asks_arm: bool = True
    namespace: str = ''

    @property
    def camera_period_s(self) -> float:
        """Return the time that is expected between two images, s."""
        return float(self.params['camera.period_s'])  # type: ignore[arg-type]


class Context:
    """One visit of the doctor.

    Args:
        choices: What to look at.
        host: The machine as text.
        probes: What measures.
        progress: Is told what is being measured and for how long, s.
    """

    def __init__(
        self, choices: Choices, host: Host, probes: Probes, *, progress: Progress | None = None
    ) -> None:
        self.choices, self.host, self.probes = choices, host, probes
        self._progress = progress or (lambda what, seconds: None)
        self._arms: dict[str, ArmSample] = {}
        self._cameras: Mapping[str, CameraLog] | None = None

    def measuring(self, what: str, seconds: float) -> None:
        """Tell that a measurement begins."""
        self._progress(what, seconds)

    def can(self, channel: str) -> CanFacts:
        """Return what the kernel says of a CAN interface."""
        return read_can(self.host, channel)

    def arm(self, config: DriverConfig) -> ArmSample:
        """Return what an arm said; listened to once."""
        if config.bus_name not in self._arms:
            self.measuring(f'listening to the arm on {config.bus_name}', self.choices.seconds)
            self._arms[config.bus_name] = self.probes.arm(
                config, self.choices.seconds, self.choices.asks_arm)
        return self._arms[config.bus_name]

    def cameras(self) -> Mapping[str, CameraLog]:
        """Return what each camera topic carried; watched once, all together.

        Raises:
            ImportError: ROS is not here.
        """
        if self._cameras is None:
            self.measuring('watching the cameras', self.choices.seconds)
            self._cameras = self.probes.cameras(
                tuple(self.choices.cameras.values()), self.choices.seconds, self.choices.namespace)
        return self._cameras


if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str, float], None]
