"""The same cells through the real nodes in wall time and on the virtual clock: do they agree?

Runs each cell of an experiment file with ``reflex-ros demo``, then the same episodes on the
virtual clock, and writes ``results/wall_clock/<utc>-<sha7>.json``. Leave the machine alone
meanwhile. What was run is kept: after Ctrl-C the same command goes on, unless the sources are at
another commit by then.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tqdm import tqdm

from reflex_ros.core.errors import EXIT_INPUT, EXIT_INTERRUPTED, ReflexError
from reflex_ros.study.experiment_lines import Job
from reflex_ros.study.results import read_revision, write_result
from reflex_ros.study.wall_bench import Journal, run_both, summary_of, tried
from reflex_ros.study.wall_clock import REPEATS, demo_options, load_cells, wall_line
from reflex_ros.study.wall_report import report_lines
from reflex_ros.study.wall_run import Line

MAIN = 'import sys; from reflex_ros.cli.main import main; sys.exit(main())'
FILE = Path('config/experiments/wall/wall.yaml')


def run_wall(runs: Path, job: Job) -> Line:
    """Run the nodes and return the line of it; the folder of a run that was judged is removed."""
    return tried(partial(run_once, runs, job))


def run_once(runs: Path, job: Job) -> Line:
    """Run the nodes once."""
    shutil.rmtree(runs, ignore_errors=True)
    command = [sys.executable, '-c', MAIN, 'demo', '--runs', str(runs), *demo_options(job)]
    code, said = run_nodes(command)
    if code:
        raise SystemExit(f'{job.cell.label}: the nodes ended with exit code {code}:\n'
                         f'{said[-2000:]}')
    line = wall_line(job, next(runs.iterdir()))
    shutil.rmtree(runs)
    return line


def run_nodes(command: Sequence[str]) -> tuple[int, str]:
    """Run a demonstration; return its exit code and what it said. Ctrl-C ends it in good order."""
    nodes = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             start_new_session=True)
    try:
        said, _ = nodes.communicate()
    except KeyboardInterrupt:
        nodes.send_signal(signal.SIGINT)
        nodes.communicate()
        raise
    return nodes.returncode, said


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog='bench/wall_clock.py', description=__doc__)
    add = parser.add_argument
    add('file', nargs='?', type=Path, default=FILE, metavar='FILE',
        help='experiment file whose target jumps (default: %(default)s)')
    add('--seeds', type=int, default=0, metavar='N',
        help='run the first N seeds (default: what the file says)')
    add('--repeats', type=int, default=REPEATS, metavar='N',
        help='virtual runs of each run in wall time (default: %(default)s)')
    add('--out', type=Path, default=Path('results/wall_clock'), metavar='DIR',
        help='folder of the result file (default: %(default)s)')
    add('--journal', type=Path, default=Path('runs/wall_clock'), metavar='DIR',
        help='folder of the runs that are there (default: %(default)s)')
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    """Run the bench."""
    options, revision = parse(args), read_revision()
    try:
        experiment = load_cells(options.file, seeds=options.seeds)
        journal = Journal(options.journal / f'{experiment.name}.jsonl', revision.sha)
        with tqdm(unit='run', disable=None) as bar:
            def show(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            lines = run_both(experiment, journal, partial(run_wall, options.journal / 'nodes'),
                             repeats=options.repeats, tick=show)
    except KeyboardInterrupt:
        print('interrupted; the same command goes on', file=sys.stderr)
        return EXIT_INTERRUPTED
    except ReflexError as error:
        print(f'wall_clock: {error}', file=sys.stderr)
        return EXIT_INPUT
    found = summary_of(experiment, lines)
    config = {'file': options.file.as_posix(), 'repeats': options.repeats,
              'seeds': [experiment.seeds.start, len(experiment.seeds)]}
    path = write_result(options.out, 'wall_clock', config=config, summary=found, n=len(lines),
                        unit='share of stretches; ms', tag='measured', revision=revision)
    print('\n'.join([*report_lines(found), '', str(path)]))
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
