"""Stress of the norms in bfloat16, and of whole denoise calls of ``tiny``.

Writes ``results/stability/<utc>-<sha7>.json`` and a picture of it beside; ``--draw`` only draws
the newest result again. Every finished piece is kept in a journal: after Ctrl-C, or when
``--seconds`` are over, what is there is written, and the same command goes on. A piece that other
sources made is not used; run for hours from a clone of its own.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import reflex_ros
from reflex_ros.core.clock import SystemClock, cpu_ns
from reflex_ros.core.stats import quantiles
from reflex_ros.infer.norm import VARIANTS
from reflex_ros.study import stability, stability_batch, stability_calls
from reflex_ros.study.results import Revision, newest, read_revision, write_result
from reflex_ros.study.stability_picture import write_picture

US = 1_000
SECOND = 1_000_000_000
TOKENS = 10
SCENE_FRAMES = 128

Key = tuple[Any, ...]
Rows = list[dict[str, Any]]
Jobs = Iterator[tuple[Key, Callable[[], Rows]]]


def sources_hash() -> str:
    """Return a hash of the sources that decide what a piece contains."""
    own = (Path(str(module.__file__)) for module in (stability, stability_batch, stability_calls))
    total = hashlib.sha256()
    for path in (*sorted((Path(reflex_ros.__file__).parent / 'infer').rglob('*.py')), *own):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


class Journal:
    """Rows of finished pieces, by key and sources, as JSON lines."""

    def __init__(self, path: Path, sources: str) -> None:
        self._sources = sources
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding='utf-8').splitlines() if path.exists() else []
        entries = [json.loads(line) for line in lines if line.endswith('}')]
        self._rows: dict[Key, Rows] = {
            tuple(entry['key']): entry['rows'] for entry in entries if entry['sources'] == sources
        }
        self._file = path.open('a', encoding='utf-8')

    def get(self, key: Key) -> Rows | None:
        """Return the rows of a finished piece."""
        return self._rows.get(key)

    def add(self, key: Key, rows: Rows) -> None:
        """Keep the rows of a piece that is finished."""
        self._rows[key] = rows
        entry = {'sources': self._sources, 'key': key, 'rows': rows}
        self._file.write(json.dumps(entry) + '\n')
        self._file.flush()


class Budget:
    """Whether a further piece may start."""

    def __init__(self, seconds: float, clock: SystemClock) -> None:
        self._clock, self._end_ns = clock, clock.mono_ns() + seconds * SECOND

    def is_over(self) -> bool:
        """Return whether the time is over."""
        return self._clock.mono_ns() >= self._end_ns

    def stop(self) -> None:
        """Let no further piece start."""
        self._end_ns = 0


def run_jobs(jobs: Jobs, journal: Journal, budget: Budget) -> Rows:
    """Return the rows of all jobs; what is in the journal is not run again."""
    found: Rows = []
    for key, job in jobs:
        rows = journal.get(key)
        if rows is None and not budget.is_over():
            try:
                rows = job()
            except KeyboardInterrupt:
                budget.stop()
                continue
            journal.add(key, rows)
        found += rows or []
    return found


def norm_jobs(spec: stability.StreamSpec, bar: tqdm[Any]) -> Jobs:
    for name in stability.REGIMES:
        key = ('norm', name, spec.applications, spec.lanes, spec.width, spec.seed)

        def job(name: str = name) -> Rows:
            bar.set_description(f'norm {name}')
            return stability.run_stream(name, spec, on_step=bar.update)

        yield key, job


def call_jobs(make: Callable[[], stability_calls.Bench], key: Key, calls: int,
              bar: tqdm[Any]) -> Jobs:
    for regime, block, count in stability_calls.blocks(calls):
        def job(regime: str = regime, block: int = block, count: int = count) -> Rows:
            bar.set_description(f'calls {regime}')
            rows = make().run_block(regime, block, calls=count)
            bar.update(count)
            return rows

        yield ('calls', *key, regime, block, count), job


def cost(spec: stability.StreamSpec, *, rounds: int = 300, warmup: int = 50) -> Rows:
    """Return the CPU time of each variant for one block of 10 tokens, in turns, microseconds."""
    generator = torch.Generator().manual_seed(spec.seed)
    x = torch.randn(TOKENS, spec.width, generator=generator).to(torch.bfloat16)
    gamma = torch.ones(1, spec.width, dtype=torch.bfloat16)
    samples: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(warmup + rounds):
        for name, variant in VARIANTS.items():
            variant(x, gamma, spec.eps)  # the caches are those of the variant before
            before = cpu_ns()
            variant(x, gamma, spec.eps)
            samples[name].append((cpu_ns() - before) / US)
    return [{'variant': name, 'us': quantiles(times[warmup:])} for name, times in samples.items()]


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--applications', type=int, default=200_000,
                        help='norms of a row, for each variant and regime; 0 = none')
    parser.add_argument('--calls', type=int, default=25_000,
                        help='denoise calls in each precision and regime; 0 = none')
    parser.add_argument('--width', type=int, default=stability.StreamSpec().width)
    parser.add_argument('--lanes', type=int, default=stability.StreamSpec().lanes)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--seconds', type=float, default=float('inf'),
                        help='start no further piece after this time')
    parser.add_argument('--checkpoint', type=Path, default=Path('reflex_ros/data/tiny'))
    parser.add_argument('--journal', type=Path, default=Path('runs/stability.jsonl'))
    parser.add_argument('--out', type=Path, default=Path('results/stability'))
    parser.add_argument('--draw', action='store_true', help='only draw the newest result')
    return parser.parse_args(args)


def run_norms(options: argparse.Namespace, journal: Journal, budget: Budget) -> Rows:
    if not options.applications:
        return []
    spec = stability.StreamSpec(options.applications, options.lanes, options.width, options.seed)
    with tqdm(total=spec.steps * len(stability.REGIMES), unit='step') as bar:
        return run_jobs(norm_jobs(spec, bar), journal, budget)


def run_calls(options: argparse.Namespace, journal: Journal, budget: Budget) -> Rows:
    if not options.calls:
        return []
    folder, seed = options.checkpoint, options.seed
    spec = stability_calls.TinyPolicy.load(folder).spec

    @functools.cache
    def make() -> stability_calls.Bench:
        scene = stability_calls.follow_scene(
            side=spec.image_hw[0], frames=SCENE_FRAMES, seed=seed
        )
        return stability_calls.Bench(folder, scene, seed=seed)

    total = sum(count for *_, count in stability_calls.blocks(options.calls))
    with tqdm(total=total, unit='call') as bar:
        jobs = call_jobs(make, (spec.model_id, seed), options.calls, bar)
        rows = run_jobs(jobs, journal, budget)
    return stability_calls.summarise_calls(rows)


def main(args: Sequence[str] | None = None) -> int:
    """Run what is missing and write the result file and its picture."""
    options = parse(args)
    path = newest(options.out) if options.draw else measure(options)
    if path is None:
        raise SystemExit(f'no result in {options.out}')
    draw(path)
    print(path)
    return 0


def measure(options: argparse.Namespace) -> Path:
    """Run what is missing and return the result file."""
    revision = read_revision()
    torch.set_num_threads(1)
    journal = Journal(options.journal, sources_hash())
    budget = Budget(options.seconds, SystemClock())
    norms = run_norms(options, journal, budget)
    calls = run_calls(options, journal, budget)
    times = cost(stability.StreamSpec(width=options.width, seed=options.seed))
    summary = {'norms': norms, 'calls': calls, 'cost': times}
    return write(options, summary, revision)


def draw(path: Path) -> None:
    """Draw a result file beside it, if anything was run."""
    result = json.loads(path.read_text(encoding='utf-8'))
    if result['summary']['norms'] or result['summary']['calls']:
        write_picture(result, path.with_suffix('.png'))


def write(options: argparse.Namespace, summary: dict[str, Rows], revision: Revision) -> Path:
    """Write the result file; ``n`` is what was really run."""
    done = sum(row['applications'] for row in summary['norms'])
    config = {
        'applications': options.applications, 'calls': options.calls, 'width': options.width,
        'lanes': options.lanes, 'seed': options.seed, 'eps': stability.StreamSpec().eps,
        'depth': stability.DEPTH, 'checkpoint': options.checkpoint.name,
        'batch': stability_calls.BATCH, 'control_every': stability_calls.CONTROL_EVERY,
        'scene_frames': SCENE_FRAMES, 'num_threads': 1,
        'applications_done': done, 'calls_done': sum(row['calls'] for row in summary['calls']),
    }
    return write_result(options.out, 'stability', config=config, summary=summary,
                        unit='failed rows; relative error; rad', n=done, tag='measured',
                        revision=revision)


if __name__ == '__main__':
    raise SystemExit(main())
