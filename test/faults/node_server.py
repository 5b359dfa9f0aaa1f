"""Starts nodes by forking a process that has imported them: a new node is there at once.

Orders on standard input, an answer to each on standard output, JSON by line. A node that is forked
here is a process of its own like any other: it can be killed, and nothing of it stays.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback

NODES = ('simulator', 'vision_encoder', 'policy', 'recorder', 'controller_bridge')
PR_SET_PDEATHSIG = 1


def start(name, params, log):
    """Fork a node; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    code = 1
    try:
        node = importlib.import_module(f'reflex_ros.nodes.{name}')
        code = node.main([name, '--ros-args', '--params-file', params])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(pid, *, wait):
    """Return the exit code of a process, negative for a signal; None while it runs."""
    found, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def serve():
    """Answer orders until there are no more."""
    for name in NODES:
        importlib.import_module(f'reflex_ros.nodes.{name}')
    print(json.dumps('ready'), flush=True)
    for line in sys.stdin:
        order, *rest = json.loads(line)
        if order == 'start':
            answer = start(*rest)
        elif order == 'kill':
            pid, number = rest
            os.kill(pid, number)
            answer = ended(pid, wait=True)
        else:
            answer = ended(rest[0], wait=False)
        print(json.dumps(answer), flush=True)


if __name__ == '__main__':
    serve()
