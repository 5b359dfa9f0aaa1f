"""A terminal that nobody reads stops neither the control loop nor the end, whoever writes."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from reflex_ros.ros import drain, output

pytestmark = pytest.mark.ros
FROZEN_S = 1.5

BRIDGE = """
import os, sys, time
sys.path.insert(0, {tests!r})
import numpy as np
import pytest
import rclpy
from conftest import BridgeRig, Plant
from lifecycle_msgs.srv import ChangeState
from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.limits import piper_limits
from reflex_ros.nodes import controller_bridge
from reflex_ros.ros import lifecycle

guarded, case = {guarded}, {case!r}
terminal, sends = os.dup(2), []

class Arm(Plant):
    def command(self, *args):
        sends.append(time.monotonic())
        super().command(*args)

if not guarded:
    controller_bridge.guard_output = lambda: ''
lifecycle.CLOSE_WAIT_S = 0.1
rclpy.init(args=[])
rig = BridgeRig(pytest.MonkeyPatch(), lambda clock: DirectArm(Arm(), clock, limits=piper_limits()))
os.set_blocking(terminal, False)
for size in (4096, 1):
    try:
        while os.write(terminal, bytes(size)):
            pass
    except BlockingIOError:
        pass
os.set_blocking(terminal, True)  # the same for 2, if it is the terminal
rig.node.get_logger().info('a line that waits')
rig.spin(lambda: False, 0.2)
print('ready', flush=True)
if case == 'commands':
    client = rig.operator.create_client(ChangeState, 'controller_bridge/change_state')
    assert rig.spin(client.service_is_ready)
    before = len(sends) - 1
    request = ChangeState.Request()
    request.transition.id = 3
    answer = client.call_async(request)
    assert rig.spin(answer.done) and not answer.result().success
    rclpy.logging.get_logger('rcl').error('a line in C, with the lock')
    rig.spin(lambda: False, 0.3)
    print('gap', max(np.diff(sends[before:])), flush=True)
rig.close()
rclpy.try_shutdown()
print('closed', flush=True)
"""


def run_bridge(case, *, guarded=True, wait_s=60.0):
    """Return what a bridge said before a full terminal, and how long it took from 'ready' on."""
    read, terminal = os.pipe()
    code = BRIDGE.format(tests=str(Path(__file__).parent), case=case, guarded=guarded)
    child = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    assert child.stdout.readline() == b'ready\n'
    begin = time.monotonic()
    try:
        child.wait(wait_s)
    except subprocess.TimeoutExpired:
        child.kill()
    took_s = time.monotonic() - begin
    said = child.communicate()[0].decode().split()
    os.close(read)
    return said, took_s, child.returncode


def test_a_full_terminal_stops_neither_commands_nor_the_end():
    said, took_s, code = run_bridge('commands')
    assert said[0] == 'gap' and float(said[1]) < FROZEN_S / 2
    assert said[2:] == ['closed'] and code == 0
    assert took_s < 30.0


@pytest.mark.parametrize('case', ['commands', 'exit'])
def test_a_full_terminal_can_fail(case):
    said, _, code = run_bridge(case, guarded=False, wait_s=FROZEN_S)
    assert code == -signal.SIGKILL
    assert 'gap' not in said


# ---- what comes out ----------------------------------------------------------------------------


def start(code, **kwargs):
    return subprocess.Popen(
        [sys.executable, '-c', 'import signal\n'
         'signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored behind `&`\n'
         f'from reflex_ros.ros.output import guard_output\n{code}'],
        **{'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT, **kwargs})


def all_of(code, **kwargs):
    return start(code, **kwargs).communicate(timeout=60)[0].decode()


IN_ORDER = """
import ctypes, os, sys
print('before')
assert guard_output() == guard_output() == ''
for number in range(200):
    print(number, file=sys.stderr if number % 2 else sys.stdout, flush=True)
