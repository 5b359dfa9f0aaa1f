"""The second stage: flow matching of prefix and expert on the tokens of the vision towers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from reflex_ros.infer.families.tiny_network import TinyNetwork
from reflex_ros.sim import instructions
from reflex_ros.sim.looks import COLOURS, Look
from reflex_ros.train import objective
from reflex_ros.train.dataset import ARM_JOINTS, Batch, Sampler
from reflex_ros.train.evaluate import OpenLoop, first_step_error, open_loop, sample_actions
from reflex_ros.train.objective import FlowBatch, Weights
from reflex_ros.train.trainer import Trainer

FLOW_BATCH = 256
DRAWS = 4
HOLD_SHARE = 0.06
WORDINGS = 18
SMALLEST_STD = 0.01
OPEN_GRIPPER_M = 0.07


@dataclass(frozen=True, slots=True)
class Statistics:
    """Normalisation of state and of actions relative to it.

    Attributes:
        state_mean, state_std: ``float32[7]``.
        action_mean, action_std: ``float32[horizon, 7]``; the gripper is absolute.
    """

    state_mean: npt.NDArray[np.float32]
    state_std: npt.NDArray[np.float32]
    action_mean: npt.NDArray[np.float32]
    action_std: npt.NDArray[np.float32]

    @classmethod
    def of(cls, batch: Batch) -> Statistics:
        """Return the statistics of a large batch.

        Early rows move little and are executed most, late rows move far: each row is scaled by
        its own spread, but not below 0.3 of the chunk's.
        """
        relative = relative_actions(batch.actions, batch.state)
        spread = relative.std(0)
        std = np.maximum(np.maximum(spread, 0.3 * spread.mean(0)), SMALLEST_STD)
        mean = np.zeros_like(std)
        mean[:, ARM_JOINTS:] = std[:, ARM_JOINTS:] = OPEN_GRIPPER_M / 2
        state_std = np.maximum(batch.state.std(0), 0.05)
        state_mean = batch.state.mean(0)
        state_mean[ARM_JOINTS:] = state_std[ARM_JOINTS:] = OPEN_GRIPPER_M / 2
        return cls(state_mean, state_std, mean, std)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the four arrays by name."""
        return {name: torch.from_numpy(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Statistics:
        """Return what ``to_tensors`` took apart."""
        return cls(**{name: tensors[name].numpy() for name in cls.__slots__})


def relative_actions(
    actions: npt.NDArray[np.float32], state: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return actions ``[B, horizon, 7]`` minus the state, the gripper left absolute."""
    shift = state.copy()
    shift[:, ARM_JOINTS:] = 0
    return actions - shift[:, None]


class FlowStage:
    """Flow matching of prefix and expert on cached tokens.

    Args:
        network: Everything but its vision towers is trained.
        tokenizer: Of the instructions.
        sampler: Of the demonstrations.
        tokens: ``float32[F, cameras, width]`` of their images.
        statistics: Normalisation.
        weights: What counts how much.
        forward: Compiled form of ``objective.predict`` for the loss, None = as it is.
    """

    def __init__(
        self,
        network: TinyNetwork,
        tokenizer: Tokenizer,
        *,
        sampler: Sampler,
        tokens: Tensor,
        statistics: Statistics,
        weights: Weights | None = None,
        forward: objective.Predict | None = None,
    ) -> None:
        self._forward, self._weights = forward, weights
        self._network, self._sampler, self._tokens = network, sampler, tokens
        self.statistics, self._tokenizer = statistics, tokenizer
        self._ids: dict[tuple[int, int], Tensor] = {}

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return what is trained, by name."""
        named = self._network.named_parameters()
        return {n: p for n, p in named if not n.startswith(('vision.', 'more_vision.'))}

    def loss(self, trainer: Trainer) -> Tensor:
        """Return the loss of a random batch."""
        batch = self._sampler.draw(FLOW_BATCH, trainer.rng)
        prepared = self.prepare(batch, trainer.rng, hold_share=HOLD_SHARE)
        return objective.flow_loss(
            self._network,
            prepared.to(trainer.device),
            draws=DRAWS,
            generator=trainer.generator,
            forward=self._forward,
            weights=self._weights,
        )

    def _wordings(self, intent: int, colour: int) -> Tensor:
        """Return the ids of every training instruction for objects of a colour."""
        key = (intent, colour)
        if key not in self._ids:
            name = list(COLOURS)[colour]
            texts = instructions.wordings(instructions.INTENTS[intent], Look(name, name))
            encoded = cast('list[list[int]]', [self._tokenizer.encode(t).ids for t in texts])
            self._ids[key] = torch.tensor(encoded, dtype=torch.int64)
        return self._ids[key]

    def _instructions(self, newest: npt.NDArray[np.int64], is_hold: npt.NDArray[np.bool_],
                      rng: np.random.Generator) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return some instructions ``int64[WORDINGS, pinned_tokens]`` and the row of each sample.

        Few, because each is encoded once per batch; always as many, so that a compiled pass fits.
        """
        data = self._sampler.data
        intent = np.where(is_hold, instructions.INTENTS.index('hold'), data.intent[newest])
        cube, ball = np.divmod(data.look[newest], len(COLOURS))
        colour = np.where(intent == 0, ball, np.where(intent == 1, cube, 0))
        kinds, which = np.unique(intent * len(COLOURS) + colour, return_inverse=True)
        each = WORDINGS // len(kinds)
        drawn = []
        for kind in kinds:
            known = self._wordings(*divmod(int(kind), len(COLOURS)))
            drawn.append(known[torch.from_numpy(rng.integers(0, len(known), each))])
        rest = drawn[0][:1].expand(WORDINGS - each * len(kinds), -1)
        wording = which * each + rng.integers(0, each, len(newest))
        return torch.cat((*drawn, rest)), torch.from_numpy(wording)

    def prepare(
        self, batch: Batch, rng: np.random.Generator, *, hold_share: float
    ) -> FlowBatch:
        """Return the tensors of a batch; ``hold_share`` of it is told to hold still."""
        newest = batch.frames[:, -1]
        is_hold = rng.random(len(newest)) < hold_share
        ids, wording = self._instructions(newest, is_hold, rng)
        relative = relative_actions(batch.actions, batch.state)
        relative[is_hold, :, :ARM_JOINTS] = 0
        held = self._sampler.data.command[newest, ARM_JOINTS:]
        relative[is_hold, :, ARM_JOINTS:] = held[is_hold, None]
        s = self.statistics
        return FlowBatch(
            ids=ids,
            wording=wording,
            tokens=self._tokens[torch.from_numpy(batch.frames)],
            present=torch.from_numpy(batch.present),
            ages=torch.from_numpy(batch.ages),
            state=torch.from_numpy((batch.state - s.state_mean) / s.state_std),
            actions=torch.from_numpy((relative - s.action_mean) / s.action_std),
        )

    def evaluate(self, *, size: int, delay: float, seed: int,
                 intent: int | None = None) -> OpenLoop:  # fmt: skip
        """Return the open-loop errors of ``size`` random chunks at one delay, ticks.

        Args:
            size: Number of chunks. delay: 0 for measured pairs. seed: Of every draw.
            intent: Only of demonstrations with this intent; needs a sampler with shares.
        """
        rng = np.random.default_rng(seed)
        batch = self._sampler.draw(size, rng, delay=delay, intent=intent)
        prepared = self.prepare(batch, rng, hold_share=0.0).to(self._network.camera.device)
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(prepared.actions.shape, generator=generator)
        noise = noise.to(prepared.actions.device)
        chunk = sample_actions(self._network, prepared, noise).cpu().numpy()
        s = self.statistics
        shift = batch.state.copy()
        shift[:, ARM_JOINTS:] = 0
        positions = chunk * s.action_std + s.action_mean + shift[:, None]
        first = first_step_error(self._network, prepared, noise)
        return open_loop(positions.astype(np.float64), batch.actions, first)
