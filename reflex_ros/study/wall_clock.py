"""The same cells on two clocks: through the nodes in wall time, and on the virtual clock.

The virtual run of a cell has the parameters, the world, the start, the phase of the camera and the
stage times of the run in wall time. What it has not: the order in which those times came, the bus
between bridge and arm, and threads that wait for a core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.ledger import to_records
from reflex_ros.core.probe import Cost, constant_costs
from reflex_ros.core.stats import bootstrap_median, wilson
from reflex_ros.sim.live import EPISODE_S
from reflex_ros.stages.replay_costs import Distribution
from reflex_ros.study.benchmark import CONTROL_PERIOD_NS
from reflex_ros.study.episode import Entry, run_episode
from reflex_ros.study.experiment import parts_of, spec_of
from reflex_ros.study.experiment_file import FIXED, TINY_ROWS, Cell, Experiment, load_experiment
from reflex_ros.study.experiment_lines import RESAMPLES, Job
from reflex_ros.study.stage_times import SIDE_COSTS
from reflex_ros.study.wall_phase import reactions_at_ms
from reflex_ros.study.wall_run import (
    Line,
    Part,
    course,
    figures_of,
    jump_stamps,
    read_wall_run,
    zero_stamp,
)

PHYSICS_STEP_NS = 4 * MS
TAIL_NS = 200 * MS
"""The virtual run goes on for so long behind what is judged."""
REPEATS = 3
"""Virtual runs of one run in wall time; they draw its stage times in other orders."""
TICK_MS = CONTROL_PERIOD_NS / MS
MOST_TICKS = 1.0
"""Bound of the difference of the median reactions, ticks."""
LEAST_TRIALS = 10
"""With fewer stretches the interval in wall time holds nearly everything."""
LEAST_MATCHED = 0.9
"""Share of the jumps whose phase the virtual runs have to have as well."""
BOUNDS = MappingProxyType({
    'success': 'the share of the virtual runs lies in the 95 % interval of the runs in wall time, '
               f'which have at least {LEAST_TRIALS} stretches',
    'reaction': f'the medians over all instants differ by at most {MOST_TICKS:g} tick '
                f'({TICK_MS:g} ms)',
    'jump': 'the 95 % interval of what a jump waited in wall time less what the virtual runs say '
            f'of one at the same phase, median over the jumps, holds at most {MOST_TICKS:g} tick, '
            f'and they have the phase of at least {100 * LEAST_MATCHED:g} % of the jumps',
})


def load_cells(path: Path, *, seeds: int = 0) -> Experiment:
    """Return an experiment whose every cell the nodes can run.

    Args:
        path: Experiment file. seeds: Number of seeds instead of the file's, 0 = the file's.

    Raises:
        ConfigError: The file is wrong, or a cell asks for what only an episode can be given.
    """
    experiment = load_experiment(path, seeds=seeds)
    for cell in experiment.cells:
        faults = (
            (cell.task != 'jump', f'task {cell.task}', 'jump, whose jumps tell world time'),
            (cell.policy == 'tiny_multi', 'policy tiny_multi', 'oracle or tiny, which need no '
             'second camera'),
            (bool(cell.kinds), f'kinds {list(cell.kinds)}', 'none: the simulator draws its own'),
            (cell.window > 0, f'window {cell.window}', '0: the nodes show all frames'),
            (cell.params.get('policy.cache') == 'full', 'policy.cache full',
             'partitioned or naive: the nodes keep no images of `tiny`'),
            (cell.times != FIXED, f'times {cell.times}', f'{FIXED}: they are measured'),
            (cell.chunk > TINY_ROWS, f'chunk {cell.chunk}', f'at most {TINY_ROWS} (rows)'),
        )
        for is_wrong, got, expected in faults:
            if is_wrong:
                raise ConfigError(f'{path}: cell {cell.label!r} in wall time: got {got}, expected '
                                  f'{expected}. Correct the file.')
    return experiment


def demo_options(job: Job) -> list[str]:
    """Return the options of ``reflex-ros demo`` that make a run of a cell."""
    spec = spec_of(job)
    options = ['--policy', spec.policy, '--mode', spec.mode, '--task', spec.task,
               '--seed', str(job.seed), '--duration', f'{spec.duration_s:g}',
               '--delay-ms', f'{spec.delay_ms:g}', '--execute-steps', str(spec.execute_steps)]
    for name, value in sorted(spec.chosen().items()):
        options += ['-p', f'{name}:={_yaml(value)}']
    return options


def _yaml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f'[{", ".join(map(_yaml, value))}]'
    return str(value)


# ---- one run on both clocks ------------------------------------------------------------------


def wall_line(job: Job, folder: Path) -> Line:
    """Return the line of a run folder of the nodes."""
    return {'clock': 'wall', 'cell': job.key, 'seed': job.seed, 'repeat': 0,
            **read_wall_run(folder, spec_of(job))}


def virtual_line(job: Job, wall: Mapping[str, Any], repeat: int) -> Line:
    """Return the line of the same episode on the virtual clock; follows from its arguments alone.

    Args:
        job: The episode. wall: Line of its run in wall time.
        repeat: Which order of the stage times.
    """
    world, entry = wall['world'], entry_of(job, wall, repeat)
    part = Part(world['begin_ns'], world['end_ns'])
    duration_s = (part.end_ns + TAIL_NS - entry.world_ns) / S
    spec = replace(spec_of(job), duration_s=duration_s)
    with parts_of(job, is_traced=True) as (model, encoder):
        episode = run_episode(spec, model=model, encoder=encoder, entry=entry,
                              costs=costs_of(wall['stages_ms']))
    log = episode.log
    zero_ns = zero_stamp(jump_stamps(log.truths),
                         course(spec.task, spec.seed, PHYSICS_STEP_NS).jumps_ns)
    figures = figures_of(spec.task, log.truths, log.traces, to_records(log.ticks), part=part,
                         zero_ns=zero_ns, tolerance_m=spec.tolerance_m)
    figures['phased_reaction_ms'] = reactions_at_ms(
        log.traces, wall['figures']['jump_phase_ms'], begin_ns=zero_ns + part.begin_ns,
        end_ns=zero_ns + part.end_ns)
    return {'clock': 'virtual', 'cell': job.key, 'seed': job.seed, 'repeat': repeat,
            'figures': figures}


def entry_of(job: Job, wall: Mapping[str, Any], repeat: int) -> Entry:
    """Return where the virtual run enters the world of a run in wall time."""
    world = wall['world']
    return Entry(world['enter_ns'], world['camera_phase_ns'], EPISODE_S,
                 draw=1000 * job.seed + repeat)


def costs_of(stages_ms: Mapping[str, Sequence[float]]) -> dict[str, Cost]:
    """Return the cost of each stage and way from their measured durations, rising."""
    return {**constant_costs(**dict(SIDE_COSTS)),
            **{name: Distribution(tuple(round(ms * MS) for ms in samples))
               for name, samples in stages_ms.items()}}


# ---- do they agree? --------------------------------------------------------------------------


def summarise_cell(cell: Cell, key: str, lines: Sequence[Mapping[str, Any]]) -> Line | None:
    """Return what both clocks say of a cell and whether they agree; None without either.

    Args:
        cell: The cell. key: Its id.
        lines: Of both clocks; those of other cells are left out.
    """
    own = [line for line in lines if line['cell'] == key]
    wall = [line['figures'] for line in own if line['clock'] == 'wall']
    virtual = [line['figures'] for line in own if line['clock'] == 'virtual']
    if not wall or not virtual:
        return None
    found = {'wall': pooled(wall), 'virtual': pooled(virtual)}
    apart = jump_differences(own)
    stages = [line['stages_ms'] for line in own if line['clock'] == 'wall']
    return {
        'label': cell.label, 'id': key, 'settings': cell.settings(), **found,
        **agreement(found['wall'], found['virtual'], apart),
        'stages_ms': {name: _middle([ms for one in stages for ms in one.get(name, ())])
                      for name in sorted({name for one in stages for name in one})},
    }


def pooled(figures: Sequence[Mapping[str, Any]]) -> Line:
    """Return the figures of several runs of a cell as those of one."""
    success = [one for run in figures for one in run['success']]
    errors = [one for run in figures for one in run['error_mm']]
    jumps = [one for run in figures for one in run['jump_reaction_ms']]
    counts: Counter[int] = Counter()
    for run in figures:
        counts.update({int(ms): n for ms, n in run['reaction_counts'].items()})

    def total(name: str) -> int:
        return sum(run[name] for run in figures)

    return {
        'runs': len(figures), 'trials': len(success), 'successes': sum(success),
        'success': [sum(success) / len(success), *wilson(sum(success), len(success))]
        if success else None,
        'error_mm': _middle(errors), 'reaction_ms': median_of(counts, total('unanswered')),
        'jump_reaction_ms': [_middle(jumps), *bootstrap_median(jumps, 0, resamples=RESAMPLES)]
        if jumps else None,
        'jumps': len(jumps), 'seconds': sum(run['seconds'] for run in figures),
        'chunks_per_s': total('chunks') / sum(run['seconds'] for run in figures),
        'stall_ratio': total('stalled_ticks') / max(1, total('motion_ticks')),
        'late_share': total('late_ticks') / max(1, total('ticks')),
    }


def jump_differences(lines: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return by how much a jump waits longer on the virtual clock, at the same phase, ms.

    One value for each jump in wall time, the median of the virtual runs of its run; None where
    none of them is ever at its phase.
    """
    found: list[float | None] = []
    for wall in (line for line in lines if line['clock'] == 'wall'):
        again = [line['figures']['phased_reaction_ms'] for line in lines
                 if line['clock'] == 'virtual' and line['seed'] == wall['seed']]
        for number, waited in enumerate(wall['figures']['jump_reaction_ms']):
            middle = _middle([run[number] for run in again if run[number] is not None])
            found.append(None if middle is None else middle - waited)
    return found