os.write(2, b'by number\\n')
ctypes.CDLL(None).puts(b'in C')
print('last')
"""


def test_both_streams_come_out_whole_and_in_order():
    lines = all_of(IN_ORDER).split('\n')
    assert lines[:-3] == ['before', *map(str, range(200)), 'by number'][:len(lines) - 3]
    assert sorted(lines[-3:]) == ['', 'in C', 'last']


@pytest.mark.parametrize('guard', ['guard_output()', 'pass'])
def test_a_crash_is_heard(guard):
    said = all_of(f'import faulthandler, ctypes\nfaulthandler.enable()\n{guard}\n'
                  'ctypes.string_at(0)')
    assert 'Fatal Python error: Segmentation fault' in said
    assert 'in string_at' in said and 'in <module>' in said


def test_the_last_words_after_ctrl_c_are_heard():
    child = start('import time\nguard_output()\ntry:\n  print("runs", flush=True)\n'
                  '  time.sleep(60)\nexcept KeyboardInterrupt: print("last words")',
                  start_new_session=True)
    assert child.stdout.readline() == b'runs\n'
    os.killpg(child.pid, signal.SIGINT)
    assert child.communicate(timeout=60)[0] == b'last words\n'


COLOURS = """
{guard}
import rclpy
import rclpy.logging
rclpy.init(args=[])
rclpy.logging.get_logger('talks').error('one line')
"""


@pytest.mark.parametrize('guard', ['guard_output()', 'pass'])
def test_a_terminal_keeps_its_colours(guard):
    ours, theirs = pty.openpty()
    child = start(COLOURS.format(guard=guard), stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b''
    with suppress(OSError):  # the other side is closed
        while data := os.read(ours, 4096):
            said += data
    assert child.wait() == 0
    assert b'\x1b[31m[ERROR]' in said and said.count(b'one line') == 1


def test_a_file_needs_no_guard(tmp_path):
    code = 'import os\nassert guard_output() == ""\nprint(os.readlink("/proc/self/fd/2"))'
    with open(tmp_path / 'log', 'w+b') as log:
        assert start(code, stdout=log).wait(60) == 0
        log.seek(0)
        assert log.read().decode() == f'{tmp_path}/log\n'


STUCK = """
import os, signal, sys, subprocess
started, popen = [], subprocess.Popen
subprocess.Popen = lambda *args, **kwargs: started.append(popen(*args, **kwargs)) or started[0]
assert guard_output() == ''
print('begin', flush=True)
helper, = started
real = os.dup(0)
os.write(real, b'%d\\n' % helper.pid)
helper.send_signal(signal.{signal})
if signal.{signal} is signal.SIGKILL:
    helper.wait()
for _ in range(300):
    print('x' * 8191, file=sys.stderr)
os.write(real, b'goes on\\n')
os._exit(0)
"""


@pytest.mark.parametrize('number', ['SIGSTOP', 'SIGKILL'])
def test_a_lost_or_stopped_helper_stops_nobody(number):
    read, write = os.pipe()
    child = start(STUCK.format(signal=number), stdin=write)
    os.close(write)
    with os.fdopen(read) as told:
        helper = int(told.readline())
        try:
            assert select.select([told], [], [], 60.0)[0] and told.readline() == 'goes on\n'
            assert child.wait(60.0) == 0
        finally:
            child.kill()
            with suppress(ProcessLookupError):
                os.kill(helper, signal.SIGKILL)
            child.communicate()


def test_without_a_helper_the_output_stays_and_the_reason_is_told():
    said = all_of('import sys\nsys.executable = "/nowhere"\nprint(guard_output())')
    assert said.startswith('output: got [Errno 2]') and 'Write the output to a file.' in said


# ---- the helper --------------------------------------------------------------------------------


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        with suppress(OSError):
            os.close(fd)


def test_what_nobody_reads_is_dropped_whole_and_told(pipe):
    read, write = pipe
    fill(write)
    sink = drain.Sink(write, most_bytes=1000)
    lines = [f'line {number}\n'.encode() for number in range(20_000)]
    for line in lines:
        sink.take(line)  # a write that waited would end here
    sink.end()
    assert not sink.join(0.05)
    said = b''
    while True:
        is_over = sink.join(0.0)  # before the look: what it wrote last is still to be read
        if select.select([read], [], [], 0.05)[0]:
            said += os.read(read, 65536)
        elif is_over:
            break
    at = notices = 0
    for line in said.lstrip(b'\0').splitlines(keepends=True):
        if line.startswith(b'[output]'):
            at, notices = at + int(line.split()[1]), notices + 1
        else:
            assert line == lines[at], 'whole and in order'
            at += 1
    assert at == len(lines) and 1 <= notices <= 2


def fill(fd):
    os.set_blocking(fd, False)
    with suppress(BlockingIOError):
        while os.write(fd, bytes(4096)):
            pass
    os.set_blocking(fd, True)


def test_a_reader_that_went_away_ends_nothing(pipe):
    read, write = pipe
    os.close(read)
    sink = drain.Sink(write)
    sink.take(b'one\n' * 10)
    sink.end()
    assert sink.join(20.0)


def test_a_pipe_that_does_not_wait_gets_everything_all_the_same(pipe):
    read, write = pipe
    os.set_blocking(write, False)
    sink, data = drain.Sink(write), b'a line of some length\n' * 20_000
    sink.take(data)
    sink.end()
    said = b''
    while len(said) < len(data):
        said += os.read(read, 65536)
    assert said == data and sink.join(20.0)


def test_what_may_block(pipe, tmp_path):
    with open(tmp_path / 'file', 'wb') as file, open(os.devnull, 'wb') as null:
        assert [output.may_block(fd) for fd in (pipe[1], file.fileno(), null.fileno())] == [
            True, False, False]
    closed = os.dup(pipe[1])
    os.close(closed)
    assert not output.may_block(closed)
