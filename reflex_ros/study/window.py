"""What the size of the window costs and what it is worth, on the small policy.

Cost: operations, multiply-accumulates and CPU time of a chunk against the frames that its actions
attend to, random weights of the shipped sizes. Error: how far a chunk of the shipped weights from
the newest frames lies from the chunk of the whole history that the window can hold, and from what
the expert that it was trained on does; on a scene that the simulator renders.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from reflex_ros.core.clock import MS, US, cpu_ns
from reflex_ros.core.stats import quantiles
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.experts import make_chunk_expert
from reflex_ros.sim.world import World
from reflex_ros.study.bench_run import COLORS, Bench, Summary, Tick, label, number, panels, table
from reflex_ros.study.new_frame import Stream
from reflex_ros.study.op_counts import count_ops
from reflex_ros.study.random_tiny import random_network, random_tiny

Float64 = npt.NDArray[np.float64]
ARM = slice(0, 6)
TICK_NS, TICKS_PER_FRAME = 20 * MS, 2
WARM_FRAMES = 4


@dataclass(frozen=True, slots=True)
class Scene:
    """What the camera saw and the expert did.

    Attributes:
        images: ``uint8[frames, H, W, 3]``, one every second control tick.
        states: ``float64[frames, joints]``, rad and m.
        chunks: ``float64[frames, horizon, joints]`` of the expert from each state.
    """

    images: npt.NDArray[np.uint8]
    states: Float64
    chunks: Float64


def make_scene(*, side: int, frames: int, horizon: int, seed: int) -> Scene:
    """Return what the simulated arm sees and does while the expert follows a jumping target.

    Raises:
        ConfigError: There is no off-screen rendering.
    """
    world, expert = World('jump', seed=seed), make_chunk_expert('jump')
    rig = CameraRig(world.model_xml, size=(side, side), seed=seed)
    images, states, chunks = [], [], []
    for frame in range(frames):
        state = world.joint_state()[0]
        rows = expert.chunk(world.truth(frame, world.time_ns), state)
        images.append(rig.render(world.snapshot(), 'main', frame))
        states.append(state)
        chunks.append(rows[:horizon])
        for row in rows[1 : 1 + TICKS_PER_FRAME]:
            world.command(row[:6], float(row[6]))
            world.advance(world.time_ns + TICK_NS)
    rig.close()
    return Scene(np.stack(images), np.stack(states), np.stack(chunks))


def chunk_errors(policy: TinyPolicy, scene: Scene, *, seed: int,
                 tick: Tick = lambda: None) -> dict[int, dict[str, list[float]]]:
    """Return for each window the largest error of a joint in each chunk, rad.

    ``history``: against the chunk of the largest window; ``expert``: against the expert's chunk.
    Noise and state are the same for all windows.
    """
    spec, blocks = policy.spec, encode(policy, scene)
    found: dict[int, dict[str, list[float]]] = {
        n: {'history': [], 'expert': []} for n in range(1, spec.window + 1)}
    for at in range(max(spec.window, WARM_FRAMES), len(blocks)):
        noise = chunk_noise(seed, at, shape=spec.noise_shape)
        chunks = {}
        for n in found:
            ages = TICKS_PER_FRAME * np.arange(n - 1, -1, -1.0)
            chunks[n] = policy.denoise(pinned_of(policy), blocks[at - n + 1 : at + 1], ages,
                                       state=scene.states[at], noise=noise)
        for n, chunk in chunks.items():
            found[n]['history'].append(_largest(chunk, chunks[spec.window]))
            found[n]['expert'].append(_largest(chunk, scene.chunks[at]))
        tick()
    return found


def encode(policy: TinyPolicy, scene: Scene) -> list[npt.NDArray[np.float32]]:
    """Return the block of every frame."""
    pinned, blocks = pinned_of(policy), []
    for image in scene.images:
        block = np.zeros(policy.spec.frame_shape, np.float32)
        policy.encode_frame(dict.fromkeys(policy.spec.cameras, image), pinned, block)
        blocks.append(block)
    return blocks


def pinned_of(policy: TinyPolicy) -> npt.NDArray[np.float32]:
    """Return the pinned block of the policy's own instruction."""
    pinned = np.zeros(policy.spec.pinned_shape, np.float32)
    policy.encode_instruction(policy.spec.instruction, pinned)
    return pinned


def _largest(chunk: Float64, other: Float64) -> float:
    return float(np.abs(chunk[:, ARM] - other[: len(chunk), ARM]).max())


def costs(config: TinyConfig, windows: Sequence[int], *, rounds: int, warmup: int, seed: int,
          clock: Callable[[], int] = cpu_ns, tick: Tick = lambda: None) -> list[Summary]:
    """Return counts and CPU time of one chunk for each window, in turns in a drawn order."""
    network = random_network(replace(config, window=windows[-1]), seed)
    streams = [Stream(random_tiny(replace(config, window=n), network=network), seed)
               for n in windows]
    times: list[list[float]] = [[] for _ in streams]
    order = np.random.default_rng(seed)
    try:
        counts = [count_ops(lambda s=s: s.denoise(num_steps=s.policy.spec.num_steps))
                  for s in streams]
        for turn in range(-warmup, rounds):
            for at in order.permutation(len(streams)):
                before = clock()
                streams[at].denoise(num_steps=streams[at].policy.spec.num_steps)
                if turn >= 0:
                    times[at].append((clock() - before) / US)
            tick()
    finally:
        for stream in streams:
            stream.close()
    return [{'window': n, 'operations': one.total, 'multiply_accumulates': one.macs,
             'us': quantiles(spent)} for n, one, spent in zip(windows, counts, times, strict=True)]


