"""Node ``recorder``: raw messages into a bag, counted against their publishers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from rclpy.serialization import deserialize_message

from reflex_ros.bag.recording import Recording
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bag.snapshot import SnapshotRing
from reflex_ros.bag.strip import Strip
from reflex_ros.core.errors import EXIT_DONE
from reflex_ros.core.param_table import RECORDER
from reflex_ros.ros.diagnostics import Diagnosis, Diagnostics
from reflex_ros.ros.images import ImageDecoder
from reflex_ros.ros.lifecycle import ReflexNode
from reflex_ros.ros.qos import Topic, image_topic
from reflex_ros.ros.recording import (
    RawReader,
    bag_diagnosis,
    camera_topics,
    close_recording,
    ended_early,
    make_recording,
    serve_snapshot,
    topics_to_record,
)
from reflex_ros.ros.recording_qos import check_publishers, offered_now
from reflex_ros.ros.spin import Stop, run_node


class RecorderNode(ReflexNode):
    """Records every topic of a run; a topic that cannot be heard is an error, not silence."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(RECORDER, stop)
        self._recording: Recording | SnapshotRing | None = None
        self._names: dict[str, tuple[str, ...]] = {}
        self._has_ended = False
        self.exit_code = EXIT_DONE
        self._service: Any = None
        self._readers: list[RawReader] = []
        self._diagnostics: Diagnostics | None = None

    def configure(self) -> None:
        """Open the bag and subscribe; what is latched is kept until recording starts."""
        self._topics = topics_to_record(self.params)
        self._uses_sim_time = bool(self.get_parameter('use_sim_time').value)
        name = cast('str', self.params['run.folder'])
        run = (RunFolder(Path(name)) if name
               else RunFolder.create('runs', 'recording', self.steady))
        recording, self._names = make_recording(self, self._topics, self.params, run,
                                                clock=self.steady)
        recording.start()
        self._recording, self._has_ended = recording, False
        for entry in self._topics:
            take = self._taker(self._names[entry.name][0])
            self._readers.append(RawReader(self, entry, take, self._unheard))
        if isinstance(recording, SnapshotRing):
            self._service = serve_snapshot(self, recording, self.steady.stamp_ns)
        if not self.params['recorder.images']:
            camera = image_topic(camera_topics(self.params)[0])
            show = self._shower(camera, Strip(run.strip))
            self._readers.append(RawReader(self, camera, show))
        self._diagnostics = Diagnostics(
            self, f'recorder:{recording.folder.name}', sources={'bag': self._diagnose},
        )

    def activate(self) -> None:
        """Check that every publisher can be heard, then record."""
        check_publishers(self, self._topics)
        cast('Recording | SnapshotRing', self._recording).begin(
            offered_now(self, self._topics, self._names))

    def deactivate(self) -> None:
        """Stop recording, with what has already arrived."""
        for reader in self._readers:
            reader.drain()
        cast('Recording | SnapshotRing', self._recording).is_on = False

    def cleanup(self) -> None:
        """Complete the bag and write the counts beside it."""
        for reader in self._readers:
            reader.close()
        self._readers.clear()
        if self._service is not None:
            self.destroy_service(self._service)
            self._service = None
        if self._diagnostics is not None:
            self._diagnostics.close()
        recording, self._recording = self._recording, None
        if recording is not None:
            self.exit_code = close_recording(self, recording)

    def _taker(self, name: str) -> Callable[[bytes, Any], None]:
        recording = cast('Recording | SnapshotRing', self._recording)

        def take(data: bytes, info: Any) -> None:
            # In simulated time the middleware's own time of receipt would fit no other stamp.
            received_ns = int(info['received_timestamp'])
            stamp_ns = self.steady.stamp_ns() if self._uses_sim_time else received_ns
            recording.take(name, stamp_ns, data)

        return take

    def _unheard(self, topic: str, text: str) -> None:
        if self._recording is not None:
            self._recording.unheard[topic] = text

    def _shower(self, camera: Topic, strip: Strip) -> Callable[[bytes, Any], None]:
        decoder = ImageDecoder()

        def take(data: bytes, info: Any) -> None:
            stamp_ns = self.steady.stamp_ns()
            if self._recording is None or not self._recording.is_on or not strip.wants(stamp_ns):
                return
            try:
                strip.add(stamp_ns, decoder.rgb(deserialize_message(data, camera.message)))
            except Exception as error:  # a picture for the report is not worth a recording
                self.get_logger().warning(f'{camera.name}: no frame kept: {error}',
                                          throttle_duration_sec=10.0)

        return take

    def _diagnose(self) -> Diagnosis:
        recording = self._recording
        if recording is not None and recording.report.error and not self._has_ended:
            self._has_ended = True
            error = ended_early(recording.folder, recording.report.error)
            self.get_logger().error(f'{type(error).__name__}: {error}')
        return bag_diagnosis(recording)


def main(args: Sequence[str] | None = None) -> int:
    """Run the node; a bag that ended early is an error at the end, not before."""
    made: list[RecorderNode] = []

    def make(stop: Stop) -> RecorderNode:
        made.append(RecorderNode(stop))
        return made[0]

    return run_node(make, args=args) or made[0].exit_code


if __name__ == '__main__':
    sys.exit(main())
