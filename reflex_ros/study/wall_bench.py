"""Runs cells on both clocks, keeps each run as a line, and makes the result of all lines.

Runs in wall time come one after the other, with nothing beside them; those on the virtual clock
follow, on all cores. A line is kept as soon as it is there and not run again by the same code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from reflex_ros.core.errors import StaleError
from reflex_ros.study.experiment import cut_torn
from reflex_ros.study.experiment_file import Experiment
from reflex_ros.study.experiment_lines import Job, jobs_of, read_lines
from reflex_ros.study.wall_clock import BOUNDS, REPEATS, summarise_cell, virtual_line
from reflex_ros.study.wall_run import Line

TRIES = 2
KEPT = ('clock', 'seed', 'repeat', 'tries', 'world', 'figures')
Task = tuple[Job, Mapping[str, Any], int]
Name = tuple[str, str, int, int]


class Journal:
    """Lines of one state of the sources, in a file that others may have written to as well.

    Args:
        path: JSON lines; made if missing.
        sha: Commit of the sources; lines of another one are not looked at.
    """

    def __init__(self, path: Path, sha: str) -> None:
        self._path, self._sha = path, sha
        path.parent.mkdir(parents=True, exist_ok=True)
        cut_torn(path)
        self.lines = {name_of(line): line for line in read_lines(path) if line['sha'] == sha}

    def keep(self, line: Line) -> Line:
        """Append a line and return it."""
        whole = {**line, 'sha': self._sha}
        with self._path.open('a', encoding='utf-8') as file:
            file.write(json.dumps(whole) + '\n')
        self.lines[name_of(whole)] = whole
        return whole


def name_of(line: Mapping[str, Any]) -> Name:
    """Return what a line is of: clock, cell, seed and repeat."""
    return line['clock'], line['cell'], line['seed'], line['repeat']


def run_both(experiment: Experiment, journal: Journal, run_wall: Callable[[Job], Line], *,
             repeats: int = REPEATS, workers: int = 0,
             tick: Callable[[int, int], object] = lambda *_: None) -> list[Line]:
    """Run what the journal does not have and return the lines of the experiment.

    Args:
        experiment: The cells.
        journal: Where lines are kept.
        run_wall: Makes the line of a run in wall time.
        repeats: Virtual runs of each.
        workers: Processes for these, 0 = the cores of this process; 1 runs here.
        tick: Called with the runs that are there and all runs, first and after each.
    """
    jobs = jobs_of(experiment)
    names = [name for job in jobs for name in names_of(job, repeats)]
    tick(_count(names, journal), len(names))
    for job in jobs:
        if ('wall', job.key, job.seed, 0) not in journal.lines:
            journal.keep(run_wall(job))
            tick(_count(names, journal), len(names))
    tasks = [(job, journal.lines['wall', job.key, job.seed, 0], repeat)
             for repeat in range(repeats) for job in jobs
             if ('virtual', job.key, job.seed, repeat) not in journal.lines]
    for line in _virtual(tasks, workers):
        journal.keep(line)
        tick(_count(names, journal), len(names))
    return [journal.lines[name] for name in names]


def tried(run: Callable[[], Line], *, most: int = TRIES) -> Line:
    """Return the line of the first run that can be judged, and how many it took.

    Raises:
        StaleError: None of ``most`` can.
    """
    for number in range(1, most + 1):
        try:
            return {**run(), 'tries': number}
        except StaleError:
            if number == most:
                raise
    raise AssertionError(f'{most} tries')


def names_of(job: Job, repeats: int) -> list[Name]:
    """Return the names of the lines that a job stands for."""
    return [('wall', job.key, job.seed, 0),
            *(('virtual', job.key, job.seed, repeat) for repeat in range(repeats))]


def _count(names: Iterable[Name], journal: Journal) -> int:
    return sum(name in journal.lines for name in names)


def _virtual(tasks: Sequence[Task], workers: int) -> Iterator[Line]:
    count = min(workers or len(os.sched_getaffinity(0)), max(1, len(tasks)))
    if count == 1:
        yield from map(_run, tasks)
        return
    with ProcessPoolExecutor(count) as pool:
        try:
            yield from pool.map(_run, tasks)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _run(task: Task) -> Line:
    return virtual_line(*task)


def summary_of(experiment: Experiment, lines: Sequence[Mapping[str, Any]]) -> Line:
    """Return what a result file says: bounds, and each cell with the runs that it comes from."""
    cells = []
    for cell in experiment.cells:
        key = experiment.key(cell)
        found = summarise_cell(cell, key, lines)
        if found is not None:
            own = [line for line in lines if line['cell'] == key]
            cells.append({**found, 'lines': [
                {name: line[name] for name in KEPT if name in line} for line in own]})
    return {'title': experiment.title, 'bounds': dict(BOUNDS), 'cells': cells}
