"""One look at a running graph: an image of each camera, the joints, the instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rclpy.executors import SingleThreadedExecutor

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import StaleError
from reflex_ros.core.types import ByteArray
from reflex_ros.ros.convert_basic import time_from_msg
from reflex_ros.ros.images import ImageDecoder
from reflex_ros.ros.qos import image_topic, topic
from reflex_ros.ros.spin import command_node

_POLL_S = 0.1
INSTRUCTION_S = 1.0
"""How long an instruction, which may be absent, is waited for after everything else came."""


@dataclass(slots=True)
class Seen:
    """What has arrived so far.

    Attributes:
        images: (stamp in ns, ``uint8[H, W, 3]`` RGB) by camera.
        joints: Position by name, rad and m.
        instruction: '' where nobody publishes one.
    """

    images: dict[str, tuple[int, ByteArray]] = field(default_factory=dict)
    joints: dict[str, float] = field(default_factory=dict)
    instruction: str = ''


class Glance:
    """Subscribes to what a policy would see; publishes and calls nothing.

    Args:
        node: Node that receives it.
        cameras: Image topic by camera.
        joints: Names that a joint state must have to count.
    """

    def __init__(self, node: Any, cameras: Mapping[str, str], joints: Sequence[str]) -> None:
        self.seen = Seen()
        self._cameras, self._joints, self._decoder = dict(cameras), tuple(joints), ImageDecoder()
        self._heard: tuple[str, ...] = ()
        for camera, name in cameras.items():
            entry = image_topic(name)
            keep = partial(self._take_image, camera)
            node.create_subscription(entry.message, entry.name, keep, entry.qos)
        for name, take in (('joint_states', self._take_joints), ('task', self._take_task)):
            entry = topic(name)
            node.create_subscription(entry.message, entry.name, take, entry.qos)

    def missing(self) -> tuple[str, ...]:
        """Return the topics that have said nothing of use yet; an instruction may be absent."""
        lacking = [f'{topic} ({camera})' for camera, topic in self._cameras.items()
                   if camera not in self.seen.images]  # fmt: skip
        if not self.seen.joints:
            got = f' (got only {", ".join(self._heard)})' if self._heard else ''
            lacking.append(f'joint_states of {", ".join(self._joints)}{got}')
        return tuple(lacking)

    def _take_image(self, camera: str, msg: Any) -> None:
        self.seen.images[camera] = time_from_msg(msg.header.stamp), self._decoder.rgb(msg)

    def _take_joints(self, msg: Any) -> None:
        named = dict(zip(msg.name, map(float, msg.position), strict=False))
        self._heard = tuple(named)
        if set(self._joints) <= set(named):
            self.seen.joints = named

    def _take_task(self, msg: Any) -> None:
        self.seen.instruction = str(msg.instruction)


def glance(
    cameras: Mapping[str, str], *, joints: Sequence[str], namespace: str = '',
    timeout_s: float = 10.0, instruction_s: float = INSTRUCTION_S,
) -> Seen:  # fmt: skip
    """Wait for one image of each camera and a joint state. Blocks.

    Args:
        cameras: Image topic by camera.
        joints: Names that the joint state must have.
        namespace: Namespace of the nodes.
        timeout_s: Longest wait, s.
        instruction_s: How much longer an instruction is waited for, s.

    Raises:
        StaleError: Something did not arrive in time; by name.
        MessageError: An image cannot be decoded.
    """
    clock = SystemClock()
    with command_node('glance', namespace=namespace) as node:
        looking = Glance(node, cameras, joints)
        executor = SingleThreadedExecutor(context=node.context)
        executor.add_node(node)
        end_ns = clock.mono_ns() + round(timeout_s * S)
        try:
            while looking.missing() and clock.mono_ns() < end_ns:
                executor.spin_once(timeout_sec=_POLL_S)
            end_ns = min(end_ns, clock.mono_ns() + round(instruction_s * S))
            while not looking.seen.instruction and clock.mono_ns() < end_ns:
                executor.spin_once(timeout_sec=_POLL_S)
        finally:
            executor.remove_node(node)
            executor.shutdown()
    if missing := looking.missing():
        raise StaleError(
            f'observation is incomplete: got nothing on {", ".join(missing)}, expected one '
            f'message within {timeout_s:g} s. Check that cameras and bridge run, the namespace '
            'and ROS_DOMAIN_ID.'
        )
    return looking.seen
