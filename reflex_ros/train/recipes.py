"""The policies that the training command makes, and what each is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.sim import instructions
from reflex_ros.train import sight
from reflex_ros.train.demonstrations import Batch, plan
from reflex_ros.train.instructions import build_tokenizer
from reflex_ros.train.objective import Weights

if TYPE_CHECKING:
    from reflex_ros.train.dataset import Demonstrations
    from reflex_ros.train.sight import Reading

SEEDS_PER_TASK = 10_000


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a policy is trained on.

    Attributes:
        network: Sizes of the network. instruction: The one that is used where none is given.
        tasks: Number of episodes of each task.
        readings: What the tower of each camera learns to read.
        stills: Number of still scenes, for the vision towers alone.
        colours: Whether objects are shown in several colours.
        shares: Part of the samples by intent, see ``Sampler``. weights: See ``flow_loss``.
        minutes_a, minutes_b: Training time of vision (per camera) and of flow matching.
        minutes_c: Of each round of practice. practice: Its part of the episodes.
    """

    network: TinyConfig
    instruction: str
    tasks: Mapping[str, int]
    readings: Mapping[str, Callable[[Demonstrations], tuple[Reading, ...]]]
    stills: int = 0
    colours: bool = False
    shares: tuple[float, ...] = ()
    weights: Weights = field(default_factory=Weights)
    minutes_a: float = 15.0
    minutes_b: float = 60.0
    minutes_c: float = 15.0
    practice: float = 0.2

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of its instructions."""
        texts = instructions.every_wording() if self.colours else None
        return build_tokenizer(self.network.instruction_tokens, texts)

    def batches(self, folder: Path, *, seed: int, share: float = 1.0,
                learner: Path | None = None) -> list[Batch]:  # fmt: skip
        """Return the files of its demonstrations, those of the tasks in turn.

        Args:
            folder: Holds them. seed: First seed of the first task.
            share: Part of the episodes. learner: Checkpoint that acts, None for the expert.
        """
        planned = [
            plan(folder, task, cameras=self.network.cameras, episodes=round(share * count),
                 seed=seed + SEEDS_PER_TASK * n, colours=self.colours, learner=learner)
            for n, (task, count) in enumerate(self.tasks.items())
        ]  # fmt: skip
        # Files in turn, so that those of an interrupted run are of every task.
        placed = [(n / len(files), file) for files in planned for n, file in enumerate(files)]
        return [batch for _, batch in sorted(placed, key=lambda pair: pair[0])]


RECIPES: Mapping[str, Recipe] = MappingProxyType({
    'tiny': Recipe(
        TinyConfig(), instructions.FOLLOW, MappingProxyType({'jump': 1200}),
        MappingProxyType({'main': sight.ball_readings})),
    'tiny_multi': Recipe(
        TinyConfig(cameras=('main', 'wrist'), towers=2, vocabulary=96), instructions.FOLLOW,
        MappingProxyType({'jump': 300, 'pick_place': 400, 'recovery': 300, 'drawer': 300}),
        sight.READINGS, stills=30_000, colours=True, shares=(0.3, 0.5, 0.2),
        weights=Weights(gripper=0.3, late=0.4)),
})  # fmt: skip
