from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from reflex_ros.infer.rollout import Rollout


class Recorder:
    """A policy whose chunk number n has the value 100 n + row in every joint."""

    def __init__(self):
        self.spec = SimpleNamespace(
            execute_steps=5, window=3, pinned_shape=(1,), frame_shape=(1,), noise_shape=(20, 7),
            joint_names=tuple('abcdefg'),
        )  # fmt: skip
        self.calls = []

    def encode_instruction(self, text, out):
        out[:] = len(text)

    def encode_frame(self, images, pinned, out):
        out[:] = images['main'].max()

    def denoise(self, pinned, frames, ages, *, state, noise):
        self.calls.append(([float(f[0]) for f in frames], ages, state[0]))
        return np.tile(100.0 * len(self.calls) + np.arange(20)[:, None], (1, 7))


@pytest.fixture(name='run')
def run_fixture():
    policy = Recorder()
    rollout = Rollout(policy, 'hold still')
    commands = []
    for tick in range(14):
        if tick % 2 == 0:
            rollout.see(tick, {'main': np.full((2, 2, 3), tick)}, np.full(7, float(tick)))
        commands.append(rollout.command(tick)[0])
    return policy, commands


def test_rows_are_executed_from_the_newest_frame_s_instant_on(run):
    _, commands = run
    assert commands[:5] == [100, 101, 102, 103, 104]
    assert commands[5:10] == [201, 202, 203, 204, 205]
    assert commands[10:] == [300, 301, 302, 303]


def test_frames_come_with_their_ages_and_the_state_of_the_newest(run):
    policy, _ = run
    assert policy.calls[0] == ([0.0], [0.0], 0.0)
    assert policy.calls[1] == ([0.0, 2.0, 4.0], [4.0, 2.0, 0.0], 4.0)
    assert policy.calls[2] == ([6.0, 8.0, 10.0], [4.0, 2.0, 0.0], 10.0)
