"""Node ``recorder``: raw messages into a bag, counted against their publishers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from rclpy.serialization import deserialize_message

from reflex_ros.bag.recording import Recording
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bag.strip import Strip
from reflex_ros.bag.write import BagWriter, Split
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import RECORDER
from reflex_ros.ros.diagnostics import Diagnosis, Diagnostics
from reflex_ros.ros.images import ImageDecoder
from reflex_ros.ros.lifecycle import ReflexNode
from reflex_ros.ros.qos import Topic, image_topic
from reflex_ros.ros.recording import (
    RawReader,
    bag_diagnosis,
    bag_topics,
    camera_topics,
    check_publishers,
    is_latched,
    topics_to_record,
)
from reflex_ros.ros.spin import Stop, run_node


class RecorderNode(ReflexNode):
    """Records every topic of a run; a topic that cannot be heard is an error, not silence."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(RECORDER, stop)
        self._recording: Recording | None = None
        self._readers: list[RawReader] = []
        self._diagnostics: Diagnostics | None = None

    def configure(self) -> None:
        """Open the bag and subscribe; what is latched is kept until recording starts."""
        self._topics = topics_to_record(self.params)
        self._uses_sim_time = bool(self.get_parameter('use_sim_time').value)
        name = cast('str', self.params['run.folder'])
        run = (RunFolder(Path(name)) if name
               else RunFolder.create('runs', 'recording', self.steady))
        recording = self._open(run.next_bag)
        recording.start()
        self._recording = recording
        for entry in self._topics:
            take = self._taker(recording, self.resolve_topic_name(entry.name))
            self._readers.append(RawReader(self, entry, take))
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
        cast('Recording', self._recording).begin()

    def deactivate(self) -> None:
        """Stop recording, with what has already arrived."""
        for reader in self._readers:
            reader.drain()
        cast('Recording', self._recording).is_on = False

    def cleanup(self) -> None:
        """Complete the bag and write the counts beside it."""
        for reader in self._readers:
            reader.close()
        self._readers.clear()
        if self._diagnostics is not None:
            self._diagnostics.close()
        recording, self._recording = self._recording, None
        if recording is not None:
            report = recording.close()
            written, dropped = sum(report.written.values()), sum(report.dropped.values())
            self.get_logger().info(
                f'recorded: messages={written} dropped={dropped} error={report.error or "none"}'
            )

    def _open(self, folder: Path) -> Recording:
        topics = bag_topics(self, self._topics)
        split = Split(
            round(1e9 * cast('float', self.params['recorder.split_s'])),
            cast('int', self.params['recorder.split_bytes']),
        )
        writer = BagWriter(
            folder, topics, storage=cast('str', self.params['recorder.storage']),
            clock=self.steady, split=split,
        )
        latched = [self.resolve_topic_name(e.name) for e in self._topics if is_latched(e)]
        return Recording(
            writer, folder, {topic.name: topic.schema.type for topic in topics}, latched=latched
        )

    def _taker(self, recording: Recording, name: str) -> Callable[[bytes, Any], None]:
        def take(data: bytes, info: Any) -> None:
            # In simulated time the middleware's own time of receipt would fit no other stamp.
            received_ns = int(info['received_timestamp'])
            stamp_ns = self.steady.stamp_ns() if self._uses_sim_time else received_ns
            recording.take(name, stamp_ns, data)

        return take

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
        if recording is not None and recording.report.error:
            self.fail(ConfigError(
                f'bag {recording.folder} ended early: got {recording.report.error}, expected a '
                'disk with room. Make room and start a new run.'
            ))
        return bag_diagnosis(recording)


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(RecorderNode, args=args)


if __name__ == '__main__':
    sys.exit(main())
