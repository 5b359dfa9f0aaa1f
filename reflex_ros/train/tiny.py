"""Train the small policy: ``python -m reflex_ros.train.tiny --out DIR``.

Demonstrations, vision tower, flow matching, export; each step is kept in ``DIR``, and calling the
command again with ``--resume`` goes on where it stopped. SIGTERM and Ctrl-C end it after a save.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT, ConfigError, ReflexError
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.infer.checkpoint import Scaling, Scalings
from reflex_ros.infer.families import tiny
from reflex_ros.infer.families.tiny_network import TinyConfig, TinyNetwork
from reflex_ros.train import instructions, objective, resume
from reflex_ros.train.dataset import FRAME_TICKS, Demonstrations, Sampler
from reflex_ros.train.demonstrations import TICK_NS, generate
from reflex_ros.train.stages import FlowStage, Statistics, VisionStage, encode_images
from reflex_ros.train.trainer import Budget, Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator

VALIDATION_SEED = 900_000
VALIDATION_EPISODES = 40
VALIDATION_DELAYS = (0.0, 8.0)
VISION_RATE, FLOW_RATE = 2e-3, 3e-3
EXECUTE_STEPS = 5


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments of the command; see its help."""

    out: Path
    minutes_a: float
    minutes_b: float
    episodes: int
    seed: int
    workers: int
    resume: bool
    report_minutes: float
    compile: bool


