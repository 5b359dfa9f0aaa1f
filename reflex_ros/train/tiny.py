"""Train a small policy: ``python -m reflex_ros.train.tiny --out DIR [--recipe tiny_multi]``.

Demonstrations, vision towers, flow matching, export; each step is kept in ``DIR``, and calling the
command again with ``--resume`` goes on where it stopped. SIGTERM and Ctrl-C end it after a save.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import torch
from tqdm import tqdm

from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT, ConfigError, ReflexError
from reflex_ros.train.recipes import RECIPES
from reflex_ros.train.session import Options, Session

if TYPE_CHECKING:
    from collections.abc import Iterator


def parse(argv: Sequence[str] | None) -> Options:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add('--out', type=Path, required=True, help='folder for everything')
    add('--recipe', choices=list(RECIPES), default='tiny', help='policy to train')
    add('--minutes-a', type=float, help='vision, minutes per camera; default: of the recipe')
    add('--minutes-b', type=float, help='flow matching, minutes; default: of the recipe')
    add('--minutes-c', type=float, help='each round of practice, minutes; default: of the recipe')
    add('--rounds', type=int, default=0, help='rounds of practice: the policy acts and the '
        'expert says what it would have done (DAgger)')  # fmt: skip
    add('--share', type=float, default=1.0, help='part of the demonstrations of the recipe')
    add('--seed', type=int, default=100_000, help='first episode; random draws')
    add('--workers', type=int, default=2, help='processes for demonstrations')
    add('--resume', action='store_true', help='go on in a folder that exists')
    add('--report-minutes', type=float, default=10.0, help='validate and export')
    add('--compile', action='store_true', help='faster, needs g++')
    add('--device', default='cpu', help='cpu or cuda: where the network is trained; minutes are '
        'of processor time on the one, of the clock on the other')  # fmt: skip
    add('--start', type=Path, help='checkpoint folder whose weights are taken where they fit')
    return Options(**vars(parser.parse_args(argv)))


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Give a function that turns True on SIGTERM or SIGINT; restores the handlers."""
    stopped = Event()
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in kept:
        signal.signal(number, lambda *_: stopped.set())
    try:
        yield stopped.is_set
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _check_device(name: str) -> None:
    if name != 'cpu' and not (name.startswith('cuda') and torch.cuda.is_available()):
        raise ConfigError(
            f'training cannot start on {name}: got no such device, expected cpu, or cuda where '
            'torch finds a GPU. Correct --device.'
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parse(argv)
    torch.set_num_threads(1)
    try:
        _check_device(options.device)
        if options.out.exists() and not options.resume:
            raise ConfigError(
                f'training cannot start {options.out}: got a folder that exists, expected none. '
                'Give --resume to go on in it.'
            )
        with stop_on_signal() as is_stopped:
            Session(options, RECIPES[options.recipe], is_stopped).run()
    except ReflexError as error:
        tqdm.write(str(error))
        return EXIT_INPUT
    return EXIT_DONE


if __name__ == '__main__':
    raise SystemExit(main())
