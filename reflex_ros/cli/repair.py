"""Make a complete bag of a torn or damaged one, which is kept beside it; name what is missing."""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.core.errors import EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('bag', type=Path, nargs='+', help='bag, or run folder')


def run(options: argparse.Namespace) -> int:
    """Repair every bag that needs it and say what was saved."""
    from reflex_ros.bag.repair import repair
    from reflex_ros.bag.run_folder import RunFolder

    for named in options.bag:
        of_run = RunFolder(named).bags
        bags = of_run or [named]
        for bag in bags:
            result = repair(bag)
            if result.kept is None:
                print(f'{bag}: complete, nothing to repair')
                continue
            for text in result.missing:
                print(f'{bag}: {text}')
            saved = sum(result.messages.values())
            print(f'{bag}: {saved} messages saved, {result.lost_bytes} bytes after the last whole '
                  f'record given up; the damaged bag is {result.kept}')
    return EXIT_DONE
