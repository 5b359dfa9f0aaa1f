"""What an image takes from one process to another, with the middleware as it is set up.

``python -m reflex_ros.ros.image_latency TOPIC COUNT`` is the other process: it publishes images
whose stamp is the steady clock, which all processes of a machine share.
"""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from typing import Any

from rclpy.executors import SingleThreadedExecutor
from sensor_msgs.msg import Image

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.ros.camera_log import LatencySample
from reflex_ros.ros.convert_basic import time_from_msg, time_to_msg
from reflex_ros.ros.qos import image_topic
from reflex_ros.ros.spin import command_node

WIDTH, HEIGHT = 640, 480
PERIOD_NS = 40 * MS
_POLL_S = 0.05
_FIND_S = 5.0
"""Longest time for the two processes to find each other."""
_START_S = 15.0
"""Longest start of the other process, and its end."""


def measure_latency(seconds: float) -> LatencySample:
    """Return the latency of images at 25 Hz. Blocks for ``seconds`` and the start of a process.

    Args:
        seconds: How long images are sent, s.
    """
    clock, latencies = SystemClock(), []
    count = max(5, round(seconds * S / PERIOD_NS))
    topic = f'doctor_{os.getpid()}/image_raw'
    with command_node('doctor_latency') as node:
        entry = image_topic(topic)

        def take(msg: Any) -> None:
            latencies.append((clock.mono_ns() - time_from_msg(msg.header.stamp)) / MS)

        node.create_subscription(entry.message, topic, take, entry.qos)
        executor = SingleThreadedExecutor(context=node.context)
        executor.add_node(node)
        source = subprocess.Popen(
            [sys.executable, '-m', __name__, topic, str(count)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        end_ns = clock.mono_ns() + round((seconds + _FIND_S + _START_S) * S)
        try:
            while source.poll() is None and clock.mono_ns() < end_ns:
                executor.spin_once(timeout_sec=_POLL_S)
            executor.spin_once(timeout_sec=_POLL_S)
        finally:
            executor.shutdown()
            source.kill()
            answer = source.communicate()[0].strip()
    if not answer.isdigit():
        return LatencySample(error='the other process could not publish within '
                                   f'{seconds + _FIND_S + _START_S:.0f} s')
    return LatencySample(tuple(latencies), int(answer))


def publish(topic: str, count: int) -> int:
    """Publish images once somebody listens; return how many left."""
    clock = SystemClock()
    with command_node('doctor_image_source') as node:
        entry = image_topic(topic)
        publisher = node.create_publisher(entry.message, topic, entry.qos)
        msg = Image(width=WIDTH, height=HEIGHT, encoding='rgb8', step=3 * WIDTH)
        data = array('B', bytes(3 * WIDTH * HEIGHT))
        end_ns = clock.mono_ns() + round(_FIND_S * S)
        while not publisher.get_subscription_count() and clock.mono_ns() < end_ns:
            clock.sleep_until(clock.mono_ns() + 10 * MS)
        # both ends must know each other before a best-effort image counts as lost
        due_ns = clock.mono_ns() + 500 * MS
        for number in range(count):
            clock.sleep_until(due_ns)
            data[0] = number % 256
            msg.data = data
            msg.header.stamp = time_to_msg(clock.mono_ns())
            publisher.publish(msg)
            due_ns = max(due_ns + PERIOD_NS, clock.mono_ns())
        clock.sleep_until(clock.mono_ns() + 200 * MS)
    return count


def main() -> int:
    """Be the other process."""
    print(publish(sys.argv[1], int(sys.argv[2])), flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