def run(options: argparse.Namespace, tick: Tick) -> Summary:
    """Measure costs with random weights, errors with those of the checkpoint."""
    windows = list(range(1, options.windows + 1))
    found = costs(options.config or TinyConfig(), windows, rounds=options.rounds,
                  warmup=options.warmup, seed=options.seed, tick=tick)
    policy = options.policy or TinyPolicy.load(options.checkpoint)
    scene = make_scene(side=policy.spec.image_hw[0], frames=options.frames,
                       horizon=policy.spec.horizon, seed=options.seed + 5000)
    errors = chunk_errors(policy, scene, seed=options.seed, tick=tick)
    rows = [{'window': n, **{f'{name}_rad': quantiles(values) for name, values in one.items()}}
            for n, one in errors.items()]
    return {'costs': found, 'errors': rows, 'trained_window': policy.spec.window}


def total(options: argparse.Namespace) -> int:
    """Return the rounds and about the number of chunks."""
    return options.rounds + options.warmup + options.frames - WARM_FRAMES


def draw(found: Mapping[str, Any]) -> Figure:
    """Return cost and error against the window."""
    figure, (left, middle, right) = panels(3, width=4.0)
    windows = [row['window'] for row in found['costs']]
    for key, color in (('p50', 'blue'), ('p90', 'sky')):
        left.plot(windows, [row['us'][key] / 1e3 for row in found['costs']], '-o', ms=3,
                  color=COLORS[color], label=key)
    middle.plot(windows, [row['multiply_accumulates'] / 1e6 for row in found['costs']], '-o',
                ms=3, color=COLORS['blue'])
    own = [row['window'] for row in found['errors']]
    for name, color in (('history', 'orange'), ('expert', 'green')):
        for key, mark in (('p50', '-o'), ('p90', ':')):
            right.plot(own, [1e3 * row[f'{name}_rad'][key] for row in found['errors']], mark,
                       ms=3, color=COLORS[color], label=f'to {name}, {key}')
    label(left, title='CPU time of a chunk', x='frames in the window', y='ms')
    label(middle, title='Multiply-accumulates of a chunk', x='frames in the window', y='millions')
    label(right, title='Error of a chunk', x='frames in the window', y='mrad')
    for axis in (left, middle, right):
        axis.set_ylim(0)
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=7)
    return figure


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return costs and errors, and what they mean."""
    costs_, errors = found['costs'], found['errors']
    first, last = costs_[0], costs_[-1]
    shown = [row for row in costs_ if row['window'] in (1, 2, 4, 8, last['window'])]
    body = [[f'{row["window"]}', str(row['operations']),
             number(row['multiply_accumulates'] / 1e6), number(row['us']['p50'] / 1e3),
             number(row['us']['p99'] / 1e3)] for row in shown]
    worth = [[f'{row["window"]}', *(
        number(1e3 * row[f'{name}_rad'][key]) for name in ('history', 'expert')
        for key in ('p50', 'p90', 'p99', 'max')), str(row['expert_rad']['n'])] for row in errors]
    rise = last['multiply_accumulates'] / first['multiply_accumulates'] - 1
    one, most = (errors[at]['expert_rad']['p50'] for at in (0, -1))
    return [
        *table(['frames', 'operations of a chunk', 'multiply-accumulates, M', 'CPU p50, ms',
                'p99, ms'], body), '',
        *table(['frames', *(f'to {what}, {key}, mrad' for what in ('full window', 'expert')
                            for key in ('p50', 'p90', 'p99', 'max')), 'chunks'], worth), '',
        f'A window of {last["window"]} frames costs {100 * rise:.1f} % more '
        'multiply-accumulates per chunk than one of a single frame: a frame of `tiny` is one '
        f'token. With the newest frame alone the median error to the expert is {1e3 * one:.0f} '
        f'mrad, with the {errors[-1]["window"]} frames that the weights were trained with '
        f'{1e3 * most:.0f} mrad; more frames than that they have never seen, so no larger window '
        'is judged.',
    ]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('--windows', type=int, default=16, help='largest window of the costs')
    parser.add_argument('--rounds', type=int, default=100, help='samples of each cost')
    parser.add_argument('--warmup', type=int, default=3, help='rounds before')
    parser.add_argument('--frames', type=int, default=200, help='frames of the scene')
    parser.add_argument('--checkpoint', type=Path, default=Path('reflex_ros/data/tiny'))
    parser.set_defaults(config=None, policy=None)


BENCH = Bench(
    name='window', unit='mrad',
    question='What does the size of the window cost, and what is it worth?',
    arguments=arguments, total=total, run=run, draw=draw, lines=lines,
    samples=lambda o: (o.rounds, o.warmup),
)
