"""``make gpu`` without a GPU: stages that crash or hang, the budget, the card, and every stage."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import pytest
import torch

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.study import gpu_card, gpu_measure, gpu_models, gpu_policy, gpu_roofline, gpu_run
from reflex_ros.study.gpu_measure import Meter, spread
from reflex_ros.study.gpu_models import ALL_SIZES, Model, RandomWeights
from reflex_ros.study.gpu_run import PLAN, Outcome, Stage, run_plan, run_stage
from reflex_ros.study.gpu_stages import POLICIES, STAGES, Job
from reflex_ros.study.results import Revision

FINISH = "open(P, 'a').write('{\"a\": 1}\\n')"


def script(text):
    """Return what makes the command of a stage that runs a text; ``P`` is its file."""
    return lambda out: [sys.executable, '-S', '-c', f'P = {str(out)!r}\n{text}']


def ran(text, limit_s=20.0):
    return run_stage(Stage('x', limit_s), script(text), limit_s=limit_s)


def test_a_stage_that_finishes_is_ok_with_its_records():
    outcome = ran(FINISH)
    assert (outcome.status, outcome.records, outcome.error) == ('ok', ({'a': 1},), '')


def test_a_stage_that_crashes_keeps_what_it_found_and_says_why():
    outcome = ran(f'{FINISH}\nraise SystemError("lost its memory")')
    assert outcome.status == 'failed' and outcome.records == ({'a': 1},)
    assert 'lost its memory' in outcome.error


def test_a_stage_that_is_killed_in_the_middle_of_a_line_keeps_the_whole_ones():
    outcome = ran(f"{FINISH}\nopen(P, 'a').write('{{\"b\": ')\nimport os\nos.kill(os.getpid(), 9)")
    assert outcome.status == 'failed' and outcome.records == ({'a': 1},)


def test_a_stage_that_hangs_is_ended_with_its_children():
    child = 'import subprocess, sys, time; c = subprocess.Popen([sys.executable, "-S", "-c", ' \
            '"import time; time.sleep(60)"]); open(P, "a").write(f"{c.pid}\\n"); time.sleep(60)'
    outcome = ran(child, limit_s=3.0)
    assert outcome.status == 'timeout' and 2.0 < outcome.seconds < 30.0
    (pid,) = outcome.records
    assert ends(pid)


def ends(pid, most_ns=10 * S):
    """Return whether a process is gone, or dead and not yet collected, before long."""
    clock, state = SystemClock(), Path(f'/proc/{pid}/stat')
    until_ns = clock.mono_ns() + most_ns
    while clock.mono_ns() < until_ns:
        try:
            if state.read_text().rpartition(')')[2].split()[0] in 'ZX':
                return True
        except OSError:
            return True
        clock.sleep_until(clock.mono_ns() + 20 * MS)
    return False


def test_a_process_that_lives_on_is_noticed_can_fail():
    assert not ends(os.getpid(), most_ns=30 * MS)


def test_a_bad_stage_takes_no_other_along():
    told, order = [], []

    def run(stage, limit_s):
        order.append(stage.name)
        return Outcome(stage.name, 'failed' if stage.name == 'bad' else 'ok', 1.0, (), 'x: why')

    plan = [Stage(name, 9) for name in ('first', 'bad', 'last')]
    outcomes = run_plan(plan, run, tell=told.append)
    assert order == ['first', 'bad', 'last']
    assert [o.status for o in outcomes] == ['ok', 'failed', 'ok']
    assert '2/3 bad: failed' in told[1] and 'x: why' in told[1]


def test_stages_behind_the_budget_are_skipped_and_the_last_one_is_cut():
    limits = []

    def run(stage, limit_s):
        limits.append(limit_s)
        return Outcome(stage.name, 'ok', 40.0)

    plan = [Stage(name, 60) for name in 'abcd']
    outcomes = run_plan(plan, run, budget_s=100, tell=lambda _: None)
    assert limits == [60, 60, 20]
    assert [o.status for o in outcomes] == ['ok', 'ok', 'ok', 'skipped']


def test_the_plan_asks_for_everything_in_at_most_25_minutes():
    names = [stage.name for stage in PLAN]
    assert {name.partition('=')[0] for name in names} == set(STAGES)
    assert [name for name in names if '=' in name] == [f'policy={p}' for p in POLICIES]
    assert gpu_run.BUDGET_S <= 25 * 60


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU here')
def test_without_a_gpu_it_says_so_and_writes_nothing(capsys, tmp_path):
    assert gpu_run.main(['--out', str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert 'make gpu: got' in said and 'Nothing was measured' in said
    assert not list(tmp_path.iterdir())


def test_one_stage_from_the_command_line_to_the_file(tmp_path, capsys):
    code = gpu_run.main(['--device', 'cpu', '--size', 'compact', '--calls', '2', '--stage',
                         'handoff', '--out', str(tmp_path)])
    assert code == 0, capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    result = json.loads(path.read_text())
    (stage,) = result['summary']['stages']
    assert stage['status'] == 'ok' and stage['records'][0]['way'] == 'host'
    assert result['gpu'] is None
    with pytest.raises(ConfigError, match='expected one of a GPU'):
        gpu_card.card_lines(result)


def test_results_of_the_cpu_go_where_no_figure_looks(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = argparse.Namespace(out=None, device='cpu', size='compact', calls=1)
    path = gpu_run.keep((), given, Revision('0' * 40, False))
    assert path.parts[0] == 'runs'
    given.device = 'cuda'
    assert gpu_run.keep((), given, Revision('0' * 40, False)).parts[:2] == ('results', 'gpu')


def test_an_unknown_stage_is_named(capsys):
    with pytest.raises(SystemExit):
        gpu_run.main(['--device', 'cpu', '--stage', 'warp'])
    assert "got stage 'warp'" in capsys.readouterr().err


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


LONGER = [pytest.param(name, marks=pytest.mark.soak)
          for name in ('policy=smolvla:2:10', 'policy=pi0:2:10', 'fusions', 'streams', 'tests')]


@pytest.mark.parametrize('name', [
    'environment', 'floor', 'kernels', 'policy=pi05:2:4', 'fp8', 'handoff', *LONGER])
def test_every_stage_runs_to_its_end_at_compact_sizes(name, one_thread):
    stage, _, model = name.partition('=')
    records = list(STAGES[stage](Job('cpu', 'compact', 1, model)))
    assert records
    json.dumps(records, default=str)
    if stage == 'policy':
        found = {record['what']: record for record in records}
        assert list(found) == ['ceilings', 'start', 'parts', 'call', 'roofline', 'unrecorded',
                               'reference']
        assert found['call']['late_recordings'] == 0
        assert found['reference']['action_difference'] < 0.05 * found['reference']['action_size']


@pytest.mark.soak
def test_the_difference_to_the_reference_can_fail(one_thread, monkeypatch):
    right = gpu_policy.Subject.call
    monkeypatch.setattr(gpu_policy.Subject, 'call', lambda self: 1.5 * right(self))
    records = list(STAGES['policy'](Job('cpu', 'compact', 1, 'pi05:2:4')))
    last = records[-1]
    assert last['action_difference'] > 0.05 * last['action_size']


@pytest.mark.parametrize('text', ['pi05', 'pi05:2', 'pi05:0:50', 'pi9:2:50', 'pi05:2:x'])
def test_a_model_that_does_not_read_so_is_refused(text):
    with pytest.raises(ConfigError, match='gpu model'):
        Model.parse(text)


def test_random_weights_repeat_and_have_the_full_sizes():
    shapes = {'a.weight': (8, 4), 'b.bias': (4,), 'layernorm.weight': (4,)}
    made = RandomWeights(shapes, is_centred=False, dtype=torch.float32, device='cpu')
    assert torch.equal(made['a.weight'], made['a.weight'])
    assert 'a.weight' in made and len(made) == 3 and list(made) == list(shapes)
    assert abs(float(made['layernorm.weight'].mean()) - 1) < 0.3
    config = gpu_models.random_pretrained(Model('pi05', 3, 10), 'full', device='cpu').config
    assert (len(config.cameras), config.chunk_size) == (3, 10)


def test_the_least_work_is_that_of_the_known_networks():
    found = gpu_roofline.needs(ALL_SIZES['full']['pi05'], views=2, words=200, chunk=50, steps=10)
    assert 2150 < found['prefix'].gflop < 3750
    assert 1.95e3 * 2 < found['prefix'].megabytes < 2.0e3 * 2
    expert = 311e6 * 2 / 1e6
    kept = 18 * 2 * 712 * 256 * 2 / 1e6
    assert found['denoise'].megabytes == pytest.approx(10 * (expert + kept), rel=0.01)
    ceilings = gpu_roofline.Ceilings(750, 60, 4300)
    assert found['denoise'].least_ms(ceilings) == pytest.approx(1.45 + 0.03, abs=0.1)
    assert found['prefix'].least_ms(ceilings) == pytest.approx(found['prefix'].gflop / 750)


def test_the_gap_adds_up_to_the_time_of_a_call():
    least = {'vision': 1.0, 'prefix': 2.0, 'denoise': 1.5}
    device = {'vision': 1.5, 'prefix': 3.0, 'denoise': 4.0}
    gap = gpu_policy.gap(least, device, 9.0)
    assert sum(gap.values()) + sum(least.values()) == pytest.approx(9.0)
    assert gap['host_and_copies'] == pytest.approx(0.5)


def test_a_spread_shows_the_rare_ones():
    found = spread([*([1.0] * 998), 5.0, 9.0])
    assert (found['p50'], found['p99'], found['p999'], found['max']) == (1.0, 1.0, 5.0, 9.0)


def test_times_are_those_of_the_clock(one_thread):
    class Ticks:
        now_ns = 0

        def mono_ns(self):
            self.now_ns += 1_000_000
            return self.now_ns

    assert Meter('cpu', Ticks()).wall_ms(lambda: None, calls=3) == [1.0, 1.0, 1.0]
    assert gpu_measure.WARM_CALLS > 0


def result_of(*stages):
    return {'gpu': 'Card', 'config': {'device': 'cuda', 'calls': 3},
            'summary': {'stages': list(stages)}}


SPREAD = {'p50': 6.51, 'p99': 7.0, 'p999': 7.25, 'max': 8.0, 'n': 3}
STAGE = {'name': 'policy=pi05:2:50', 'status': 'ok', 'records': [
    {'what': 'parts', 'device_ms': dict.fromkeys(('vision', 'prefix', 'denoise'), SPREAD)},
    {'what': 'call', 'wall_ms': SPREAD, 'peak_mb': 8100.0},
    {'what': 'roofline', 'least_ms': {'vision': 0.5, 'prefix': 2.0, 'denoise': 1.5},
     'gap_ms': {'vision_kernels': 0.1, 'prefix_kernels': 0.2, 'denoise_kernels': 0.3,
                'host_and_copies': 0.4}},
    {'what': 'reference', 'wall_ms': SPREAD, 'peak_mb': 9300.0}]}


def test_the_card_shows_what_was_measured_and_what_was_not():
    lost = {'name': 'policy=pi0:2:50', 'status': 'timeout', 'records': []}
    text = '\n'.join(gpu_card.card_lines(result_of(STAGE, lost)))
    assert ('| `pi05`, 2 views, chunk 50 | 6.51 | 7 | 7.25 | 6.51 | 4 | 6.51 | 8.10 GB | 9.30 GB |'
            in text)
    assert '| `pi0`, 2 views, chunk 50 | not measured: timeout |' in text
    assert 'Stages that did not finish: policy=pi0:2:50 (timeout)' in text


def test_the_details_show_the_gap_by_cause_and_what_is_missing():
    streams = {'name': 'streams', 'status': 'ok',
               'records': [{'arrangement': 'alone', 'wall_ms': SPREAD}]}
    text = '\n'.join(gpu_card.detail_lines(result_of(STAGE, streams)))
    assert '| `pi05:2:50` | 0.1 | 0.2 | 0.3 | 0.4 |' in text
    assert '| alone | 6.51 | 7 | 7.25 |' in text
    assert 'Prefix of Pi0.5: not measured.' in text


def test_a_card_of_the_cpu_is_refused_can_fail():
    result = result_of(STAGE)
    gpu_card.card_lines(result)
    result['config']['device'] = 'cpu'
    for lines in (gpu_card.card_lines, gpu_card.detail_lines):
        with pytest.raises(ConfigError, match='expected one of a GPU'):
            lines(result)
