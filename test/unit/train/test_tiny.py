"""The command from demonstrations to a checkpoint that loads."""

from __future__ import annotations

import dataclasses
import json
import os
import signal

import numpy as np
import pytest
import torch

from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT
from reflex_ros.infer import flow
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.families.tiny_network import TinyNetwork
from reflex_ros.train import resume, session, tiny
from reflex_ros.train.recipes import RECIPES
from reflex_ros.train.start import start_from

SMALL = {'width': 36, 'heads': 2, 'kv_heads': 1, 'head_dim': 6, 'layers': 1, 'vision_layers': 1}


@pytest.fixture(name='command')
def command_fixture(tmp_path, monkeypatch, make_demonstrations, write_demonstrations):
    """The command with handmade demonstrations and very small networks."""
    data = make_demonstrations(cameras=2)
    images = np.random.default_rng(0).integers(0, 256, (60, 2, 64, 64, 3), dtype=np.uint8)
    small = {
        name: dataclasses.replace(recipe, network=dataclasses.replace(recipe.network, **SMALL))
        for name, recipe in RECIPES.items()
    }
    out, file = tmp_path / 'run', tmp_path / 'demo.npz'
    monkeypatch.setattr(session, 'generate', lambda *args, **kwargs: [file])
    monkeypatch.setattr(session, 'VALIDATION_CHUNKS', 16)
    monkeypatch.setattr(tiny, 'RECIPES', small)

    def run(*more, minutes='0.005', recipe='tiny'):
        cameras = len(small[recipe].network.cameras)
        write_demonstrations(dataclasses.replace(data, images=images[:, :cameras]), file)
        out.mkdir(exist_ok='--resume' in more)
        arguments = ['--out', str(out), '--minutes-a', minutes, '--minutes-b', minutes]
        return tiny.main([*arguments, '--recipe', recipe, *more])

    return run, out


@pytest.mark.parametrize('recipe', list(RECIPES))
def test_training_from_nothing_ends_with_a_checkpoint_that_loads(command, recipe):
    run, out = command
    assert run('--resume', recipe=recipe) == EXIT_DONE
    policy = TinyPolicy.load(out / 'policy')
    assert policy.spec.cameras == RECIPES[recipe].network.cameras
    pinned = np.empty(policy.spec.pinned_shape, np.float32)
    frame = np.empty(policy.spec.frame_shape, np.float32)
    policy.encode_instruction(policy.spec.instruction, pinned)
    images = {name: np.zeros((64, 64, 3), np.uint8) for name in policy.spec.cameras}
    policy.encode_frame(images, pinned, frame)
    noise = flow.chunk_noise(0, 1, shape=policy.spec.noise_shape)
    chunk = policy.denoise(pinned, [frame], [0.0], state=np.zeros(7), noise=noise)
    assert chunk.shape == (50, 7)


def test_a_round_of_practice_goes_on_from_the_flow_stage(command):
    run, out = command
    assert run('--resume', '--rounds', '1', '--minutes-c', '0.002') == EXIT_DONE
    lines = (out / 'train.log').read_text().splitlines()
    assert lines[-1].startswith('practice1 ')
    trained = json.loads((out / 'policy' / 'config.json').read_text())['training']
    assert trained['stage'] == 'practice1'
    before, _ = resume.load_state(out / 'flow.state.safetensors')
    after, meta = resume.load_state(out / 'practice1.state.safetensors')
    moved = (after['weight.place'] - before['average.place']).abs().max()
    assert 0 < moved < 2e-3 * meta['step'] + 1e-6


def test_a_network_of_two_cameras_starts_from_one_of_one_camera(command):
    run, out = command
    run('--resume')
    given = TinyPolicy.load(out / 'policy')
    theirs, recipe = given.network, tiny.RECIPES['tiny_multi']
    network, tokenizer = TinyNetwork(recipe.network), recipe.tokenizer()
    start_from(network, tokenizer, out / 'policy')
    for camera in (0, 1):
        weight = network.tower(camera).stem_in.weight
        assert torch.equal(weight, theirs.vision.stem_in.weight)
    assert network.tower(0) is not network.tower(1)
    ball = tokenizer.token_to_id('ball')
    assert torch.equal(network.words.weight[ball], theirs.words.weight[given.vocabulary['ball']])
    assert torch.equal(network.camera[0], theirs.camera[0])


def test_a_device_that_is_not_there_is_refused(command, capsys):
    run, _ = command
    assert run('--resume', '--device', 'cuda:99') == EXIT_INPUT
    assert '--device' in capsys.readouterr().out


def test_a_finished_run_has_nothing_left_to_do(command):
    run, out = command
    run('--resume')
    steps = (out / 'train.log').read_text().splitlines()[-1].split()[1]
    run('--resume')
    assert (out / 'train.log').read_text().splitlines()[-1].split()[1] == steps


def test_a_folder_that_exists_is_not_overwritten_without_being_asked(command, capsys):
    run, _ = command
    assert run() == EXIT_INPUT
    assert '--resume' in capsys.readouterr().out


def test_a_signal_ends_the_run_after_a_save(command, monkeypatch):
    run, out = command
    right, calls = session.VisionStage.loss, []

    def interrupted(self, trainer):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return right(self, trainer)

    monkeypatch.setattr(session.VisionStage, 'loss', interrupted)
    assert run('--resume', minutes='60') == EXIT_DONE
    assert len(calls) == 3
    assert (out / 'vision_main.state.safetensors').exists()
    assert not (out / 'policy').exists()


def test_signal_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with tiny.stop_on_signal() as is_stopped:
        assert signal.getsignal(signal.SIGTERM) is not before
        assert not is_stopped()
    assert signal.getsignal(signal.SIGTERM) is before
