"""Node ``vision_encoder``: camera images in, KV blocks in the ring and their descriptors out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from reflex_ros.core.errors import StaleError
from reflex_ros.core.param_table import ENCODER
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.types import Frame
from reflex_ros.ros import convert
from reflex_ros.ros.diagnostics import Diagnostics
from reflex_ros.ros.images import ImageDecoder
from reflex_ros.ros.lifecycle import ReflexNode
from reflex_ros.ros.qos import camera_topic, image_topic, topic
from reflex_ros.ros.spin import Stop, run_node
from reflex_ros.ros.stage_diagnostics import STATUS_S, stage_diagnosis
from reflex_ros.stages.assemble import EncoderParts, Shared, make_encoder
from reflex_ros.stages.build import encoder_config
from reflex_ros.stages.encoder import EncoderStage
from reflex_ros.stages.health import ClockWatch
from reflex_ros.stages.pipeline import shared_turn
from reflex_ros.stages.worker import StageWorker

if TYPE_CHECKING:
    from reflex_ros.core.clock import Instant
    from reflex_ros.stages.base import Output


class EncoderNode(ReflexNode):
    """Encodes the newest observation, one at a time.

    Args:
        stop: Request to end the process.
        shared: What encoder and policy share in one process, None for separate processes.
    """

    def __init__(self, stop: Stop, *, shared: Shared | None = None) -> None:
        super().__init__(ENCODER, stop)
        self._shared = shared
        self._parts: EncoderParts | None = None
        self._decoder = ImageDecoder()

    def configure(self) -> None:
        """Load the encoder, make the ring, open the topics."""
        config = encoder_config(self.params)
        self._parts = make_encoder(self.params, self.steady, namespace=self.get_namespace(),
                                   shared=self._shared, progress=self.get_logger().info)
        if self._parts.loaded is not None:
            self.get_logger().info(f'policy: {self._parts.loaded.about}')
        for told in (self._parts.store, self._parts.accelerated):
            if told is not None:
                self.get_logger().info(str(told))
        config = replace(config, certificate_hash=self._parts.certificate_hash)
        self._stage = EncoderStage(config, lambda _: ClockProbe(self.steady), self._parts.encoder)
        self._worker = StageWorker(
            self._stage, clock=self.steady, due=self._due, publish=self._publish,
            failed=self.fail, name='encoder',
            turn=shared_turn(self.params, self._shared and self._shared.turn),
        )
        self._blocks = self.advertise(topic('kv_block'))
        self._statuses = self.advertise(topic('stage_status'))
        self.listen(topic('task'), self._on_task)
        encoder = self._parts.encoder
        if encoder is not None and encoder.state_joints:
            self.listen(topic('plan'), self._on_plan)
            self.listen(topic('joint_states'), partial(self._on_joint_state, encoder.state_joints))
        names = cast('tuple[str, ...]', self.params['camera.topics'])
        for camera, name in zip(config.cameras, names or map(camera_topic, config.cameras),
                                strict=True):
            self.listen(image_topic(name), partial(self._on_image, camera))
        self._time = ClockWatch(self.steady.now(), uses_sim_time=True)
        self._timer = self.create_timer(STATUS_S, self._publish_status)
        self._diagnostics = Diagnostics(self, 'vision_encoder', sources={
            'stage': lambda: stage_diagnosis(self._worker.last_status(), self._facts())})

    def activate(self) -> None:
        """Start encoding."""
        self._worker.start()

    def deactivate(self) -> None:
        """End after the running step."""
        if not self._worker.stop():
            self._parts = None  # what a running step uses must not be closed under it
            raise StaleError(f'{self.get_name()}: got a step that does not end. Restart it.')

    def cleanup(self) -> None:
        """Close the ring; readers see the writer's end."""
        if self._parts is not None:
            self._parts.close()
            self._parts = None

    def _on_task(self, msg: Any) -> None:
        task = convert.task_from_msg(msg)
        self._worker.feed(lambda: self._stage.on_task(task))

    def _on_plan(self, msg: Any) -> None:
        plan = convert.plan_from_msg(msg)
        self._worker.feed(lambda: self._stage.on_plan(plan), newest='plan')

    def _on_joint_state(self, names: tuple[str, ...], msg: Any) -> None:
        stamp_ns, position = convert.joint_state_from_msg(msg, names)
        self._worker.feed(lambda: self._stage.on_joint_state(stamp_ns, position))

    def _on_image(self, camera: str, msg: Any) -> None:
        received_ns = self.steady.mono_ns()
        image = self._decoder.rgb(msg)
        frame = Frame(camera, convert.time_from_msg(msg.header.stamp), received_ns, image)
        self._worker.feed(lambda: self._stage.on_frame(frame), newest=camera)

    def _facts(self) -> dict[str, object]:
        parts = self._parts
        return parts.accelerated.facts() if parts and parts.accelerated else {}

    def _due(self, now: Instant) -> int | None:
        return now.mono_ns if self._stage.is_due() else None

    def _publish(self, outputs: tuple[Output, ...]) -> None:
        for output in outputs:
            self._blocks.publish(convert.kv_block_to_msg(output.value))

    def _publish_status(self) -> None:
        if self._time.watch(self.steady.now()):
            self._worker.feed(self._stage.restart_time)
        self._statuses.publish(convert.stage_status_to_msg(self._worker.status()))


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(EncoderNode, args=args)


if __name__ == '__main__':
    sys.exit(main())
