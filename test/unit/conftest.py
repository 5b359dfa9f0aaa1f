"""Runs of the closed loop on the virtual clock, and their bags as a recorder would leave them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S

ROOT = Path(__file__).parents[2]
IMAGE = 'sensor_msgs/msg/Image'


class RecordedScene:
    """One run with small synthetic pictures, whose timeline a test can reach into."""

    def __init__(self, *, seed: int = 1, duration_s: float = 4.0, cameras=('main',), **spec):
        from reflex_ros.core.probe import LognormalCost, constant_costs
        from reflex_ros.sim.experts import make_chunk_expert
        from reflex_ros.sim.world import World
        from reflex_ros.stages.build import bridge_config, limits_from, policy_config
        from reflex_ros.stages.oracle import OraclePolicy
        from reflex_ros.stages.virtual import VirtualConfig, VirtualRun
        from reflex_ros.study.episode import EpisodeSpec

        spec = {'task': 'follow', **spec}
        params = EpisodeSpec(seed=seed, **spec).parameters()
        rng = np.random.default_rng((seed, 11))
        costs = {**constant_costs(encode=5.0, denoise=15.0, instruction=5.0, publish=0.1,
                                  stage_copy=0.1, decode=0.1),
                 'denoise': LognormalCost(15 * MS, 0.1), 'encode': LognormalCost(5 * MS, 0.1)}
        config = VirtualConfig(
            bridge=replace(bridge_config(params, policy='tiny'), instruction='follow the target'),
            policy=policy_config(params), cameras=cameras, costs=costs, seed=seed,
            camera_phase_ns=int(rng.integers(0, 40)) * MS, duration_ns=round(duration_s * S))
        self.rng = rng
        self.images: list[tuple[int, str, np.ndarray]] = []
        self.statuses: list = []
        self.run = VirtualRun(config, world=World(spec['task'], seed=seed),
                              limits=limits_from(params), model=OraclePolicy(make_chunk_expert),
                              render=self._render)
        self.picture = self._fresh_picture
        status = self.run.bridge.status
        self.run.bridge.status = lambda value, now: (
            self.statuses.append(value), status(value, now))

    def _fresh_picture(self, camera):
        return self.rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)

    def _render(self, camera):
        image = self.picture(camera)
        self.images.append((self.run.clock.stamp_ns(), camera, image))
        return image

    def at(self, time_s: float, action) -> None:
        """Call ``action(self)`` at a time of the run."""
        from reflex_ros.stages.virtual import START_NS

        self.run.timeline.at(START_NS + round(time_s * S), lambda: action(self))

    def finish(self) -> RecordedScene:
        """Run to the end."""
        self.run.run()
        return self

    def messages(self, *, images: bool = True, is_brief: bool = False):
        """Return (topic, stamp, bytes) of everything that was published, in order."""
        from reflex_ros.bag.encode import TOPICS, header_stamp_ns
        from reflex_ros.bag.encode_flow import FLOW_TOPICS

        log, (encoder, pictures) = self.run.log, encoders()
        names = dict((*TOPICS, *FLOW_TOPICS))
        values = [*log.ticks, *log.traces, *log.stalls, *self.statuses]
        if not is_brief:
            values += [*log.truths, *log.plans, *log.tasks, *log.chunks, *log.blocks]
        found = [(names[type(v)], header_stamp_ns(v), encoder.encode(v)) for v in values]
        schemas = {**encoder.schemas, **pictures.schemas}
        types = {name: schemas[kind.__name__] for kind, name in (*TOPICS, *FLOW_TOPICS)}
        for stamp_ns, camera, pixels in self.images if images else ():
            topic = f'/camera/{camera}/image_raw'
            types[topic] = schemas['Image']
            found.append((topic, stamp_ns, _image(pictures, stamp_ns, camera, pixels)))
        return types, sorted(found, key=lambda row: row[1])

    def write(self, folder, *, keep=None, images: bool = True, is_brief: bool = False,
              storage: str = 'mcap'):
        """Write the bag; with ``keep(index, topic)`` only some of the messages.

        A brief bag lacks what the figures do not need: it is quick to write.
        """
        types, rows = self.messages(images=images, is_brief=is_brief)
        return write_messages(folder, types, [
            row for index, row in enumerate(rows) if keep is None or keep(index, row[0])],
            storage=storage)


@cache
def encoders():
    """Return the encoders of the suite's messages and of images; making them takes a while."""
    from reflex_ros.bag.encode import Encoder
    from reflex_ros.bag.encode_flow import FlowEncoder

    return FlowEncoder(shares=(ROOT,)), Encoder((), shares=(ROOT,), others=(IMAGE,))


def write_messages(folder, types, rows, *, storage: str = 'mcap'):
    """Write serialized messages as a bag."""
    from reflex_ros.bag.files import BagFiles, BagTopic, offered_qos

    qos = (offered_qos(is_reliable=True, is_latched=False, depth=100),)
    files = BagFiles(folder, [BagTopic(name, schema, qos) for name, schema in types.items()],
                     storage=storage)
    files.open()
    for topic, stamp_ns, data in rows:
        files.write(topic, stamp_ns, data)
    files.close()
    return folder


def _image(encoder, stamp_ns, camera, pixels) -> bytes:
    header = encoder.new('std_msgs/msg/Header', stamp=encoder.time(stamp_ns), frame_id=camera)
    height, width, _ = pixels.shape
    return encoder.serialize(encoder.new(
        IMAGE, header=header, height=height, width=width, encoding='rgb8', is_bigendian=0,
        step=3 * width, data=pixels.ravel()), IMAGE)


@pytest.fixture(scope='session')
def recorded_scene():
    """Return the class that makes runs with pictures."""
    return RecordedScene


@pytest.fixture(scope='session')
def write_rows():
    """Return the function that writes serialized messages as a bag."""
    return write_messages


@pytest.fixture(scope='session')
def stalled(recorded_scene):
    """Return a run in which one inference took 1.2 s."""
    scene = recorded_scene(seed=3, duration_s=4.0, cameras=('main', 'wrist'))
    scene.at(2.0, lambda s: delay_once(s.run.policy, 1200 * MS))
    return scene.finish()


@pytest.fixture(scope='session')
def stalled_bag(stalled, tmp_path_factory):
    """Return the bag of that run."""
    return stalled.write(tmp_path_factory.mktemp('stalled') / 'bag')


def delay_once(stage, delay_ns: int) -> None:
    """Let the next step of a stage last longer."""
    step = stage.step

    def slow(now):
        stage.step = step
        outputs, probe = step(now)
        return tuple(replace(o, not_before_ns=now.mono_ns + delay_ns) for o in outputs), probe

    stage.step = slow


@pytest.fixture(scope='session')
def slow_step():
    """Return the function that makes the next step of a stage slow."""
    return delay_once
