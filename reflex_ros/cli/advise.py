"""Say which mode, stitcher, overlap, horizon and rate fit a recorded run.

Its measured delays say what can work; what can is replayed on a virtual clock, so that each figure
is one of the same run. Cameras do not answer to commands: success of a task is not judged.
If none of the settings can work, the exit code is 5.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from reflex_ros.core.errors import EXIT_BUDGET, EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add('bag', type=Path, help='run folder, or one bag')
    add('--json', metavar='FILE', help='everything, with the figures; - for standard output')
    add('--policy', help='instead of the recorded one')
    add('--inject', action='append', default=[], metavar='ITEM[,ITEM]...',
        help='as if latencies had been these; see docs/replay.md')
    add('--params-file', type=Path, help='parameters of the run, if not beside the bag')
    add('-p', '--param', action='append', default=[], metavar='NAME:=VALUE',
        help='set a parameter of docs/parameters.md; may be repeated')


def run(options: argparse.Namespace) -> int:
    """Replay the alternatives and print the advice."""
    from reflex_ros.bringup.advise import advise
    from reflex_ros.bringup.advise_words import as_json, format_advice
    from reflex_ros.bringup.replay_input import ReplaySpec
    from reflex_ros.bringup.settings import parse_overrides
    from reflex_ros.core.files import write_text
    from reflex_ros.stages.replay_inject import parse_injections

    overrides = {**({'policy.name': options.policy} if options.policy else {}),
                 **parse_overrides(options.param)}
    advice = advise(
        ReplaySpec(options.bag, overrides=overrides, injections=parse_injections(options.inject),
                   params_file=options.params_file),
        said=lambda name: print(f'replaying {name}', file=sys.stderr))
    code = EXIT_DONE if advice.is_possible else EXIT_BUDGET
    text = json.dumps(as_json(advice), indent=1) + '\n'
    if options.json == '-':
        sys.stdout.write(text)
        return code
    if options.json:
        write_text(Path(options.json), text)
    print('\n'.join(format_advice(advice)))
    return code
