"""A tiny lifecycle node that misbehaves on request; stands for every process of a graph.

``fake_node.py NODE[,NODE] KEY=VALUE...``; keys: ``refuse`` = exit code with which configure is
refused, ``die_s`` = dies by SIGKILL that long after activation, ``stubborn`` = ignores SIGTERM,
``child`` = leaves a grandchild behind, ``marks`` = file that gets one line per transition.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from rclpy.signals import SignalHandlerOptions


class FakeNode(LifecycleNode):
    def __init__(self, name, options, stop):
        super().__init__(name)
        self._options = options
        self._stop = stop

    def _mark(self, what):
        if 'marks' in self._options:
            with open(self._options['marks'], 'a', encoding='utf-8') as file:
                file.write(f'{what} {self.get_name()} {os.getpid()}\n')

    def on_configure(self, state):
        self._mark('configure')
        if 'refuse' in self._options:
            print('arm.port: got nonsense, expected sense. Correct it.', file=sys.stderr)
            self._stop.append(int(self._options['refuse']))
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state):
        self._mark('activate')
        if 'die_s' in self._options:
            timer = threading.Timer(
                float(self._options['die_s']), os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()
        return TransitionCallbackReturn.SUCCESS


def main():
    names, options = sys.argv[1].split(','), dict(item.split('=', 1) for item in sys.argv[2:])
    stop = []
    action = signal.SIG_IGN if 'stubborn' in options else lambda *_: stop.append(0)
    signal.signal(signal.SIGTERM, action)
    if 'child' in options:
        subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    executor = SingleThreadedExecutor()
    nodes = [FakeNode(name, options, stop) for name in names]
    for node in nodes:
        executor.add_node(node)
    while not stop:
        executor.spin_once(timeout_sec=0.05)
    if stop[0]:
        executor.spin_once(timeout_sec=0.1)
        time.sleep(0.1)
    executor.shutdown()
    for node in nodes:
        node.destroy_node()
    rclpy.shutdown()
    return stop[0]


if __name__ == '__main__':
    sys.exit(main())
