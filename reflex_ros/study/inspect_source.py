"""Where an observation comes from: a file of arrays, the bag of a run, or a running graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from reflex_ros.bag import values
from reflex_ros.bag.files import METADATA
from reflex_ros.bag.read import BagMessage, BagReader
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import ByteArray
from reflex_ros.study.arrays import images_of, numbers, read_arrays, single, tasks_of
from reflex_ros.study.inspect_robot import Robot
from reflex_ros.study.inspect_sight import Float64, Glimpse

MAX_SKEW_NS = 40 * MS
IMAGE_TYPES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
RECORD_IMAGES = 'Record with recorder.images set to true (-p recorder.images:=true).'


class Binder(Protocol):
    """What a source needs to know of a policy.

    Attributes:
        cameras: Names of its cameras. task: Instruction where the source has none.
        robot: Parameters of the robot.
    """

    cameras: tuple[str, ...]
    task: str
    robot: Robot

    @property
    def arm_names(self) -> tuple[str, ...]:
        """Joints of the arm."""

    def from_arm(self, position: Float64) -> Float64:
        """Return arm values as the policy's columns."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a robot showed at one moment.

    Attributes:
        images: (stamp in ns, ``uint8[H, W, 3]`` RGB) by the policy's name of the camera.
        joints: Position by name, rad and m.
        task: Instruction; '' if none was heard.
        origin: Where it was taken, in words.
    """

    images: Mapping[str, tuple[int, ByteArray]]
    joints: Mapping[str, float]
    task: str
    origin: str


def from_moment(moment: Moment, policy: Binder, *, task: str | None = None) -> Glimpse:
    """Return a moment in the policy's names and units.

    Args:
        moment: What was seen. policy: Binds it.
        task: Instruction that wins over the moment's.

    Raises:
        ConfigError: A joint is missing. ModelError: The robot does not fit.
    """
    missing = [name for name in policy.arm_names if name not in moment.joints]
    if missing:
        raise ConfigError(
            f'joint_states is incomplete: got {", ".join(moment.joints)}, expected also '
            f'{", ".join(missing)}. Set arm.prefix as on the robot.'
        )
    state = policy.from_arm(np.array([moment.joints[name] for name in policy.arm_names]))
    warnings = []
    stamps = [stamp_ns for stamp_ns, _ in moment.images.values()]
    if (skew_ns := max(stamps) - min(stamps)) > MAX_SKEW_NS:
        warnings.append(f'images are {skew_ns / MS:.0f} ms apart, expected at most '
                        f'{MAX_SKEW_NS / MS:.0f} ms. Check the stamps of the cameras.')
    words = task or moment.task
    if not words:
        words = policy.task
        warnings.append('no instruction was heard: an example is used. Give --task.')
    images = {name: image for name, (_, image) in moment.images.items()}
    return Glimpse(images, state, words, moment.origin, warnings=tuple(warnings))


def glimpse_of_file(source: Path, row: int, *, task: str | None = None) -> Glimpse:
    """Return one row of a file in the layout of ``reflex-ros predict``.

    Args:
        source: ``.npz`` with ``raw_u8/<camera>`` ``uint8[B, 3, H, W]``, ``raw_state``, ``task``
            and, if wanted, ``noise``.
        row: Row of it.
        task: Instruction that wins over the file's.

    Raises:
        ConfigError: The file cannot be read, lacks something or has no such row.
    """
    arrays = read_arrays(source)
    tasks = tasks_of(arrays, source)
    states = np.atleast_1d(numbers(arrays, 'raw_state', source))
    cameras = images_of(arrays, source)
    noises = np.atleast_1d(numbers(arrays, 'noise', source)) if 'noise' in arrays else None
    stacks = [*map(np.atleast_1d, cameras.values()), *([] if noises is None else [noises])]
    rows = min(map(len, [tasks, states, *stacks]))
    if not 0 <= row < rows:
        raise ConfigError(
            f'input cannot be used {source}: got row {row}, expected 0 to {rows - 1}. '
            'Choose another --row.'
        )
    for name, stack in cameras.items():
        if stack.ndim != 4 or stack.shape[1] != 3 or stack.dtype != np.uint8:
            raise ConfigError(
                f'image cannot be used {name}: got {stack.dtype} {list(stack.shape)}, expected '
                'uint8 [batch, 3, height, width]. Give RGB images.'
            )
    images = {name: stack[row].transpose(1, 2, 0) for name, stack in cameras.items()}
    noise = None if noises is None else single(np.atleast_1d(noises[row]))
    state = np.atleast_1d(states[row]).astype(np.float64)
    return Glimpse(images, state, task or tasks[row], f'{source.name}, row {row}', noise)


def glimpse_of_run(
    path: Path, policy: Binder, *, at_s: float = 0.0, task: str | None = None
) -> Glimpse:
    """Return the first complete observation of a recorded run.

    Args:
        path: Run folder, or a bag.
        policy: Binds it.
        at_s: Not before this time after the start of the bag, s.
        task: Instruction that wins over the recorded one.

    Raises:
        ConfigError: The bag has no images or no joint states, or is shorter.
        ModelError: The robot does not fit the policy.
    """
    bag = _bag_of(path)
    with BagReader(bag) as reader:
        topics = _image_topics(reader, policy)
        newest, start_ns = _newest(reader, topics, at_s)
        images = {}
        for name, topic in topics.items():
            message = reader.decode(newest[topic])
            image = values.image(message)
            if image is None:
                raise ConfigError(
                    f'image cannot be read {topic} of bag {bag}: got encoding '
                    f'{getattr(message, "encoding", "compressed")}, expected rgb8, bgr8, mono8, '
                    'JPEG or PNG. Set the camera to one of these.'
                )
            images[name] = (values.stamp_of(message.header.stamp), image)
        joints = reader.decode(newest[_required(reader, 'joint_states')])
        tasks = reader.find('task')
        words = str(reader.decode(newest[tasks]).instruction) if tasks in newest else ''
    stamp_ns = max(message.stamp_ns for message in newest.values())
    found_s = (stamp_ns - start_ns) / S
    origin = f'{path.name}, {found_s:.2f} s after its start'
    named = dict(zip(joints.name, map(float, joints.position), strict=False))
    moment = Moment(images, named, words, origin)
    return replace(from_moment(moment, policy, task=task), at_s=found_s)


def glimpse_of_graph(
    policy: Binder, *, namespace: str = '', wait_s: float = 10.0, task: str | None = None
) -> Glimpse:
    """Return one image per camera and the joint state of a running graph; it commands nothing.

    Args:
        policy: Binds it.
        namespace: Namespace of the nodes.
        wait_s: Longest wait, s.
        task: Instruction that wins over the published one.

    Raises:
        StaleError: Something did not arrive in time; by name.
        ConfigError: Cameras do not fit. ModelError: The robot does not fit.
    """
    from reflex_ros.ros.glance import INSTRUCTION_S, glance

    arm = policy.arm_names  # refused before ROS is started
    topics = policy.robot.cameras(policy.cameras)
    seen = glance(
        topics, namespace=namespace, timeout_s=wait_s, joints=arm,
        instruction_s=0.0 if task else INSTRUCTION_S,
    )  # fmt: skip
    moment = Moment(seen.images, seen.joints, seen.instruction, f'live, {namespace or "/"}')
    return from_moment(moment, policy, task=task)


def _bag_of(path: Path) -> Path:
    if path.is_file() or (path / METADATA).is_file():
        return path
    bags = RunFolder(path).bags
    if not bags:
        raise ConfigError(
            f'run folder {path} has no bag: got none, expected bag/. Give the folder of a '
            'recorded run, or a bag.'
        )
    return bags[0]


def _image_topics(reader: BagReader, policy: Binder) -> dict[str, str]:
    """Return the recorded image topic of each of the policy's cameras."""
    recorded = [name for name, info in reader.topics.items()
                if info.type in IMAGE_TYPES and info.messages]  # fmt: skip
    if not recorded:
        raise ConfigError(
            f'bag {reader.folder} has no images: got topics {", ".join(sorted(reader.topics))}, '
            f'expected an image topic of each camera. {RECORD_IMAGES}'
        )
    known = policy.robot.cameras(policy.cameras)
    available = {camera: found for camera, topic in known.items()
                 for end in ('', '/compressed')
                 if (found := reader.find(f'{topic}{end}')) in recorded}  # fmt: skip
    missing = [camera for camera in known if camera not in available]
    if missing:
        raise ConfigError(
            f'bag {reader.folder} has no images of {missing[0]}: got {", ".join(recorded)}, '
            f'expected {known[missing[0]]}. Set camera.names and camera.topics as on the robot, '
            'name it in camera.masked if the policy does without it, or record it.'
        )
    return {name: str(topic) for name, topic in available.items()}


def _required(reader: BagReader, name: str) -> str:
    topic = reader.find(name)
    if topic is None or not reader.topics[topic].messages:
        raise ConfigError(
            f'bag {reader.folder} has no {name}: got topics {", ".join(sorted(reader.topics))}, '
            f'expected {name}. Record it; an empty recorder.topics records it.'
        )
    return topic


def _newest(
    reader: BagReader, topics: Mapping[str, str], at_s: float
) -> tuple[dict[str, BagMessage], int]:
    """Return the newest message of each topic once all are there, and when the bag starts."""
    needed = {*topics.values(), _required(reader, 'joint_states')}
    tasks = reader.find('task')
    newest: dict[str, BagMessage] = {}
    start_ns: int | None = None
    for message in reader.messages(*needed, *([tasks] if tasks else [])):
        start_ns = message.stamp_ns if start_ns is None else start_ns
        newest[message.topic] = message
        if message.stamp_ns >= start_ns + round(at_s * S) and needed <= set(newest):
            return newest, start_ns
    raise ConfigError(
        f'bag {reader.folder} is too short: got no image of each camera with a joint state after '
        f'{at_s:g} s, expected one (s). Choose a smaller --at.'
    )
