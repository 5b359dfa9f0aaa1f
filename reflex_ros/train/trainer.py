"""The loop that both stages share: a time budget, a moving average, saves, a clean stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from reflex_ros.core.clock import Clock, S
from reflex_ros.train import resume


@dataclass(frozen=True, slots=True)
class Budget:
    """How long and how hard to train.

    Attributes:
        seconds: Training time, counted over all resumed runs.
        peak_rate: Largest learning rate; linear warm-up, then cosine to 2 % at the end.
        warmup_steps: Steps of the warm-up.
        average: Decay of the moving average of the weights.
        save_every_s: Time between saves, s.
    """

    seconds: float
    peak_rate: float
    warmup_steps: int = 100
    average: float = 0.998
    save_every_s: float = 300.0

    def rate(self, step: int, spent_s: float) -> float:
        """Return the learning rate of a step."""
        share = min(1.0, spent_s / max(self.seconds, 1e-9))
        cosine = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share))
        return self.peak_rate * min(1.0, (step + 1) / self.warmup_steps) * cosine


class Trainer:
    """Trains named parameters on a loss until the budget is spent or it is told to stop.

    Args:
        parameters: What is trained, by name; matrices decay.
        budget: See ``Budget``.
        clock: Source of the time spent.
        file: Where the state is saved.
        seed: Seed of ``rng`` and ``generator``, from which every draw must come.
        device: Where the parameters are.
    """

    def __init__(
        self,
        parameters: dict[str, nn.Parameter],
        *,
        budget: Budget,
        clock: Clock,
        file: Path,
        seed: int,
        device: torch.device | None = None,
    ) -> None:
        self.device = device or torch.device('cpu')
        self.name = file.name.partition('.')[0]
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.step, self.spent_s = 0, 0.0
        self._parameters, self._budget, self._clock, self._file = parameters, budget, clock, file
        self._average = {name: p.detach().clone() for name, p in parameters.items()}
        matrices = [p for p in parameters.values() if p.ndim > 1]
        vectors = [p for p in parameters.values() if p.ndim <= 1]
        groups = [
            {'params': matrices, 'weight_decay': 0.01},
            {'params': vectors, 'weight_decay': 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)

    @property
    def is_done(self) -> bool:
        """Whether the budget is spent."""
        return self.spent_s >= self._budget.seconds

    def average(self) -> dict[str, Tensor]:
        """Return the moving average of the parameters, by name; not copies."""
        return self._average

    def load(self) -> None:
        """Continue from the saved state."""
        tensors, meta = resume.load_state(self._file)
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(tensors[f'weight.{name}'])
                self._average[name].copy_(tensors[f'average.{name}'])
        resume.unpack_optimizer(self._optimizer, tensors)
        resume.unpack_random(meta['random'], self.rng, self.generator)
        self.step, self.spent_s = meta['step'], meta['spent_s']

    def save(self) -> None:
        """Write the state."""
        tensors = {f'weight.{n}': p for n, p in self._parameters.items()}
        tensors |= {f'average.{n}': p for n, p in self._average.items()}
        tensors |= resume.pack_optimizer(self._optimizer)
        random = resume.pack_random(self.rng, self.generator)
        meta = {'step': self.step, 'spent_s': self.spent_s, 'random': random}
        resume.save_state(self._file, tensors, meta)

    def run(
        self,
        loss: Callable[[], Tensor],
        *,
        is_stopped: Callable[[], bool],
        observe: Callable[[float], None],
        observe_every_s: float,
    ) -> None:
        """Train; ends with a save. Blocks.

        Args:
            loss: Draws a batch and returns its loss.
            is_stopped: Asked before every step; True ends the run after a save.
            observe: Called with the mean loss about every ``observe_every_s`` and at the end.
            observe_every_s: See ``observe``.
        """
        mean = float('nan')
        saved_s = observed_s = self.spent_s
        began_s = min(self.spent_s, self._budget.seconds)
        with tqdm(total=self._budget.seconds, initial=began_s, unit='s') as bar:
            while not (self.is_done or is_stopped()):
                began_ns = self._clock.mono_ns()
                value = self._descend(loss)
                mean = value if math.isnan(mean) else 0.98 * mean + 0.02 * value
                took_s = (self._clock.mono_ns() - began_ns) / S
                self.spent_s += took_s
                bar.update(min(took_s, self._budget.seconds - bar.n))
                bar.set_postfix(step=self.step, loss=f'{mean:.4f}', refresh=False)
                if self.spent_s - saved_s > self._budget.save_every_s:
                    saved_s = self.spent_s
                    self.save()
                if self.spent_s - observed_s > observe_every_s:
                    observed_s = self.spent_s
                    observe(mean)
        self.save()
        observe(mean)

    def _descend(self, loss: Callable[[], Tensor]) -> float:
        """Take one step; returns the loss."""
        rate = self._budget.rate(self.step, self.spent_s)
        for group in self._optimizer.param_groups:
            group['lr'] = rate
        with torch.autocast(self.device.type, torch.bfloat16):
            value = loss()
        self._optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(self._parameters.values(), 1.0)
        self._optimizer.step()
        self.step += 1
        decay = min(self._budget.average, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self._average.values()), list(self._parameters.values()), 1 - decay
            )
        return float(value.detach())