def agreement(wall: Mapping[str, Any], virtual: Mapping[str, Any],
              apart: Sequence[float | None]) -> Line:
    """Return whether both clocks agree within ``BOUNDS``; without figures they do not.

    Args:
        wall, virtual: Figures of ``pooled``.
        apart: Of ``jump_differences``.
    """
    shares = wall['success'], virtual['success']
    middles = wall['reaction_ms'], virtual['reaction_ms']
    is_inside = (None not in shares and wall['trials'] >= LEAST_TRIALS
                 and wall['success'][1] <= virtual['success'][0] <= wall['success'][2])
    ticks = None if None in middles else (virtual['reaction_ms'] - wall['reaction_ms']) / TICK_MS
    matched = [one / TICK_MS for one in apart if one is not None]
    low, high = bootstrap_median(matched, 0, resamples=RESAMPLES)
    return {'difference_ticks': ticks, 'matched': len(matched),
            'jump_difference_ticks': [_middle(matched), low, high] if matched else None,
            'success_agrees': bool(is_inside),
            'reaction_agrees': ticks is not None and abs(ticks) <= MOST_TICKS,
            'jump_agrees': len(matched) >= max(1.0, LEAST_MATCHED * len(apart))
            and low <= MOST_TICKS and high >= -MOST_TICKS}


def median_of(counts: Mapping[int, int], endless: int = 0) -> float | None:
    """Return the median of counted values (of an even number the lower one).

    Args:
        counts: How often each value occurs.
        endless: How many more there are above all values; None is returned if it is one of them.
    """
    left = (sum(counts.values()) + endless - 1) // 2
    for value in sorted(counts):
        left -= counts[value]
        if left < 0:
            return float(value)
    return None


def _middle(values: Sequence[float]) -> float | None:
    return sorted(values)[(len(values) - 1) // 2] if values else None
