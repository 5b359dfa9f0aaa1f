"""What a new frame costs against the number of frames in the window.

Ours: the new frame is encoded once into its ring slot and the policy stages that slot; older
frames stay as they are. Beside it: the whole window encoded anew. Both in turns, in an order that
is drawn for every round, on the CPU time of the process.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from reflex_ros.core.clock import US, ManualClock, cpu_ns
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.stats import bootstrap_median, quantiles
from reflex_ros.core.types import KvBlock
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.ring.reader import RingReader
from reflex_ros.ring.writer import RingWriter
from reflex_ros.stages.windowed import WindowedEncoder, ring_layout
from reflex_ros.study.bench_run import COLORS, Bench, Summary, Tick, label, number, panels, table
from reflex_ros.study.op_counts import OpCounts, count_ops
from reflex_ros.study.random_tiny import (
    FRAME_PERIOD_NS,
    INSTRUCTION,
    JOINTS,
    random_network,
    random_tiny,
)

OURS, WHOLE = VARIANTS = ('ours', 'whole window')
LIMIT = 0.05
"""Most that the cost of a new frame may grow from the smallest to the largest window."""


class Stream:
    """One policy with one window, fed with frames.

    Args:
        policy: With ``spec.window`` frames.
        seed: Of the images.

    Attributes:
        encoder: Writes into the ring. reader: The policy's end of it.
        staging: Where the policy keeps its copies of the frames.
    """

    def __init__(self, policy: TinyPolicy, seed: int = 0) -> None:
        spec, clock = policy.spec, ManualClock()
        self.policy, self._probe, self._count = policy, ClockProbe(clock), 0
        self._writer = RingWriter.create(ring_layout(spec), clock=clock)
        self.encoder = WindowedEncoder(policy, self._writer)
        self.reader = RingReader.beside(self._writer, clock=clock)
        self.staging = [np.zeros(spec.frame_shape, np.float32) for _ in range(spec.window)]
        self.pinned = np.zeros(spec.pinned_shape, np.float32)
        random, shape = np.random.default_rng(seed), (*spec.image_hw, 3)
        self._images = [{name: random.integers(0, 256, shape, np.uint8) for name in spec.cameras}
                        for _ in range(spec.window)]
        policy.encode_instruction(INSTRUCTION, self.pinned)
        self.encoder.instruction(INSTRUCTION, 1, self._probe)
        for _ in range(spec.window + 2):
            self.new_frame()

    @property
    def memory_bytes(self) -> int:
        """Bytes of the ring's slots and of the policy's copies."""
        ring = sum(os.fstat(handle).st_size for handle in self._writer.store.handles())
        return ring + self.pinned.nbytes + sum(frame.nbytes for frame in self.staging)

    @property
    def image_bytes(self) -> int:
        """Bytes of the images of the window."""
        return sum(image.nbytes for images in self._images for image in images.values())

    def new_frame(self) -> KvBlock:
        """Do all that one new frame asks for: encode, evict the oldest, commit, stage."""
        self._count += 1
        images, spec = self._images[self._count % len(self._images)], self.policy.spec
        stamp_ns = self._count * FRAME_PERIOD_NS
        block = self.encoder.encode(
            KvBlock(self._count, stamp_ns, 1, spec.cameras, (stamp_ns,) * len(spec.cameras)),
            images, self._probe,
        )
        assert self.reader.copy(block.window[-1], self.staging[self._count % len(self.staging)])
        return block

    @torch.inference_mode()
    def whole_window(self) -> torch.Tensor:
        """Encode every frame of the window anew, in one batch, and return its blocks."""
        network, spec = self.policy.network, self.policy.spec
        stack = np.stack([i[name] for i in self._images for name in spec.cameras])
        pixels = torch.from_numpy(stack).permute(0, 3, 1, 2).to(self.policy.dtype) / 127.5 - 1
        tokens = network.vision(pixels).unflatten(0, (spec.window, -1))
        return network.encode_tokens(tokens, torch.from_numpy(self.pinned)[None])

    @torch.inference_mode()
    def new_block(self) -> torch.Tensor:
        """Return the block of one more frame, in memory of its own."""
        self._count += 1
        block = torch.empty(self.policy.spec.frame_shape)
        images = self._images[self._count % len(self._images)]
        self.policy.encode_frame(images, self.pinned, block)
        return block

    def denoise(self, frames: Sequence[Any] | None = None, *, num_steps: int = 1) -> np.ndarray:
        """Return a chunk of the window; ``frames`` instead of the staged ones."""
        spec, blocks = self.policy.spec, self.staging if frames is None else frames
        ages = 2.0 * np.arange(len(blocks))[::-1] + 3.0
        noise = np.zeros(spec.noise_shape, np.float32)
        return self.policy.denoise(self.pinned, blocks, ages, state=np.zeros(len(JOINTS)),
                                   noise=noise, num_steps=num_steps)

    def work(self, variant: str) -> Callable[[], object]:
        """Return what a variant does for one new frame."""
        return self.new_frame if variant == OURS else self.whole_window

    def close(self) -> None:
        """Close the ring."""
        self.reader.close()
        self._writer.close()


def count_new_frame(stream: Stream, variant: str = OURS) -> OpCounts:
    """Return what one new frame computes."""
    return count_ops(stream.work(variant))


def measure(
    streams: Sequence[Stream], *, rounds: int, warmup: int, seed: int,
    clock: Callable[[], int] = cpu_ns, tick: Tick = lambda: None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the cost of one new frame, ``float64[rounds, streams]`` ns, by variant."""
    times = {name: np.zeros((rounds, len(streams))) for name in VARIANTS}
    order = np.random.default_rng(seed)
    cells = [(name, at) for name in VARIANTS for at in range(len(streams))]
    for turn in range(-warmup, rounds):
        for index in order.permutation(len(cells)):
            name, at = cells[index]
            run = streams[at].work(name)
            before = clock()
            run()
            if turn >= 0:
                times[name][turn, at] = clock() - before
        tick()
    return times


