"""[bag] The export for Rerun, read back: entities, counts, one timeline, what is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from reflex_ros.analysis.source import open_source
from reflex_ros.bag import values
from reflex_ros.cli.main import main
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.report import view
from reflex_ros.report.view import export, progress_bar

chunk = pytest.importorskip('rerun.chunk', reason='rerun-sdk (requirements/view.txt)')
view_rerun = pytest.importorskip('reflex_ros.report.view_rerun')


class ReadBack:
    """Rows with a time, by entity; timelines; texts."""

    def __init__(self, path):
        self.rows, self.timelines, self.texts = Counter(), set(), {}
        for part in chunk.RrdReader(path).stream():
            entity = str(part.entity_path).lstrip('/')
            self.timelines |= set(part.timeline_names)
            batch = part.to_record_batch()
            for name in batch.schema.names:
                if name in ('TextLog:text', 'TextDocument:text'):
                    self.texts.setdefault(entity, []).extend(
                        text for row in batch.column(name).to_pylist() for text in row or ())
            if not part.is_static:
                self.rows[entity] += part.num_rows


def counted(bag):
    """Return what an export must hold, counted in the bag by other means."""
    found = Counter()
    source = open_source(bag)
    for message in source.messages(lambda topic, kind: True):
        kind = message.type.rsplit('/', 1)[-1]
        if kind == 'ControlTick':
            tick = values.control_tick(source.decode(message))
            found[f'ticks/late_ms/{tick.verdict.value}'] += 1
            found['joints/joint1/command'] += len(tick.command) > 0
            found['joints/joint1/measured'] += len(tick.measured) > 0
        elif kind == 'Image':
            found['camera/' + message.topic.split('/')[2]] += 1
        elif kind == 'StallEvent':
            found['log/stalls'] += 1
        elif kind == 'Plan':
            found['delays/delta_ms'] += 1
    source.close()
    return +found


def differences(path, expected):
    rows = ReadBack(path).rows
    return {name: (rows[name], count) for name, count in expected.items() if rows[name] != count}


@pytest.fixture(scope='module')
def exported(stalled_bag, tmp_path_factory):
    return export(stalled_bag, tmp_path_factory.mktemp('view') / 'run.rrd')


def test_the_export_has_the_entities_and_counts_of_the_bag(exported, stalled_bag):
    expected, back = counted(stalled_bag), ReadBack(exported.path)
    assert len(expected) >= 8 and differences(exported.path, expected) == {}
    assert exported.ticks == sum(n for name, n in expected.items() if 'late_ms' in name)
    assert exported.frames == {f'camera/{c}': expected[f'camera/{c}'] for c in ('main', 'wrist')}
    for joint in JOINT_NAMES:
        for kind in ('command', 'setpoint', 'measured', 'plan'):
            assert back.rows[f'joints/{joint}/{kind}'] > 100, (joint, kind)
    assert back.timelines == {'ros_time'}


def test_stalls_and_causes_are_in_the_log(exported):
    texts = ReadBack(exported.path).texts
    assert any('denoise_late' in text and text.startswith('stall of') for text in
               texts['log/stalls'])
    assert any(text.startswith('held, denoise_late') for text in texts['log/causes'])
    assert 'joint_states' not in texts['about'][0] and 'ticks' in texts['about'][0]


def test_the_counts_can_fail(stalled, stalled_bag, tmp_path):
    """Without every tenth tick the counts differ from those of the whole bag."""
    bag = stalled.write(tmp_path / 'bag', keep=lambda i, topic: topic != '/control_tick' or i % 10)
    wrong = differences(export(bag).path, counted(stalled_bag))
    assert wrong and all(name.startswith(('ticks/', 'joints/')) for name in wrong)


def test_lost_cameras_and_frames_are_shown_as_they_are_and_said(stalled, tmp_path):
    main_frames = []

    def keep(index, topic):
        if topic.startswith('/camera/main'):
            main_frames.append(index)
            return not 40 <= len(main_frames) < 45
        return not topic.startswith('/camera/wrist')

    bag = stalled.write(tmp_path / 'bag', keep=keep)
    result = export(bag)
    assert result.frames == {'camera/main': len(main_frames) - 5}
    assert any('/camera/wrist/image_raw: no frame' in note for note in result.notes)
    back = ReadBack(result.path)
    assert back.rows['camera/main'] == len(main_frames) - 5 and not back.rows['camera/wrist']
    assert [t for t in back.texts['log/cameras'] if '5 missing' in t] == back.texts['log/cameras']
    assert 'camera/wrist' in back.texts['about'][0]


def test_a_damaged_bag_gives_a_part_and_what_it_lacks(stalled_bag, tmp_path):
    bag = shutil.copytree(stalled_bag, tmp_path / 'bag')
    data = next(bag.glob('*.mcap'))
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    result = export(bag)
    assert 50 < result.ticks < sum(n for k, n in counted(stalled_bag).items() if 'late_ms' in k)
    assert any('as far as it is whole' in note for note in result.notes)
    assert differences(result.path, counted(bag)) == {}


def test_a_run_folder_without_images_or_bag_uses_strip_and_ledger(folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / 'run')
    assert export(run).path == run / 'view.rrd'
    assert export(run).frames == {'camera/strip': 4}
    shutil.rmtree(run / 'bag')
    result = export(run)
    assert result.ticks == export(folder, tmp_path / 'x.rrd').ticks > 100
    assert any('ticks are those of the ledger' in note for note in result.notes)
    assert ReadBack(result.path).rows['joints/joint1/command'] > 100


def test_memory_does_not_grow_with_the_run(stalled_bag, tmp_path, monkeypatch):
    most, take = [0], view_rerun.RerunSink.scalar

    def watched(sink, *args):
        take(sink, *args)
        most[0] = max(most[0], sink.held)
        assert all(len(times) < 16 for times, _ in sink._series.values())

    monkeypatch.setattr(view_rerun, 'BATCH_ROWS', 16)
    monkeypatch.setattr(view_rerun.RerunSink, 'scalar', watched)
    assert differences(export(stalled_bag, tmp_path / 'x.rrd').path, counted(stalled_bag)) == {}
    assert 16 < most[0] < 60 * 16


def test_what_is_no_bag_is_input_and_leaves_no_file(tmp_path, capsys):
    (tmp_path / 'x.mcap').write_bytes(b'not a bag at all, but long enough to be looked at' * 9)
    for path in (tmp_path / 'none', tmp_path / 'x.mcap'):
        assert main(['view', str(path), '--output', str(tmp_path / 'out.rrd')]) == 2
        assert capsys.readouterr().err.count('\n') == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ['x.mcap']


@pytest.mark.parametrize(('output', 'said'), [
    ('no/out.rrd', 'cannot be written'), ('out.mcap', "expected '.rrd'")])
def test_an_output_that_cannot_or_must_not_be_written_is_input(stalled_bag, tmp_path, capsys,
                                                               output, said):
    assert main(['view', str(stalled_bag), '--output', str(tmp_path / output)]) == 2
    assert said in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_full_disk_is_input_and_leaves_no_file(stalled_bag, tmp_path):
    code = ('import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); '
            'from reflex_ros.cli.main import main; sys.exit(main(sys.argv[1:]))')
    child = subprocess.run(
        [sys.executable, '-c', code, 'view', str(stalled_bag), '--output',
         str(tmp_path / 'x.rrd')], capture_output=True, text=True, check=False)
    assert child.returncode == 2 and 'cannot be written' in child.stderr
    assert not list(tmp_path.iterdir())


def test_two_suites_in_one_bag_are_refused(stalled, write_rows, tmp_path):
    types, rows = stalled.messages(images=False, is_brief=True)
    types['/other/control_tick'] = types['/control_tick']
    rows = [*rows[:200], *((f'/other{t}', at, d) for t, at, d in rows[:200]
                           if t == '/control_tick')]
    bag = write_rows(tmp_path / 'bag', types, sorted(rows, key=lambda r: r[1]))
    with pytest.raises(ConfigError, match='two suites'):
        export(bag)
    assert not list(tmp_path.glob('*.rrd'))


def test_messages_that_are_no_messages_are_counted_and_left_out(stalled, write_rows, tmp_path):
    types, rows = stalled.messages(images=False, is_brief=True)
    ticks = [i for i, row in enumerate(rows) if row[0] == '/control_tick']
    for index in ticks[10:13]:
        topic, stamp_ns, data = rows[index]
        rows[index] = (topic, stamp_ns, data[:20])
    result = export(write_rows(tmp_path / 'bag', types, rows))
    assert result.ticks == len(ticks) - 3
    assert any('/control_tick: 3 messages are left out' in note for note in result.notes)


def test_without_rerun_the_command_says_how_to_install_it(stalled_bag, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'rerun', None)
    assert main(['view', str(stalled_bag)]) == 2
    assert "pip install 'rerun-sdk==" in capsys.readouterr().err


def test_the_command_says_what_it_wrote(stalled_bag, tmp_path, capsys):
    assert main(['view', str(stalled_bag), '--output', str(tmp_path / 'x.rrd')]) == 0
    assert 'ticks, frames: ' in capsys.readouterr().out


def test_a_viewer_that_cannot_open_is_an_error(tmp_path):
    fails = (sys.executable, '-c', 'import sys; sys.exit("no screen")')
    with pytest.raises(ConfigError, match='exit code 1 .no screen.'):
        view_rerun.open_viewer(tmp_path / 'x.rrd', command=fails, wait_s=60.0)
    view_rerun.open_viewer(tmp_path / 'x.rrd', command=(sys.executable, '-c', ''), wait_s=60.0)


def test_the_progress_ends_at_a_hundred_percent(stalled_bag, tmp_path, monkeypatch, capsys):
    assert progress_bar() is None  # the tests have no terminal
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: True, raising=False)
    export(stalled_bag, tmp_path / 'x.rrd', progress=progress_bar())
    shown = capsys.readouterr().err.split('\r')
    assert len(shown) > 3 and shown[-1].endswith('100 %\n')
    percents = [int(text.split()[-2]) for text in shown[1:]]
    assert percents == sorted(percents)


def test_no_number_is_changed_on_the_way(exported, stalled_bag):
    source = open_source(stalled_bag)
    commands = {t.stamp_ns: t.command[0] for t in (
        values.control_tick(source.decode(m))
        for m in source.messages(lambda topic, _: topic == '/control_tick')) if len(t.command)}
    source.close()
    found = {}
    for part in chunk.RrdReader(exported.path).stream():
        if str(part.entity_path) == '/joints/joint1/command' and not part.is_static:
            batch = part.to_record_batch()
            stamps = batch.column('ros_time').cast('int64').to_pylist()
            found |= dict(zip(stamps, (v[0] for v in batch.column(
                'Scalars:scalars').to_pylist()), strict=True))
    assert found == {k: pytest.approx(float(v), abs=0) for k, v in commands.items()}
    assert np.isfinite(list(found.values())).all() and exported.path.suffix == view.SUFFIX
