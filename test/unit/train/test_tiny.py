"""The command from demonstrations to a checkpoint that loads."""

from __future__ import annotations

import dataclasses
import os
import signal

import numpy as np
import pytest

from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT
from reflex_ros.infer import flow
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.train import tiny

SMALL = {'width': 36, 'heads': 2, 'kv_heads': 1, 'head_dim': 6, 'layers': 1, 'vision_layers': 1}


@pytest.fixture(name='command')
def command_fixture(tmp_path, monkeypatch, demonstrations, write_demonstrations):
    """The command with handmade demonstrations and a very small network."""
    images = np.random.default_rng(0).integers(0, 256, (60, 64, 64, 3), dtype=np.uint8)
    file = write_demonstrations(
        dataclasses.replace(demonstrations, images=images), tmp_path / 'demo.npz'
    )
    monkeypatch.setattr(tiny, 'generate', lambda *args, **kwargs: [file])
    monkeypatch.setattr(tiny, 'TinyConfig', lambda: TinyConfig(**SMALL))
    out = tmp_path / 'run'

    def run(*more, minutes='0.005'):
        out.mkdir(exist_ok='--resume' in more)
        arguments = ['--out', str(out), '--minutes-a', minutes, '--minutes-b', minutes, *more]
        return tiny.main(arguments)

    return run, out


def test_training_from_nothing_ends_with_a_checkpoint_that_loads(command):
    run, out = command
    assert run('--resume') == EXIT_DONE
    policy = TinyPolicy.load(out / 'policy')
    pinned = np.empty(policy.spec.pinned_shape, np.float32)
    frame = np.empty(policy.spec.frame_shape, np.float32)
    policy.encode_instruction(policy.spec.instruction, pinned)
    policy.encode_frame({'main': np.zeros((64, 64, 3), np.uint8)}, pinned, frame)
    noise = flow.chunk_noise(0, 1, shape=policy.spec.noise_shape)
    chunk = policy.denoise(pinned, [frame], [0.0], state=np.zeros(7), noise=noise)
    assert chunk.shape == (50, 7)


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
    right, calls = tiny.VisionStage.loss, []

    def interrupted(self, trainer):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return right(self, trainer)

    monkeypatch.setattr(tiny.VisionStage, 'loss', interrupted)
    assert run('--resume', minutes='60') == EXIT_DONE
    assert len(calls) == 3
    assert (out / 'vision.state.safetensors').exists()
    assert not (out / 'policy').exists()


def test_signal_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with tiny.stop_on_signal() as is_stopped:
        assert signal.getsignal(signal.SIGTERM) is not before
        assert not is_stopped()
    assert signal.getsignal(signal.SIGTERM) is before
