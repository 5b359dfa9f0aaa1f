"""One run of the training command over its folder: what is left to do, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from reflex_ros.core.clock import Clock, SystemClock, cpu_ns
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.infer.checkpoint import Scaling, Scalings
from reflex_ros.infer.families import tiny
from reflex_ros.infer.families.tiny_network import TinyNetwork
from reflex_ros.sim.instructions import INTENTS
from reflex_ros.train import objective, resume
from reflex_ros.train.dataset import Demonstrations, Sampler, View
from reflex_ros.train.demonstrations import generate
from reflex_ros.train.recipes import Recipe
from reflex_ros.train.recording import FRAME_TICKS, TICK_NS
from reflex_ros.train.stages import FlowStage, Statistics
from reflex_ros.train.start import start_from
from reflex_ros.train.stills import stills
from reflex_ros.train.trainer import Budget, Trainer
from reflex_ros.train.vision import Sheet, VisionStage, encode_images

VALIDATION_SEED, VALIDATION_SHARE = 900_000, 0.04
VALIDATION_DELAYS, VALIDATION_CHUNKS = (0.0, 8.0), 512
VISION_RATE, FLOW_RATE, PRACTICE_RATE = 2e-3, 3e-3, 1e-3
PRACTICE_SEEDS = 200_000
EXECUTE_STEPS = 5
LARGEST_VIEW = 120_000
"""Images of one camera in memory, 12 kB each; more frames are thinned out."""


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments of the command; see its help."""

    out: Path
    recipe: str
    minutes_a: float | None
    minutes_b: float | None
    minutes_c: float | None
    rounds: int
    share: float
    seed: int
    workers: int
    resume: bool
    report_minutes: float
    compile: bool
    device: str
    start: Path | None


class CpuClock(SystemClock):
    """Counts the processor time of this process: a pause or a busy neighbour costs nothing."""

    def mono_ns(self) -> int:
        """Return the processor time, ns."""
        return cpu_ns()


