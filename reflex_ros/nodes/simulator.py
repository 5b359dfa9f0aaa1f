"""Node ``simulator``: the simulated robot behind the same CAN bus and camera topics."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reflex_ros.core.param_table import SIMULATOR
from reflex_ros.ros.convert import sim_truth_to_msg
from reflex_ros.ros.diagnostics import Diagnosis, Diagnostics, Level
from reflex_ros.ros.images import image_to_msg
from reflex_ros.ros.lifecycle import ReflexNode
from reflex_ros.ros.qos import camera_topic, image_topic, topic
from reflex_ros.ros.spin import Stop, run_node
from reflex_ros.sim.live import LiveConfig, LiveSimulator
from reflex_ros.stages.replay_live import ReplayedRobot

if TYPE_CHECKING:
    from reflex_ros.core.types import ByteArray, SimTruth


class SimulatorNode(ReflexNode):
    """Publishes camera images and ``sim_truth``; the arm is reached over CAN."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(SIMULATOR, stop)
        self._simulator: LiveSimulator | ReplayedRobot | None = None
        self._diagnostics: Diagnostics | None = None
        self._images: dict[str, Any] = {}

    def configure(self) -> None:
        """Build the world, serve the arm and open the topics; the cameras run from here on."""
        config = live_config(self.params)
        topics = cast('tuple[str, ...]', self.params['camera.topics']) or tuple(
            camera_topic(name) for name in config.cameras)
        self._images = {
            camera: self.advertise(image_topic(name))
            for camera, name in zip(config.cameras, topics, strict=True)
        }
        self._truth = self.advertise(topic('sim_truth'))
        if self.params['simulator.replay']:
            self._simulator = self._replayed(config, topics)
        else:
            self._simulator = LiveSimulator(
                config, self.steady, on_frame=self._publish_frame,
                on_truth=self._publish_truth, on_error=self.fail,
            )
        self._simulator.start()
        self._diagnostics = Diagnostics(
            self, f'simulator:{config.channel}', sources={'server': self._diagnose},
        )

    def cleanup(self) -> None:
        """Stop and write what was received into the run folder."""
        if self._simulator is None:
            return
        stats, self._simulator = self._simulator.stop(), None
        if self._diagnostics is not None:
            self._diagnostics.close()
        folder = cast('str', self.params['run.folder'])
        if folder:
            text = json.dumps(asdict(stats), indent=1, default=str)
            path = Path(folder) / 'simulator.json'
            try:
                path.write_text(text + '\n', encoding='utf-8')
            except OSError as error:
                self.get_logger().warning(f'{path.name}: not written: {error}')

    def _replayed(self, config: LiveConfig, topics: Sequence[str]) -> ReplayedRobot:
        """Return the recorded robot; its time begins with the first tick."""
        robot = ReplayedRobot(
            Path(cast('str', self.params['simulator.replay'])), self.steady,
            channel=config.channel, host=config.host, port=config.port,
            cameras=dict(zip(config.cameras, topics, strict=True)),
            realtime_priority=config.realtime_priority, on_frame=self._publish_frame,
            on_truth=self._publish_truth, on_error=self.fail,
        )
        self.listen(topic('control_tick'), lambda _: robot.play())
        return robot

    def _publish_truth(self, truth: SimTruth) -> None:
        self._truth.publish(sim_truth_to_msg(truth))

    def _publish_frame(self, camera: str, stamp_ns: int, image: ByteArray) -> None:
        self._images[camera].publish(image_to_msg(image, stamp_ns=stamp_ns, frame_id=camera))

    def _diagnose(self) -> Diagnosis:
        if self._simulator is None:
            return Diagnosis(Level.STALE, 'not configured')
        stats = self._simulator.server.stats()
        late_ms = stats.late_max_ns / 1e6
        return Diagnosis(
            Level.OK if stats.clients else Level.WARN,
            'serving the arm' if stats.clients else 'no bridge is connected',
            {'clients': stats.clients, 'missed_ticks': stats.missed_ticks,
             'late_max_ms': late_ms, 'frames': self._simulator.frames},
        )


def live_config(params: dict[str, Any]) -> LiveConfig:
    """Return the settings of the simulated robot from the node's parameters."""
    folder, faults = params['run.folder'], params['simulator.faults']
    return LiveConfig(
        task=params['simulator.task'], seed=params['simulator.seed'], dh=params['arm.dh'],
        timestep_s=1.0 / params['simulator.physics_rate_hz'],
        channel=params['arm.channel'], host=params['arm.host'],
        port=params['simulator.port'] or params['arm.port'],
        cameras=params['camera.names'],
        size=(params['simulator.camera_height'], params['simulator.camera_width']),
        camera_period_ns=round(params['camera.period_s'] * 1e9),
        realtime_priority=params['control.realtime_priority'],
        faults=Path(faults) if faults else None,
        tap_path=Path(folder) / 'can_tap.bin' if folder else None,
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(SimulatorNode, args=args)


if __name__ == '__main__':
    sys.exit(main())
