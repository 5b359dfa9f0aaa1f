"""Which frames make an observation."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import CostModel, ModelProbe, constant_costs
from reflex_ros.core.types import JOINT_NAMES, ArmState, Frame, Plan, StateSource, Task
from reflex_ros.stages.encoder import EncoderConfig, EncoderStage

T0 = 1_700_000_000 * S


class Recorder:
    state_joints = ()

    def __init__(self):
        self.calls = []

    def instruction(self, text, epoch, probe):
        self.calls.append((text, epoch))

    def encode(self, block, images, probe):
        self.calls.append(tuple(images))
        return block


class Bench:
    def __init__(self, instant, cameras=('front', 'wrist'), *, encoder=None, task=True, **config):
        self.instant = instant
        costs = CostModel(constant_costs(encode=5.0), seed=0)
        self.stage = EncoderStage(
            EncoderConfig(cameras, **config), lambda start: ModelProbe(start, costs), encoder)
        if task:
            self.stage.on_task(Task(1, T0, 7, 'go'))

    def at(self, ms):
        return self.instant(5 * S + ms * MS, T0 - 5 * S)

    def frame(self, camera, ms, *, value=None):
        image = None if value is None else np.full((4, 4, 3), value, np.uint8)
        self.stage.on_frame(Frame(camera, T0 + ms * MS, self.at(ms).mono_ns, image))

    def step(self, ms):
        """Return the block of a step that is due, None if none is due or it made none."""
        if not self.stage.is_due():
            return None
        now = self.at(ms)
        self.stage.begin(now)
        outputs, _ = self.stage.step(now)
        self.stage.end(now, published=len(outputs))
        return outputs[0].value if outputs else None

    def status(self, ms=0):
        return self.stage.status(self.at(ms))


@pytest.fixture
def bench(instant):
    def make(*args, **kwargs):
        return Bench(instant, *args, **kwargs)

    return make


def test_the_primary_camera_triggers_and_stamps_the_block(bench):
    b = bench()
    b.frame('wrist', 5)
    assert b.step(5) is None
    b.frame('front', 10)
    block = b.step(12)
    assert block.stamp_ns == T0 + 10 * MS and block.epoch == 7
    assert block.camera_names == ('front', 'wrist')
    assert block.camera_stamps_ns == (T0 + 10 * MS, T0 + 5 * MS)


def test_a_frame_is_used_once(bench):
    b = bench(('front',))
    b.frame('front', 0)
    assert b.step(0) is not None and b.step(1) is None


def test_nothing_is_encoded_without_a_task(bench):
    b = bench(('front',), task=False)
    b.frame('front', 0)
    assert b.step(0) is None and b.status().state == 'waiting_task'


@pytest.mark.parametrize(('skew_ms', 'makes_block'), [(40, True), (41, False)])
def test_forty_milliseconds_of_skew_are_the_bound(bench, skew_ms, makes_block):
    b = bench()
    b.frame('wrist', 100 - skew_ms)
    b.frame('front', 100)
    assert (b.step(101) is not None) is makes_block


def test_cameras_that_expose_together_but_arrive_apart_make_blocks(bench):
    """15 Hz, the second camera 2 ms later on the wire: every pair fits."""
    b = bench()
    blocks = []
    for ms in range(0, 660, 66):
        b.frame('front', ms)
        blocks.append(b.step(ms + 1))
        b.frame('wrist', ms)
        blocks.append(b.step(ms + 2))
    made = [block for block in blocks if block is not None]
    assert len(made) == 10 and b.status().dropped == 0
    assert all(len(set(block.camera_stamps_ns)) == 1 for block in made)


def test_cameras_out_of_step_make_no_block_and_are_counted(bench):
    """10 Hz, half a period apart: no pair ever fits."""
    b = bench()
    for ms in range(0, 1000, 100):
        b.frame('front', ms)
        assert b.step(ms) is None
        b.frame('wrist', ms + 50)
        assert b.step(ms + 50) is None
    assert b.status().dropped == 10 and b.status().reason == 'camera_skew'


def test_a_camera_ahead_of_the_primary_is_counted_as_skew(bench):
    b = bench()
    b.frame('front', 0)
    b.frame('wrist', 50)
    assert b.step(50) is None and b.status().reason == 'camera_skew'


@pytest.mark.parametrize('others', [(), (0,)])
def test_a_dead_second_camera_is_named_by_age(bench, others):
    b = bench()
    for ms in others:
        b.frame('wrist', ms)
    for ms in range(200, 400, 40):
        b.frame('front', ms)
        assert b.step(ms) is None
    assert b.status().dropped == 4 and b.status().reason == 'camera_age'


@pytest.mark.parametrize(('age_ms', 'makes_block'), [(150, True), (151, False)])
def test_a_hundred_and_fifty_milliseconds_of_age_are_the_bound(bench, age_ms, makes_block):
    b = bench(('front',))
    b.frame('front', 0)
    assert (b.step(age_ms) is not None) is makes_block


def test_a_frame_from_the_future_makes_no_block(bench):
    b = bench(('front',))
    b.frame('front', 1000)
    assert b.step(10) is None and b.status().reason == 'camera_age'


def test_unknown_cameras_and_repeated_stamps_are_counted(bench):
    b = bench()
    b.frame('back', 0)
    assert 'back' in b.status().reason
    b.frame('front', 0)
    b.frame('front', 0)
    assert b.status().dropped == 2 and 'stamp' in b.status().reason


@pytest.mark.parametrize('back_ms', [1_500, 3_600_000])
def test_a_camera_whose_clock_was_set_back_is_heard_again(bench, back_ms):
    b = bench(('front',))
    b.frame('front', 0)
    b.step(0)
    b.frame('front', 40 - back_ms)
    assert b.step(41 - back_ms) is not None


def test_restart_of_time_forgets_frames_and_what_was_used(bench):
    b = bench(('front',))
    b.frame('front', 500)
    b.step(500)
    b.stage.restart_time()
    assert b.step(0) is None
    b.frame('front', 10)
    assert b.step(10) is not None


def test_equal_pictures_are_counted_and_a_new_one_ends_the_count(bench):
    b = bench(('front',))
    for i in range(11):
        b.frame('front', 40 * i, value=9)
    camera = b.status().cameras[0]
    assert camera.equal_frames == 10 and camera.content_since_ns == b.at(0).mono_ns
    b.frame('front', 440, value=10)
    assert b.status().cameras[0].equal_frames == 0


def test_pictures_without_pixels_are_never_frozen(bench):
    b = bench(('front',))
    for i in range(30):
        b.frame('front', 40 * i)
    assert b.status().cameras[0].equal_frames == 0


def test_an_instruction_is_encoded_once_per_epoch(bench):
    recorder = Recorder()
    b = bench(('front',), encoder=recorder)
    for i, epoch in enumerate((7, 7, 8)):
        b.stage.on_task(Task(i, T0, epoch, f'task {epoch}'))
        b.frame('front', 40 * i, value=i)
        b.step(40 * i)
    assert recorder.calls == [('task 7', 7), ('front',), ('front',), ('task 8', 8), ('front',)]


def test_an_instruction_that_the_policy_refuses_makes_no_block_and_is_named(bench):
    class Refusing(Recorder):
        def instruction(self, text, epoch, probe):
            if len(text) > 10:
                raise ConfigError('instruction cannot be used: got 99 tokens, expected 8.')
            super().instruction(text, epoch, probe)

    b = bench(('front',), encoder=Refusing())
    b.stage.on_task(Task(1, T0, 8, 'a text that is far too long'))
    for ms in (0, 40):
        b.frame('front', ms, value=ms)
        assert b.step(ms) is None
    assert b.status().dropped == 2 and 'got 99 tokens' in b.status().reason
    b.stage.on_task(Task(2, T0, 9, 'short'))
    b.frame('front', 80, value=80)
    assert b.step(80) is not None
    assert b.status().reason == ''


def test_status_says_busy_while_a_step_runs(bench):
    b = bench(('front',))
    b.stage.begin(b.at(3))
    assert b.status(4).busy_since_ns == b.at(3).mono_ns
    b.stage.end(b.at(5), published=1)
    assert b.status(6).busy_since_ns == 0 and b.status(6).last_output_ns == b.at(5).mono_ns


# ---- an encoder that reads the state ---------------------------------------------------------


class Reading(Recorder):
    state_joints = JOINT_NAMES

    def encode(self, block, images, probe):
        self.calls.append(block)
        return block


def plan(**changes):
    values = {
        'number': 1, 'stamp_ns': T0, 'epoch': 7, 'arm_state': ArmState.TRACKING,
        'joint_names': JOINT_NAMES, 'delta_ns': 100 * MS, 'tracking_error': np.zeros(7),
        'setpoint_stamps_ns': T0 + np.arange(50) * 20 * MS,
        'setpoints': np.linspace(0, 0.98, 50)[:, None] * np.ones(7)}
    return Plan(**{**values, **changes})


def reading(bench, source=StateSource.PREDICTED):
    return bench(('front',), encoder=Reading(), state_source=source)


def test_a_block_waits_for_the_first_state_and_says_so(bench):
    b = reading(bench)
    b.frame('front', 0, value=0)
    assert b.step(0) is None and b.status().state == 'waiting_state'
    b.stage.on_joint_state(T0, np.full(7, np.nan))
    assert b.step(0) is None
    b.stage.on_joint_state(T0, np.zeros(7))
    assert b.status().state == 'active'
    assert b.step(0) is not None


def test_the_state_is_predicted_for_the_frame_plus_delta(bench):
    b = reading(bench)
    b.stage.on_joint_state(T0, np.zeros(7))
    b.stage.on_plan(plan())
    b.frame('front', 100, value=0)
    block = b.step(110)
    assert (block.state_source, block.state_at_ns) == (StateSource.PREDICTED, T0 + 200 * MS)
    np.testing.assert_allclose(block.state, 0.2, atol=1e-9)
    assert block.joint_names == JOINT_NAMES and b.stage.fallbacks == 0


@pytest.mark.parametrize(('name', 'changes'), [
    ('tracking error', {'tracking_error': np.full(7, 0.5)}), ('epoch', {'epoch': 6}),
    ('arm', {'arm_state': ArmState.FAULTED}), ('none', None),
])
def test_without_a_prediction_the_measured_state_is_used_and_counted(bench, name, changes):
    b = reading(bench)
    b.stage.on_joint_state(T0 + 80 * MS, np.full(7, 0.4))
    b.stage.on_joint_state(T0 + 120 * MS, np.full(7, 0.6))
    if changes is not None:
        b.stage.on_plan(plan(**changes))
    b.frame('front', 100, value=0)
    block = b.step(130)
    assert (block.state_source, block.state_at_ns) == (StateSource.MEASURED, T0 + 100 * MS)
    np.testing.assert_allclose(block.state, 0.5)
    assert b.stage.fallbacks == 1


def test_the_measured_state_can_be_asked_for(bench):
    b = reading(bench, StateSource.MEASURED)
    b.stage.on_joint_state(T0, np.full(7, 0.4))
    b.stage.on_plan(plan())
    b.frame('front', 0, value=0)
    assert b.step(10).state_source is StateSource.MEASURED and b.stage.fallbacks == 0


def test_a_plan_of_another_arm_predicts_nothing(bench):
    b = reading(bench)
    b.stage.on_joint_state(T0, np.zeros(7))
    b.stage.on_plan(plan(joint_names=JOINT_NAMES[::-1]))
    b.frame('front', 0, value=0)
    assert b.step(10).state_source is StateSource.MEASURED
    assert b.status().dropped == 1


def test_states_are_forgotten_when_time_goes_back(bench):
    b = reading(bench)
    b.stage.on_joint_state(T0, np.zeros(7))
    b.stage.restart_time()
    b.frame('front', 0, value=0)
    assert b.step(0) is None and b.status().state == 'waiting_state'


def test_an_encoder_that_reads_no_state_is_given_none(bench):
    b = bench(('front',), encoder=Recorder())
    b.stage.on_joint_state(T0, np.zeros(7))
    b.stage.on_plan(plan(joint_names=('other',)))
    b.frame('front', 0, value=0)
    block = b.step(0)
    assert block.state is None and block.state_source is StateSource.NONE
    assert b.status().dropped == 0
