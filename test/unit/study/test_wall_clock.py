"""Runs in wall time: judged like episodes, compared with the virtual clock, kept line by line."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from reflex_ros.bag.encode import write_run
from reflex_ros.bringup.demo import DemoSpec
from reflex_ros.bringup.demo import parameters as demo_parameters
from reflex_ros.bringup.settings import config_file, effective, parse_overrides, write_params
from reflex_ros.cli import demo
from reflex_ros.core.clock import MS, Instant, S
from reflex_ros.core.errors import ConfigError, StaleError
from reflex_ros.core.ledger import LedgerWriter, to_records
from reflex_ros.core.summary import samples
from reflex_ros.core.types import Fate, SimEvent
from reflex_ros.sim.live import EPISODE_S
from reflex_ros.study import wall_clock
from reflex_ros.study.episode import Entry, run_episode
from reflex_ros.study.experiment import spec_of
from reflex_ros.study.experiment_lines import jobs_of
from reflex_ros.study.wall_bench import Journal, run_both, summary_of, tried
from reflex_ros.study.wall_clock import (
    agreement,
    costs_of,
    demo_options,
    jump_differences,
    load_cells,
    median_of,
    pooled,
    summarise_cell,
    virtual_line,
    wall_line,
)
from reflex_ros.study.wall_phase import phases_ms, reactions_at_ms, reactions_ms
from reflex_ros.study.wall_run import (
    Part,
    check_frames,
    course,
    differing,
    figures_of,
    jump_stamps,
    part_of,
    thinned,
    zero_stamp,
)

ROOT = Path(__file__).parents[3]
WALL = ROOT / 'config' / 'experiments' / 'wall' / 'wall.yaml'
STEP_NS = 4 * MS
ENTRY = Entry(world_ns=2 * S, camera_phase_ns=13 * MS, world_length_s=EPISODE_S, draw=7)
COSTS = {'encode': [4.0, 5.0, 9.0], 'denoise': [12.0, 15.0, 21.0], 'transport': [2.0, 3.0],
         'transport_block': [1.0], 'transport_plan': [4.0], 'transport_frame': [3.0, 6.0]}


def job_named(label):
    experiment = load_cells(WALL)
    return next(job for job in jobs_of(experiment) if job.cell.label == label)


def leave(path, log, spec):
    """Leave a run folder as the nodes do."""
    options = {**spec.chosen(), 'run.folder': str(path), 'simulator.seed': spec.seed,
               'simulator.task': spec.task}
    write_params(path / 'params' / 'run.yaml', effective([config_file('sim.yaml')], options))
    start = Instant(log.ticks[0].due_ns, log.ticks[0].stamp_ns)
    with LedgerWriter.create(path / 'ledger.bin', period_ns=20 * MS, start=start) as ledger:
        for tick in log.ticks:
            ledger.append(tick)
    write_run(path / 'bag', [*log.ticks, *log.traces, *log.stalls, *log.truths], shares=(ROOT,))
    return path


@pytest.fixture(scope='module')
def job():
    return job_named('oracle, async_naive, 100 ms')


@pytest.fixture(scope='module')
def log(job):
    """Return ten seconds that stand for what the nodes did."""
    spec = replace(spec_of(job), duration_s=10.0)
    return run_episode(spec, entry=ENTRY, costs=costs_of(COSTS)).log


@pytest.fixture(scope='module')
def folder(job, log, tmp_path_factory):
    return leave(tmp_path_factory.mktemp('wall') / 'run', log, spec_of(job))


@pytest.fixture(scope='module')
def line(job, folder):
    return wall_line(job, folder)


# ---- reading a run folder ----------------------------------------------------------------------


def test_a_run_folder_comes_to_what_its_log_says(job, log, line):
    world = line['world']
    zero_ns = zero_stamp(jump_stamps(log.truths), course('jump', 0, STEP_NS).jumps_ns)
    assert abs(zero_ns - (log.ticks[0].stamp_ns - ENTRY.world_ns)) < STEP_NS
    part = Part(world['begin_ns'], world['end_ns'])
    assert line['figures'] == figures_of(
        'jump', log.truths, log.traces, to_records(log.ticks), zero_ns=zero_ns, part=part,
        tolerance_m=job.cell.tolerance_m)
    assert len(line['figures']['success']) >= 3 and line['figures']['jumps'] >= 2


def test_where_a_run_lies_in_its_world_is_found(line):
    world, jumps_ns = line['world'], course('jump', 0, STEP_NS).jumps_ns
    assert abs(world['camera_phase_ns'] - ENTRY.camera_phase_ns) < 0.1 * MS
    assert ENTRY.world_ns - 100 * MS < world['enter_ns'] < ENTRY.world_ns + 400 * MS
    assert {world['begin_ns'], world['end_ns']} <= set(jumps_ns) and world['off_course_mm'] < 1.0


def test_the_stage_times_of_a_run_are_those_it_had(line):
    assert line['stages_ms']['denoise'][0] == 12.0 and line['stages_ms']['encode'][-1] == 9.0
    assert set(line['stages_ms']['transport']) <= {2.0, 3.0, 82.0}
    assert set(line['stages_ms']['transport_frame']) == {3.0, 6.0}


def test_a_run_of_another_seed_is_refused(job, folder, tmp_path):
    with pytest.raises(ConfigError, match='another world'):
        wall_line(replace(job, seed=1), folder)


def test_a_run_with_other_parameters_is_refused(job, folder):
    other = replace(job, cell=replace(job.cell, delay_ms=60.0))
    with pytest.raises(ConfigError, match=r'delay\.injected_s 0\.1 instead of 0\.06'):
        wall_line(other, folder)


def test_a_run_that_is_too_short_is_refused():
    jumps_ns = course('jump', 0, STEP_NS).jumps_ns
    with pytest.raises(ConfigError, match='Run it for longer'):
        part_of(jumps_ns, 0, int(jumps_ns[1]))


def test_a_run_whose_true_states_are_missing_is_refused(log, line):
    world, zero_ns = line['world'], zero_stamp(
        jump_stamps(log.truths), course('jump', 0, STEP_NS).jumps_ns)
    part = Part(world['begin_ns'], world['end_ns'])
    check_frames(Path('run'), log.truths, zero_ns, part)
    with pytest.raises(StaleError, match='true states'):
        check_frames(Path('run'), log.truths[:-60], zero_ns, part)


def test_what_cannot_be_judged_is_run_again_once():
    outcomes = iter([StaleError('silent'), {'cell': 'x'}])

    def run():
        found = next(outcomes)
        if isinstance(found, Exception):
            raise found
        return found

    assert tried(run) == {'cell': 'x', 'tries': 2}
    outcomes = iter([StaleError('silent'), StaleError('still silent')])
    with pytest.raises(StaleError, match='still'):
        tried(run)


# ---- world time --------------------------------------------------------------------------------


def test_world_time_is_found_though_jumps_are_lost():
    jumps_ns = course('jump', 3, STEP_NS).jumps_ns
    stamps = [int(jump) + 10**18 + late for jump, late in
              zip(jumps_ns[4:24:3], (0, MS, 2 * MS, 0, 3 * MS, MS, 2 * MS), strict=True)]
    assert abs(zero_stamp(stamps, jumps_ns) - 10**18) <= 3 * MS


def test_world_time_can_fail():
    jumps_ns = course('jump', 3, STEP_NS).jumps_ns
    with pytest.raises(ConfigError, match='another world'):
        zero_stamp([int(jump) for jump in course('jump', 4, STEP_NS).jumps_ns[:8]], jumps_ns)
    with pytest.raises(ConfigError, match='got 2'):
        zero_stamp([0, S], jumps_ns)


def test_a_live_world_jumps_where_the_course_says(log):
    where = course('jump', 0, STEP_NS)
    zero_ns = zero_stamp(jump_stamps(log.truths), where.jumps_ns)
    seen = {stamp - zero_ns for stamp in jump_stamps(log.truths)}
    assert seen <= set(where.jumps_ns) and len(seen) >= 3
    with pytest.raises(ConfigError, match='does not jump'):
        course('follow', 0, STEP_NS)


# ---- reaction at any instant -------------------------------------------------------------------


def test_the_reaction_at_an_instant_is_that_of_an_event_then(log):
    stamps = np.arange(log.ticks[60].stamp_ns, log.ticks[-90].stamp_ns, 37 * MS)
    events = [SimEvent('jump', int(stamp)) for stamp in stamps]
    first = samples(to_records(log.ticks), log.traces, events=events)['event_reaction']
    assert reactions_ms(log.traces, stamps).tolist() == first and len(first) > 100


def test_an_instant_that_no_command_knows_of_has_no_reaction(log):
    late = np.array([log.ticks[-1].stamp_ns + S])
    assert np.isnan(reactions_ms(log.traces, late)).all()
    assert np.isnan(reactions_ms((), late)).all()


# ---- a jump at the same place of the rhythm ----------------------------------------------------


def rhythm(*, start_ms=0, every_ms=200, wait_ms=100):
    """Return chunks of frames that come evenly, each of which is executed after a while."""
    return [SimpleNamespace(newest_stamp_ns=(start_ms + n * every_ms) * MS, fate=Fate.EXECUTED,
                            first_command_stamp_ns=(start_ms + n * every_ms + wait_ms) * MS)
            for n in range(40)]


JUMPS = np.array([1010, 1390, 2130, 3050, 4170]) * MS


def at_the_same_phases(first, second):
    """Return what the jumps of a run waited, and what another one says of their phases."""
    phases = phases_ms(first, JUMPS).tolist()
    return reactions_ms(first, JUMPS).tolist(), reactions_at_ms(
        second, phases, begin_ns=0, end_ns=9 * S)


def test_runs_out_of_step_agree_jump_by_jump():
    first, second = rhythm(), rhythm(start_ms=70)
    own, other = at_the_same_phases(first, second)
    assert own == other == [290.0, 110.0, 170.0, 250.0, 130.0]
    assert np.median(reactions_ms(second, JUMPS)) != np.median(own)


def test_runs_out_of_step_can_fail():
    own, other = at_the_same_phases(rhythm(), rhythm(start_ms=70, wait_ms=141))
    assert [there - here for here, there in zip(own, other, strict=True)] == [41.0] * 5
    assert not agreement(side(0.8, 100.0), side(0.8, 100.0), [41.0] * 5)['jump_agrees']
    assert not agreement(side(0.8, 100.0), side(0.8, 100.0), [-41.0] * 5)['jump_agrees']
    assert agreement(side(0.8, 100.0), side(0.8, 100.0), [41.0, 50.0, 3.0])['jump_agrees']


def test_a_phase_that_the_other_run_never_has_is_not_compared():
    _, other = at_the_same_phases(rhythm(), rhythm(every_ms=120))
    assert [one is None for one in other] == [False, True, True, False, True]
    assert reactions_at_ms(rhythm(), [None, 10.0], begin_ns=0, end_ns=9 * S) == [None, 290.0]
    few = agreement(side(0.8, 100.0), side(0.8, 100.0), [0.0, 0.0, None])
    assert not few['jump_agrees'] and few['matched'] == 2
    assert not agreement(side(0.8, 100.0), side(0.8, 100.0), [])['jump_agrees']


def test_each_jump_is_compared_with_the_runs_of_its_own_seed():
    def made(clock, seed, **figures):
        return {'clock': clock, 'seed': seed, 'figures': figures}

    lines = [made('wall', 0, jump_reaction_ms=[100.0, 200.0]),
             made('wall', 1, jump_reaction_ms=[300.0]),
             made('virtual', 0, phased_reaction_ms=[110.0, None]),
             made('virtual', 0, phased_reaction_ms=[130.0, None]),
             made('virtual', 1, phased_reaction_ms=[290.0])]
    assert jump_differences(lines) == [10.0, None, -10.0]


# ---- do both clocks agree? ---------------------------------------------------------------------


@pytest.fixture(scope='module')
def again(job, line):
    return virtual_line(job, line, 0)


def test_the_virtual_run_of_a_run_agrees_with_it_and_is_the_same_twice(job, line, again):
    found = summarise_cell(job.cell, job.key, [line] * 4 + [again])
    assert found['success_agrees'] and found['reaction_agrees'] and found['jump_agrees']
    assert found['matched'] == 4 * line['figures']['jumps']
    assert not summarise_cell(job.cell, job.key, [line, again])['success_agrees']  # too few
    assert len(again['figures']['success']) == len(line['figures']['success'])
    assert virtual_line(job, line, 0) == again


def test_the_agreement_can_fail(job, line):
    slow = {**line, 'stages_ms': {**line['stages_ms'], 'transport': [60.0]}}
    found = summarise_cell(job.cell, job.key, [line, virtual_line(job, slow, 0)])
    assert not found['reaction_agrees'] and found['difference_ticks'] > 1.0
    assert not found['jump_agrees'] and found['jump_difference_ticks'][0] > 1.0


def side(success, reaction_ms):
    low = high = success
    if success is not None:
        low, high = success - 0.1, success + 0.1
    return {'success': None if success is None else [success, low, high], 'trials': 10,
            'reaction_ms': reaction_ms}


@pytest.mark.parametrize(('wall', 'virtual', 'success', 'reaction'), [
    (side(0.8, 100.0), side(0.85, 120.0), True, True),
    (side(0.8, 100.0), side(0.69, 79.0), False, False),
    (side(0.8, 100.0), side(0.91, 121.0), False, False),
    ({**side(0.8, 100.0), 'trials': 9}, side(0.8, 100.0), False, True),
    (side(None, None), side(0.8, 100.0), False, False),
    (side(0.8, 100.0), side(None, None), False, False),
])
def test_only_what_is_within_the_bounds_agrees(wall, virtual, success, reaction):
    found = agreement(wall, virtual, [0.0] * 9)
    assert (found['success_agrees'], found['reaction_agrees']) == (success, reaction)
    assert found['jump_agrees']


def test_figures_of_runs_are_pooled(line):
    one, two = pooled([line['figures']]), pooled([line['figures'], line['figures']])
    assert two['trials'] == 2 * one['trials'] and two['reaction_ms'] == one['reaction_ms']
    assert median_of({3: 2, 9: 1}) == 3.0 and median_of({3: 1, 9: 2}) == 9.0
    assert median_of({}) is None
    assert median_of({3: 2, 9: 2}, 2) == 9.0 and median_of({3: 2, 9: 2}, 6) is None
    assert thinned([MS, 3 * MS]) == [1.0, 3.0] and len(thinned(range(1000))) == 100


# ---- what is asked of the nodes ----------------------------------------------------------------


def test_the_nodes_get_the_parameters_of_the_episode():
    for job in jobs_of(load_cells(WALL)):
        parser = argparse.ArgumentParser()
        demo.add_arguments(parser)
        given = parser.parse_args(demo_options(job))
        spec = DemoSpec(
            mode=given.mode, policy=given.policy, task=given.task, delay_ms=given.delay_ms,
            duration_s=given.duration, seed=given.seed, execute_steps=given.execute_steps,
            one_process=given.one_process, view=False, runs=given.runs,
            overrides=parse_overrides(given.param))
        values = effective([config_file('sim.yaml')],
                           demo_parameters(spec, Path('run'), port=29536))
        flat = {name: list(value) if isinstance(value, tuple) else value
                for own in values.values() for name, value in own.items()}
        assert differing(spec_of(job), flat) == [] and flat['simulator.seed'] == job.seed
        assert given.duration == job.cell.duration_s


def test_equal_parameters_can_fail(job):
    settings = {**spec_of(job).parameters(), 'chunk.blend_s': 0.5}
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in settings.items()}
    assert differing(spec_of(job), plain) == ['chunk.blend_s 0.5 instead of 0.06']


@pytest.mark.parametrize(('setting', 'said'), [
    ('task: follow', 'got task follow'), ('kinds: [normal]', "got kinds ['normal']"),
    ('times: pi05_reflex', 'got times pi05_reflex'), ('chunk: 80', 'got chunk 80'),
    ('policy: tiny, window: 2', 'got window 2'), ('policy: tiny_multi', 'got policy tiny_multi'),
    ('policy: tiny, params: {policy.cache: full}', 'got policy.cache full'),
])
def test_a_cell_that_the_nodes_cannot_run_is_refused(tmp_path, setting, said):
    path = tmp_path / 'wall.yaml'
    times = (ROOT / 'config' / 'experiments' / 'stage_times.json').as_posix()
    path.write_text(f'title: x\nstage_times: {times}\ngrid: [{{mode: reflex, {setting}}}]\n')
    with pytest.raises(ConfigError) as error:
        load_cells(path)
    assert said in str(error.value)


# ---- kept line by line -------------------------------------------------------------------------


class Fakes:
    """Stands for both clocks; counts what was run."""

    def __init__(self, line, monkeypatch, *, fails_at=10**6):
        self.ran, self._line, self._fails_at = [], line, fails_at
        monkeypatch.setattr('reflex_ros.study.wall_bench.virtual_line', self.virtual)

    def wall(self, job):
        if len(self.ran) == self._fails_at:
            raise KeyboardInterrupt
        self.ran.append('wall')
        return {**self._line, 'cell': job.key, 'seed': job.seed}

    def virtual(self, job, wall, repeat):
        self.ran.append('virtual')
        return {'clock': 'virtual', 'cell': job.key, 'seed': job.seed, 'repeat': repeat,
                'figures': {**wall['figures'],
                            'phased_reaction_ms': wall['figures']['jump_reaction_ms']}}


def test_what_is_kept_is_not_run_again_unless_the_code_is_another(line, tmp_path, monkeypatch):
    path, experiment = tmp_path / 'kept' / 'lines.jsonl', load_cells(WALL)
    cut = Fakes(line, monkeypatch, fails_at=3)
    with pytest.raises(KeyboardInterrupt):
        run_both(experiment, Journal(path, 'a'), cut.wall, repeats=2, workers=1)
    with path.open('a') as file:
        file.write('{"clock": "wa')
    rest, seen = Fakes(line, monkeypatch), []
    lines = run_both(experiment, Journal(path, 'a'), rest.wall, repeats=2, workers=1,
                     tick=lambda *pair: seen.append(pair))
    cells = len(experiment.cells)
    assert rest.ran == ['wall'] * (cells - 3) + ['virtual'] * 2 * cells
    assert seen[0] == (3, 3 * cells) and seen[-1] == (3 * cells, 3 * cells)
    again = Fakes(line, monkeypatch)
    assert run_both(experiment, Journal(path, 'a'), again.wall, repeats=2, workers=1) == lines
    assert again.ran == []
    other = Fakes(line, monkeypatch)
    run_both(experiment, Journal(path, 'b'), other.wall, repeats=2, workers=1)
    assert len(other.ran) == 3 * cells


def test_a_summary_keeps_what_it_comes_from(job, line, again):
    found = summary_of(load_cells(WALL), [line, again])
    cell, = found['cells']
    assert cell['id'] == job.key and found['bounds'] == dict(wall_clock.BOUNDS)
    assert [one['figures'] for one in cell['lines']] == [line['figures'], again['figures']]
    json.dumps(found)
