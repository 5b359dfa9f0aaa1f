"""The supervisor's requests to a lifecycle node that is slow, or that loses an answer."""

from __future__ import annotations

import threading
import time

import pytest

pytestmark = [pytest.mark.ros, pytest.mark.realtime]

SLOW_S = 0.6
"""How long an answer of an overloaded machine takes: longer than the first question waits."""


class SlowNode:
    """Answers what a lifecycle node answers, each time ``late_s`` later, on its own thread."""

    def __init__(self, late_s):
        from lifecycle_msgs.msg import State
        from lifecycle_msgs.srv import ChangeState, GetState
        from rclpy.context import Context
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node

        self.late_s, self.asked, self.changes = late_s, 0, 0
        self.state = State(id=State.PRIMARY_STATE_UNCONFIGURED, label='unconfigured')
        self.goal = State(id=State.PRIMARY_STATE_INACTIVE, label='inactive')
        self._context = Context()
        self._context.init()
        self._node = Node('slow', context=self._context, enable_rosout=False,
                          start_parameter_services=False)
        self._node.create_service(GetState, 'slow/get_state', self._get)
        self._node.create_service(ChangeState, 'slow/change_state', self._change)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def end(self):
        self._is_ending.set()
        self._thread.join(5.0)
        self._node.destroy_node()
        self._context.try_shutdown()

    def _spin(self):
        while not self._is_ending.is_set():
            self._executor.spin_once(timeout_sec=0.05)

    def _get(self, request, response):
        self.asked += 1
        time.sleep(self.late_s)
        response.current_state = self.state
        return response

    def _change(self, request, response):
        self.changes += 1
        self.state, response.success = self.goal, True
        return response


def asked(late_s, timeout_s):
    """Return what a request to configure came to, and the node."""
    from reflex_ros.ros.graph_link import GraphLink

    node, link = SlowNode(late_s), GraphLink(timeout_s=timeout_s)
    try:
        return link.request('slow', 'configure').result(timeout=timeout_s + 10.0), node
    finally:
        link.close()
        node.end()


def test_a_node_that_answers_late_is_configured_once(ros_env):
    found, node = asked(SLOW_S, 20.0)
    assert (found, node.changes) == ('', 1)


def test_a_question_that_never_waits_longer_gets_no_answer_can_fail(ros_env, monkeypatch):
    from reflex_ros.ros import graph_link

    monkeypatch.setattr(graph_link, 'LONGEST_ASK_S', graph_link.ASK_S)
    found, node = asked(SLOW_S, 4.0)
    assert found == 'no answer within 4 s' and node.changes == 0 and node.asked > 1
