from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from reflex_ros.core.clock import MS, ManualClock
from reflex_ros.core.errors import ModelError
from reflex_ros.train import resume
from reflex_ros.train.trainer import Budget, Trainer


class Problem:
    """Least squares on random inputs; every loss costs 10 ms of the manual clock."""

    def __init__(self, file, seconds=1.0):
        torch.manual_seed(0)
        self.model, self.clock = nn.Linear(4, 1), ManualClock()
        self.trainer = Trainer(
            dict(self.model.named_parameters()),
            budget=Budget(seconds, 0.05, warmup_steps=5, save_every_s=0.3),
            clock=self.clock, file=file, seed=1,
        )  # fmt: skip

    def loss(self):
        self.clock.advance(10 * MS)
        x = torch.randn(16, 4, generator=self.trainer.generator)
        shift = float(self.trainer.rng.normal(0, 0.01))
        return (self.model(x) - x.sum(1, keepdim=True) - shift).square().mean()

    def run(self, steps=10**9):
        last = self.trainer.step + steps
        self.trainer.run(
            self.loss, is_stopped=lambda: self.trainer.step >= last, observe=lambda mean: None,
            observe_every_s=10.0,
        )  # fmt: skip
        return self


def test_training_ends_when_the_budget_is_spent(tmp_path):
    problem = Problem(tmp_path / 's.safetensors').run()
    assert problem.trainer.is_done
    assert problem.trainer.step == 100


def test_training_lowers_the_loss_and_the_average_follows(tmp_path):
    problem = Problem(tmp_path / 's.safetensors', seconds=5.0)
    before = float(problem.loss())
    problem.run()
    assert float(problem.loss()) < 0.1 * before
    assert (problem.trainer.average()['weight'] - problem.model.weight).abs().max() < 0.5


def test_a_stopped_and_resumed_run_equals_an_unbroken_one(tmp_path):
    whole = Problem(tmp_path / 'whole.safetensors').run()
    Problem(tmp_path / 'parts.safetensors').run(steps=37)
    rest = Problem(tmp_path / 'parts.safetensors')
    rest.trainer.load()
    assert rest.trainer.step == 37
    rest.run()
    torch.testing.assert_close(rest.model.weight, whole.model.weight, rtol=0, atol=0)
    torch.testing.assert_close(
        rest.trainer.average()['weight'], whole.trainer.average()['weight'], rtol=0, atol=0
    )


def test_resuming_can_fail_when_the_random_state_is_lost(tmp_path):
    whole = Problem(tmp_path / 'whole.safetensors').run()
    Problem(tmp_path / 'parts.safetensors').run(steps=37)
    rest = Problem(tmp_path / 'parts.safetensors')
    rest.trainer.load()
    rest.trainer.generator.manual_seed(99)
    rest.run()
    assert not torch.equal(rest.model.weight, whole.model.weight)


def test_a_broken_save_leaves_the_last_one_readable(tmp_path, monkeypatch):
    file = tmp_path / 's.safetensors'
    resume.save_state(file, {'a': torch.ones(2)}, {'step': 1})

    def die(*args, **kwargs):
        file.with_suffix('.part').write_bytes(b'half')
        raise KeyboardInterrupt

    monkeypatch.setattr(resume, 'save_file', die)
    with pytest.raises(KeyboardInterrupt):
        resume.save_state(file, {'a': torch.zeros(2)}, {'step': 2})
    tensors, meta = resume.load_state(file)
    assert meta == {'step': 1}
    assert torch.equal(tensors['a'], torch.ones(2))


def test_a_file_that_is_no_training_state_is_refused(tmp_path):
    save_file({'a': torch.ones(1)}, tmp_path / 'x.safetensors')
    with pytest.raises(ModelError, match='cannot be resumed'):
        resume.load_state(tmp_path / 'x.safetensors')


def test_random_states_survive_the_trip():
    rng, generator = np.random.default_rng(1), torch.Generator().manual_seed(1)
    saved = resume.pack_random(rng, generator)
    expected = rng.random(), float(torch.rand(1, generator=generator))
    resume.unpack_random(saved, rng, generator)
    assert (rng.random(), float(torch.rand(1, generator=generator))) == expected
