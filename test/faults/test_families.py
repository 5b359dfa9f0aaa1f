"""Real nodes with checkpoints of Pi0, Pi0.5 and SmolVLA: they drive the arm, or refuse by name.

What reached the arm is read at the simulator's socket; the weights are random and stand still.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')

from reflex_ros.core.errors import EXIT_INPUT
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.sim.world import World

pytestmark = [pytest.mark.ros, pytest.mark.realtime, pytest.mark.slow]

CAMERAS = ('front', 'wrist', 'side')
STILL_DEG = 0.2
"""Targets of an arm that holds spread by the resolution of its feedback, not by more."""
PERIOD_S = 0.1
"""So long that a busy machine renders and encodes three cameras in time."""
PRINTED = {'pi0': 'family=pi0', 'pi05': 'family=pi05', 'smolvla': 'family=smolvla'}


@pytest.fixture
def settings(family_checkpoint):
    """Return a maker of the parameters that a family needs, by name."""

    def make(family, **changes):
        home = World('follow', seed=0).joint_state()[0]
        folder = family_checkpoint(family, cameras=CAMERAS, home=home, action_std=5e-5)
        return {
            'policy.name': family, 'policy.checkpoint': str(folder), 'policy.joint_unit': 'rad',
            'policy.gripper_unit': 'm', 'policy.joint_names': JOINT_NAMES,
            'policy.step_period_s': 0.1, 'camera.names': CAMERAS, 'camera.period_s': PERIOD_S,
            'camera.max_age_s': 1.0, 'chunk.execute_steps': 5,
            'safety.max_observation_age_s': 2.0, 'ring.timeout_s': 20.0, **changes}

    return make


def _executes_chunks(stage, chunks=5):
    """Wait until chunks were executed; return the blocks and chunks seen meanwhile."""
    blocks, made, traces = [], [], []
    stage.hear('kv_block', blocks.append)
    stage.hear('action_chunk', made.append)
    stage.hear('chunk_trace', lambda msg: traces.append(msg) if msg.fate == 'executed' else None)
    stage.spin(lambda: len(traces) >= chunks, f'{chunks} executed chunks')
    return blocks, made


def _both_say_what_they_loaded(stage, family, *processes):
    for name in processes:
        stage.nodes[name].says(PRINTED[family])
        assert 'model_id=' in stage.nodes[name].text


@pytest.mark.parametrize('family', ['pi05', 'smolvla'])
def test_two_processes_close_the_loop(stage, settings, family):
    values = settings(family)
    stage.up('simulator', 'controller_bridge', 'vision_encoder', 'policy', **values)
    blocks, chunks = _executes_chunks(stage)
    _both_say_what_they_loaded(stage, family, 'vision_encoder', 'policy')
    assert all(len(chunk.trajectory.points) == 10 for chunk in chunks)
    carries = [len(block.state) for block in blocks]
    assert set(carries) == ({7} if family == 'pi05' else {0})
    assert stage.end_of_motion() < 2.0


def test_one_process_closes_the_loop(stage, settings):
    values = settings('pi0')
    for name in ('simulator', 'controller_bridge', 'inference'):
        stage.start(name, **values)
    nodes = ('simulator', 'controller_bridge', 'vision_encoder', 'policy')
    for name in ('vision_encoder', 'policy'):
        stage.nodes[name] = stage.nodes['inference']
    stage.walk(*nodes)
    _executes_chunks(stage)
    _both_say_what_they_loaded(stage, 'pi0', 'inference')
    assert stage.end_of_motion() < 2.0


REFUSALS = {
    'two cameras for three': (
        'vision_encoder', {'camera.names': CAMERAS[:2]}, ['camera.names', 'side']),
    'another unit': ('policy', {'policy.joint_unit': 'deg'}, ['declared unit']),
    'no period': ('policy', {'policy.step_period_s': 0.0}, ['policy.step_period_s']),
    'too many steps': (
        'policy', {'chunk.execute_steps': 11}, ['chunk.execute_steps: got 11', 'at most 10']),
    'another type than the encoder': (
        'policy', {'policy.dtype': 'bfloat16'}, ['model_id', 'same checkpoint']),
}


@pytest.mark.parametrize('case', REFUSALS)
def test_what_does_not_fit_ends_its_node_by_name_and_the_arm_holds(stage, settings, case):
    node, changes, words = REFUSALS[case]
    values = settings('pi0')
    stage.up('simulator', 'controller_bridge', **values)
    if node == 'policy':
        stage.up('vision_encoder', **values)
    stage.start(node, **{**values, **changes})
    code, text = stage.refuses(node)
    assert code == EXIT_INPUT and 'Traceback' not in text, text
    for word in words:
        assert word in text, text
    stage.spin(seconds=1.0)
    assert stage.end_of_motion() < STILL_DEG


def test_a_moving_arm_would_be_seen_can_fail(stage, settings):
    values = settings('pi0')
    folder = values['policy.checkpoint']
    _move_home(folder, np.array([0.3, 0, 0, 0, 0, 0, 0], np.float32))
    stage.up('simulator', 'controller_bridge', 'vision_encoder', 'policy', **values)
    _executes_chunks(stage)
    assert stage.end_of_motion() > STILL_DEG


def _move_home(folder, by):
    """Move what the weights ask for by an offset."""
    from pathlib import Path

    from safetensors.numpy import load_file, save_file

    for file in Path(folder).glob('*normalizer*.safetensors'):
        tensors = load_file(file)
        tensors['action.mean'] = tensors['action.mean'] + by
        save_file(tensors, file)
