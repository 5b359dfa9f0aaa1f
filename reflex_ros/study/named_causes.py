"""Is an injected fault of each cause named in the report of the bag, and nothing else?

Each run is one of the closed loop on the virtual clock whose bag bears no mark of what was done to
it: the report has ticks, traces, stalls and what encoder and policy said, as after a real run. A
ring is lost by closing it, a node dies by falling silent; nothing is told to the bridge.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from reflex_ros.analysis.figures import Analysis, analyse
from reflex_ros.core.clock import MS
from reflex_ros.core.stats import quantiles, wilson
from reflex_ros.core.types import ActionChunk, Cause, KvBlock
from reflex_ros.stages.base import ENCODER, POLICY
from reflex_ros.study.bench_run import COLORS, Bench, Summary, Tick, label, number, panels, table
from reflex_ros.study.cause_scene import PICTURE, Scene, delay_once

LENGTH_S = 2.8
FROM_S, SPREAD_S = 1.0, 0.2
"""A fault begins at a random phase of cameras and chunks, when the arm has long moved."""
LATE_NS = 1500 * MS
Inject = Callable[[Scene], object]


def camera_late(scene: Scene) -> None:
    """Let the cameras give no more frames."""
    scene.run._camera = lambda: None  # type: ignore[method-assign]


def camera_frozen(scene: Scene) -> None:
    """Let the cameras repeat one picture."""
    scene.picture = lambda camera: np.zeros(PICTURE, np.uint8)


def encode_late(scene: Scene) -> None:
    """Let the next encoding take long."""
    delay_once(scene.run.encoder, LATE_NS)


def denoise_late(scene: Scene) -> None:
    """Let the next inference take long."""
    delay_once(scene.run.policy, LATE_NS)


def _lose(scene: Scene, kind: type) -> None:
    deliver = scene.run._deliver
    scene.run._deliver = (  # type: ignore[method-assign]
        lambda value: None if isinstance(value, kind) else deliver(value))


def chunks_lost(scene: Scene) -> None:
    """Let chunks leave the policy and never arrive."""
    _lose(scene, ActionChunk)


def blocks_lost(scene: Scene) -> None:
    """Let blocks leave the encoder and never arrive."""
    _lose(scene, KvBlock)


def policy_dead(scene: Scene) -> None:
    """Silence the policy."""
    scene.silence(POLICY)


def encoder_dead(scene: Scene) -> None:
    """Silence the encoder."""
    scene.silence(ENCODER)


def chunk_rejected(scene: Scene) -> None:
    """Let every chunk have a number that is none."""
    offer = scene.run.bridge.offer

    def spoil(chunk: ActionChunk, now: Any) -> Any:
        positions = chunk.positions.copy()
        positions[3, 2] = np.nan
        return offer(replace(chunk, positions=positions), now)

    scene.run.bridge.offer = spoil  # type: ignore[method-assign]


def ring_lost(scene: Scene) -> None:
    """Close the ring."""
    scene.close_ring()


def arm_fault(scene: Scene) -> None:
    """Let a drive of the arm report an error."""
    scene.run.arm.inject_faults(('driver_error',))  # type: ignore[attr-defined]


def arm_silent(scene: Scene) -> None:
    """Let the arm give no more feedback."""
    scene.run.arm.silence(True)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to a run, None for nothing, and the cause that the report must name."""

    name: str
    inject: Inject | None
    cause: Cause


CASES = (
    Case('no fault', None, Cause.NONE),
    Case('camera late', camera_late, Cause.CAMERA_LATE),
    Case('camera frozen', camera_frozen, Cause.CAMERA_FROZEN),
    Case('encode late', encode_late, Cause.ENCODE_LATE),
    Case('denoise late', denoise_late, Cause.DENOISE_LATE),
    Case('transport: chunks lost', chunks_lost, Cause.TRANSPORT),
    Case('transport: blocks lost', blocks_lost, Cause.TRANSPORT),
    Case('policy dead', policy_dead, Cause.NODE_DEAD),
    Case('encoder dead', encoder_dead, Cause.NODE_DEAD),
    Case('chunk rejected', chunk_rejected, Cause.CHUNK_REJECTED),
    Case('ring lost', ring_lost, Cause.RING_LOST),
    Case('arm fault', arm_fault, Cause.ARM_FAULT),
    Case('arm silent', arm_silent, Cause.ARM_FAULT),
)


@dataclass(frozen=True, slots=True)
class Named:
    """What the report of one run named.

    Attributes:
        faults: Causes. ``after_ms``: from the fault to the first tick that it held or stopped,
            nan without one. ``topics``: on which the bag has messages.
    """

    faults: tuple[str, ...]
    after_ms: float
    topics: tuple[str, ...]


