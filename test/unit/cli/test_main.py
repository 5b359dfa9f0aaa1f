from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reflex_ros.cli.main import commands, main

CONFIG = Path(__file__).parents[3] / 'config'


def test_the_overview_lists_every_command(capsys):
    assert main(['--help']) == 0
    text = capsys.readouterr().out
    assert {'demo', 'up', 'arm', 'instruct', 'params', 'report'} <= set(commands())
    assert all(f'  {name} ' in text for name in commands())


@pytest.mark.parametrize('name', commands())
def test_every_command_says_what_it_does_and_takes_help(name, capsys):
    module = importlib.import_module(f'reflex_ros.cli.{name}')
    assert module.__doc__
    with pytest.raises(SystemExit) as end:
        main([name, '--help'])
    assert end.value.code == 0
    assert f'reflex-ros {name}' in capsys.readouterr().out


def test_the_help_of_the_demonstration_names_its_tasks(capsys):
    with pytest.raises(SystemExit):
        main(['demo', '--help'])
    assert {'reach', 'pick_place'} <= set(re.findall(r'\w+', capsys.readouterr().out))


def test_no_command_and_a_wrong_one_are_wrong_input(capsys):
    assert main([]) == 2
    assert main(['parms']) == 2
    assert "did you mean 'params'" in capsys.readouterr().err


def test_a_wrong_file_ends_with_two_and_one_line_that_says_what_to_do(tmp_path, capsys):
    path = tmp_path / 'x.yaml'
    path.write_text('policy:\n  ros__parameters: {policy: {sed: 1}}\n')
    assert main(['params', str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith('ConfigError: ')
    assert 'policy.seed' in error
    assert error.count('\n') == 1


def test_shipped_files_pass_and_only_changes_are_shown(capsys):
    files = [str(CONFIG / 'robots' / 'piper.yaml'), str(CONFIG / 'robot.yaml')]
    assert main(['params', '--node', 'policy', *files]) == 0
    shown = capsys.readouterr().out
    assert 'policy.checkpoint' in shown
    assert 'policy.num_denoise_steps' not in shown
    assert shown.endswith('no error; shown is what differs from the defaults\n')


@pytest.mark.parametrize('options', [
    ['--duration', '0'], ['--delay-ms', '-1'], ['--delay-ms', 'nan'], ['--mode', 'fast'],
    ['--task', 'dance'],
])
def test_the_demonstration_refuses_wrong_numbers(options, capsys):
    with pytest.raises(SystemExit) as end:
        main(['demo', *options])
    assert end.value.code == 2
    assert options[0] in capsys.readouterr().err


def test_an_interrupted_command_ends_without_a_traceback(tmp_path, capsys, monkeypatch):
    def interrupt(path, **files):
        raise KeyboardInterrupt

    monkeypatch.setattr('reflex_ros.report.show.show', interrupt)
    assert main(['report', str(tmp_path)]) == 130
    assert capsys.readouterr().err == 'reflex-ros: interrupted\n'


def test_a_folder_without_records_has_no_report(tmp_path, capsys):
    assert main(['report', str(tmp_path)]) == 2
    assert 'got a folder without bag data' in capsys.readouterr().err
    (tmp_path / 'logs').mkdir()
    assert main(['report', str(tmp_path)]) == 2
    assert 'nothing was recorded' in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named_as_such(tmp_path, capsys):
    assert main(['report', str(tmp_path / 'typo')]) == 2
    said = capsys.readouterr().err
    assert 'got no such file or folder' in said and 'logs' not in said


def test_a_reader_that_leaves_a_pipe_early_ends_the_command_quietly():
    read, write = os.pipe()
    os.close(read)
    program = 'import sys; from reflex_ros.cli.main import main; sys.exit(main(["params"]))'
    done = subprocess.run([sys.executable, '-c', program], stdout=write, stderr=subprocess.PIPE,
                          check=False, cwd=CONFIG.parent)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b'')


def test_output_that_cannot_be_written_is_one_line_and_wrong_output():
    program = 'import sys; from reflex_ros.cli.main import main; sys.exit(main({}))'
    for words in ('["params"]', '["--help"]', '["params", "--help"]'):
        with open('/dev/full', 'w', encoding='utf-8') as full:
            done = subprocess.run([sys.executable, '-c', program.format(words)], stdout=full,
                                  stderr=subprocess.PIPE, check=False, cwd=CONFIG.parent)
        assert done.returncode == 2 and b'No space left on device' in done.stderr
        assert done.stderr.count(b'\n') == 1, done.stderr


def test_any_error_of_the_system_is_one_line_with_the_file(tmp_path, capsys, monkeypatch):
    def fail(path, **files):
        raise PermissionError(13, 'Permission denied', str(path))

    monkeypatch.setattr('reflex_ros.report.show.show', fail)
    assert main(['report', str(tmp_path)]) == 2
    assert capsys.readouterr().err == f'PermissionError: {tmp_path} Permission denied\n'


def test_ctrl_c_while_a_command_is_imported_ends_without_a_traceback(capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr('importlib.import_module', interrupted)
    assert main(['report', 'x']) == 130
    assert capsys.readouterr().err == 'reflex-ros: interrupted\n'


def test_ctrl_c_that_a_library_makes_another_error_of_is_still_one(capsys, monkeypatch):
    def load(name):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise ImportError('numpy.core.multiarray failed to import')

    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a job behind `&`
    monkeypatch.setattr('importlib.import_module', load)
    assert main(['report', 'x']) == 130
    assert capsys.readouterr().err == 'reflex-ros: interrupted\n'
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_error_of_a_library_can_fail(monkeypatch):
    def load(name):
        raise ImportError('broken')

    monkeypatch.setattr('importlib.import_module', load)
    with pytest.raises(ImportError, match='broken'):
        main(['report', 'x'])


def test_the_entry_imports_little_before_ctrl_c_is_heard():
    program = ('import sys; before = set(sys.modules); import reflex_ros.cli.main; '
               'print(*sorted(set(sys.modules) - before))')
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True,
                          check=True, cwd=CONFIG.parent)
    assert not {'argparse', 'numpy', 'importlib.metadata'} & set(done.stdout.split())
