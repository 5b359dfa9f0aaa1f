"""Node ``policy``: KV blocks in, action chunks out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from reflex_ros.core.errors import StaleError
from reflex_ros.core.param_table import POLICY
from reflex_ros.core.probe import ClockProbe
from reflex_ros.ros import convert
from reflex_ros.ros.diagnostics import Diagnostics
from reflex_ros.ros.lifecycle import ReflexNode
from reflex_ros.ros.qos import topic
from reflex_ros.ros.spin import Stop, run_node
from reflex_ros.ros.stage_diagnostics import STATUS_S, stage_diagnosis
from reflex_ros.stages.assemble import PolicyParts, Shared, make_policy
from reflex_ros.stages.build import policy_config
from reflex_ros.stages.health import ClockWatch
from reflex_ros.stages.pipeline import shared_turn
from reflex_ros.stages.policy import PolicyStage
from reflex_ros.stages.worker import StageWorker

if TYPE_CHECKING:
    from reflex_ros.core.clock import Instant
    from reflex_ros.stages.base import Output


class PolicyNode(ReflexNode):
    """Infers when the schedule says so, one chunk at a time.

    Args:
        stop: Request to end the process.
        shared: What encoder and policy share in one process, None for separate processes.
    """

    def __init__(self, stop: Stop, *, shared: Shared | None = None) -> None:
        super().__init__(POLICY, stop)
        self._shared = shared
        self._parts: PolicyParts | None = None

    def configure(self) -> None:
        """Load the policy, attach to the ring, open the topics."""
        self._parts = make_policy(self.params, self.steady, namespace=self.get_namespace(),
                                  shared=self._shared, warn=self._warn,
                                  progress=self.get_logger().info)
        if self._parts.loaded is not None:
            self.get_logger().info(f'policy: {self._parts.loaded.about}')
        for told in (self._parts.store, self._parts.accelerated):
            if told is not None:
                self.get_logger().info(str(told))
        config = policy_config(self.params, most_steps=self._parts.most_steps)
        self._stage = PolicyStage(self._parts.model, config, lambda _: ClockProbe(self.steady))
        self._worker = StageWorker(
            self._stage, clock=self.steady, due=self._due, publish=self._publish,
            failed=self.fail, name='policy',
            turn=shared_turn(self.params, self._shared and self._shared.turn),
        )
        self._chunks = self.advertise(topic('action_chunk'))
        self._statuses = self.advertise(topic('stage_status'))
        self.listen(topic('task'), self._on_task)
        self.listen(topic('kv_block'), self._on_block)
        self.listen(topic('plan'), self._on_plan)
        self.listen(topic('chunk_trace'), self._on_trace)
        self.listen(topic('joint_states'), self._on_joint_state)
        if self.params['policy.name'] == 'oracle':
            self.listen(topic('sim_truth'), self._on_truth)
        self._time = ClockWatch(self.steady.now(), uses_sim_time=True)
        self._timer = self.create_timer(STATUS_S, self._publish_status)
        self._diagnostics = Diagnostics(self, 'policy', sources={
            'stage': lambda: stage_diagnosis(self._worker.last_status(), self._facts())})

    def activate(self) -> None:
        """Start inferring."""
        self._worker.start()

    def deactivate(self) -> None:
        """End after the running inference."""
        if not self._worker.stop():
            self._parts = None  # what a running step uses must not be closed under it
            raise StaleError(f'{self.get_name()}: got a step that does not end. Restart it.')

    def cleanup(self) -> None:
        """Detach from the ring."""
        if self._parts is not None:
            self._parts.close()
            self._parts = None

    def _on_task(self, msg: Any) -> None:
        task = convert.task_from_msg(msg)
        self._worker.feed(lambda: self._stage.on_task(task))

    def _on_block(self, msg: Any) -> None:
        block, now = convert.kv_block_from_msg(msg), self.steady.now()
        self._worker.feed(lambda: self._stage.on_block(block, now), newest='block')

    def _on_plan(self, msg: Any) -> None:
        plan = convert.plan_from_msg(msg)
        self._worker.feed(lambda: self._stage.on_plan(plan), newest='plan')

    def _on_trace(self, msg: Any) -> None:
        trace = convert.chunk_trace_from_msg(msg)
        self._worker.feed(lambda: self._stage.on_trace(trace))

    def _on_joint_state(self, msg: Any) -> None:
        wanted = cast('PolicyParts', self._parts).model.joint_names
        stamp_ns, position = convert.joint_state_from_msg(msg, wanted)
        self._worker.feed(lambda: self._stage.on_joint_state(stamp_ns, position))

    def _facts(self) -> dict[str, object]:
        parts = self._parts
        return parts.accelerated.facts() if parts and parts.accelerated else {}

    def _warn(self, text: str) -> None:
        self.get_logger().warning(text, throttle_duration_sec=1.0)

    def _on_truth(self, msg: Any) -> None:
        truth = convert.sim_truth_from_msg(msg)
        self._worker.feed(lambda: self._stage.on_truth(truth))

    def _due(self, now: Instant) -> int | None:
        stamp_ns = self._stage.due_at(now)
        if stamp_ns is None:
            return None
        return max(now.mono_ns, stamp_ns - (now.stamp_ns - now.mono_ns))

    def _publish(self, outputs: tuple[Output, ...]) -> None:
        for output in outputs:
            self._chunks.publish(convert.action_chunk_to_msg(output.value))

    def _publish_status(self) -> None:
        if self._time.watch(self.steady.now()):
            self._worker.feed(self._stage.restart_time)
        self._statuses.publish(convert.stage_status_to_msg(self._worker.status()))


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(PolicyNode, args=args)


if __name__ == '__main__':
    sys.exit(main())