def run_case(case: Case, seed: int, folder: Path, *, shares: tuple[Path, ...] | None = None
             ) -> Named:
    """Return what the report names of one run.

    Args:
        case: What happens. ``seed``: of the run and of when it happens.
        folder: New folder of the bag. ``shares``: where message definitions are.
    """
    scene = Scene(seed=seed, duration_s=LENGTH_S, shares=shares)
    began_ns = [0]

    def happen(scene: Scene) -> None:
        began_ns[0] = scene.run.clock.stamp_ns()
        assert case.inject is not None
        case.inject(scene)

    if case.inject is not None:
        scene.at(FROM_S + float(scene.rng.uniform(0.0, SPREAD_S)), happen)
    found = analyse(scene.finish().write(folder, images=False, is_brief=True))
    return Named(tuple(found.faults), _after_ms(found, began_ns[0]),
                 tuple(found.run.recorded.read))


def _after_ms(found: Analysis, began_ns: int) -> float:
    stamps = [stall.stamp_ns for stall in found.stalls if stall.is_fault]
    return (min(stamps) - began_ns) / MS if stamps else float('nan')


# ---- bench -------------------------------------------------------------------------------------


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('--runs', type=int, default=20, help='of each fault')


def run(options: argparse.Namespace, tick: Tick) -> Summary:
    """Return for each fault in how many runs it was named, and it alone."""
    rows = []
    with tempfile.TemporaryDirectory() as room:
        for at, case in enumerate(CASES):
            done = []
            for seed in range(options.seed, options.seed + options.runs):
                done.append(run_case(case, seed, Path(room) / f'{at}-{seed}'))
                tick()
            rows.append(row_of(case, done, first_seed=options.seed))
    return {'cases': rows, 'length_s': LENGTH_S}


def row_of(case: Case, done: list[Named], *, first_seed: int) -> Summary:
    """Return one row: how often the right cause was named, and what was named elsewhere."""
    want = () if case.inject is None else (case.cause.value,)
    wrong = {str(first_seed + i): list(one.faults) for i, one in enumerate(done)
             if one.faults != want}
    right = len(done) - len(wrong)
    low, high = wilson(right, len(done))
    after = quantiles([one.after_ms for one in done if np.isfinite(one.after_ms)])
    return {'name': case.name, 'cause': case.cause.value, 'runs': len(done), 'right': right,
            'low': low, 'high': high, 'wrong': wrong, 'after_ms': after,
            'topics': sorted({topic for one in done for topic in one.topics})}


def draw(found: Mapping[str, Any]) -> Figure:
    """Draw how long after each fault the first tick bore its name."""
    figure, (axis,) = panels(1, width=7.0, height=3.8)
    rows = [row for row in found['cases'] if row['after_ms']['n']]
    for at, row in enumerate(reversed(rows)):
        after = row['after_ms']
        axis.plot([after['p50'], after['max']], [at, at], color=COLORS['sky'], linewidth=5,
                  solid_capstyle='butt')
        axis.plot(after['p50'], at, 'o', color=COLORS['blue'], markersize=5)
    axis.set_yticks(range(len(rows)), [row['name'] for row in reversed(rows)])
    axis.set_xlim(left=0)
    label(axis, title='from the fault to the first tick that it held or stopped: median, longest',
          x='ms', y='')
    return figure


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the answer as Markdown."""
    rows = [[row['name'], f'`{row["cause"]}`' if row['cause'] != 'none' else 'none',
             f'{row["right"]} of {row["runs"]} ({100 * row["low"]:.0f} to '
             f'{100 * row["high"]:.0f} %)', _others(row['wrong']),
             *(number(row['after_ms'][q], 3) if row['after_ms']['n'] else '' for q in
               ('p50', 'max'))]
            for row in found['cases']]
    head = (f'One fault in each run of {found["length_s"]:g} s; the report must name its cause '
            'and no other (95 % interval of the share). The last columns: ms from the fault to '
            'the first tick that it held or stopped.')
    return [head, '', *table(('what happened', 'cause', 'named, and alone', 'instead', 'median',
                              'longest'), rows)]


def _others(wrong: Mapping[str, list[str]]) -> str:
    return '; '.join(f'seed {seed}: {", ".join(names) or "none"}'
                     for seed, names in wrong.items())


BENCH = Bench(
    name='named_causes', unit='runs', tag='simulated',
    question='Does the report of a bag name the cause of an injected fault, and no other?',
    arguments=arguments, run=run, draw=draw, lines=lines,
    total=lambda options: len(CASES) * int(options.runs),
    samples=lambda options: (int(options.runs), 0),
)
