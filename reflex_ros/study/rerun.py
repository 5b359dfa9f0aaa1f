"""Runs everything that the page of results is made from, one program after another.

    python -m reflex_ros.study.rerun            # or: make experiments
    python -m reflex_ros.study.rerun --list

What was made by the commit that is checked out is not made again: after Ctrl-C or a failure the
same command goes on. A stage that fails does not keep the others from running. ``--only`` names
stages. The GPU has a command of its own, ``make gpu``. Exit code 1 if any stage failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import EXIT_INPUT
from reflex_ros.study.results import Revision, load_newest, read_revision

CLI = ('-c', 'import sys; from reflex_ros.cli.main import main; sys.exit(main())')
GRIDS, PAPER = Path('config/experiments'), 'paper.yaml'
RESULTS = Path('results')


@dataclass(frozen=True, slots=True)
class Stage:
    """One program.

    Attributes:
        name: Folder of its results. ``command``: for this Python. ``minutes``: about, on two
            cores that have nothing else to do; also of wall time where it has to be waited for.
    """

    name: str
    command: tuple[str, ...]
    minutes: int


def stages(root: Path, grid_args: Sequence[str] = ()) -> tuple[Stage, ...]:
    """Return all stages, the grids of ``config/experiments`` first.

    Args:
        root: Checkout. grid_args: Further options of ``reflex-ros experiment``.
    """
    files = sorted(str(path.relative_to(root)) for path in (root / GRIDS).glob('*.yaml')
                   if path.name != PAPER)
    return (
        Stage('experiments', (*CLI, 'experiment', *files, *grid_args), 150),
        Stage('experts', ('bench/experts.py',), 10),
        Stage('tiny', ('-m', 'reflex_ros.study.tiny_table'), 60),
        Stage('tiny_multi', ('-m', 'reflex_ros.study.multi_table'), 30),
        Stage('denoise_variants', ('bench/denoise_variants.py',), 15),
        Stage('policy', ('bench/policy.py',), 15),
        Stage('memory', ('bench/memory.py',), 2),
        Stage('stability', ('bench/stability.py',), 90),
        Stage('wall_clock', ('bench/wall_clock.py',), 15),
    )


def is_done(stage: Stage, root: Path, revision: Revision) -> bool:
    """Return whether the newest result of a stage is one of this commit; never for the grids."""
    found = load_newest(root / RESULTS / stage.name)
    return (found is not None and not revision.is_dirty
            and found[1]['sha'] == revision.sha and not found[1]['dirty'])


def run_all(plan: Sequence[Stage], run: Callable[[Stage], int], *,
            tell: Callable[[str], object] = print) -> int:
    """Run stage after stage, whatever becomes of each; return the exit code.

    Args:
        plan: Stages. run: Runs one and returns its exit code. tell: Takes a line of text.
    """
    clock, failed = SystemClock(), []
    for number, stage in enumerate(plan, 1):
        left = sum(one.minutes for one in plan[number - 1:])
        tell(f'[{number}/{len(plan)}] {stage.name}: about {stage.minutes} min, all that is left '
             f'about {left} min')
        before_ns = clock.mono_ns()
        code = run(stage)
        took = (clock.mono_ns() - before_ns) / S / 60
        tell(f'[{number}/{len(plan)}] {stage.name}: {f"exit code {code}" if code else "done"} '
             f'after {took:.1f} min')
        failed += [stage.name] if code else []
    tell(f'failed: {", ".join(failed)}. The same command runs them again.' if failed
         else 'all done; make results writes the page')
    return 1 if failed else 0


def main(args: Sequence[str] | None = None) -> int:
    """Run what is missing."""
    root = Path.cwd()
    names = [stage.name for stage in stages(root)]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', nargs='+', choices=names, default=names, metavar='STAGE',
                        help=', '.join(names))
    parser.add_argument('--list', action='store_true', help='say what would be run, run nothing')
    parser.add_argument('--anew', action='store_true',
                        help='run what this commit has made already, too')
    options, grid_args = parser.parse_known_args(args)
    if not (root / GRIDS / PAPER).is_file():
        print(f'{root}: got no {GRIDS / PAPER}, expected the checkout. Start it there.',
              file=sys.stderr)
        return EXIT_INPUT
    revision = read_revision()
    plan = [stage for stage in stages(root, grid_args) if stage.name in options.only
            and (options.anew or not is_done(stage, root, revision))]
    if options.list:
        for stage in plan:
            print(f'{stage.name:18} about {stage.minutes:3} min  '
                  f'{" ".join(stage.command).replace(" ".join(CLI), "reflex-ros")}')
        return 0
    return run_all(plan, lambda stage: subprocess.run(
        [sys.executable, *stage.command], check=False).returncode)


if __name__ == '__main__':
    raise SystemExit(main())
