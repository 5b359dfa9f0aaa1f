"""Runs the grid of an experiment file on the virtual clock: in parallel, resumable, repeatable.

A folder for each file: ``results.jsonl`` has a line for each cell and seed and nothing else than
what follows from them; ``cells.json`` what each cell is; ``wall.jsonl`` how long each line took,
on what and with which code. A cell that is changed in the file is another cell: its lines are run
anew, those of the old one stay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reflex_ros.core.clock import S, SystemClock, cpu_ns
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.files import write_text
from reflex_ros.core.ledger import to_records
from reflex_ros.core.machine import describe_machine
from reflex_ros.core.summary import samples, summarise
from reflex_ros.sim.experts import make_chunk_expert
from reflex_ros.sim.instructions import DEFAULT, INTENT_OF, INTENTS
from reflex_ros.stages.oracle import OraclePolicy
from reflex_ros.study.benchmark import judge
from reflex_ros.study.episode import Episode, EpisodeSpec, SeeingEncoder, run_episode
from reflex_ros.study.experiment_lines import (
    CELLS,
    RESULTS,
    WALL,
    Job,
    Line,
    jobs_of,
    lines_of,
    read_lines,
)
from reflex_ros.study.results import Revision

if TYPE_CHECKING:
    from reflex_ros.core.types import FloatArray
    from reflex_ros.stages.models import ChunkModel, InferRequest
    from reflex_ros.study.experiment_file import Experiment

DIGITS = 6
TRACED_JOBS = 10
"""Episodes of a process with a network from which on its graphs are worth their making."""
EVENTS = ('jump', 'shove')
CHECKPOINTS = Path(__file__).resolve().parents[1] / 'data'
"""A folder for each policy with weights."""


class FewerFrames:
    """``ChunkModel`` that sees the newest frames of a block only.

    Args:
        model: The policy.
        frames: How many.
    """

    def __init__(self, model: ChunkModel, frames: int) -> None:
        self._model = model
        self._frames = frames

    def __getattr__(self, name: str) -> Any:
        """Return what the policy has."""
        return getattr(self._model, name)

    def infer(self, request: InferRequest, probe: Any) -> FloatArray | None:
        """Return the chunk that the policy makes from the newest frames."""
        block = replace(request.block, window=request.block.window[-self._frames:])
        return self._model.infer(replace(request, block=block), probe)


def spec_of(job: Job) -> EpisodeSpec:
    """Return the episode of a line."""
    cell = job.cell
    delay_s = max(cell.delay_ms, job.profile.total_ms) / 1e3
    params = {'policy.pipeline': job.profile.pipeline,
              'safety.max_observation_age_s': round(max(0.5, 2 * delay_s + 0.15), 3)}
    told = {} if cell.policy != 'tiny_multi' else {
        'instruction': DEFAULT[INTENTS[INTENT_OF[cell.task]]]}
    return EpisodeSpec(
        policy='oracle' if cell.policy == 'oracle' else 'tiny', mode=cell.mode,
        execute_steps=cell.execute_steps, delay_ms=cell.delay_ms, seed=job.seed,
        task=cell.task, kinds=cell.kinds,
        duration_s=cell.duration_s, tolerance_m=cell.tolerance_m,
        params={**params, **cell.parameters()}, **told,
    )


def checkpoint_of(policy: str) -> Path:
    """Return the folder of a policy's weights.

    Raises:
        ConfigError: It is not there.
    """
    folder = CHECKPOINTS / policy
    if not (folder / 'model.safetensors').is_file():
        raise ConfigError(f'policy {policy}: got no weights in {folder}, expected a checkpoint. '
                          'Train it as docs/training.md says and put it there.')
    return folder


@contextmanager
def parts_of(job: Job, *, is_traced: bool) -> Iterator[tuple[ChunkModel, SeeingEncoder | None]]:
    """Return policy and encoder of a line; ``is_traced`` as in ``policies.load_once``."""
    cell = job.cell
    if cell.policy == 'oracle':
        yield OraclePolicy(make_chunk_expert, horizon=cell.chunk or 50), None
        return
    from reflex_ros.study.policies import network_options, tiny_parts

    folder = checkpoint_of(cell.policy)
    with tiny_parts(folder, seed=job.seed, is_traced=is_traced,
                    **network_options(cell.params)) as (model, encoder):
        yield (FewerFrames(model, cell.window) if cell.window else model), encoder


def run_job(job: Job, *, is_traced: bool = False) -> tuple[Line, Line]:
    """Run one episode; return its line, which follows from the job alone, and its wall line.

    Args:
        job: The episode.
        is_traced: See ``policies.load_once``; changes nothing but the time.
    """
    clock = SystemClock()
    wall_before, cpu_before = clock.mono_ns(), cpu_ns()
    with parts_of(job, is_traced=is_traced) as (model, encoder):
        episode = run_episode(spec_of(job), model=model, encoder=encoder,
                              costs=job.profile.costs())
    line = {'cell': job.key, 'seed': job.seed, **figures(job, episode)}
    return line, {'cell': job.key, 'seed': job.seed,
                  'wall_s': round((clock.mono_ns() - wall_before) / S, 3),
                  'cpu_s': round((cpu_ns() - cpu_before) / S, 3)}


def figures(job: Job, episode: Episode) -> Line:
    """Return the figures of an episode in JSON types, none without samples."""
    cell, log, params = job.cell, episode.log, spec_of(job).parameters()
    period_ns = round(S / cast('float', params['control.rate_hz']))
    verdict = judge(cell.task, log.truths, tolerance_m=cell.tolerance_m)
    events = [e for truth in log.truths for e in truth.events if e.name in EVENTS]
    summary = summarise(log.ticks, log.traces, period_ns=period_ns, events=events)
    found = samples(to_records(log.ticks), log.traces, events=events)
    seams = [trace.seam_position for trace in log.traces]
    return _rounded({
        'success': list(verdict.successes), 'error_mm': [1e3 * e for e in verdict.errors_m],
        'reaction_ms': found['event_reaction'],
        'command_ms': summary.observation_to_command['p50'],
        'unanswered': summary.unanswered_events,
        'stalled_ticks': summary.stalled_ticks, 'motion_ticks': summary.motion_ticks,
        'stalled_changes': round(_zero(summary.stalled_chunks) * summary.chunk_changes),
        'chunk_changes': summary.chunk_changes,
        'uncovered': summary.uncovered_share, 'inferences': summary.inferences,
        'seam_rad': sum(seams) / len(seams) if seams else None,
        'fallbacks': episode.fallbacks, 'complete': summary.is_complete,
        'max_age_s': params['safety.max_observation_age_s'],
    })


def _zero(value: float) -> float:
    return value if value == value else 0.0


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return round(value, DIGITS) if value == value else None
    return value


# ---- the grid --------------------------------------------------------------------------------


def run_experiment(experiment: Experiment, folder: Path, *, revision: Revision,
                   workers: int = 0, tick: Callable[[int, int], object] = lambda *_: None
                   ) -> list[Line]:
    """Run what is missing, keep it line by line, and return the lines of the experiment.

    Args:
        experiment: The grid.
        folder: Its folder, made if missing.
        revision: Of ``read_revision``, for the wall lines.
        workers: Processes, 0 = the cores of this process; 1 runs here.
        tick: Called after each line with the lines that are there and all lines.
    """
    for policy in sorted({cell.policy for cell in experiment.cells} - {'oracle'}):
        checkpoint_of(policy)  # said at once, not by the first of many processes
    folder.mkdir(parents=True, exist_ok=True)
    _write_cells(experiment, folder / CELLS)
    jobs = jobs_of(experiment)
    wanted = {(job.key, job.seed) for job in jobs}
    done = {(line['cell'], line['seed']) for line in read_lines(folder / RESULTS)} & wanted
    left = [job for job in jobs if (job.key, job.seed) not in done]
    tick(len(done), len(jobs))
    origin = {'sha': revision.sha, 'dirty': revision.is_dirty, **describe_machine()}
    cut_torn(folder / RESULTS)
    with (folder / RESULTS).open('a', encoding='utf-8') as results, \
            (folder / WALL).open('a', encoding='utf-8') as walls:
        for number, (line, wall) in enumerate(_run_all(left, workers), 1):
            walls.write(json.dumps({**wall, **origin}) + '\n')
            results.write(json.dumps(line) + '\n')
            walls.flush()
            results.flush()
            tick(len(done) + number, len(jobs))
    _sort(folder / RESULTS, jobs)
    return lines_of(experiment, folder)


def _run_all(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Line, Line]]:
    count = min(workers or len(os.sched_getaffinity(0)), max(1, len(jobs)))
    networks = sum(job.cell.policy != 'oracle' for job in jobs)
    run = partial(run_job, is_traced=networks >= TRACED_JOBS * count)
    with ExitStack() as stack:
        if count == 1 or len(jobs) < 2:
            yield from map(run, jobs)
        else:
            pool = stack.enter_context(ProcessPoolExecutor(count))
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            yield from pool.map(run, jobs)


def cut_torn(path: Path) -> None:
    """Remove a torn last line, which a kill leaves."""
    if path.is_file():
        text = path.read_text(encoding='utf-8')
        if not text.endswith('\n'):
            path.write_text(text[:text.rfind('\n') + 1], encoding='utf-8')


def _sort(path: Path, jobs: Sequence[Job]) -> None:
    """Put the lines of the grid first, in its order; those of other cells follow."""
    order = {(job.key, job.seed): number for number, job in enumerate(jobs)}
    lines = read_lines(path)
    lines.sort(key=lambda line: (order.get((line['cell'], line['seed']), len(order)),
                                 line['seed'], line['cell']))
    fresh = path.with_suffix('.tmp')
    fresh.write_text(''.join(json.dumps(line) + '\n' for line in lines), encoding='utf-8')
    fresh.replace(path)


def _write_cells(experiment: Experiment, path: Path) -> None:
    known = json.loads(path.read_text(encoding='utf-8')) if path.is_file() else {}
    for cell in experiment.cells:
        key = experiment.key(cell)
        known[key] = {'label': cell.label, **cell.settings()}
    write_text(path, json.dumps(known, indent=1, sort_keys=True) + '\n')
