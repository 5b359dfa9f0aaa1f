"""Everything that the page of results is made from is run again by one command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reflex_ros.study.rerun import Stage, is_done, main, run_all, stages
from reflex_ros.study.results import Revision, read_revision
from reflex_ros.study.results_page_found import COMMANDS

ROOT = Path(__file__).parents[3]
SHA = 'a' * 40
PLAN = (Stage('one', ('1',), 3), Stage('two', ('2',), 5), Stage('three', ('3',), 1))


def sources(page):
    """Return the folders of results that the page names."""
    return {path.split('/')[0] for path in re.findall(r'\.\./results/([\w/.-]+)', page)} - {'gpu'}


def without_stage(page):
    return sources(page) - {stage.name for stage in stages(ROOT)}


def test_each_source_of_the_page_has_a_stage():
    page = (ROOT / 'docs' / 'results.md').read_text(encoding='utf-8')
    assert len(sources(page)) > 5 and without_stage(page) == set()


def test_a_source_without_a_stage_can_fail():
    assert without_stage('[x](../results/prior_caches/a.json)') == {'prior_caches'}


def test_the_commands_are_those_that_the_page_names():
    own = {stage.name: ' '.join(stage.command) for stage in stages(ROOT)}
    named = {name: command.removeprefix('python ') for name, command in COMMANDS.items()
             if name != 'gpu'}
    assert {name: own[name] for name in named} == named
    for command in own.values():
        if command.startswith('bench/'):
            assert (ROOT / command).is_file()


def test_all_grids_are_run():
    grids = stages(ROOT, ('--workers', '1'))[0].command
    files = {path.name for path in (ROOT / 'config' / 'experiments').glob('*.yaml')}
    assert {Path(one).name for one in grids if one.endswith('.yaml')} == files - {'paper.yaml'}
    assert grids[-2:] == ('--workers', '1')


def test_a_stage_that_fails_keeps_none_from_running():
    ran, said = [], []
    code = run_all(PLAN, lambda stage: (ran.append(stage.name), int(stage.name == 'two'))[1],
                   tell=said.append)
    assert ran == ['one', 'two', 'three'] and code == 1
    assert said[0] == '[1/3] one: about 3 min, all that is left about 9 min'
    assert 'exit code 1' in said[3] and said[-1].startswith('failed: two.')


def test_all_done_is_exit_code_0():
    said = []
    assert run_all(PLAN, lambda stage: 0, tell=said.append) == 0
    assert said[-1].startswith('all done')


@pytest.mark.parametrize(('sha', 'dirty', 'tree', 'done'), [
    (SHA, False, False, True), ('b' * 40, False, False, False), (SHA, True, False, False),
    (SHA, False, True, False)])
def test_only_what_this_commit_made_is_not_run_again(tmp_path, sha, dirty, tree, done):
    folder = tmp_path / 'results' / 'one'
    assert not is_done(PLAN[0], tmp_path, Revision(SHA, is_dirty=False))
    folder.mkdir(parents=True)
    (folder / '20260101T000000Z-aaaaaaa.json').write_text(json.dumps({'sha': sha, 'dirty': dirty}))
    assert is_done(PLAN[0], tmp_path, Revision(SHA, is_dirty=tree)) is done


def test_the_list_runs_nothing(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(['--list', '--anew', '--only', 'memory', 'experts']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ['experts', 'memory']


def test_another_folder_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    assert 'expected the checkout' in capsys.readouterr().err


def git(folder, *args):
    subprocess.run(['git', '-c', 'user.name=n', '-c', 'user.email=e@e', *args], cwd=folder,
                   check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    git(tmp_path, 'init', '-q')
    for name in ('source.py', 'results/one.json', 'docs/page.md'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('before')
    git(tmp_path, 'add', '-A')
    git(tmp_path, 'commit', '-q', '-m', 'all')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(('name', 'dirty'), [
    ('results/one.json', False), ('docs/page.md', False), ('source.py', True)])
def test_what_a_bench_writes_does_not_make_the_sources_dirty(checkout, name, dirty):
    assert read_revision().is_dirty is False
    (checkout / name).write_text('after')
    assert read_revision().is_dirty is dirty


def test_it_starts_as_a_program():
    done = subprocess.run([sys.executable, '-m', 'reflex_ros.study.rerun', '--list', '--anew'],
                          cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0].startswith('experiments')
    assert 'reflex-ros experiment config/experiments/' in done.stdout


def test_the_help_says_how_long_all_takes():
    hours = round(sum(stage.minutes for stage in stages(ROOT)) / 60)
    words = {5: 'five', 6: 'six', 7: 'seven'}[hours]
    assert f'about {words} hours on two idle cores' in (ROOT / 'Makefile').read_text()