def parse(argv: Sequence[str] | None) -> Options:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument('--out', type=Path, required=True, help='folder for everything')
    parser.add_argument('--minutes-a', type=float, default=6.0, help='vision tower, minutes')
    parser.add_argument('--minutes-b', type=float, default=60.0, help='flow matching, minutes')
    parser.add_argument('--episodes', type=int, default=1200, help='demonstrations, 8 s each')
    parser.add_argument('--seed', type=int, default=100_000, help='first episode; random draws')
    parser.add_argument('--workers', type=int, default=2, help='processes for demonstrations')
    parser.add_argument('--resume', action='store_true', help='go on in a folder that exists')
    parser.add_argument('--report-minutes', type=float, default=10.0, help='validate and export')
    parser.add_argument('--compile', action='store_true', help='faster, needs g++')
    return Options(**vars(parser.parse_args(argv)))


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Give a function that turns True on SIGTERM or SIGINT; restores the handlers."""
    stopped = Event()
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in kept:
        signal.signal(number, lambda *_: stopped.set())
    try:
        yield stopped.is_set
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


class Session:
    """One run of the command over its folder."""

    def __init__(self, options: Options, is_stopped: Callable[[], bool]) -> None:
        self._options, self._is_stopped = options, is_stopped
        torch.manual_seed(options.seed)
        self.network = TinyNetwork(TinyConfig())
        self.tokenizer = instructions.build_tokenizer(self.network.config.instruction_tokens)

    def run(self) -> None:
        """Do what is left to do."""
        o = self._options
        training = generate(
            o.out / 'demos', episodes=o.episodes, seed=o.seed, workers=o.workers
        )
        validation = generate(
            o.out / 'demos', episodes=VALIDATION_EPISODES, seed=VALIDATION_SEED, workers=o.workers
        )
        if not (o.out / 'vision.safetensors').exists():
            self._vision(training, validation)
        if not self._is_stopped():
            self._flow(training, validation)

    def _trainer(self, parameters: dict[str, Any], budget: Budget, name: str) -> Trainer:
        file = self._options.out / f'{name}.state.safetensors'
        trainer = Trainer(
            parameters, budget=budget, clock=SystemClock(), file=file, seed=self._options.seed
        )
        if file.exists():
            trainer.load()
        return trainer

    def _vision(self, training: list[Path], validation: list[Path]) -> None:
        stage = VisionStage(self.network, Demonstrations.load(training))
        unseen = Demonstrations.load(validation)
        rows = np.random.default_rng(0).integers(0, len(unseen.images), 1000)
        budget = Budget(60 * self._options.minutes_a, VISION_RATE, warmup_steps=50, average=0.98)
        trainer = self._trainer(stage.parameters(), budget, 'vision')

        def observe(mean: float) -> None:
            x, y = stage.error_mm(unseen, rows)
            self._say(f'vision {trainer.step} loss {mean:.4f}, unseen x {x:.1f} y {y:.1f} mm')

        trainer.run(
            lambda: stage.loss(trainer),
            is_stopped=self._is_stopped,
            observe=observe,
            observe_every_s=60.0,
        )
        if trainer.is_done:
            copy_into(stage.parameters(), trainer.average())
            observe(float('nan'))
            stage.start_summary(trainer.generator)
            tower = {n: p.contiguous() for n, p in self.network.vision.state_dict().items()}
            save_file(tower, self._options.out / 'vision.safetensors')

    def _flow(self, training: list[Path], validation: list[Path]) -> None:
        out = self._options.out
        self.network.vision.load_state_dict(load_file(out / 'vision.safetensors'))
        learn = self._flow_stage(training, compiled=self._options.compile)
        check = self._flow_stage(validation, compiled=False)
        budget = Budget(60 * self._options.minutes_b, FLOW_RATE)
        trainer = self._trainer(learn.parameters(), budget, 'flow')

        def observe(mean: float) -> None:
            trained = {n: p.detach().clone() for n, p in learn.parameters().items()}
            copy_into(learn.parameters(), trainer.average())
            figures = [check.evaluate(size=512, delay=d, seed=7) for d in VALIDATION_DELAYS]
            report = {
                f'delay {delay:g} steps': str(figure)
                for delay, figure in zip(VALIDATION_DELAYS, figures, strict=True)
            }
            self._say(f'flow {trainer.step} at {trainer.spent_s:.0f} s, loss {mean:.4f}: {report}')
            self.export(out / 'policy', learn.statistics, trainer, report)
            copy_into(learn.parameters(), trained)

        trainer.run(
            lambda: learn.loss(trainer),
            is_stopped=self._is_stopped,
            observe=observe,
            observe_every_s=60 * self._options.report_minutes,
        )

    def _flow_stage(self, files: list[Path], *, compiled: bool) -> FlowStage:
        """Return the stage of some files; the first to be made decides the statistics."""
        sampler = Sampler(Demonstrations.load(files, with_images=False))
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
            forward=torch.compile(objective.predict, dynamic=False) if compiled else None,
        )

    def _tokens(self, file: Path) -> Tensor:
        """Return the vision tokens of one file; they are computed once and kept."""
        kept = self._options.out / 'tokens' / f'{file.stem}.safetensors'
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            tokens = encode_images(self.network, Demonstrations.load([file]).images)
            resume.save_state(kept, {'tokens': tokens}, {})
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
            'instruction': instructions.FOLLOW,
            'dh': 'new',
            'training': {
                'episodes': self._options.episodes,
                'seed': self._options.seed,
                'flow_steps': trainer.step,
                'flow_seconds': round(trainer.spent_s),
                'validation': report,
            },
        }
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
        with (self._options.out / 'train.log').open('a') as log:
            log.write(line + '\n')


def copy_into(parameters: dict[str, Any], values: dict[str, Tensor]) -> None:
    """Overwrite the parameters of these names."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parse(argv)
    torch.set_num_threads(1)
    try:
        if options.out.exists() and not options.resume:
            raise ConfigError(
                f'training cannot start {options.out}: got a folder that exists, expected none. '
                'Give --resume to go on in it.'
            )
        with stop_on_signal() as is_stopped:
            Session(options, is_stopped).run()
    except ReflexError as error:
        tqdm.write(str(error))
        return EXIT_INPUT
    return EXIT_DONE


if __name__ == '__main__':
    raise SystemExit(main())
