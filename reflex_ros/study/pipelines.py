"""Encoder and policy in turns or beside each other: chunks per second and age of a command.

The flow-matching analogue of ActionFlow's pipelining (arXiv 2512.20276), see ``stages.pipeline``.
On the virtual clock the costs of the stages come from a table and the figures are exact; in real
time the small policy runs on threads, and other load on the machine shows.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from matplotlib.figure import Figure

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.summary import summarise
from reflex_ros.core.types import ByteArray, StageTime
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.live import SharedWorld
from reflex_ros.sim.world import World
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.build import bridge_config, encoder_config, limits_from, policy_config
from reflex_ros.stages.inproc import InprocConfig, InprocRun
from reflex_ros.stages.pipeline import PIPELINES, SERIAL, TWO_STREAM
from reflex_ros.stages.runlog import RunLog
from reflex_ros.study.bench_run import COLORS, Bench, Summary, Tick, label, number, panels, table
from reflex_ros.study.episode import EpisodeSpec, run_episode

TABLES = MappingProxyType({
    'tiny': (5.0, 15.0), 'encoder heavy': (60.0, 20.0), 'even': (40.0, 40.0),
    'policy heavy': (20.0, 60.0),
})
"""Cost of one block and of one chunk, ms."""
MODES = ('reflex', 'async_naive')
ENCODING, DENOISING = ('encode', 'vision', 'prefix'), ('denoise',)
IMAGES = 50
QUANTILES = ('p50', 'p90', 'p99', 'max', 'n')


def simulate(mode: str, costs_ms: tuple[float, float], pipeline: str, *, duration_s: float,
             seed: int) -> Summary:
    """Return the figures of one run on the virtual clock.

    Args:
        mode: Execution mode; ``async_naive`` asks for chunks all the time.
        costs_ms: Of a block and of a chunk.
        pipeline: ``serial`` or ``two_stream``.
        duration_s: Length of the run.
        seed: Of world and camera phase.
    """
    encode_ms, denoise_ms = costs_ms
    spec = EpisodeSpec(
        mode=mode, task='follow', seed=seed, duration_s=duration_s, encode_ms=encode_ms,
        denoise_ms=denoise_ms, params={'policy.pipeline': pipeline},
    )
    return figures(run_episode(spec).log, duration_s)


def run_live(mode: str, pipeline: str, *, duration_s: float, seed: int) -> Summary:
    """Return the figures of one run of the small policy on real threads, told to hold still.

    Images are rendered before: rendering would take turns with the stages on a small machine.

    Raises:
        ConfigError: There is no off-screen rendering, or no checkpoint.
    """
    params = EpisodeSpec(mode=mode, policy='tiny', params={'policy.pipeline': pipeline},
                         seed=seed).parameters()
    clock, shared = SystemClock(), Shared()
    namespace = f'/pipeline/{os.getpid()}'  # beside other runs of this user
    encoder = make_encoder(params, clock, namespace=namespace, shared=shared)
    policy = make_policy(params, clock, namespace=namespace, shared=shared)
    physics = World('hold', seed=seed)
    images = render(physics, seed)
    world = SharedWorld(physics, clock.mono_ns())
    config = InprocConfig(
        replace(bridge_config(params, policy='tiny'), instruction='hold still'),
        policy_config(params), encoder=encoder_config(params),
        duration_ns=round(duration_s * S), pipeline=pipeline,
    )
    try:
        log = InprocRun(
            config, world=world, plant=world, limits=limits_from(params), clock=clock,
            model=policy.model, encoder=encoder.encoder,
            render=lambda _, camera, number: images[number % len(images)],
        ).run()
    finally:
        policy.close()
        encoder.close()
    return figures(log, duration_s)


def render(world: World, seed: int) -> list[ByteArray]:
    """Return what the camera sees of a world that stands still, each time with other noise."""
    rig = CameraRig(world.model_xml, cameras=('main',), seed=seed)
    try:
        return [rig.render(world.snapshot(), 'main', number) for number in range(IMAGES)]
    finally:
        rig.close()


def figures(log: RunLog, duration_s: float) -> Summary:
    """Return rates, age of the first command of each chunk, stalls, and the overlap of stages."""
    summary = summarise(log.ticks, log.traces, period_ns=20 * MS)
    return {
        'blocks_per_s': len(log.blocks) / duration_s,
        'chunks_per_s': len(log.chunks) / duration_s,
        'observation_to_command_ms': {
            key: summary.observation_to_command[key] for key in QUANTILES},
        'stall_ratio': summary.stall_ratio,
        'overlap_ms': overlap_ns(log) / MS,
    }


def overlap_ns(log: RunLog) -> int:
    """Return for how long the encoder and the policy worked at the same time."""
    blocks = spans([block.stages for block in log.blocks], ENCODING)
    chunks = spans([chunk.stages for chunk in log.chunks], DENOISING)
    return sum(max(0, min(a.end_ns, b.end_ns) - max(a.start_ns, b.start_ns))
               for a in blocks for b in chunks)


def spans(stages: Sequence[Sequence[StageTime]], names: Sequence[str]) -> list[StageTime]:
    """Return the stages of those names."""
    return [stage for some in stages for stage in some if stage.name in names]


def run(options: argparse.Namespace, tick: Tick) -> Summary:
    """Run everything, the two pipelines of each cell one after the other."""
    found: dict[str, list[Summary]] = {'virtual': [], 'live': []}
    for mode in MODES:
        for name, costs in TABLES.items():
            for pipeline in PIPELINES:
                row = simulate(mode, costs, pipeline, duration_s=options.virtual,
                               seed=options.seed)
                found['virtual'].append({'mode': mode, 'costs': name, 'costs_ms': list(costs),
                                         'pipeline': pipeline, **row})
                tick()
        for pipeline in PIPELINES if options.live else ():
            row = run_live(mode, pipeline, duration_s=options.live, seed=options.seed)
            found['live'].append({'mode': mode, 'costs': 'tiny, real time',
                                  'pipeline': pipeline, **row})
            tick()
    return found


def total(options: argparse.Namespace) -> int:
    """Return the number of runs."""
    return len(MODES) * len(PIPELINES) * (len(TABLES) + (options.live > 0))


def _pairs(found: Mapping[str, Any]) -> list[tuple[Summary, Summary]]:
    rows = [*found['virtual'], *found['live']]
    by_key: dict[tuple[str, str], dict[str, Summary]] = {}
    for row in rows:
        by_key.setdefault((row['mode'], row['costs']), {})[row['pipeline']] = row
    return [(pair[SERIAL], pair[TWO_STREAM]) for pair in by_key.values()]


def draw(found: Mapping[str, Any]) -> Figure:
    """Return chunk rate and age of the command of each cell."""
    figure, axes = panels(2, width=5.5)
    pairs = _pairs(found)
    titles = (('Chunks per second', lambda row: row['chunks_per_s']),
              ('Observation to command, p50, ms',
               lambda row: row['observation_to_command_ms']['p50'] or 0.0))
    for axis, (title, value) in zip(axes, titles, strict=True):
        for shift, side, color in ((-0.2, 0, 'grey'), (0.2, 1, 'blue')):
            axis.barh([at + shift for at in range(len(pairs))], [value(p[side]) for p in pairs],
                      height=0.38, color=COLORS[color], label=PIPELINES[1 - side])
        axis.set_yticks(range(len(pairs)), [f'{p[0]["mode"]}, {p[0]["costs"]}' for p in pairs])
        axis.invert_yaxis()
        label(axis, title=title, x='', y='')
    axes[1].legend(frameon=False, fontsize=8)
    return figure


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return a row for each mode and table of costs, and the answer."""
    body, gains, ages = [], [], []
    for serial, beside in _pairs(found):
        costs = serial.get('costs_ms')
        cost = 'measured' if costs is None else f'{costs[0]:g} + {costs[1]:g}'
        both = (serial, beside)
        body.append([
            f'`{serial["mode"]}`', serial['costs'], cost,
            ' / '.join(number(row['chunks_per_s']) for row in both),
            ' / '.join(number(row['observation_to_command_ms']['p50']) for row in both),
            ' / '.join(number(row['observation_to_command_ms']['p99']) for row in both),
            ' / '.join(f'{100 * row["stall_ratio"]:.1f} %' for row in both),
        ])
        if costs is not None and serial['mode'] == 'async_naive':
            gains.append(beside['chunks_per_s'] / serial['chunks_per_s'])
            ages.append(beside['observation_to_command_ms']['p50']
                        - serial['observation_to_command_ms']['p50'])
    head = ['mode', 'stage costs', 'block + chunk, ms', 'chunks per s',
            'observation to command p50, ms', 'p99, ms', 'stalled ticks']
    return [
        'Each pair: `serial` / `two_stream`. Rows of a cost table: virtual clock (simulated).', '',
        *table(head, body), '',
        f'Where chunks are asked for all the time, two threads make {min(gains):.2f} to '
        f'{max(gains):.2f} times the chunks of one; the median age of a command changes by '
        f'{min(ages):+.0f} to {max(ages):+.0f} ms. In mode `reflex` the schedule asks for chunks, '
        'not the stages: the rate can rise only where one thread cannot keep up.',
    ]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('--virtual', type=float, default=10.0,
                        help='length of a run on the virtual clock, s')
    parser.add_argument('--live', type=float, default=10.0,
                        help='length of a run in real time, s; 0 = none')


BENCH = Bench(
    name='pipeline', unit='chunks per s',
    question='What does it bring that encoder and policy work beside each other?',
    arguments=arguments, total=total, run=run, draw=draw, lines=lines, samples=lambda o: (1, 0),
)