class Session:
    """One run of the command.

    Args:
        options: Its arguments. recipe: What is trained.
        is_stopped: Asked before every step; True ends the run after a save.
    """

    def __init__(self, options: Options, recipe: Recipe, is_stopped: Callable[[], bool]) -> None:
        self._options, self._recipe, self._is_stopped = options, recipe, is_stopped
        torch.manual_seed(options.seed)
        self._device = torch.device(options.device)
        self.network = TinyNetwork(recipe.network)
        self.tokenizer = recipe.tokenizer()
        if options.start is not None:
            taken = start_from(self.network, self.tokenizer, options.start)
            self._say(f'{taken} tensors start from {options.start.name}')
        self.network.to(self._device)

    def run(self) -> None:
        """Do what is left to do."""
        o, recipe = self._options, self._recipe
        batches = recipe.batches(o.out / 'demos', seed=o.seed, share=o.share)
        training = generate(batches, workers=o.workers)
        batches = recipe.batches(
            o.out / 'validation', seed=VALIDATION_SEED, share=VALIDATION_SHARE * o.share)
        validation = generate(batches, workers=o.workers)
        shown = [*training, *self._stills(training)]
        for camera in range(len(recipe.network.cameras)):
            if not self._tower_file(camera).exists() and not self._is_stopped():
                self._vision(camera, shown, validation)
        if not self._is_stopped():
            self._flow(training, validation, 'flow', o.minutes_b or recipe.minutes_b)
        for number in range(1, o.rounds + 1):
            if not self._is_stopped():
                training = [*training, *self._practise(number)]
                name = f'practice{number}'
                self._flow(training, validation, name, o.minutes_c or recipe.minutes_c)

    def _stills(self, poses: Sequence[Path]) -> list[Path]:
        o, recipe = self._options, self._recipe
        jobs = stills(o.out / 'stills', round(o.share * recipe.stills), seed=o.seed,
                      cameras=recipe.network.cameras, poses=tuple(poses),
                      colours=recipe.colours)  # fmt: skip
        return generate(jobs, workers=o.workers)

    def _practise(self, number: int) -> list[Path]:
        """Let the policy act and return what the expert would have done (DAgger)."""
        o, recipe = self._options, self._recipe
        batches = recipe.batches(
            o.out / f'practice{number}', seed=o.seed + number * PRACTICE_SEEDS,
            share=recipe.practice * o.share, learner=o.out / 'policy')  # fmt: skip
        return generate(batches, workers=o.workers)

    def _tower_file(self, camera: int) -> Path:
        return self._options.out / f'vision_{self._recipe.network.cameras[camera]}.safetensors'

    def _trainer(self, parameters: dict[str, Any], budget: Budget, name: str) -> Trainer:
        file = self._options.out / f'{name}.state.safetensors'
        clock: Clock = CpuClock() if self._device.type == 'cpu' else SystemClock()
        trainer = Trainer(parameters, budget=budget, clock=clock, file=file,
                          seed=self._options.seed, device=self._device)  # fmt: skip
        if file.exists():
            trainer.load()
        return trainer

    def _vision(self, camera: int, training: Sequence[Path], validation: Sequence[Path]) -> None:
        name = self._recipe.network.cameras[camera]
        stage = VisionStage(self.network.tower(camera), *self._pictures(camera, training),
                            forward=self._compiled(objective.vision_loss))  # fmt: skip
        images, unseen = self._pictures(camera, validation, like=stage.sheet)
        minutes = self._options.minutes_a or self._recipe.minutes_a
        budget = Budget(60 * minutes, VISION_RATE, warmup_steps=50, average=0.98)
        trainer = self._trainer(stage.parameters(), budget, f'vision_{name}')

        def observe(mean: float) -> None:
            errors = ' '.join(f'{error:.1f}' for error in stage.errors(images, unseen))
            self._say(f'vision {name} step {trainer.step} at {trainer.spent_s:.0f} s, '
                      f'loss {mean:.4f}, unseen {errors}')  # fmt: skip

        trainer.run(
            lambda: stage.loss(trainer),
            is_stopped=self._is_stopped,
            observe=observe,
            observe_every_s=120.0,
        )
        if trainer.is_done:
            copy_into(stage.parameters(), trainer.average())
            observe(float('nan'))
            stage.start_summary(trainer.generator)
            tower = self.network.tower(camera).state_dict()
            save_file({n: p.cpu().contiguous() for n, p in tower.items()},
                      self._tower_file(camera))  # fmt: skip

    def _pictures(self, camera: int, files: Sequence[Path], *,
                  like: Sheet | None = None) -> tuple[Any, Sheet]:  # fmt: skip
        """Return the images of a camera and what to read off them."""
        data = Demonstrations.load(files, with_images=False)
        view = View.load(files, camera, every=1 + len(data.tick) // LARGEST_VIEW)
        read = self._recipe.readings[self._recipe.network.cameras[camera]]
        return view.images, Sheet.of(read(data.take(view.rows)), like)

    def _flow(self, training: Sequence[Path], validation: Sequence[Path], name: str,
              minutes: float) -> None:  # fmt: skip
        """Train prefix and expert for ``minutes``; a later call goes on from an earlier one."""
        out = self._options.out
        for camera in range(len(self._recipe.network.cameras)):
            self.network.tower(camera).load_state_dict(load_file(self._tower_file(camera)))
        learn = self._flow_stage(training, forward=self._compiled(objective.predict))
        check = self._flow_stage(validation, forward=None)
        rate = FLOW_RATE if name == 'flow' else PRACTICE_RATE
        trainer = self._trainer(learn.parameters(), Budget(60 * minutes, rate), name)

        def observe(mean: float) -> None:
            trained = {n: p.detach().clone() for n, p in learn.parameters().items()}
            copy_into(learn.parameters(), trainer.average())
            report = self._validate(check)
            self._say(f'{name} {trainer.step} at {trainer.spent_s:.0f} s, '
                      f'loss {mean:.4f}: {report}')  # fmt: skip
            self.export(out / 'policy', learn.statistics, trainer, report)
            copy_into(learn.parameters(), trained)

        trainer.run(
            lambda: learn.loss(trainer),
            is_stopped=self._is_stopped,
            observe=observe,
            observe_every_s=60 * self._options.report_minutes,
        )
        copy_into(learn.parameters(), trainer.average())

    def _validate(self, stage: FlowStage) -> dict[str, str]:
        """Return the open-loop errors in words, by intent where there are several."""
        intents = range(len(self._recipe.shares)) if self._recipe.shares else (None,)
        return {
            f'{"" if intent is None else INTENTS[intent] + " "}delay {delay:g} steps':
                str(stage.evaluate(size=VALIDATION_CHUNKS, delay=delay, seed=7, intent=intent))
            for intent in intents for delay in VALIDATION_DELAYS
        }  # fmt: skip

    def _compiled(self, function: Callable[..., Tensor]) -> Callable[..., Tensor] | None:
        if not self._options.compile:
            return None
        compiled: Callable[..., Tensor] = torch.compile(function, dynamic=False)
        return compiled

    def _flow_stage(self, files: Sequence[Path], *,
                    forward: objective.Predict | None) -> FlowStage:  # fmt: skip
        """Return the stage of some files; the first to be made decides the statistics."""
        sampler = Sampler(Demonstrations.load(files, with_images=False),
                          shares=self._recipe.shares)  # fmt: skip
        kept = self._options.out / 'statistics.safetensors'
        if not kept.exists():
            rng = np.random.default_rng(self._options.seed)
            resume.save_state(kept, Statistics.of(sampler.draw(8192, rng)).to_tensors(), {})
        return FlowStage(
            self.network,
            self.tokenizer,
            sampler=sampler,
            tokens=torch.cat([self._tokens(file) for file in tqdm(files, desc='tokens')]),
            statistics=Statistics.from_tensors(resume.load_state(kept)[0]),
            weights=self._recipe.weights,
            forward=forward,
        )

    def _tokens(self, file: Path) -> Tensor:
        """Return the vision tokens of one file; they are computed once and kept."""
        kept = self._options.out / 'tokens' / f'{file.stem}.safetensors'
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            images = Demonstrations.load([file]).images
            tokens = [encode_images(self.network.tower(n), images[:, n])
                      for n in range(images.shape[1])]  # fmt: skip
            resume.save_state(kept, {'tokens': torch.stack(tokens, 1)}, {})
        return resume.load_state(kept)[0]['tokens']

    def export(
        self, folder: Path, statistics: Statistics, trainer: Trainer, report: dict[str, str]
    ) -> None:
        """Write the network as it is to a checkpoint folder."""
        s = statistics
        config = {
            'joint_names': list(JOINT_NAMES),
            'units': {n: 'm' if n == 'gripper' else 'rad' for n in JOINT_NAMES},
            'step_period_ns': TICK_NS,
            'frame_period_ns': FRAME_TICKS * TICK_NS,
            'n_action_steps': EXECUTE_STEPS,
            'num_inference_steps': 10,
            'instruction': self._recipe.instruction,
            'dh': 'new',
            'training': {
                'recipe': self._options.recipe,
                'episodes': {task: round(self._options.share * count)
                             for task, count in self._recipe.tasks.items()},
                'seed': self._options.seed,
                'start': None if self._options.start is None else self._options.start.name,
                'stage': trainer.name,
                'flow_steps': trainer.step,
                'flow_seconds': round(trainer.spent_s),
                'validation': report,
            },
        }  # fmt: skip
        tiny.save(
            folder,
            self.network,
            scalings=Scalings(
                Scaling(s.state_mean.astype(np.float64), s.state_std.astype(np.float64)),
                Scaling(s.action_mean.astype(np.float64), s.action_std.astype(np.float64)),
            ),
            tokenizer=self.tokenizer,
            config=config,
        )

    def _say(self, line: str) -> None:
        tqdm.write(line)
        self._options.out.mkdir(parents=True, exist_ok=True)
        with (self._options.out / 'train.log').open('a') as log:
            log.write(line + '\n')


def copy_into(parameters: dict[str, Any], values: dict[str, Tensor]) -> None:
    """Overwrite the parameters of these names."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])
