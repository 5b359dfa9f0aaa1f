"""How often the scripted experts succeed, task by task: the experts alone, nothing is late.

The expert of a following task makes a chunk every fifth step from where the arm was told to be,
as ``reflex`` executes one; that of a manipulation task is asked at every step. An episode of a
manipulation task ends with its success.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from reflex_ros.core.clock import S
from reflex_ros.core.errors import EXIT_DONE, EXIT_INTERRUPTED
from reflex_ros.core.stats import wilson
from reflex_ros.sim.experts import make_chunk_expert, make_expert
from reflex_ros.study.benchmark import FOLLOWING, SimBenchmark, judge
from reflex_ros.study.expert_report import expert_lines
from reflex_ros.study.results import read_revision, write_result

if TYPE_CHECKING:
    from reflex_ros.core.types import FloatArray, SimTruth

TASKS = ('reach', 'follow', 'jump', 'pick_place', 'drawer', 'recovery')
SEEDS = 100
TOLERANCE_M = 0.03
REPLAN_STEPS = 5
"""Rows of a chunk that are executed, as in the experiments."""

Row = dict[str, Any]
Act = Callable[['SimTruth', 'FloatArray'], 'FloatArray']


def actor(task: str) -> Act:
    """Return what an expert commands, float64[7], from the truth and its last command."""
    if task not in FOLLOWING:
        return make_expert(task).command
    expert, rows = make_chunk_expert(task), list[Any]()

    def act(truth: SimTruth, command: FloatArray) -> FloatArray:
        if not rows:
            rows.extend(expert.chunk(truth, command, horizon=REPLAN_STEPS))
        row: FloatArray = rows.pop(0)
        return row

    return act


def run_one(task: str, seed: int, *, act: Act | None = None) -> Row:
    """Run one episode and return its row, which follows from the arguments alone.

    Args:
        task: Name of the task. ``seed``: of its world.
        act: What commands; None for the expert of the task.
    """
    act = act or actor(task)
    bench = SimBenchmark(task, tolerance_m=TOLERANCE_M)
    seen = bench.reset(seed)
    command, truths = seen['state'], [seen['truth']]
    while not bench.is_over and (task in FOLLOWING or not truths[-1].success):
        command = act(truths[-1], command)
        truths.append(bench.step(command)['truth'])
    judged = judge(task, truths, tolerance_m=TOLERANCE_M)
    return {
        'task': task, 'seed': seed, 'success': judged.is_success,
        'stretches': [bool(one) for one in judged.successes],
        'error_mm': [round(1e3 * one, 3) for one in judged.errors_m],
        'duration_s': round((len(truths) - 1) * bench.control_period_ns / S, 3),
    }


def run_all(jobs: Sequence[tuple[str, int]], *, workers: int = 0,
            tick: Callable[[], object] = lambda: None) -> list[Row]:
    """Run episodes, in parallel, and return their rows in order.

    Args:
        jobs: Task and seed of each.
        workers: Processes, 0 = the cores of this process; 1 runs here.
        tick: Called after each.
    """
    rows = []
    for row in _rows(jobs, min(workers or len(os.sched_getaffinity(0)), len(jobs))):
        rows.append(row)
        tick()
    return rows


def _rows(jobs: Sequence[tuple[str, int]], workers: int) -> Iterator[Row]:
    if workers < 2:
        yield from map(_run, jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        try:
            yield from pool.map(_run, jobs, chunksize=4)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _run(job: tuple[str, int]) -> Row:
    return run_one(*job)


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the figures of each task, success with its 95 % Wilson interval."""
    return [_task(task, own) for task in TASKS
            if (own := [row for row in rows if row['task'] == task])]


def _task(task: str, own: Sequence[Mapping[str, Any]]) -> Row:
    successes = sum(row['success'] for row in own)
    stretches = [one for row in own for one in row['stretches']]
    errors = sorted(one for row in own for one in row['error_mm'])
    durations = sorted(row['duration_s'] for row in own)
    low, high = wilson(successes, len(own))
    return {
        'task': task, 'episodes': len(own), 'successes': successes,
        'success': successes / len(own), 'success_low': low, 'success_high': high,
        'stretches': len(stretches), 'stretches_followed': sum(stretches),
        'error_mm': errors[(len(errors) - 1) // 2] if errors else None,
        'worst_mm': errors[-1] if errors else None,
        'duration_s': durations[(len(durations) - 1) // 2], 'longest_s': durations[-1],
    }


def main(args: Sequence[str] | None = None) -> int:
    """Run every expert and write the result file; Ctrl-C ends it with nothing written."""
    parser = argparse.ArgumentParser(prog='bench/experts.py', description=__doc__)
    add = parser.add_argument
    add('--seeds', type=int, default=SEEDS, metavar='N', help='of each task (%(default)s)')
    add('--workers', type=int, default=0, metavar='N', help='processes, 0 = one for each core')
    add('--out', type=Path, default=Path('results/experts'), metavar='DIR',
        help='folder of the result file (%(default)s)')
    options, revision = parser.parse_args(args), read_revision()
    jobs = list(product(TASKS, range(options.seeds)))
    try:
        with tqdm(total=len(jobs), unit='episode', disable=None) as bar:
            rows = run_all(jobs, workers=options.workers, tick=bar.update)
    except KeyboardInterrupt:
        print('experts: interrupted, nothing is written', file=sys.stderr)
        return EXIT_INTERRUPTED
    config = {'seeds': [0, options.seeds], 'tolerance_m': TOLERANCE_M,
              'replan_steps': REPLAN_STEPS}
    path = write_result(options.out, 'experts', config=config, summary=summarise(rows),
                        samples=rows, unit='share of episodes', n=len(rows), revision=revision)
    print('\n'.join([*expert_lines({'summary': summarise(rows), 'config': config}), '',
                     str(path)]))
    return EXIT_DONE
