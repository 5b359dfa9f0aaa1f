"""The two stages of training: the vision tower alone, then everything behind its tokens.

End to end, a core would need days: images dominate the cost and the flow loss teaches them
little. So the tower first learns to read target and joints off an image, then every image's token
is computed once, and the flow-matching stage runs on the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from reflex_ros.infer.families.tiny_network import TinyNetwork
from reflex_ros.train import instructions, objective
from reflex_ros.train.dataset import ARM_JOINTS, OPEN_GRIPPER_M, Batch, Demonstrations, Sampler
from reflex_ros.train.evaluate import OpenLoop, first_step_error, open_loop, sample_actions
from reflex_ros.train.objective import FlowBatch
from reflex_ros.train.trainer import Trainer

VISION_BATCH = 96
VISION_TARGETS = 2 + ARM_JOINTS
FLOW_BATCH = 256
DRAWS = 4
HOLD_SHARE = 0.06
WORDINGS_PER_BATCH = 12
SMALLEST_STD = 0.01


def images_to_tensor(images: npt.NDArray[np.uint8]) -> Tensor:
    """Return ``uint8[B, H, W, 3]`` as float32[B, 3, H, W] in -1..1."""
    scaled = torch.from_numpy(images).permute(0, 3, 1, 2).to(torch.float32)
    return scaled / 127.5 - 1


class VisionStage:
    """Regression of target position (x, y) and joints from one image.

    Args:
        network: Its vision tower is trained.
        data: Demonstrations.
    """

    def __init__(self, network: TinyNetwork, data: Demonstrations) -> None:
        self._network, self._data = network, data
        patches = (network.vision.side // 2) ** 2 * network.config.width
        self.head = nn.Linear(patches, VISION_TARGETS)
        wanted = np.concatenate((data.target[:, :2], data.measured), 1)
        self._mean, self._std = wanted.mean(0), wanted.std(0)
        self._wanted = torch.from_numpy((wanted - self._mean) / self._std)

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return what is trained, by name; the summary comes afterwards."""
        tower = {f'vision.{n}': p for n, p in self._network.vision.named_parameters()}
        named = {n: p for n, p in tower.items() if '.summary.' not in n}
        return named | {f'head.{n}': p for n, p in self.head.named_parameters()}

    def loss(self, trainer: Trainer) -> Tensor:
        """Return the loss of a random batch."""
        rows = trainer.rng.integers(0, len(self._data.images), VISION_BATCH)
        images = images_to_tensor(self._data.images[rows])
        return objective.vision_loss(self._network.vision, self.head, images, self._wanted[rows])

    @torch.inference_mode()
    def error_mm(self, data: Demonstrations, rows: npt.NDArray[np.int64]) -> tuple[float, float]:
        """Return the root mean square error of the target's x and y, mm."""
        patches = self._network.vision.patches(images_to_tensor(data.images[rows]))
        read = self.head(patches.float().flatten(1))[:, :2].numpy()
        seen = read * self._std[:2] + self._mean[:2]
        error = 1e3 * np.sqrt(np.square(seen - data.target[rows, :2]).mean(0))
        return float(error[0]), float(error[1])

    @torch.no_grad()
    def start_summary(self, generator: torch.Generator) -> None:
        """Start the summary token at the read-out: four copies, then random projections.

        Every entry is then scaled to zero mean and unit spread over the demonstrations, folded
        into the layer's own weights.
        """
        summary, copies = self._network.vision.summary, 4 * VISION_TARGETS
        summary.weight.normal_(0, 0.02 / summary.in_features**0.5, generator=generator)
        summary.bias.zero_()
        summary.weight[:copies] = self.head.weight.repeat(4, 1)
        summary.bias[:copies] = self.head.bias.repeat(4)
        every = max(1, len(self._data.images) // 4000)
        tokens = encode_images(self._network, self._data.images[::every])
        mean, spread = tokens.mean(0), tokens.std(0) + 1e-6
        summary.weight.div_(spread[:, None])
        summary.bias.sub_(mean).div_(spread)


@torch.inference_mode()
def encode_images(network: TinyNetwork, images: npt.NDArray[np.uint8]) -> Tensor:
    """Return the vision token of each image, ``float32[F, width]``."""
    parts = []
    for start in range(0, len(images), 256):
        with torch.autocast('cpu', torch.bfloat16):
            patches = network.vision.patches(images_to_tensor(images[start : start + 256]))
        # The summary decides millimetres: its sum over 1536 inputs stays in float32.
        parts.append(network.vision.summary(patches.float().flatten(1)))
    return torch.cat(parts)


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
        network: Everything but its vision tower is trained.
        tokenizer: Of the instructions.
        sampler: Of the demonstrations. tokens: ``float32[F, width]`` of their images.
        statistics: Normalisation.
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
        forward: objective.Predict | None = None,
    ) -> None:
        self._forward = forward
        self._network, self._sampler, self._tokens = network, sampler, tokens
        self.statistics = statistics
        self._follow = _ids(tokenizer, instructions.follow_wordings())
        self._hold = _ids(tokenizer, instructions.hold_wordings())

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return what is trained, by name."""
        named = self._network.named_parameters()
        return {name: p for name, p in named if not name.startswith('vision.')}

    def loss(self, trainer: Trainer) -> Tensor:
        """Return the loss of a random batch."""
        batch = self._sampler.draw(FLOW_BATCH, trainer.rng)
        prepared = self.prepare(batch, trainer.rng, hold_share=HOLD_SHARE)
        return objective.flow_loss(
            self._network,
            prepared,
            draws=DRAWS,
            generator=trainer.generator,
            forward=self._forward,
        )

    def prepare(
        self, batch: Batch, rng: np.random.Generator, *, hold_share: float
    ) -> FlowBatch:
        """Return the tensors of a batch; ``hold_share`` of it is told to hold still."""
        size = len(batch.state)
        follow = self._follow[torch.from_numpy(rng.choice(len(self._follow), WORDINGS_PER_BATCH))]
        hold = self._hold[torch.from_numpy(rng.choice(len(self._hold), 2))]
        is_hold = rng.random(size) < hold_share
        wording = np.where(
            is_hold,
            WORDINGS_PER_BATCH + rng.integers(0, 2, size),
            rng.integers(0, WORDINGS_PER_BATCH, size),
        )
        relative = relative_actions(batch.actions, batch.state)
        relative[is_hold, :, :ARM_JOINTS] = 0
        s = self.statistics
        return FlowBatch(
            ids=torch.cat((follow, hold)),
            wording=torch.from_numpy(wording),
            tokens=self._tokens[torch.from_numpy(batch.frames)][:, :, None],
            present=torch.from_numpy(batch.present),
            ages=torch.from_numpy(batch.ages),
            state=torch.from_numpy((batch.state - s.state_mean) / s.state_std),
            actions=torch.from_numpy((relative - s.action_mean) / s.action_std),
        )

    def evaluate(self, *, size: int, delay: float, seed: int) -> OpenLoop:
        """Return the open-loop errors of ``size`` random chunks at one delay, ticks.

        The delay is 0 for measured pairs.
        """
        rng = np.random.default_rng(seed)
        batch = self._sampler.draw(size, rng, delay=delay)
        prepared = self.prepare(batch, rng, hold_share=0.0)
        noise = torch.randn(prepared.actions.shape, generator=torch.Generator().manual_seed(seed))
        chunk = sample_actions(self._network, prepared, noise).numpy()
        s = self.statistics
        shift = batch.state.copy()
        shift[:, ARM_JOINTS:] = 0
        positions = chunk * s.action_std + s.action_mean + shift[:, None]
        first = first_step_error(self._network, prepared, noise)
        return open_loop(positions.astype(np.float64), batch.actions, first)


def _ids(tokenizer: Tokenizer, texts: tuple[str, ...]) -> Tensor:
    encoded = cast('list[list[int]]', [tokenizer.encode(text).ids for text in texts])
    return torch.tensor(encoded, dtype=torch.int64)
