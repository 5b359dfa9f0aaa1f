from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reflex_ros.bringup.graph import suite
from reflex_ros.bringup.process import ProcessLauncher, node_command

pytestmark = pytest.mark.realtime
SPEC = suite(simulated=True).processes[0]


def launcher(folder, shell):
    return ProcessLauncher(
        lambda spec: ['sh', '-c', shell], logs=folder / 'logs', environment=os.environ)


def wait_until(is_true, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_true():
            return True
        time.sleep(0.01)
    return False


def is_running(pid):
    try:
        state = Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0]
    except OSError:
        return False
    return state != 'Z'


def test_a_child_leads_its_own_session_and_its_end_is_noticed(tmp_path):
    child = launcher(tmp_path, 'exec sleep 60').start(SPEC)
    assert os.getsid(child.pid) == child.pid
    assert child.poll() is None
    child.terminate()
    assert wait_until(lambda: child.poll() is not None)
    assert child.poll() == -signal.SIGTERM


def test_output_goes_to_the_log_of_the_process_and_restarts_append(tmp_path):
    starter = launcher(tmp_path, 'echo out; echo err >&2; exit 2')
    for _ in range(2):
        child = starter.start(SPEC)
        assert wait_until(lambda: child.poll() is not None)  # noqa: B023
        assert child.poll() == 2
    assert child.tail(3) == ['err', 'out', 'err']
    assert (tmp_path / 'logs' / 'simulator.log').read_text() == 'out\nerr\n' * 2


def test_grandchildren_end_with_their_parent(tmp_path):
    child = launcher(tmp_path, 'sleep 60 & echo $!; exit 0').start(SPEC)
    assert wait_until(lambda: child.poll() == 0)
    grandchild = int(child.tail(1)[0])
    assert wait_until(lambda: not is_running(grandchild))


def test_a_kill_ends_what_ignores_sigterm_and_its_children(tmp_path):
    child = launcher(tmp_path, 'trap "" TERM; sleep 60 & echo $!; wait; sleep 60').start(SPEC)
    assert wait_until(lambda: child.tail(1))
    child.terminate()
    assert not wait_until(lambda: child.poll() is not None, 0.2)
    child.kill()
    assert wait_until(lambda: child.poll() == -signal.SIGKILL)
    assert wait_until(lambda: not is_running(int(child.tail(1)[0])))


PARENT = """
import os, sys, time
from pathlib import Path
from reflex_ros.bringup.graph import suite
from reflex_ros.bringup.process import ProcessLauncher
shell = 'trap "echo asked; exit 0" TERM; echo ready; while :; do sleep 0.05; done'
launcher = ProcessLauncher(
    lambda spec: ['sh', '-c', shell], logs=Path(sys.argv[1]), environment=os.environ)
print(launcher.start(suite(simulated=True).processes[0]).pid, flush=True)
time.sleep(60)
"""


def test_children_of_a_killed_supervisor_are_asked_to_stop(tmp_path):
    with subprocess.Popen(
        [sys.executable, '-c', PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        pid = int(parent.stdout.readline())
        log = tmp_path / 'simulator.log'
        assert wait_until(lambda: 'ready' in log.read_text())
        parent.kill()
        assert wait_until(lambda: not is_running(pid))
    assert log.read_text() == 'ready\nasked\n'


def test_the_command_names_the_module_the_parameters_and_the_namespace():
    command = node_command(SPEC, Path('run.yaml'), 'left')
    assert command[1:3] == ['-m', 'reflex_ros.nodes.simulator']
    assert command[3:] == ['--ros-args', '--params-file', 'run.yaml', '-r', '__ns:=/left']
    assert '__ns' not in ' '.join(node_command(SPEC, Path('run.yaml')))
