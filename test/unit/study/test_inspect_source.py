"""Observations from recorded runs, and what is wrong with those that give none."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.bag.files import BagFiles, BagTopic, offered_qos
from reflex_ros.bag.schema import find_schema, typestore_of
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.study.inspect import Source, look, open_subject, robot_of
from reflex_ros.study.inspect_robot import Robot, read_run
from reflex_ros.study.inspect_source import Moment, from_moment, glimpse_of_file, glimpse_of_run

ROOT = Path(__file__).resolve().parents[3]
TINY = ROOT / 'reflex_ros' / 'data' / 'tiny'
NAMES = ('joint1', 'joint2', 'joint3', 'joint4', 'joint5', 'joint6', 'gripper')
STATE = (0.1, 1.45, -1.0, 0.0, 0.7, 0.0, 0.03)
START_NS = 1_700_000_000 * S
PARAMS = """
/x/vision_encoder:
  ros__parameters:
    policy: {name: oracle}
    camera: {names: [main], topics: [eye/image]}
    ring: {readers: 2}
/x/controller_bridge:
  ros__parameters:
    arm: {prefix: left_}
    run: {no_such: 1}
"""


class Bag:
    """Writes what a recorder with images would have written."""

    def __init__(self, folder, topics):
        kinds = {name: find_schema(kind, shares=(ROOT,)) for name, kind in topics.items()}
        qos = (offered_qos(is_reliable=True, is_latched=False, depth=10),)
        self.types = topics
        self.store = typestore_of((s.type, s.text) for s in kinds.values())
        self.files = BagFiles(folder, [BagTopic(n, s, qos) for n, s in kinds.items()])
        self.files.open()

    def new(self, kind, **fields):
        return self.store.types[kind](**fields)

    def header(self, stamp_ns):
        sec, nanosec = divmod(stamp_ns, S)
        time = self.new('builtin_interfaces/msg/Time', sec=sec, nanosec=nanosec)
        return self.new('std_msgs/msg/Header', stamp=time, frame_id='')

    def write(self, topic, at_s, **fields):
        stamp_ns = START_NS + round(at_s * S)
        kind = self.types[topic]
        message = self.new(kind, header=self.header(stamp_ns), **fields)
        self.files.write(topic, stamp_ns, bytes(self.store.serialize_cdr(message, kind)))

    def image(self, topic, at_s, value, encoding='rgb8'):
        data = np.full(64 * 64 * 3, value, np.uint8)
        self.write(topic, at_s, height=64, width=64, encoding=encoding, is_bigendian=0,
                   step=192, data=data)  # fmt: skip

    def joints(self, at_s, positions, names=NAMES):
        empty = np.zeros(0)
        self.write('/x/joint_states', at_s, name=list(names), position=np.array(positions, float),
                   velocity=empty, effort=empty)  # fmt: skip

    def task(self, at_s, text):
        self.write('/x/task', at_s, number=1, schema_version=1, epoch=1, instruction=text)


TOPICS = {
    '/x/camera/main/image_raw': 'sensor_msgs/msg/Image',
    '/x/joint_states': 'sensor_msgs/msg/JointState',
    '/x/task': 'reflex_msgs/msg/Task',
}


@pytest.fixture
def run(tmp_path):
    """Return a run folder of two seconds: images grow brighter, joint1 turns."""
    bag = Bag(tmp_path / 'run' / 'bag', TOPICS)
    bag.task(0.0, 'hold still')
    bag.joints(0.1, STATE)
    for index in range(20):
        bag.image('/x/camera/main/image_raw', 0.2 + 0.1 * index, 10 * index)
        bag.joints(0.25 + 0.1 * index, (0.01 * index, *STATE[1:]))
    bag.files.close()
    return tmp_path / 'run'


@pytest.fixture(scope='module')
def tiny():
    return open_subject(TINY, Robot())


def test_the_first_complete_observation_of_a_bag_is_taken(run, tiny):
    glimpse = glimpse_of_run(run, tiny)
    assert glimpse.images['main'].shape == (64, 64, 3) and not glimpse.images['main'].any()
    assert glimpse.state.tolist() == list(STATE)
    assert glimpse.task == 'hold still' and 'run, 0.20 s' in glimpse.origin


def test_a_later_moment_has_the_newest_of_everything_before_it(run, tiny):
    glimpse = glimpse_of_run(run / 'bag', tiny, at_s=1.04)
    assert (glimpse.images['main'] == 80).all()
    assert glimpse.state[0] == pytest.approx(0.08)


def test_a_bag_is_drawn_as_the_policy_sees_it(run, tiny):
    sight = look(tiny, Source(run=run, task='follow the pink ball'))
    assert sight.prompt == 'follow the pink ball' and sight.chunk.shape == (50, 7)


def test_a_moment_after_the_end_is_refused(run, tiny):
    with pytest.raises(ConfigError, match=r'too short.*--at'):
        glimpse_of_run(run, tiny, at_s=5.0)


def test_a_bag_without_images_says_which_option_records_them(tmp_path, tiny):
    bag = Bag(tmp_path / 'bag', {n: t for n, t in TOPICS.items() if 'image' not in n})
    bag.joints(0.0, STATE)
    bag.files.close()
    with pytest.raises(ConfigError, match=r'no images.*recorder\.images'):
        glimpse_of_run(tmp_path, tiny)


def test_a_bag_of_other_cameras_names_the_one_that_is_missing(tmp_path, tiny):
    topics = {**TOPICS, '/x/camera/side/image_raw': 'sensor_msgs/msg/Image'}
    bag = Bag(tmp_path / 'bag', topics)
    bag.image('/x/camera/side/image_raw', 0.0, 1)
    bag.joints(0.1, STATE)
    bag.files.close()
    with pytest.raises(ConfigError, match=r'no images of main'):
        glimpse_of_run(tmp_path, tiny)


def test_a_bag_without_joints_is_refused(tmp_path, tiny):
    bag = Bag(tmp_path / 'bag', {n: t for n, t in TOPICS.items() if 'joint' not in n})
    bag.image('/x/camera/main/image_raw', 0.0, 1)
    bag.files.close()
    with pytest.raises(ConfigError, match='no joint_states'):
        glimpse_of_run(tmp_path, tiny)


def test_an_unknown_encoding_is_refused_by_name(tmp_path, tiny):
    bag = Bag(tmp_path / 'bag', TOPICS)
    bag.joints(0.0, STATE)
    bag.image('/x/camera/main/image_raw', 0.1, 1, encoding='bayer_rggb8')
    bag.files.close()
    with pytest.raises(ConfigError, match='bayer_rggb8'):
        glimpse_of_run(tmp_path, tiny)


def test_the_cameras_of_the_run_are_where_its_parameters_say(tmp_path):
    folder = tmp_path / 'run'
    bag = Bag(folder / 'bag', {'/x/eye/image': 'sensor_msgs/msg/Image', **TOPICS})
    bag.joints(0.0, STATE)
    bag.image('/x/eye/image', 0.1, 77)
    bag.files.close()
    (folder / 'params').mkdir()
    (folder / 'params' / 'run.yaml').write_text(PARAMS)
    robot = robot_of((), {}, run=folder)
    assert robot.map.arm_names[0] == 'left_joint1' and robot.ring.readers == 2
    subject = open_subject(TINY, robot)
    assert subject.facts()['robot']['refusals'] == []
    glimpse = glimpse_of_run(folder, subject)
    assert (glimpse.images['main'] == 77).all()
    assert glimpse.warnings and '--task' in glimpse.warnings[0]


def test_a_parameter_given_now_wins_over_that_of_the_run(tmp_path):
    (tmp_path / 'params').mkdir()
    (tmp_path / 'params' / 'run.yaml').write_text(PARAMS)
    robot = robot_of((), {'arm.prefix': 'right_'}, run=tmp_path)
    assert robot.map.arm_names[0] == 'right_joint1'


def test_damaged_parameters_of_a_run_are_refused(tmp_path):
    (tmp_path / 'run.yaml').write_text('- a list')
    with pytest.raises(ConfigError, match=r'run\.yaml'):
        read_run(tmp_path / 'run.yaml')


@dataclass
class Swapped:
    """A policy with the first two joints the other way round, in degrees."""

    cameras: tuple[str, ...] = ('main',)
    arm_names: tuple[str, ...] = ('a', 'b')
    task: str = 'example'
    robot: Robot = field(default_factory=Robot)

    def from_arm(self, position):
        return np.rad2deg(position[[1, 0]])


def moment(**changes):
    image = np.zeros((4, 4, 3), np.uint8)
    values = {'images': {'main': (0, image)}, 'joints': {'b': 2.0, 'a': 1.0, 'extra': 9.0},
              'task': 'go', 'origin': 'here'}  # fmt: skip
    return Moment(**{**values, **changes})


def test_joints_are_taken_by_name_and_bound_as_the_policy_has_them():
    glimpse = from_moment(moment(), Swapped())
    np.testing.assert_allclose(glimpse.state, np.rad2deg([2.0, 1.0]))


def test_a_missing_joint_is_refused_by_name():
    with pytest.raises(ConfigError, match='expected also b'):
        from_moment(moment(joints={'a': 1.0}), Swapped())


def test_images_far_apart_in_time_are_told():
    image = np.zeros((4, 4, 3), np.uint8)
    near = from_moment(moment(images={'a': (0, image), 'b': (40 * MS, image)}), Swapped())
    far = from_moment(moment(images={'a': (0, image), 'b': (90 * MS, image)}), Swapped())
    assert near.warnings == () and '90 ms' in far.warnings[0]


@pytest.mark.parametrize(('arrays', 'word'), [
    ({'task': np.array(['x'])}, 'raw_state'),
    ({'raw_state': np.zeros((1, 7))}, 'task'),
    ({'raw_state': np.zeros((1, 7)), 'task': np.array(['x']),
      'raw_u8/main': np.zeros((1, 3, 8, 8))}, 'uint8'),
])  # fmt: skip
def test_a_file_that_lacks_something_is_refused_by_name(tmp_path, arrays, word):
    np.savez(tmp_path / 'in.npz', **arrays)
    with pytest.raises(ConfigError, match=word):
        glimpse_of_file(tmp_path / 'in.npz', 0)


@pytest.mark.parametrize('row', [-1, 1])
def test_a_row_that_is_not_there_is_refused(tmp_path, row):
    np.savez(tmp_path / 'in.npz', raw_state=np.zeros((1, 7)), task=np.array(['x']))
    with pytest.raises(ConfigError, match=f'row {row}, expected 0 to 0'):
        glimpse_of_file(tmp_path / 'in.npz', row)


@pytest.mark.parametrize('change', [
    {'noise': np.zeros((0, 6, 32))}, {'noise': np.array(1.0)}, {'raw_u8/main': np.array(3)},
    {'raw_u8/main': np.zeros((0, 3, 8, 8), np.uint8)}, {'raw_state': np.array(1.0)},
])
def test_arrays_of_no_or_few_rows_are_refused_or_bounded(tmp_path, change):
    arrays = {'raw_u8/main': np.zeros((2, 3, 8, 8), np.uint8), 'raw_state': np.zeros((2, 7)),
              'task': np.array(['a', 'b']), **change}
    np.savez(tmp_path / 'in.npz', **arrays)
    with pytest.raises(ConfigError):
        glimpse_of_file(tmp_path / 'in.npz', 1)
