"""One of the two machines: the supervisor with the part of the suite that runs there.

    python test/faults/far_side.py robot|inference FOLDER [mute]

It ends when a file ``stop`` appears in the folder. ``mute``: it does not tell the other machine
what time it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup.graph import INFERENCE, suite
from reflex_ros.bringup.session import RunSpec, run_session
from reflex_ros.bringup.settings import config_file, effective
from reflex_ros.ros.graph_link import GraphLink

SETTINGS = {'policy.name': 'oracle', 'simulator.task': 'follow', 'arm.port': 29647,
            'camera.period_s': 0.08, 'camera.max_age_s': 1.0,
            'safety.max_observation_age_s': 1.0}
"""Few frames, since to draw them costs the most, and they may be old: a busy machine is no
fault."""


def main(part, folder, *words):
    """Run until we are stopped; return the exit code."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files, settings = [config_file('sim.yaml')], {**SETTINGS, 'run.folder': str(folder)}
    run = RunSpec(suite(simulated=True, part=part), RunFolder(folder), effective(files, settings))
    assert run.graph.is_far_from_the_arm is (part == INFERENCE)
    stop = folder / 'stop'
    return run_session(
        run, until=lambda now, active_ns: 'asked to' if stop.exists() else '',
        make_link=(lambda namespace, tells_time: GraphLink(namespace)) if words else None,
    ).exit_code


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
