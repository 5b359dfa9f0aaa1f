"""A recorded run comes back on the virtual clock: the same twice, with what is injected."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.bag.content import content_hash
from reflex_ros.bag.encode import Encoder, topic_of, write_run
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.bag.schema import find_schema
from reflex_ros.bringup.replay import replay
from reflex_ros.bringup.replay_input import ReplaySpec, open_source
from reflex_ros.cli.main import main
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import ConstantCost
from reflex_ros.stages.replay_inject import parse_injections
from reflex_ros.study.episode import EpisodeSpec, run_episode

COMMAND = 'import sys; from reflex_ros.cli.main import main; sys.exit(main())'
LEAST_SPEED = 6.0
"""Times real time; ``bench/replay.py`` measures what it really is."""
ORACLE = {'policy.name': 'oracle', 'run.instruction': 'follow the target'}


class Spiky:
    """15 to 19 ms, but 150 ms for one call."""

    def duration_ns(self, n, seed):
        return 150 * MS if n == 20 else 15 * MS + n % 5 * MS


@pytest.fixture(scope='module')
def log():
    costs = {name: ConstantCost(5 * MS) for name in ('encode', 'instruction', 'publish')}
    return run_episode(EpisodeSpec(duration_s=4.0, seed=1), costs={
        **costs, 'denoise': Spiky(), 'stage_copy': ConstantCost(0), 'decode': ConstantCost(0)}).log


@pytest.fixture(scope='module')
def bag(log, tmp_path_factory):
    """Return a recorded run of the oracle; true states and ticks, no images."""
    folder = tmp_path_factory.mktemp('run') / 'bag'
    write_run(folder, [*log.ticks, *log.traces, *log.stalls, *log.truths])
    return folder


@pytest.fixture(scope='module')
def source(bag):
    return open_source(ReplaySpec(bag, overrides=ORACLE))


@pytest.fixture
def again(bag, source):
    """Replay the bag; injections as text."""

    def run(inject='', output=None, **options):
        options = {'overrides': ORACLE, 'injections': parse_injections([inject] if inject else []),
                   **options}
        same = options['overrides'] is ORACLE and options.get('seed') is None
        return replay(ReplaySpec(bag, output, **options), source=source if same else None)

    return run


@pytest.fixture(scope='module')
def plain(bag, source, tmp_path_factory):
    """Return a replay with nothing changed, and its output."""
    output = tmp_path_factory.mktemp('plain') / 'out'
    return replay(ReplaySpec(bag, output, overrides=ORACLE), source=source), output


def denoise_ms(done):
    return np.array([(s.end_ns - s.start_ns) / MS for t in done.log.traces for s in t.stages
                     if s.name == 'denoise'])


# ---- deterministic -----------------------------------------------------------------------------


def test_two_replays_have_the_same_content(plain, again, tmp_path):
    first, output = plain
    assert first.content and first.content == content_hash(output / 'bag')
    assert again(output=tmp_path / 'a').content == first.content


def test_the_content_can_fail(plain, again, tmp_path):
    other = again('denoise.add=1ms', output=tmp_path / 'b')
    assert plain[0].content != other.content


def test_a_replay_is_much_faster_than_real_time_even_on_a_busy_machine(plain, again):
    assert max(done.duration_s / done.cpu_s for done in (plain[0], again())) > LEAST_SPEED


def test_the_seed_decides_what_is_drawn(again):
    first, second, other = (denoise_ms(again(is_timed=False, seed=seed)) for seed in (1, 1, 2))
    assert list(first) == list(second) != list(other)


def test_the_output_is_a_bag_that_can_be_replayed_and_reported(plain):
    from reflex_ros.report.run_data import load_run

    first, output = plain
    run = load_run(output)
    assert len(run.records) == len(first.log.ticks) and len(run.traces) == len(first.log.traces)
    second = replay(ReplaySpec(output, overrides=ORACLE))
    assert abs(len(second.log.traces) - len(first.log.traces)) <= 2


# ---- latencies ---------------------------------------------------------------------------------


def test_recorded_latencies_come_back_when_they_were(plain, log):
    when = {t.inference_start_ns for t in log.traces for s in t.stages
            if s.name == 'denoise' and s.end_ns - s.start_ns == 150 * MS}
    assert len(when) == 1
    done, _ = plain
    spikes = [t for t in done.log.traces for s in t.stages
              if s.name == 'denoise' and s.end_ns - s.start_ns == 150 * MS]
    assert len(spikes) == 1
    assert abs(spikes[0].inference_start_ns - when.pop()) < 60 * MS
    for figure in ('p50', 'p95'):
        before, after = done.recorded.latency_ms[figure], done.replayed.latency_ms[figure]
        assert after == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize(('inject', 'figure', 'want_ms'), [
    ('denoise=45ms', 'denoise_ms_p50', 45.0),
    ('denoise.p95=90ms,spike=150ms@3%', 'denoise_ms_p95', 90.0),
    ('encode.p90=30ms,transport.p95=30ms', 'encode_ms_p90', 30.0),
    ('transport.p95=30ms', 'transport_ms_p95', 30.0),
    ('transport_plan=12ms,transport_block.add=9ms', 'transport_plan_ms_p95', 12.0),
])
def test_an_injected_delay_appears_within_five_percent(again, inject, figure, want_ms):
    name, _, quantile = figure.rpartition('_')
    stage = name.removesuffix('_ms')
    found = again(inject).replayed.stage_ms[stage]
    assert found[quantile] == pytest.approx(want_ms, rel=0.05)


def test_an_injected_delay_can_fail(plain):
    assert plain[0].replayed.stage_ms['denoise']['p95'] != pytest.approx(90.0, rel=0.05)


def test_an_addition_moves_the_latency_of_the_loop_by_itself(plain, again):
    added = again('denoise.add=30ms').replayed.latency_ms['p50']
    assert added - plain[0].replayed.latency_ms['p50'] == pytest.approx(30.0, rel=0.05)


@pytest.mark.parametrize(('inject', 'said'), [
    ('drop=camera.unknown@1%', 'expected one of main'),
    ('drop=camera.main@1%,drop=camera.wrist@1%', 'drop=camera.wrist'),
    ('vision=5ms', 'a stage that oracle does not have'),
])
def test_what_would_change_nothing_is_refused(bag, inject, said):
    with pytest.raises(ConfigError, match=said):
        open_source(ReplaySpec(bag, overrides=ORACLE, injections=parse_injections([inject])))


@pytest.mark.parametrize(('options', 'said'), [
    (('--costs', 'drawn'), '--costs drawn'), (('--inject', 'denoise=5ms'), '--inject'),
    (('--arm', 'obedient'), 'obedient arm'), (('--mode', 'sync'), 'obedient arm'),
])
def test_the_nodes_refuse_what_only_a_virtual_clock_can_do(bag, tmp_path, capsys, options, said):
    out = tmp_path / 'o'
    assert main(['replay', str(bag), '--output', str(out), '--policy', 'oracle', *options]) == 2
    errors = capsys.readouterr().err
    assert said in errors and '--virtual' in errors and not out.exists()


def test_spikes_have_their_share(again):
    found = denoise_ms(again('denoise=20ms,spike=90ms@10%'))
    assert abs((found == 90.0).sum() - 0.10 * len(found)) <= 1.5
    assert set(np.unique(found)) == {20.0, 90.0}


def test_dropped_frames_are_counted_and_gone(again, log):
    done = again('drop=camera.main@10%')
    frames = len(done.log.truths)
    assert done.dropped['main'] == pytest.approx(0.10 * frames, abs=1)
    assert len(done.log.blocks) <= frames - done.dropped['main']


@pytest.mark.parametrize('text', [
    'denoise', 'denoise=', 'denoise=5', 'sleep=5ms', 'denoise.p0=5ms', 'spike=5ms', 'drop=main@1%',
    'drop=camera.@1%', 'denoise.spike=5ms@101%', 'denoise.p95=-5ms',
])
def test_a_wrong_injection_is_refused_with_what_is_right(text):
    with pytest.raises(ConfigError, match=r'denoise\.p95=120ms'):
        parse_injections([text])


# ---- other ways to run -------------------------------------------------------------------------


@pytest.mark.parametrize('mode', ['sync', 'async_naive'])
def test_another_mode_runs_on_the_same_bag(again, mode):
    done = again(overrides={**ORACLE, 'chunk.mode': mode})
    executed = done.replayed.summary.fates['executed']
    assert executed > 5
    if mode == 'sync':
        assert done.replayed.summary.stall_ratio > 0.1


def test_another_stitcher_runs_on_the_same_bag_with_an_obedient_arm(again):
    done = again(overrides={**ORACLE, 'chunk.stitch': 'replace'}, is_arm_recorded=False)
    assert {c.stitch.value for c in done.log.chunks} == {'replace'}
    assert np.allclose(done.log.ticks[150].measured, done.log.ticks[149].command)


# ---- simulated time ----------------------------------------------------------------------------


def with_clock(log, folder, *, back_s):
    """Write a bag whose ``/clock`` goes back by ``back_s`` after 2 s."""
    encoder = Encoder()
    clock = find_schema('rosgraph_msgs/msg/Clock')
    from reflex_ros.bag.schema import typestore_of

    store = typestore_of([(clock.type, clock.text)])
    topics = [BagTopic('/clock', clock), *(
        BagTopic(name, encoder.schemas[kind]) for kind, name in (
            ('ControlTick', '/control_tick'), ('ChunkTrace', '/chunk_trace'),
            ('SimTruth', '/sim_truth')))]
    files = BagFiles(folder, topics)
    files.open()
    base = log.ticks[0].stamp_ns
    rows = [(v.stamp_ns, topic_of(v), encoder.encode(v)) for v in (*log.ticks, *log.truths)]
    for step in range(400):
        sim_ns = base + step * 10 * MS - (round(back_s * S) if step >= 200 else 0)
        sec, nanosec = divmod(sim_ns, S)
        time = store.types['builtin_interfaces/msg/Time'](sec=sec, nanosec=nanosec)
        data = store.serialize_cdr(store.types[clock.type](clock=time), clock.type)
        rows.append((base + step * 10 * MS, '/clock', bytes(data)))
    for stamp_ns, name, data in sorted(rows, key=lambda row: row[0]):
        files.write(name, stamp_ns, data)
    files.close()


@pytest.mark.parametrize(('back_s', 'epochs'), [(0.0, 1), (2.0, 2)])
def test_only_a_backward_clock_raises_the_epoch(log, tmp_path, back_s, epochs):
    with_clock(log, tmp_path / 'bag', back_s=back_s)
    done = replay(ReplaySpec(tmp_path / 'bag', overrides=ORACLE))
    found = sorted({tick.epoch for tick in done.log.ticks})
    assert len(found) == epochs
    if epochs == 2:
        assert found[1] == found[0] + 1
        first = next(t for t in done.log.ticks if t.epoch == found[1])
        assert first.due_ns - done.log.ticks[0].due_ns == pytest.approx(2 * S, abs=40 * MS)


# ---- what cannot be replayed -------------------------------------------------------------------


def refused(capsys, *arguments):
    """Return the one line that a refusal says."""
    assert main(['replay', *map(str, arguments), '--virtual', '--policy', 'oracle']) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    return errors[0]


def test_a_bag_without_images_is_refused_for_a_policy_that_sees(bag, tmp_path, capsys):
    assert main(['replay', str(bag), '--output', str(tmp_path / 'o'), '--virtual',
                 '--policy', 'tiny']) == 2
    assert 'recorder.images' in capsys.readouterr().err
    assert not (tmp_path / 'o').exists()


def test_missing_foreign_and_damaged_bags_are_refused_in_one_line(bag, tmp_path, capsys):
    out = tmp_path / 'out'
    assert 'cannot be read' in refused(capsys, tmp_path / 'nothing', '--output', out)
    foreign = tmp_path / 'foreign'
    schema = find_schema('std_msgs/msg/Header')
    files = BagFiles(foreign, [BagTopic('/chatter', schema)])
    files.open()
    files.close()
    assert '/chatter' in refused(capsys, foreign, '--output', out)
    for name, damage in {'cut': 0.5, 'empty': 0.0, 'metadata': 0.3}.items():
        copy = tmp_path / name
        shutil.copytree(bag, copy)
        target = copy / 'metadata.yaml' if name == 'metadata' else next(copy.glob('*.mcap'))
        data = target.read_bytes()
        target.write_bytes(data[:int(damage * len(data))])
        refused(capsys, copy, '--output', out)
    killed = tmp_path / 'killed'
    shutil.copytree(bag, killed)
    (killed / 'metadata.yaml').unlink()
    assert 'repair' in refused(capsys, killed, '--output', out)
    assert not out.exists()


def test_an_existing_output_is_refused(bag, tmp_path, capsys):
    assert 'File exists' in refused(capsys, bag, '--output', tmp_path)


def test_another_process_in_another_place_gives_the_same_content(bag, plain, tmp_path):
    """An undamaged bag passes the command; neither hash seed nor working folder enter."""
    done = subprocess.run(
        [sys.executable, '-c', COMMAND, 'replay', os.path.relpath(bag, tmp_path), '--output', 'o',
         '--virtual', '--policy', 'oracle', '-p', 'run.instruction:=follow the target'],
        cwd=tmp_path, env={**os.environ, 'PYTHONHASHSEED': '4711', 'LANG': 'C', 'TZ': 'Asia/Tokyo',
                           'PYTHONPATH': os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'times real time' in done.stdout and plain[0].content in done.stdout
    out = tmp_path / 'o'
    assert content_hash(out / 'bag') == plain[0].content
    assert (out / 'params' / 'run.yaml').is_file() and Path(out, 'replay.json').is_file()
