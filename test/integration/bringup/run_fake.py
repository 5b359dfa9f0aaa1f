"""Runs the suite's graph with stand-in nodes: ``FOLDER SECONDS [EXECUTABLE:KEY=VALUE]...``.

Ends after SECONDS of all nodes being active (0: never) with the exit code of the supervisor.
"""

from __future__ import annotations

import sys
from pathlib import Path

from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup.environment import choose_domain
from reflex_ros.bringup.graph import suite
from reflex_ros.bringup.session import RunSpec, run_session
from reflex_ros.core.clock import S, SystemClock

NODE = Path(__file__).with_name('fake_node.py')


def main():
    folder, seconds, *extras = sys.argv[1:]
    options = [extra.split(':', 1) for extra in extras]
    clock = SystemClock()

    def command(spec):
        own = [text for name, text in options if name == spec.executable]
        return [sys.executable, str(NODE), ','.join(spec.hosts), f'marks={folder}/marks', *own]

    def until(now, active_ns):
        is_over = float(seconds) and active_ns and clock.mono_ns() - active_ns > S * float(seconds)
        return 'time is over' if is_over else ''

    run = RunSpec(suite(simulated=True), RunFolder(Path(folder)), {},
                  domain=choose_domain({}), command=command)
    return run_session(run, until=until).exit_code


if __name__ == '__main__':
    sys.exit(main())
