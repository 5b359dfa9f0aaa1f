"""Node ``controller_bridge``: the 50 Hz loop between chunks and the arm."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any, cast

from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ArmError, ReflexError
from reflex_ros.core.param_table import BRIDGE
from reflex_ros.core.priority import Urgency, freeze_garbage
from reflex_ros.nodes.bridge_diagnostics import hardware, sources
from reflex_ros.nodes.bridge_services import ask_other_machine, serve_bridge
from reflex_ros.nodes.bridge_topics import BridgeTopics
from reflex_ros.ros import convert
from reflex_ros.ros.diagnostics import Diagnostics
from reflex_ros.ros.lifecycle import ReflexNode
from reflex_ros.ros.output import guard_output
from reflex_ros.ros.qos import topic
from reflex_ros.ros.spin import Stop, run_node
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.build import bridge_config, has_ledger, make_driver, open_ledger
from reflex_ros.stages.worker import TickLoop


class BridgeNode(ReflexNode):
    """Owns the arm: the only node that commands it."""

    def __init__(self, stop: Stop) -> None:
        unguarded = guard_output()
        super().__init__(BRIDGE, stop)
        self._warn(*filter(None, [unguarded]))
        self._lock = threading.RLock()
        self._bridge: Bridge | None = None
        self._topics: Any = None
        self._loop: TickLoop | None = None

    def configure(self) -> None:
        """Open and check the arm, open topics and services; nothing moves."""
        self._arm = make_driver(self.params, self.steady.steady)
        config = bridge_config(self.params, policy='tiny',
                               uses_sim_time=self.get_parameter('use_sim_time').value)
        self._bridge = Bridge(self._arm, config, self.steady)
        self._urgency = Urgency(cast('int', self.params['control.realtime_priority']),
                                cast('int', self.params['control.core']))
        with self._urgency.threads():
            self._bridge.connect()  # its bus threads keep the priority
        self._warn(*self._bridge.report.warnings if self._bridge.report else ())
        self._topics = BridgeTopics(self, failed=self._unpublished)
        self.listen(topic('action_chunk'), self._on_chunk)
        self.listen(topic('stage_status'), self._on_status)
        serve_bridge(self, self._bridge, self._lock, self._topics.publish)
        self._diagnostics = Diagnostics(self, hardware(self.params), sources=sources(
            self._arm, self._bridge, self._topics, clock=self.steady,
            link=ask_other_machine(self, self._bridge, self._lock)))

    def activate(self) -> None:
        """Enable the arm at its measured pose and start the loop."""
        bridge = cast('Bridge', self._bridge)
        period_ns = round(1e9 / cast('float', self.params['control.rate_hz']))
        folder = cast('str', self.params['run.folder'])
        with self._urgency.threads():
            bridge.activate(may_autostart=not has_ledger(folder))
        ledger = open_ledger(folder, self.steady.now(), period_ns=period_ns,
                             joint_names=self._arm.names)
        if ledger is not None:
            bridge.use_ledger(ledger)
        self._loop = TickLoop(
            lambda _, due_ns, index: self._tick(due_ns, index), period_ns=period_ns,
            clock=self.steady, failed=self._tick_failed,
            start_ns=None if ledger is None else ledger.header.start_ns,
            first_index=0 if ledger is None else ledger.next_index,
        )
        freeze_garbage()
        with self._urgency.threads():
            self._loop.start()
        self._warn(*self._urgency.refusals)

    def deactivate(self) -> None:
        """Decelerate, hold, and end the loop; the arm keeps its power."""
        bridge, loop = cast('Bridge', self._bridge), cast('TickLoop', self._loop)
        with self._lock:
            bridge.request_stop(self.steady.now())
        until_ns = self.steady.mono_ns() + bridge.longest_stop_ns
        while loop.is_running and not bridge.is_at_rest and self.steady.mono_ns() < until_ns:
            self.steady.sleep_until(self.steady.mono_ns() + 5 * MS)
        if not bridge.is_at_rest:
            self._warn('the control loop ended before the arm was brought to rest')
        if not loop.stop():
            raise ArmError('control loop: got a tick that does not end, expected 20 ms. Nothing '
                           'is sent any more. Restart the bridge.', code='loop')
        with self._lock:
            self._loop = None
            outputs = bridge.close(self.steady.now())
        self._topics.publish(outputs)

    def cleanup(self) -> None:
        """Publish what waits and close the bus; motors keep their power and hold."""
        if self._topics is not None and not self._topics.close():
            self._warn(f'end of the run: {self._topics.outbox.backlog} messages not published')
        self._topics = None
        if self._bridge is not None:
            self._arm.disconnect()
            self._bridge = None

    def _warn(self, *texts: str) -> None:
        for text in texts:
            self.get_logger().warning(text)

    def _unpublished(self, error: BaseException) -> None:
        self.get_logger().error(str(error), throttle_duration_sec=1.0)

    # ---- loop, topics --------------------------------------------------------------------------

    def _tick(self, due_ns: int, index: int) -> None:
        with self._lock:
            now = self.steady.now()  # behind the lock: who waits for it runs late
            outputs = self._bridge.step(now, due_ns, index)
        self._topics.publish(outputs)
        self._topics.publish_joint_state(self._bridge.reading, self._arm.names, now=now)

    def _tick_failed(self, error: BaseException) -> None:
        self.fail(error if isinstance(error, ReflexError) else ArmError(
            f'control loop ended: {type(error).__name__}: {error}. Nothing is sent any more.',
            code='loop'))

    def _on_chunk(self, msg: Any) -> None:
        chunk = convert.action_chunk_from_msg(msg)
        with self._lock:
            if self._loop is None:
                return
            outputs = cast('Bridge', self._bridge).offer(chunk, self.steady.now())
        self._topics.publish(outputs)

    def _on_status(self, msg: Any) -> None:
        status = convert.stage_status_from_msg(msg)
        with self._lock:
            cast('Bridge', self._bridge).status(status, self.steady.now())


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    guard_output()  # before ROS, which looks for a terminal; what failed is told by the node
    return run_node(BridgeNode, args=args)


if __name__ == '__main__':
    sys.exit(main())