def growth(windows: Sequence[int], times: np.ndarray, seed: int) -> dict[str, float]:
    """Return by what share the cost grows over the windows, with its 95 % interval.

    A straight line is laid through every round; its rise over the windows is divided by its value
    at the smallest one. The figure is the median over the rounds.
    """
    x = np.asarray(windows, np.float64)
    slopes, starts = np.polyfit(x - x[0], times.T, 1)
    shares = slopes * (x[-1] - x[0]) / starts
    low, high = bootstrap_median(shares, seed)
    return {'growth': float(np.median(shares)), 'low': low, 'high': high}


def judge(low: float, high: float) -> str:
    """Return whether a growth is within the limit; an interval across it decides nothing."""
    return 'pass' if high <= LIMIT else 'fail' if low > LIMIT else 'not decided'


def run(options: argparse.Namespace, tick: Tick) -> Summary:
    """Measure and count; return plain types."""
    windows = list(range(1, options.windows + 1))
    config = TinyConfig() if options.config is None else options.config
    network = random_network(replace(config, window=windows[-1]), options.seed)
    streams = [Stream(random_tiny(replace(config, window=n), network=network), options.seed)
               for n in windows]
    try:
        counts = {name: [count_new_frame(s, name) for s in streams] for name in VARIANTS}
        times = measure(streams, rounds=options.rounds, warmup=options.warmup,
                        seed=options.seed, tick=tick)
    finally:
        for stream in streams:
            stream.close()
    found = {name: {
        'us': [quantiles(column / US) for column in times[name].T],
        'operations': [one.total for one in counts[name]],
        'multiply_accumulates': [one.macs for one in counts[name]],
        **growth(windows, times[name], options.seed),
    } for name in VARIANTS}
    return {
        'windows': windows, 'limit': LIMIT, 'variants': found,
        'equal_counts': len({(one.total, one.macs) for one in counts[OURS]}) == 1,
        'verdict': judge(found[OURS]['low'], found[OURS]['high']),
    }


def draw(found: Mapping[str, Any]) -> Figure:
    """Return CPU time and multiply-accumulates against the window."""
    figure, (left, right) = panels(2)
    for (name, values), color in zip(found['variants'].items(), ('blue', 'orange'), strict=True):
        for mark, key in (('-o', 'p50'), (':', 'p90')):
            left.plot(found['windows'], [one[key] / 1e3 for one in values['us']], mark, ms=3,
                      color=COLORS[color], label=f'{name}, {key}')
        right.plot(found['windows'], [n / 1e6 for n in values['multiply_accumulates']], '-o',
                   ms=3, color=COLORS[color], label=name)
    label(left, title='CPU time of a new frame', x='frames in the window', y='ms')
    label(right, title='Multiply-accumulates of a new frame', x='frames in the window',
          y='millions')
    for axis in (left, right):
        axis.set_ylim(0)
        axis.legend(frameon=False, fontsize=8)
    return figure


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return a table and the answer."""
    windows, variants = found['windows'], found['variants']
    shown = [at for at, n in enumerate(windows) if n in (1, 2, 4, 8, windows[-1])]
    rows = []
    for name, values in variants.items():
        cost = [values['us'][at] for at in shown]
        rows.append([f'{name}: CPU time p50 / p99, ms',
                     *(f'{number(c["p50"] / 1e3)} / {number(c["p99"] / 1e3)}' for c in cost)])
        rows.append([f'{name}: operations', *(str(values['operations'][at]) for at in shown)])
        rows.append([f'{name}: multiply-accumulates, M', *(
            number(values['multiply_accumulates'][at] / 1e6) for at in shown)])
    rise = {name: f'{100 * v["growth"]:.1f} % ({100 * v["low"]:.1f} to {100 * v["high"]:.1f})'
            for name, v in variants.items()}
    same = 'the same' if found['equal_counts'] else '**not the same**'
    return [
        *table(['frames in the window', *(str(windows[at]) for at in shown)], rows), '',
        f'Operations and multiply-accumulates of a new frame are {same} for every window from '
        f'{windows[0]} to {windows[-1]}; its CPU time changes by {rise[OURS]} over that range '
        f'(95 % interval; at most {100 * found["limit"]:.0f} %: {found["verdict"]}), that of the '
        f'whole window encoded anew by {rise[WHOLE]}.',
    ]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('--windows', type=int, default=16, help='largest window, frames')
    parser.add_argument('--rounds', type=int, default=200, help='samples of each figure')
    parser.add_argument('--warmup', type=int, default=5, help='rounds before')
    parser.set_defaults(config=None)


BENCH = Bench(
    name='new_frame', unit='us',
    question='What does a new frame cost, against the number of frames in the window?',
    arguments=arguments, total=lambda o: o.rounds + o.warmup, run=run, draw=draw, lines=lines,
    samples=lambda o: (o.rounds, o.warmup),
)
